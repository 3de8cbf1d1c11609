package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type fixture struct {
	t      testing.TB
	client *consul.Client
	store  *kv.Store
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	s, name := consultest.Shared(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"}))
	return &fixture{t, s.Client(), kv.New(s.Client(), "jorc/"+name)}
}

func (f *fixture) lock() *kv.Lease {
	f.t.Helper()
	h, err := f.store.Lock(f.t.Context(), "orchestrate/lock", kv.LeaseOptions{TTL: 10 * time.Second, LockDelay: -1})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = h.Release(context.Background()) }) // it may be lost
	return h
}

func (f *fixture) open(s *kv.Store, o orchestrator.JournalOptions) (*orchestrator.Journal, []error) {
	f.t.Helper()
	j, problems, err := orchestrator.OpenJournal(f.t.Context(), s, o)
	if err != nil {
		f.t.Fatal(err)
	}
	return j, problems
}

func (f *fixture) save(j *orchestrator.Journal, v orchestrator.View) []orchestrator.Event {
	f.t.Helper()
	events, err := j.Save(f.t.Context(), v, orchestrator.Difference(j.View(), v), now, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return events
}

func (f *fixture) read() orchestrator.SavedView {
	f.t.Helper()
	saved, err := orchestrator.ReadView(f.t.Context(), f.store)
	if err != nil {
		f.t.Fatal(err)
	}
	return saved
}

func (f *fixture) events(after uint64, limit int) []orchestrator.Event {
	f.t.Helper()
	events, _, err := orchestrator.ReadEvents(f.t.Context(), f.store, after, limit)
	if err != nil {
		f.t.Fatal(err)
	}
	return events
}

// keys are the names of the keys of view and events.
func (f *fixture) keys() (all []string) {
	f.t.Helper()
	for _, prefix := range []string{"view/", "events/"} {
		names, _, err := f.client.KVKeys(f.t.Context(), f.store.Path(prefix), "", consul.Query{})
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, names...)
	}
	return all
}

func (f *fixture) put(key, value string) {
	f.t.Helper()
	if err := f.client.KVPut(f.t.Context(), &consul.KVPair{Key: f.store.Path(key), Value: []byte(value)}); err != nil {
		f.t.Fatal(err)
	}
}

func viewOf(n int, version string) orchestrator.View {
	v := orchestrator.View{Cluster: orchestrator.ClusterView{Exists: true, Desired: version}, Nodes: map[string]orchestrator.NodeView{}}
	for i := range n {
		v.Nodes[fmt.Sprintf("node-%04d", i)] = orchestrator.NodeView{
			Address: "10.0.0.1", Zone: "r1", Roles: []string{"db", "worker"}, Version: version, Health: "passing", Life: cluster.LivenessUp, LifeSince: now,
			States:   map[string]orchestrator.StateView{"config": {State: "success", Version: version}},
			Services: map[string]cluster.Tally{"web": {Passing: 1}},
		}
	}
	return v
}

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// TestSaveAndRead: what is saved is read again, by others and by the next
// writer; keys that are current no more are gone.
func TestSaveAndRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{Node: "n"})
	r := rand.New(rand.NewPCG(3, 4))
	var all []orchestrator.Event
	v := orchestrator.View{}
	for i := range 60 {
		next := viewOf(r.IntN(120), fmt.Sprint("v", i))
		if i%3 > 0 { // most changes are small
			next = viewOf(len(v.Nodes), v.Cluster.Desired)
			if name := fmt.Sprintf("node-%04d", r.IntN(120)); next.Nodes[name].Zone != "" {
				n := next.Nodes[name]
				n.Version = fmt.Sprint("w", i)
				next.Nodes[name] = n
			}
		}
		all = append(all, f.save(j, next)...)
		v = next
		if i%10 == 9 { // the next orchestrator
			j, _ = f.open(h.Store(), orchestrator.JournalOptions{})
		}
		saved := f.read()
		if len(saved.Problems) > 0 || saved.Commit.Seq != uint64(len(all)) {
			t.Fatalf("%d: seq %d of %d, %v", i, saved.Commit.Seq, len(all), saved.Problems)
		}
		wantSame(t, "view", saved.View, v)
	}
	for i, e := range all {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
	wantSame(t, "all events", f.events(0, 0), all)
	wantSame(t, "some events", f.events(17, 0), all[17:])
	wantSame(t, "the last events", f.events(0, 5), all[len(all)-5:])
	c := f.read().Commit
	parts := 2 + len(c.Batches) // pointer, cluster
	for _, generation := range c.Shards {
		if generation > 0 {
			parts++
		}
	}
	if keys := f.keys(); len(keys) != parts {
		t.Errorf("%d keys, want %d: %v", len(keys), parts, keys)
	}
}

// TestWrittenAhead: what was written ahead and never committed is ignored, and
// deleted by the next writer.
func TestWrittenAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{})
	f.save(j, viewOf(3, "v1"))
	before := f.keys()
	f.put("view/nodes/0/2", `{"format":1,"nodes":{"ghost":{}}}`)
	f.put("view/cluster/2", `garbage`)
	f.put("events/batch/000000000000099/2", `{"format":1,"events":[{"seq":99}]}`)
	wantSame(t, "view", f.read().View, viewOf(3, "v1"))
	if got := f.events(0, 0); got[len(got)-1].Seq >= 99 {
		t.Errorf("events %+v", got)
	}
	j, _ = f.open(h.Store(), orchestrator.JournalOptions{})
	wantSame(t, "keys", f.keys(), before)
	f.save(j, viewOf(4, "v1"))
	wantSame(t, "view", f.read().View, viewOf(4, "v1"))
}

// TestJournalFenced: who lost the lock writes nothing more, in none of the ways to write.
func TestJournalFenced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{})
	f.save(j, viewOf(3, "v1"))
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := f.lock()
	before := f.keys()
	for name, v := range map[string]orchestrator.View{"one transaction": viewOf(3, "v2"), "written ahead": viewOf(3000, "v2")} {
		if _, err := j.Save(t.Context(), v, orchestrator.Difference(j.View(), v), now, nil); !errors.Is(err, kv.ErrLockLost) {
			t.Errorf("%s: %v; want that the lock is lost", name, err)
		}
	}
	wantSame(t, "keys", f.keys(), before)
	j, _ = f.open(next.Store(), orchestrator.JournalOptions{})
	wantSame(t, "view", j.View(), viewOf(3, "v1"))
}

// TestJournalAlso: what else is to happen happens together with the journal or not at all.
func TestJournalAlso(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	j, _ := f.open(f.lock().Store(), orchestrator.JournalOptions{})
	f.save(j, viewOf(1, "v1"))
	decide := func(index uint64) error {
		_, err := j.Save(t.Context(), j.View(), []orchestrator.Event{{Kind: "decided"}}, now, func(t *kv.Txn) { t.CAS("rollout", []byte("x"), index) })
		return err
	}
	if err := decide(0); err != nil {
		t.Fatal(err)
	}
	before := f.events(0, 0)
	if err := decide(0); !orchestrator.IsDecisionConflict(err) {
		t.Errorf("a decision on what is not so any more: %v", err)
	}
	wantSame(t, "events", f.events(0, 0), before)
	f.save(j, viewOf(2, "v1"))
	f.put("view/commit", `{"format":1,"generation":1}`)
	if err := decide(0); err == nil || orchestrator.IsDecisionConflict(err) {
		t.Errorf("with another pointer: %v", err)
	}
}

// TestJournalBounds: the journal is bounded by number and by age.
func TestJournalBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{MaxEvents: 1000, MaxAge: time.Hour})
	one := func(at time.Time, n int) {
		t.Helper()
		if _, err := j.Save(t.Context(), j.View(), make([]orchestrator.Event, n), at, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		one(now, 90)
	}
	c := j.Commit()
	if n := c.Seq - c.First() + 1; c.Seq != 2700 || n > 1000 || n < 900 {
		t.Errorf("%d events of %d are kept", n, c.Seq)
	}
	one(now, 5000)
	if got := f.events(0, 0); len(got) > 1000 || got[len(got)-1].Seq != 7700 {
		t.Errorf("%d events are kept", len(got))
	}
	one(now.Add(2*time.Hour), 100)
	if got := f.events(0, 0); len(got) != 100 || got[0].Seq != 7701 {
		t.Errorf("after two hours %d events are kept", len(got))
	}
	if keys := f.keys(); len(keys) != 3 { // pointer, cluster, one batch
		t.Errorf("keys %v", keys)
	}
}

// TestLarge: thousands of nodes with long names and many services fit, in
// values far below Consul's limit.
func TestLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{})
	v := viewOf(3000, "v1")
	for i := range 20 {
		n := orchestrator.NodeView{Zone: strings.Repeat("z", 128), Services: map[string]cluster.Tally{}}
		for k := range 400 {
			n.Services[fmt.Sprintf("service-%s-%d", strings.Repeat("s", 100), k)] = cluster.Tally{Passing: 1}
		}
		v.Nodes[strings.Repeat("n", 100)+fmt.Sprint(i)] = n
	}
	f.save(j, v)
	saved := f.read()
	wantSame(t, "view", saved.View, v)
	for _, prefix := range []string{"view/", "events/"} {
		pairs, _, err := f.client.KVList(t.Context(), f.store.Path(prefix), consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if len(p.Value) > 256<<10 {
				t.Errorf("%s has %d bytes", p.Key, len(p.Value))
			}
		}
	}
}

// TestJournalDamaged: a part that was damaged by hand costs what it said and
// nothing else; numbers of events continue.
func TestJournalDamaged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{})
	f.save(j, viewOf(100, "v1"))
	seq := j.Commit().Seq
	for i, generation := range j.Commit().Shards {
		if generation > 0 {
			f.put(fmt.Sprintf("view/nodes/%d/%d", i, generation), "{")
			break
		}
	}
	saved := f.read()
	if len(saved.Problems) != 1 || !errors.Is(saved.Problems[0], kv.ErrDamaged) || len(saved.View.Nodes) < 50 || len(saved.View.Nodes) > 99 {
		t.Errorf("%d nodes, %v", len(saved.View.Nodes), saved.Problems)
	}
	j, problems := f.open(h.Store(), orchestrator.JournalOptions{})
	if len(problems) != 1 {
		t.Errorf("problems %v", problems)
	}
	events := f.save(j, viewOf(100, "v1"))
	if len(events) == 0 || events[0].Seq != seq+1 {
		t.Errorf("events %+v", events)
	}
	wantSame(t, "view", f.read().View, viewOf(100, "v1"))

	seq = j.Commit().Seq
	f.put("view/commit", "nonsense")
	if _, err := orchestrator.ReadView(t.Context(), f.store); !errors.Is(err, kv.ErrDamaged) {
		t.Errorf("Read of a damaged pointer: %v", err)
	}
	j, problems = f.open(h.Store(), orchestrator.JournalOptions{})
	if len(problems) != 1 || len(j.View().Nodes) != 0 {
		t.Errorf("problems %v, %d nodes", problems, len(j.View().Nodes))
	}
	events = f.save(j, viewOf(100, "v1"))
	if events[0].Seq != seq+1 {
		t.Errorf("numbers go on with %d, want %d", events[0].Seq, seq+1)
	}
	if got := f.events(0, 0); got[0].Seq != 1 || got[len(got)-1].Seq != j.Commit().Seq {
		t.Errorf("events %d to %d", got[0].Seq, got[len(got)-1].Seq)
	}

	first := j.Commit().Batches[0]
	batch := fmt.Sprintf("events/batch/%015d/%d", first.First, first.Generation)
	f.put("view/commit", `{"format":9}`)
	if _, _, err := orchestrator.OpenJournal(t.Context(), h.Store(), orchestrator.JournalOptions{}); !errors.Is(err, kv.ErrNewer) {
		t.Errorf("Open of a newer format: %v", err)
	}

	f.put("view/commit", "nonsense")
	f.put(batch, `{"format":9}`)
	if _, _, err := orchestrator.OpenJournal(t.Context(), h.Store(), orchestrator.JournalOptions{}); !errors.Is(err, kv.ErrNewer) {
		t.Errorf("Open of a damaged pointer with events of a newer format: %v", err)
	}
}

// TestFollow: a follower gets each event once, in order.
func TestFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{})
	f.save(j, viewOf(10, "v1"))
	enough := errors.New("enough")
	got := make(chan error, 1)
	const total = 300
	go func() {
		next := uint64(3)
		got <- orchestrator.FollowEvents(context.Background(), f.store, 2, func(events []orchestrator.Event) error {
			for _, e := range events {
				if e.Seq != next {
					return fmt.Errorf("event %d, want %d", e.Seq, next)
				}
				next++
			}
			if next > total {
				return enough
			}
			return nil
		}, func(err error) { t.Errorf("told of %v", err) })
	}()
	for i := 0; j.Commit().Seq < total; i++ {
		f.save(j, viewOf(10, fmt.Sprint("v", i)))
	}
	if err := <-got; !errors.Is(err, enough) {
		t.Error(err)
	}
}

// TestFollowTrouble: events that cannot be read when they are committed are read
// later, though nothing else is committed.
func TestFollowTrouble(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	f := &fixture{t, s.Client(), kv.New(s.Client(), "jorc/prod")}
	j, _ := f.open(f.store, orchestrator.JournalOptions{})
	proxy := s.Proxy()
	var refused atomic.Int32
	proxy.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path == "/v1/txn" && refused.Add(1) <= 2 {
			return consultest.Fault{Status: http.StatusInternalServerError}
		}
		return consultest.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.save(j, viewOf(1, "v1"))
	enough, told := errors.New("enough"), 0
	err := orchestrator.FollowEvents(ctx, kv.New(proxy.Client(), "jorc/prod"), 0, func(events []orchestrator.Event) error {
		if len(events) != int(j.Commit().Seq) {
			return fmt.Errorf("%d events, want %d", len(events), j.Commit().Seq)
		}
		return enough
	}, func(error) { told++ })
	if !errors.Is(err, enough) || told != 2 {
		t.Errorf("%v, told of %d failures, want 2", err, told)
	}
}
