//go:build system

package templates_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// backend is one HTTP server of the service web.
type backend struct {
	id, addr string
	server   *http.Server
	sick     atomic.Bool // its health check fails; it serves all the same
	hits     sync.Map    // the proxy's name → *atomic.Int64
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		if b.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	}
	n, _ := b.hits.LoadOrStore(strings.Trim(r.URL.Path, "/"), new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	fmt.Fprintln(w, b.id)
}

func (b *backend) hitsBy(proxy string) int64 {
	n, ok := b.hits.Load(proxy)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

func (b *backend) start(t *testing.T) {
	t.Helper()
	addr := b.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr().String()
	b.server = &http.Server{Handler: b}
	server := b.server
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%s: %v", b.id, err)
		}
	}()
	t.Cleanup(func() { server.Close(); <-done })
}

// stop closes all connections at once; clients get an error.
func (b *backend) stop(t *testing.T) {
	t.Helper()
	if err := b.server.Close(); err != nil {
		t.Error(err)
	}
}

func (b *backend) register(t *testing.T, c *consul.Client) {
	t.Helper()
	host, port, err := net.SplitHostPort(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	err = c.RegisterService(t.Context(), &consul.ServiceRegistration{
		ID: b.id, Name: "web", Address: host, Port: number, Tags: []string{"http"},
		Checks: []*consul.ServiceCheck{{HTTP: "http://" + b.addr + "/health", Interval: "1s", Timeout: "5s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// load asks proxies at a steady rate until it is stopped, for at most three
// minutes.
type load struct {
	cancel   context.CancelFunc
	workers  sync.WaitGroup
	requests atomic.Int64
	failed   atomic.Int64
	t        *testing.T
}

func newLoad(t *testing.T, proxies []*proxy) *load {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	l := &load{cancel: cancel, t: t}
	for _, p := range proxies {
		for _, keepAlive := range []bool{true, true, false, false} {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keepAlive}, Timeout: 10 * time.Second}
			l.workers.Go(func() {
				defer client.CloseIdleConnections()
				tick := time.NewTicker(8 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					l.ask(client, p)
					select {
					case <-ctx.Done():
					case <-tick.C:
					}
				}
			})
		}
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) ask(client *http.Client, p *proxy) {
	l.requests.Add(1)
	resp, err := client.Get("http://" + p.addr + "/" + p.name)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
	}
	if err != nil && l.failed.Add(1) <= 10 {
		l.t.Errorf("a request to %s failed at %s: %v", p.name, time.Now().Format(time.StampMilli), err)
	}
}

func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}
