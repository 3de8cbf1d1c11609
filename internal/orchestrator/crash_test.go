package orchestrator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
)

// process is an orchestrator in a process of its own.
type process struct{ cmd *exec.Cmd }

func (s *site) process(env ...string) *process {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), orchestrateOn+"="+s.server.HTTPAddr), env...)
	s.must(nil, cmd.Start())
	p := &process{cmd}
	s.t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

func (s *site) signal(p *process, sig syscall.Signal) {
	s.t.Helper()
	s.must(nil, p.cmd.Process.Signal(sig))
}

// name is how the process calls itself.
func (p *process) name() string { return fmt.Sprintf("process-%d", p.cmd.Process.Pid) }

func (s *site) holder() string {
	s.t.Helper()
	h, held, err := fleet.Orchestrator(s.t.Context(), s.store)
	s.must(nil, err)
	if !held {
		return ""
	}
	return h.Node
}

// change changes something about members again and again, until ctx ends.
func (s *site) change(ctx context.Context) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := 0; concurrency.Sleep(ctx, time.Duration(r.IntN(30))*time.Millisecond) == nil; i++ {
		node := fmt.Sprintf("n%d", r.IntN(8))
		switch r.IntN(10) {
		case 0, 1:
			_, _ = s.cluster.Leave(ctx, node, false) // whether it works is seen in the journal
		case 2, 3:
			_, _ = s.cluster.Join(ctx, node, func(rec cluster.Record) (cluster.Record, error) {
				rec.Zone = fmt.Sprint("z", i)
				return rec, nil
			})
		case 4:
			_, _ = s.rollouts.Trigger(ctx, rollout.Request{Version: fmt.Sprint("v", i)})
		default:
			_, _ = s.ledger.ReportVersion(ctx, node, fmt.Sprint("v", i))
		}
	}
}

// follower notes all that is committed, while it is.
type follower struct {
	mu        sync.Mutex
	saved     []orchestrator.SavedView
	events    []orchestrator.Event
	backwards []string
}

func (s *site) follow(ctx context.Context) (f *follower, done chan struct{}) {
	f, done = &follower{}, make(chan struct{})
	doc := kv.NewDoc[orchestrator.Commit](s.store, "view/commit", 1)
	var running sync.WaitGroup
	running.Go(func() {
		_ = doc.Watch(ctx, func(kv.Update[orchestrator.Commit]) {
			saved, err := orchestrator.ReadView(ctx, s.store.Consistent())
			if err != nil {
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if n := len(f.saved); n > 0 {
				switch last := f.saved[n-1].Commit; {
				case saved.Commit.Generation == last.Generation:
					return
				case saved.Commit.Generation < last.Generation || saved.Commit.Seq < last.Seq:
					f.backwards = append(f.backwards, fmt.Sprintf("%+v after %+v", saved.Commit, last))
				}
			}
			f.saved = append(f.saved, saved)
		}) // ends with ctx
	})
	running.Go(func() {
		_ = orchestrator.FollowEvents(ctx, s.store, 0, func(events []orchestrator.Event) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events = append(f.events, events...)
			return nil
		}, nil) // ends with ctx
	})
	go func() { running.Wait(); close(done) }()
	return f, done
}

// check says whether the journal is what the saved views are: numbers without
// gaps, and between any two views that follow one another exactly the events by
// which they differ.
func (f *follower) check(t *testing.T, events []orchestrator.Event) {
	t.Helper()
	for _, b := range f.backwards {
		t.Errorf("the pointer went backwards: %s", b)
	}
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i+1, e.Seq)
		}
	}
	pairs := 0
	for i, saved := range f.saved {
		if len(saved.Problems) > 0 {
			t.Errorf("generation %d: %v", saved.Commit.Generation, saved.Problems)
		}
		if i == 0 || saved.Commit.Generation != f.saved[i-1].Commit.Generation+1 {
			continue
		}
		pairs++
		before := f.saved[i-1]
		want, got := orchestrator.Difference(before.View, saved.View), events[before.Commit.Seq:saved.Commit.Seq]
		if len(got) != len(want) {
			t.Fatalf("generation %d: %d events, want %d:\n%+v\n%+v", saved.Commit.Generation, len(got), len(want), got, want)
		}
		for k := range want {
			w, g := want[k], got[k]
			w.Seq, w.Time = g.Seq, g.Time
			if g != w {
				t.Errorf("generation %d: event %+v, want %+v", saved.Commit.Generation, g, w)
			}
		}
	}
	chained(t, events)
	t.Logf("%d events, %d generations seen, %d pairs compared", len(events), len(f.saved), pairs)
	if pairs == 0 {
		t.Error("nothing was compared")
	}
	for i, e := range f.events {
		if e != events[i] {
			t.Fatalf("who follows got %+v, the journal has %+v", e, events[i])
		}
	}
}

// chained checks each node's versions: an event begins where the last one ended,
// so none is missing and none is there twice.
func chained(t *testing.T, events []orchestrator.Event) {
	t.Helper()
	member, version, desired := map[string]bool{}, map[string]string{}, ""
	for _, e := range events {
		switch e.Kind {
		case event.MemberJoined:
			if member[e.Node] {
				t.Errorf("%+v: it was a member", e)
			}
			member[e.Node], version[e.Node] = true, ""
			if _, after, ok := strings.Cut(e.After, "version "); ok {
				version[e.Node], _, _ = strings.Cut(after, ",")
			}
		case event.MemberLeft:
			if !member[e.Node] {
				t.Errorf("%+v: it was no member", e)
			}
			member[e.Node] = false
		case event.VersionChanged:
			if !member[e.Node] || e.Before != version[e.Node] {
				t.Errorf("%+v: it ran %q", e, version[e.Node])
			}
			version[e.Node] = e.After
		case event.DesiredVersionChanged:
			if e.Before != desired {
				t.Errorf("%+v: it was %q", e, desired)
			}
			desired = e.After
		}
	}
}

// sabotage kills and freezes orchestrators at random for a while.
func (s *site) sabotage(d time.Duration) (kills, freezes int) {
	r := rand.New(rand.NewPCG(7, 8))
	all := []*process{s.process(), s.process(), s.process()}
	for until := time.Now().Add(d); time.Now().Before(until); {
		s.must(nil, concurrency.Sleep(s.t.Context(), time.Duration(r.IntN(700))*time.Millisecond))
		i := r.IntN(len(all))
		for k, p := range all { // mostly the active one
			if p.name() == s.holder() && r.IntN(4) > 0 {
				i = k
			}
		}
		if r.IntN(3) > 0 {
			kills++
			all[i].kill()
			all[i] = s.process()
			continue
		}
		freezes++
		s.signal(all[i], consultest.StopSignal)
		s.must(nil, concurrency.Sleep(s.t.Context(), time.Duration(500+r.IntN(3000))*time.Millisecond)) // often past the TTL of 1 s
		s.signal(all[i], consultest.ContinueSignal)
	}
	return kills, freezes
}

// exactlyOnce changes members and ends orchestrators in the middle of their
// work for a while, and reads the journal then.
func exactlyOnce(t *testing.T, d time.Duration) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(context.Background())
	f, followed := s.follow(ctx)
	changing, stop := context.WithCancel(ctx)
	var changed sync.WaitGroup
	changed.Go(func() { s.change(changing) })
	kills, freezes := s.sabotage(d)
	s.eventually("enough events", func() error {
		if len(s.events()) < 50 {
			return errEventsPending
		}
		return nil
	})
	stop()
	changed.Wait()
	s.settled()
	s.eventually("who follows to have all events", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.events) < len(s.events()) {
			return errEventsPending
		}
		return nil
	})
	cancel()
	<-followed
	t.Logf("%d kills, %d freezes", kills, freezes)
	f.check(t, s.events())
}

// settled waits until the saved view is what there is.
func (s *site) settled() {
	s.t.Helper()
	s.eventually("the view to be what there is", func() error {
		members, err := s.cluster.Members(s.t.Context(), fleet.MembersOptions{Need: cluster.NeedReports})
		if err != nil {
			return err
		}
		v := s.view()
		if len(members) != len(v.Nodes) {
			return fmt.Errorf("%d members, %d in the view", len(members), len(v.Nodes))
		}
		for _, m := range members {
			if n := v.Nodes[m.Node]; n.Version != m.Version || n.Zone != m.Zone {
				return fmt.Errorf("%+v is in the view as %+v", m, n)
			}
		}
		return nil
	})
}

// TestExactlyOnce kills and freezes orchestrators at random while members
// change: each difference between two saved views is journalled once, in order.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	exactlyOnce(t, 20*time.Second)
}

// TestTakeOver: on a clean stop another continues at once, long before the lock
// could expire; a killed one is replaced as well.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := quick(s.client)
	o.Lock.TTL = time.Hour
	first, stop := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed")
	o.Node, o.Lock.TTL = "second", time.Second
	second, stopSecond := s.start(o)
	stop()
	s.join("a")
	s.wantEvents(2, "leaders_changed", "member_joined a")
	if a, b := first.Status(), second.Status(); a.Active || !b.Active || b.Epoch <= a.Epoch {
		t.Errorf("the first is %+v, the second %+v", a, b)
	}
	killed := s.process()
	stopSecond()
	s.eventually("the process to take over", func() error {
		if s.holder() != killed.name() {
			return errEventsPending
		}
		return nil
	})
	killed.kill()
	third, _ := s.start(quick(s.client))
	s.join("b")
	s.wantEvents(4, "member_joined b")
	if !third.Status().Active {
		t.Error("nobody took over from the one that was killed")
	}
}

// TestFrozen stops a process that orchestrates for longer than its lock lives
// and lets it continue: it writes nothing longer.
func TestFrozen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.process()
	s.wantEvents(0, "cluster_created", "cluster_changed")
	s.signal(p, consultest.StopSignal)
	s.join("a") // seen by the one that sleeps when it wakes up, and by its successor
	o := quick(s.client)
	o.Interval = time.Hour
	s.start(o)
	s.wantEvents(2, "leaders_changed", "member_joined a")
	generation := func() uint64 {
		saved, err := orchestrator.ReadView(t.Context(), s.store)
		s.must(nil, err)
		if saved.Commit.Node != "boss" {
			t.Errorf("the view is from %s", saved.Commit.Node)
		}
		return saved.Commit.Generation
	}
	before := generation()
	s.signal(p, consultest.ContinueSignal)
	s.join("b")
	s.wantEvents(4, "member_joined b")
	if got := generation(); got != before+1 {
		t.Errorf("generation %d, want %d", got, before+1)
	}
}
