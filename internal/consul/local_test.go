package consul

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

type addresses struct {
	net.Conn
	near, far net.Addr
}

func (a addresses) LocalAddr() net.Addr  { return a.near }
func (a addresses) RemoteAddr() net.Addr { return a.far }

func TestSameHost(t *testing.T) {
	t.Parallel()
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	for _, c := range []struct {
		near, far net.Addr
		want      bool
	}{
		{tcp("127.0.0.1"), tcp("127.0.0.1"), true},
		{tcp("127.0.0.1"), tcp("127.3.2.1"), true},
		{tcp("::1"), tcp("::1"), true},
		{tcp("10.0.0.1"), tcp("10.0.0.1"), true},
		{tcp("10.0.0.1"), tcp("10.0.0.2"), false},
		{&net.UnixAddr{Net: "unix"}, &net.UnixAddr{Name: "/run/consul.sock", Net: "unix"}, true},
	} {
		if got := sameHost(addresses{near: c.near, far: c.far}); got != c.want {
			t.Errorf("sameHost(%s → %s) = %t; want %t", c.near, c.far, got, c.want)
		}
	}
}

// TestNoCompressionWithinAHost: from the second request on a connection, the
// client knows that it stays within the host.
func TestNoCompressionWithinAHost(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		_, _ = w.Write([]byte(`"127.0.0.1:8300"`)) // the client reports a missing answer
	})
	socket := filepath.Join(t.TempDir(), "http.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
	c, err := New(config.Consul{Address: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, want := range []string{"gzip", "identity"} {
		if _, err := c.Leader(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got != want {
			t.Errorf("Accept-Encoding = %q; want %q", got, want)
		}
	}
}
