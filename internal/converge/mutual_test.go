package converge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/workflow"
)

// TestMutual starts hosts that need each other in random orders. The dynamic
// configuration of each needs all others to be addressable; its static one
// needs some to be functional that come before it in some order. All converge,
// always, and the static workflow of each runs exactly once.
func TestMutual(t *testing.T) {
	t.Parallel()
	// Consul counts a blocking query whose client has left until it ends:
	// hundreds of hosts, one after the other, are too many for one address.
	server := consultest.Start(t, consultest.WithConfig(map[string]any{"limits": map[string]any{"http_max_conns_per_client": 4000}}))
	client := server.Client()
	dns, err := catalog.NewResolver(server.DNSAddr)
	if err != nil {
		t.Fatal(err)
	}
	b := blocker.New(dns, blocker.FromClient(client))
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CONVERGE_TEST_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CONVERGE_TEST_SEED=%d", seed)
	rounds := 100
	for _, n := range []int{2, 3, 6} {
		t.Run(fmt.Sprintf("%d hosts", n), func(t *testing.T) {
			g := errgroup.Group{}
			g.SetLimit(12)
			for round := range rounds {
				g.Go(func() error {
					m := mutual{
						t: t, client: client, blocker: b, n: n, dir: t.TempDir(),
						cluster: fmt.Sprintf("m%d-%d", n, round), rand: rand.New(rand.NewPCG(seed, uint64(n*1000+round))),
					}
					if err := m.run(); err != nil {
						return fmt.Errorf("seed %d, round %d: %w", seed, round, err)
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// mutual is one cluster of hosts that need each other.
type mutual struct {
	t       *testing.T
	client  *consul.Client
	blocker *blocker.Blocker
	n       int
	dir     string
	cluster string
	rand    *rand.Rand
}

func (m *mutual) service(i int) string { return fmt.Sprintf("%s-s%d", m.cluster, i) }

// run starts all hosts and waits until all are done.
func (m *mutual) run() error {
	if _, err := rollout.New(m.client, "jorc", m.cluster).Trigger(context.Background(), rollout.Request{Version: "v1"}); err != nil {
		return err
	}
	order, static := m.rand.Perm(m.n), m.rand.Perm(m.n)
	g, ctx := errgroup.WithContext(m.t.Context())
	for at, i := range order {
		rank := 0
		for r, j := range static {
			if j == i {
				rank = r
			}
		}
		var needs []config.Requires
		for _, j := range static[:rank] {
			if m.rand.IntN(2) == 0 {
				needs = append(needs, config.Requires{Target: m.service(j), Count: 1})
			}
		}
		late := time.Duration(at) * time.Duration(m.rand.IntN(5)) * time.Millisecond
		g.Go(func() error {
			if err := concurrency.Sleep(ctx, late); err != nil {
				return err
			}
			return m.host(ctx, i, needs)
		})
	}
	err := g.Wait()
	for i := range m.n {
		_ = m.client.DeregisterService(context.Background(), m.service(i)) // it may never have been there
	}
	return err
}

// host is one: its service is there from the start, works once its static
// workflow ran, and its dynamic configuration needs all others.
func (m *mutual) host(ctx context.Context, i int, static []config.Requires) error {
	dir := filepath.Join(m.dir, strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	check := &consul.ServiceCheck{CheckID: "check-" + m.service(i), TTL: "10m", Status: consul.HealthCritical}
	err := untilKnown(ctx, func() error {
		return m.client.RegisterService(ctx, &consul.ServiceRegistration{ID: m.service(i), Name: m.service(i), Address: "127.0.0.1", Port: 1000 + i, Check: check})
	})
	if err != nil {
		return err
	}
	var tasks quick
	converged, done := context.WithCancel(ctx)
	defer done()
	var last Status
	joined, node := fleet.New(m.client, "jorc", m.cluster), "n"+strconv.Itoa(i)
	c := New(Options{
		Node: node, StateDir: filepath.Join(dir, "state"), VersionFile: filepath.Join(dir, "version"),
		Static: config.Static{Workflow: "static"}, Requires: static, Requirements: FromBlocker(m.blocker),
		Report: joined.ReportWriter(node), Desired: joined.WatchDesired, Runner: &tasks,
		Changed: func(s Status) {
			if last = s; s.Outcome == Converged && s.Version == "v1" {
				done()
			}
		},
	})
	g, all := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := c.Run(converged); err != nil || last.Outcome != Converged {
			return fmt.Errorf("host %d did not converge: %s: %s: %w", i, last.Phase, last.Detail, err)
		}
		return untilKnown(all, func() error { return m.client.UpdateTTL(all, check.CheckID, "works", consul.HealthPassing) })
	})
	g.Go(func() error { // what its templates require
		var others []blocker.Need
		for j := range m.n {
			need, err := blocker.NeedOf(config.Requires{Target: m.service(j), Count: 1, For: "addressable"})
			if err != nil {
				return err
			}
			others = append(others, need)
		}
		return m.blocker.Wait(all, others, blocker.Options{}, nil)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if tasks.ran != "v1" {
		return fmt.Errorf("host %d: the static workflow ran for %q, want once for v1", i, tasks.ran)
	}
	return nil
}

// untilKnown repeats a write until its outcome is known: Go's transport ends a request, too, if the
// context of the one before it on the same connection ends while its empty answer arrives
// (net/http, readLoop).
func untilKnown(ctx context.Context, write func() error) error {
	for {
		if err := write(); !errors.Is(err, consul.ErrOutcomeUnknown) || ctx.Err() != nil {
			return err
		}
	}
}

// quick is a Runner whose tasks take no time.
type quick struct{ ran string }

func (q *quick) Drive(_ context.Context, j workflow.Job, _ workflow.Hooks) (workflow.Result, error) {
	q.ran += j.Version
	return workflow.Result{ID: j.ID, State: workflow.Success}, nil
}

func (q *quick) Open() ([]workflow.Result, error) { return nil, nil }
func (q *quick) Forget(string) error              { return nil }
func (q *quick) Abandon(context.Context, string, string) (workflow.Result, error) {
	return workflow.Result{}, workflow.ErrNoJob
}
