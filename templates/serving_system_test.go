//go:build system

package templates_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

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

// out removes an instance and stops it when no proxy uses it.
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
