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

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
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

// stop closes everything at once: whoever still asks gets an error.
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

// TestNoRequestFails: real nginx and haproxy serve through rendered files
// while instances of a pool come and go in every way there is. Whatever leaves
// does so first in Consul, and stops when the proxies have reloaded.
func TestNoRequestFails(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	pool := []*backend{{id: "web-1"}, {id: "web-2"}, {id: "web-3"}}
	proxies := []*proxy{newNginx(t), newHaproxy(t)}
	for _, b := range pool {
		b.start(t)
		b.register(t, c)
	}
	consultest.Eventually(t, "the pool to be healthy", func(ctx context.Context) error {
		list, _, err := c.HealthService(ctx, "web", "", true, consul.Query{})
		if err == nil && len(list) != len(pool) {
			err = fmt.Errorf("%d instances are", len(list))
		}
		return err
	})
	serve(t, s, proxies)
	load := newLoad(t, proxies)
	change := churn{t: t, client: c, proxies: proxies}
	for _, b := range pool {
		change.waitHit(b)
	}

	ways := []struct {
		name        string
		leave, back func(b *backend)
	}{
		{
			"deregistered",
			func(b *backend) { change.must(c.DeregisterService(t.Context(), b.id)) },
			func(b *backend) { b.register(t, c) },
		},
		{
			"in maintenance",
			func(b *backend) { change.must(c.SetMaintenance(t.Context(), b.id, true, "upgrade")) },
			func(b *backend) { change.must(c.SetMaintenance(t.Context(), b.id, false, "")) },
		},
		{
			"failing its check",
			func(b *backend) { b.sick.Store(true) },
			func(b *backend) { b.sick.Store(false) },
		},
	}
	for round := range 2 * len(ways) {
		b, way := pool[round%len(pool)], ways[round%len(ways)]
		t.Logf("%s is %s", b.id, way.name)
		change.out(b, way.leave)
		b.start(t)
		change.in(b, way.back)

		extra := &backend{id: fmt.Sprintf("extra-%d", round)}
		extra.start(t)
		change.in(extra, func(b *backend) { b.register(t, c) })
		change.out(extra, ways[0].leave)
	}
	load.stop()
	t.Logf("%d requests, %d failed", load.requests.Load(), load.failed.Load())
	if n := load.requests.Load(); n < 1000 || load.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed; want 0 of at least 1000", load.failed.Load(), n)
	}
}

// serve renders the files, starts the proxies, and then the engine that keeps
// both true.
func serve(t *testing.T, s *consultest.Server, proxies []*proxy) {
	t.Helper()
	var first, files []config.Template
	for _, p := range proxies {
		files = append(files, p.file)
		p.file.Reload = nil // it does not run yet
		first = append(first, p.file)
	}
	if err := engine(t, s, s.Client(), first...).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range proxies {
		p.start(t)
	}
	run(t, engine(t, s, s.Client(), files...))
}

// churn makes instances come and go.
type churn struct {
	t       *testing.T
	client  *consul.Client
	proxies []*proxy
}

func (c churn) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// in brings an instance in and waits until both proxies use it.
func (c churn) in(b *backend, come func(*backend)) {
	c.t.Helper()
	come(b)
	for _, p := range c.proxies {
		p.waitListed(c.t, b.addr, true)
	}
	c.waitHit(b)
}

func (c churn) waitHit(b *backend) {
	c.t.Helper()
	for _, p := range c.proxies {
		before := b.hitsBy(p.name)
		consultest.Eventually(c.t, b.id+" to serve "+p.name, func(context.Context) error {
			if b.hitsBy(p.name) == before {
				return errors.New("it got no request")
			}
			return nil
		})
	}
}

// out takes an instance out and stops it when no proxy knows it any more.
func (c churn) out(b *backend, leave func(*backend)) {
	c.t.Helper()
	var old [][]string
	for _, p := range c.proxies {
		old = append(old, p.workers(c.t))
	}
	leave(b)
	for i, p := range c.proxies {
		p.waitListed(c.t, b.addr, false)
		p.waitGone(c.t, old[i])
	}
	b.stop(c.t)
}
