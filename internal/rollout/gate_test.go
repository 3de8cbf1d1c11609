package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// fleet is some nodes with gates of their own, and one who plans.
type fleet struct {
	t        *testing.T
	client   *consul.Client
	prefix   string
	rollouts *rollout.Rollouts
}

func newFleet(t *testing.T, s *consultest.Server, prefix string, nodes ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, client: s.Client(), prefix: prefix, rollouts: rollout.New(s.Client(), prefix, "c")}
	c := cluster.New(f.client, prefix, "c")
	if _, err := c.Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		err := f.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "127.0.0.1",
			Service: &consul.AgentService{ID: "jorc:c", Service: "jorc"},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "serfHealth", Name: "serf", Status: "passing"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// trigger begins a rollout and opens it to all; limit is that of its slots.
func (f *fleet) trigger(version string, limit int, p rollout.Policy, change func(*rollout.Document)) {
	f.t.Helper()
	_, err := f.rollouts.Trigger(f.t.Context(), rollout.Request{Version: version, Policy: func(to *rollout.Policy) { *to = p }})
	if err != nil {
		f.t.Fatal(err)
	}
	f.change(limit, func(d *rollout.Document) {
		d.Phase, d.Batch, d.Rule = rollout.Batch, 1, rollout.Rule{All: true}
		if change != nil {
			change(d)
		}
	})
}

// change replaces the document, as one who plans does.
func (f *fleet) change(limit int, change func(*rollout.Document)) {
	f.t.Helper()
	for {
		s, err := f.rollouts.Load(f.t.Context())
		if err != nil {
			f.t.Fatal(err)
		}
		d := s.Document
		change(&d)
		_, err = f.rollouts.Apply(f.t.Context(), s, d, limit)
		if err == nil {
			return
		}
		if !errors.Is(err, kv.ErrConflict) {
			f.t.Fatal(err)
		}
	}
}

// host is one node's side.
type host struct {
	*rollout.Gate
	fleet  *fleet
	node   string
	upkeep *upkeep
	checks *checks
	slots  *slots.Slots
}

func (f *fleet) host(node string) *host {
	h := &host{fleet: f, node: node, upkeep: &upkeep{}, checks: &checks{news: make(chan []string)}}
	h.slots = slots.New(kv.New(f.client, f.prefix+"/c"), slots.Options{})
	f.t.Cleanup(func() { h.slots.Close(context.Background()) })
	h.Gate = rollout.NewGate(rollout.GateOptions{
		Node: node, Snapshots: f.rollouts, Self: self{Node: node, Member: true}, Slots: h.slots,
		Maintenance: h.upkeep, Checks: h.checks,
	})
	return h
}

type self rollout.Self

func (s self) WatchSelf(ctx context.Context, handle func(rollout.Self)) error {
	handle(rollout.Self(s))
	<-ctx.Done()
	return ctx.Err()
}

// upkeep is a host's maintenance mode.
type upkeep struct {
	mu sync.Mutex
	on bool
}

func (m *upkeep) set(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
}

func (m *upkeep) is() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

func (m *upkeep) Begin(context.Context, string) error { m.set(true); return nil }
func (m *upkeep) Lift(context.Context) error          { m.set(false); return nil }

// checks are told by the test; what is sent was seen once the send returns.
type checks struct{ news chan []string }

func (c *checks) Watch(ctx context.Context, handle func([]string)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case failing := <-c.news:
			handle(failing)
		}
	}
}

// entering runs Enter; what it waits for is sent to waits.
type entering struct {
	waits  chan string
	done   chan error
	cancel context.CancelFunc
}

func (h *host) enter(version string) *entering {
	ctx, cancel := context.WithCancel(h.fleet.t.Context())
	e := &entering{waits: make(chan string, 100), done: make(chan error, 1), cancel: cancel}
	go func() { e.done <- h.Enter(ctx, version, func(reason string) { e.waits <- reason }) }()
	return e
}

func (e *entering) wantIn(t *testing.T) {
	t.Helper()
	select {
	case err := <-e.done:
		if err != nil {
			t.Fatalf("Enter: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the node is not let in")
	}
}

// wantWait waits until Enter has said why it waits.
func (e *entering) wantWait(t *testing.T, text string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case got := <-e.waits:
			if got == text {
				return
			}
		case err := <-e.done:
			t.Fatalf("Enter has returned %v, want that it waits: %s", err, text)
		case <-late:
			t.Fatalf("Enter does not wait: %s", text)
		}
	}
}

// holders are who hold slots of the rollout.
func (f *fleet) holders() []string {
	f.t.Helper()
	v, _, err := f.host("").slots.Show(f.t.Context(), rollout.Slots)
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, h := range v.Holders {
		names = append(names, h.Node)
	}
	slices.Sort(names)
	return names
}

func (f *fleet) wantHolders(names ...string) {
	f.t.Helper()
	consultest.Eventually(f.t, "holders", func(context.Context) error {
		if got := f.holders(); !slices.Equal(got, names) {
			return fmt.Errorf("got %v, want %v", got, names)
		}
		return nil
	})
}

// TestGate: one after the other goes out of service, each until it has been
// healthy for as long as the policy asks, and who holds a slot is let in again.
func TestGate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, consultest.Start(t), "gate", "n1", "n2")
	f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}, MinHealthy: rollout.Duration(50 * time.Millisecond)}, nil)
	one, two := f.host("n1"), f.host("n2")
	first := one.enter("v1")
	first.wantIn(t)
	f.wantHolders("n1")
	if !one.upkeep.is() {
		t.Error("a node that was let in is not in maintenance")
	}
	second := two.enter("v1")
	second.wantWait(t, "waits for a slot of the rollout")
	again := f.host("n1") // after a restart
	retry := again.enter("v1")
	retry.wantIn(t)
	f.wantHolders("n1")

	left := make(chan error, 1)
	go func() { left <- again.Leave(t.Context(), "v1") }()
	again.checks.news <- []string{"web: critical"}
	again.checks.news <- []string{"web: critical", "db: critical"}
	if again.upkeep.is() {
		t.Error("maintenance has to end before health can be judged")
	}
	f.wantHolders("n1")
	again.checks.news <- nil
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	second.wantIn(t)
	f.wantHolders("n2")
	if err := again.Leave(t.Context(), "v1"); err != nil { // repeating it is no failure
		t.Error(err)
	}
	f.wantHolders("n2")
}

// TestGateWaits: what keeps a node out is told as it changes; a pause or the end
// of a rollout takes it out of the queue, and a wait that ends leaves nothing.
func TestGateWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, consultest.Start(t), "waits", "n1", "n2")
	f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, func(d *rollout.Document) { d.Rule = rollout.Rule{} })
	one, two := f.host("n1"), f.host("n2")
	first, second := one.enter("v1"), two.enter("v1")
	first.wantWait(t, "not admitted yet: phase batch 1 of 1")
	second.wantWait(t, "not admitted yet: phase batch 1 of 1")
	second.cancel()
	if err := <-second.done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.change(slots.Keep, func(d *rollout.Document) { d.Rule = rollout.Rule{All: true} })
	first.wantIn(t)

	second = two.enter("v1")
	second.wantWait(t, "waits for a slot of the rollout")
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.change(slots.Keep, func(d *rollout.Document) { d.Stopped = &rollout.Stop{Since: since, By: "ann"} })
	second.wantWait(t, "the rollout is paused since 2026-01-02T03:04:05Z by ann")
	if _, err := one.slots.Unlock(t.Context(), rollout.Slots, "n1", rollout.ClaimID); err != nil {
		t.Fatal(err)
	}
	f.wantHolders()
	f.change(slots.Keep, func(d *rollout.Document) { d.Stopped = nil })
	second.wantIn(t)
	f.wantHolders("n2")

	// Nobody else is let in by what is not desired any more.
	f.trigger("v2", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, nil)
	stale := one.enter("v1")
	stale.wantWait(t, `version "v1" is not desired any more`)
	stale.cancel()
	<-stale.done
	next := two.enter("v2")
	next.wantIn(t) // with the slot that it has
	f.wantHolders("n2")
}

// TestGatePlain: without a policy there are neither slots nor maintenance.
func TestGatePlain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, consultest.Start(t), "plain", "n1")
	if _, err := f.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	h := f.host("n1")
	e := h.enter("v1")
	e.wantIn(t)
	if h.upkeep.is() || len(f.holders()) > 0 {
		t.Errorf("maintenance %t, holders %v", h.upkeep.is(), f.holders())
	}
	if err := h.Leave(t.Context(), "v1"); err != nil {
		t.Error(err)
	}
}

// TestGateUnreadable: who waits says so when the rollout cannot be read any more,
// and goes by what it read last.
func TestGateUnreadable(t *testing.T) {
	t.Parallel()
	f := newFleet(t, consultest.Start(t), "unreadable", "n1")
	f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, func(d *rollout.Document) { d.Rule = rollout.Rule{} })
	e := f.host("n1").enter("v1")
	const shut = "not admitted yet: phase batch 1 of 1"
	e.wantWait(t, shut)
	key := f.prefix + "/c/current/rollout"
	if err := f.client.KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	e.wantWait(t, fmt.Sprintf("%s; since then the rollout cannot be read: read key %q: damaged document: not a JSON object", shut, key))
	f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, nil)
	e.wantIn(t)
}
