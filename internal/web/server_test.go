package web

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestListenErrors(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := map[string][]string{
		taken.Addr().String(): {taken.Addr().String(), "address already in use", "stop what listens there", `"" switches it off`},
		"192.0.2.1:8520":      {"192.0.2.1:8520", "cannot assign requested address", "an address of this host"},
		"127.0.0.1:none":      {"127.0.0.1:none", "an address of this host"},
	}
	for addr, want := range tests {
		s := New(Options{Addr: addr, Log: hclog.NewNullLogger()})
		for name, got := range map[string]error{"Listen": s.Listen(t.Context()), "Run": s.Run(t.Context())} {
			for _, part := range want {
				if got == nil || !strings.Contains(got.Error(), part) || strings.Contains(got.Error(), "\n") {
					t.Errorf("%s on %s: %v; want one line with %q", name, addr, got, part)
				}
			}
		}
		if got := s.Addr(); got != "" {
			t.Errorf("%s: Addr is %q", addr, got)
		}
	}
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	s := New(Options{Log: hclog.NewNullLogger()})
	if err := s.Listen(t.Context()); err != nil || s.Addr() != "" {
		t.Errorf("Listen: %v, on %q", err, s.Addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("Run ended before its context: %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestClose: what was taken and never used is given back.
func TestClose(t *testing.T) {
	t.Parallel()
	s := New(Options{Addr: "127.0.0.1:0", Log: hclog.NewNullLogger()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
		t.Errorf("%s still answers", addr)
	}
}

// TestBrokenListener: a server that can serve no longer says so.
func TestBrokenListener(t *testing.T) {
	t.Parallel()
	s := New(Options{Addr: "127.0.0.1:0", Log: hclog.NewNullLogger()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.listener.bound.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "status API on 127.0.0.1") {
		t.Errorf("Run: %v; want an error that names the address", err)
	}
}

// TestStopLeavesNothing: not even with clients that hold their connections and
// one that never ends its request. It runs alone to count goroutines.
func TestStopLeavesNothing(t *testing.T) {
	s := start(t, &board{status: settled()})
	addr := s.Addr()
	for _, path := range []string{"/", "/v1/status", "/metrics"} {
		if got := s.get(path); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	slow, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := slow.Write([]byte("GET /healthz HTTP/1.1\r\nHost: loc")); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
		t.Errorf("%s still answers", addr)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		stacks := make([]byte, 1<<20)
		left := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(left, "net/http.") && !strings.Contains(left, "web.(*Server)") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left running:\n%s", left)
		}
		runtime.Gosched()
	}
}

// TestAnswersEndBeforeTheServer: a running request is answered.
func TestAnswersEndBeforeTheServer(t *testing.T) {
	t.Parallel()
	source := newStuck()
	s := start(t, source)
	answers := make(chan answer, 1)
	go func() {
		got, err := s.try(http.MethodGet, "/v1/status", "")
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}()
	<-source.asked
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	close(source.release)
	if got := <-answers; got.status != http.StatusOK {
		t.Errorf("got %d; want 200", got.status)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
