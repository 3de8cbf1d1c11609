package consul_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// TestDialing: all connections are opened by the caller's function, and counted
// as any others.
func TestDialing(t *testing.T) {
	t.Parallel()
	var from atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from.Store(r.RemoteAddr)
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 8, 7)}}
	c, err := consul.New(config.Consul{Address: server.URL}, consul.Dialing(func(consul.DialFunc) consul.DialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Datacenters(t.Context()); err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(from.Load().(string))
	if err != nil || host != "127.9.8.7" || c.Stats().Connections != 1 {
		t.Errorf("the server saw %v, %d connections are open; want one from 127.9.8.7", from.Load(), c.Stats().Connections)
	}
}
