package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// gateway stands between a client and a real Consul: it counts requests, and
// can lose the answers from the next transaction on.
type gateway struct {
	requests atomic.Int64
	asked    func(path string) // nil: nothing
	lose     atomic.Bool
	lost     atomic.Bool
}

func (g *gateway) client(t *testing.T, s *consultest.Server) *consul.Client {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: s.HTTPAddr}
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		if g.asked != nil {
			g.asked(r.URL.Path)
		}
		transaction := strings.HasPrefix(r.URL.Path, "/v1/txn")
		switch {
		case g.lost.Load():
			panic(http.ErrAbortHandler)
		case g.lose.Load() && transaction:
			g.lost.Store(true)
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	conf := s.Config()
	conf.Address = strings.TrimPrefix(server.URL, "http://")
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestRequests: a read of the profile is one request, and members are a
// constant number of them.
func TestRequests(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	g := &gateway{}
	counted := cluster.New(g.client(t, s), "jorc", "prod")
	count := func(do func() error) int64 {
		t.Helper()
		before := g.requests.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		return g.requests.Load() - before
	}
	ctx := t.Context()
	list := func() error {
		_, err := counted.Members(ctx, cluster.MembersOptions{Need: cluster.NeedAll})
		return err
	}
	join(t, c, "first")
	few := count(list)
	for i := range 30 {
		node := fmt.Sprintf("n%d", i)
		addNode(t, s, node, "passing", "passing")
		join(t, c, node)
	}
	if many := count(list); many != few || many > 6 {
		t.Errorf("1 member takes %d requests, 31 take %d", few, many)
	}
	for name, do := range map[string]func() error{
		"Profile": func() error { _, err := counted.Profile(ctx); return err },
		"View":    func() error { _, err := counted.View(ctx, "n1"); return err },
		"Record":  func() error { _, err := counted.Record(ctx, "n1"); return err },
		"Leaders": func() error { _, err := counted.Leaders(ctx); return err },
		"List":    func() error { _, err := cluster.List(ctx, g.client(t, s), "jorc"); return err },
	} {
		if n := count(do); n != 1 {
			t.Errorf("%s takes %d requests, want 1", name, n)
		}
	}
}

// TestElectorReads: while the leader is well, an elector does not read all hosts
// because a document of another one changed. It does once the leader is not a member.
func TestElectorReads(t *testing.T) {
	t.Parallel()
	c, s := twoMembers(t)
	leaders := func() []string {
		l, err := c.Leaders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Leader
	}
	leader, other := leaders()[0], "b"
	if leader == other {
		other = "a"
	}
	var all, one atomic.Int64
	g := &gateway{asked: func(path string) {
		switch path {
		case "/v1/kv/jorc/prod/" + cluster.PrefixHosts:
			all.Add(1)
		case "/v1/kv/jorc/prod/" + cluster.HostPrefix(leader):
			one.Add(1)
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	e := cluster.New(g.client(t, s), "jorc", "prod").NewElection(cluster.ElectionOptions{Node: "elector", Lock: kv.LeaseOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	consultest.Eventually(t, "the elector looks at the leader", func(context.Context) error {
		if one.Load() == 0 {
			return errors.New("the elector did not look at the leader alone")
		}
		return nil
	})
	listed := all.Load()
	for i := range 3 {
		before := one.Load()
		if _, err := c.Store().Txn().Set(cluster.GrantsKey(other), []byte(fmt.Sprint(i))).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		consultest.Eventually(t, "the elector looks again", func(context.Context) error {
			if one.Load() == before {
				return errors.New("the elector did not look at the leader")
			}
			return nil
		})
	}
	if n := all.Load(); n != listed {
		t.Errorf("three changes of another host's grant: %d reads of all hosts", n-listed)
	}
	if _, err := c.Store().Txn().Delete(cluster.MemberKey(leader)).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the other member leads", func(context.Context) error {
		if slices.Equal(leaders(), []string{other}) {
			return nil
		}
		return fmt.Errorf("%v leads", leaders())
	})
}

// TestOutcomeUnknown: a write whose answer never came, with Consul out of reach
// from then on, is neither a success nor a conflict.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	g := &gateway{}
	behind := cluster.New(g.client(t, s), "jorc", "prod")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	g.lose.Store(true)
	_, err := behind.Set(ctx, profile.Scope{}, "n", value(t, "1"), profile.Ref{Absent: true})
	wantIs(t, "Set", err, consul.ErrOutcomeUnknown)
	if got := param(t, c, "n"); got != "1" {
		t.Errorf("n is %s; the write had reached Consul", got)
	}
}
