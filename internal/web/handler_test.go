package web

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestMethods(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	for _, path := range []string{"/", "/v1/status", "/healthz", "/metrics", "/nothing"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			got := s.do(method, path, "")
			if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: got %d, Allow %q; want 405, GET, HEAD", method, path, got.status, got.header.Get("Allow"))
			}
		}
		get, head := s.get(path), s.do("HEAD", path, "")
		if head.status != get.status || head.body != "" || get.body == "" {
			t.Errorf("%s: HEAD got %d with %d bytes; want %d with none", path, head.status, len(head.body), get.status)
		}
	}
}

func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	for _, path := range []string{"/nothing", "/v1", "/v1/status/web", "/healthz/", "/debug/pprof/"} {
		if got := s.get(path); got.status != http.StatusNotFound || !strings.Contains(got.body, "/v1/status") {
			t.Errorf("%s: got %d %q; want 404 and what there is", path, got.status, got.body)
		}
	}
}

func TestForeignHosts(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]int{
		"localhost":              200,
		"LocalHost.:" + port:     200,
		"jorc.localhost:" + port: 200,
		"127.0.0.1:" + port:      200,
		"10.1.2.3":               200,
		"[::1]:" + port:          200,
		"[::1]":                  200,
		"evil.example:" + port:   403,
		"evil.example":           403,
		"localhost.evil.example": 403,
		"notlocalhost":           403,
		"127.0.0.1.evil.example": 403,
	}
	for host, want := range tests {
		for _, path := range []string{"/", "/v1/status", "/metrics", "/healthz"} {
			if got := s.do("GET", path, host); got.status != want {
				t.Errorf("%s%s: got %d; want %d", host, path, got.status, want)
			}
		}
	}
}

// TestForeignHostsFromOutside: where other hosts may ask, they know this one by
// names that jorc does not.
func TestForeignHostsFromOutside(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()}, func(s *Server) { s.listener = NewListener("status API", "0.0.0.0:0", hclog.NewNullLogger()) })
	if got := s.do("GET", "/v1/status", "web-1.example"); got.status != http.StatusOK {
		t.Errorf("got %d; want 200", got.status)
	}
}

// TestNoHost: HTTP/1.0 knows no Host header.
func TestNoHost(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got %d; want 200", resp.StatusCode)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	for _, path := range []string{"/", "/v1/status", "/healthz", "/metrics", "/nothing"} {
		header := s.get(path).header
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Access-Control-Allow-Origin": "",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q; want %q", path, name, got, want)
			}
		}
	}
}

// stuck is a source that does not answer before it is let go.
type stuck struct {
	asked   chan struct{} // has room for all that may be asked
	release chan struct{}
}

func newStuck() stuck {
	return stuck{asked: make(chan struct{}, 100), release: make(chan struct{})}
}

func (s stuck) Status() Status {
	s.asked <- struct{}{}
	<-s.release
	return settled()
}

// TestStuckSource: an agent that cannot report its status is not healthy, and
// however often it is asked, what waits for it is bounded.
func TestStuckSource(t *testing.T) {
	t.Parallel()
	source := newStuck()
	defer close(source.release)
	s := start(t, source, func(s *Server) { s.within = 20 * time.Millisecond })
	for i := range maxAnswers + 3 {
		if got := s.get("/healthz"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "does not report its status") {
			t.Fatalf("request %d: got %d %q; want 503", i, got.status, got.body)
		}
	}
	if got := len(source.asked); got > maxAnswers {
		t.Errorf("%d requests wait for the source; want at most %d", got, maxAnswers)
	}
}

func FuzzLocalHost(f *testing.F) {
	for _, host := range []string{"", "localhost", "a.localhost:1", "127.0.0.1:8520", "[::1%25lo]:1", "evil.example", "1.2.3.4.evil.example:80"} {
		f.Add(host)
	}
	foreign := regexp.MustCompile(`(?i)^[a-z0-9.-]*\.(example|com)\.?(:[0-9]*)?$`)
	f.Fuzz(func(t *testing.T, host string) {
		if localHost(host) && foreign.MatchString(host) {
			t.Errorf("%q counts as local", host)
		}
	})
}
