package lease

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/pace"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// asking are the facts of a host that waits for a place, as its report says.
func asking() *facts {
	f := &facts{
		Seen: change.Seen{Known: true, Checked: true, Since: start}, node: "n1", calls: 1, called: start, boot: "b",
		rec: record{Wish: "w", ID: "me", For: time.Hour, Drain: time.Minute, MinHealthy: time.Minute, Since: start},
	}
	f.Report = f.rec.in(f.Report, f.node)
	return f
}

func (f *facts) offer(g change.Grant) *facts {
	g.Change = cluster.LeaseChange("n1")
	f.Grants.Value = change.Grants{All: []change.Grant{g}}
	return f
}

// placed are the facts of a host that has its place.
func placed() *facts {
	f := asking()
	f.rec.Grant, f.rec.Boot = change.Held{ID: "g", Tag: "w", Since: start}, "b"
	f.Report = f.rec.in(f.Report, f.node)
	return f
}

func (f *facts) with(set func(f *facts)) *facts {
	set(f)
	f.Report = f.rec.in(f.Report, f.node)
	return f
}

var offered = change.Grant{Tag: "w", ID: "g", State: pace.Offered, Session: "s", Since: start}

func TestDecide(t *testing.T) {
	t.Parallel()
	out := func(f *facts) { f.taken, f.rec.Out, f.rec.Drained = true, true, durable.Stopwatch{Begun: start} }
	for _, test := range []struct {
		name  string
		facts *facts
		now   time.Duration // after start
		want  step
		again time.Duration // after start; 0: it is not asked again
	}{
		{"no lease", &facts{node: "n1", Seen: change.Seen{Known: true}}, 0, nothing, 0},
		{"no lease, and no report yet", &facts{node: "n1"}, 0, nothing, 0},
		{"no orchestrator at the moment", asking().with(func(f *facts) { f.alone = start }), 0, nothing, time.Minute},
		{"no orchestrator", asking().with(func(f *facts) { f.alone = start }), time.Minute, nothing, 0},
		{"it waits for an answer", asking(), 0, nothing, 0},
		{"nothing is known of it in Consul", func() *facts { f := asking(); f.Report = cluster.Report{}; return f }(), 0, report, 0},
		{"an offer", asking().offer(offered), 0, accept, 0},
		{"an offer for a lease before", asking().offer(change.Grant{Tag: "v", ID: "g", State: pace.Offered, Session: "s"}), 0, nothing, 0},
		{"an offer without a session", asking().offer(change.Grant{Tag: "w", ID: "g", State: pace.Offered}), 0, nothing, 0},
		{"an offer that was withdrawn", asking().offer(change.Grant{Tag: "w", ID: "g", State: pace.Withdrawn, Session: "s"}), 0, nothing, 0},
		{"an offer that it declined", asking().offer(offered).with(func(f *facts) { f.rec.Grant = f.rec.Grant.Declining(offered, "full") }), 0, nothing, 0},
		{"an offer in a pause", asking().offer(offered).with(func(f *facts) { f.Control.Value.Paused = &cluster.Hold{} }), 0, nothing, 0},
		{"an offer while it is held", asking().offer(offered).with(func(f *facts) { f.Held = "by me" }), 0, nothing, 0},
		{"an offer whose freeze has begun", asking().offer(change.Grant{Tag: "w", ID: "g", State: pace.Offered, Session: "s", Since: start, Until: start}), 0, decline, 0},
		{"an offer after Consul's KV was restored", asking().offer(offered).with(func(f *facts) { f.Reset = start }), time.Second, nothing, time.Minute},
		{"the same, later", asking().offer(offered).with(func(f *facts) { f.Reset = start }), time.Minute, accept, 0},
		{"the caller has left", asking().offer(offered).with(func(f *facts) { f.calls = 0 }), 0, withdraw, 0},
		{"the caller has left, and comes again", asking().with(func(f *facts) { f.calls, f.rec.Keep = 0, time.Minute }), 0, nothing, time.Minute},
		{"the caller does not come again", asking().with(func(f *facts) { f.calls, f.rec.Keep = 0, time.Minute }), time.Minute, withdraw, 0},
		{"a new agent awaits the caller", asking().with(func(f *facts) { f.calls, f.restarted = 0, true }), 0, nothing, joinWithin},
		{"the caller does not ask it", asking().with(func(f *facts) { f.calls, f.restarted = 0, true }), joinWithin, withdraw, 0},
		{"it is ended", asking().offer(offered).with(func(f *facts) { f.end = true }), 0, withdraw, 0},
		{"a wish of which it knows nothing", func() *facts { f := asking(); f.rec = record{}; return f }(), 0, report, 0},
		{"a report of before the acceptance", func() *facts { f := placed(); f.Report = asking().Report; return f }(), 0, report, 0},

		{"a place", placed(), 0, take, 0},
		{"a place, and the caller is away", placed().with(func(f *facts) { f.calls, f.rec.Keep = 0, time.Minute }), 0, nothing, time.Minute},
		{"a place, and a new agent awaits the caller", placed().with(func(f *facts) { f.calls, f.restarted = 0, true }), 0, nothing, joinWithin},
		{"a place, and the caller has left", placed().with(func(f *facts) { f.calls = 0 }), 0, end, 0},
		{"no job runs", placed().with(func(f *facts) { f.taken = true }), 0, enter, 0},
		{"killed while it went out", placed().with(func(f *facts) { f.taken, f.rec.Out = true, true }), 0, enter, 0},
		{"it drains", placed().with(out), 0, nothing, time.Minute},
		{"it has drained", placed().with(out).with(func(f *facts) { f.drained = time.Minute }), 0, ready, 0},
		{"it is ready", placed().with(out).with(func(f *facts) { f.rec.Ready, f.calls, f.drained = true, 0, time.Hour }), 0, nothing, time.Hour},
		{"it is ready, and was connected", placed().with(out).with(func(f *facts) { f.rec.Ready, f.rec.Connected, f.calls, f.drained = true, true, 0, time.Hour }), 0, end, 0},
		{"an agent that begins takes the host again", placed().with(out).with(func(f *facts) { f.rec.Ready, f.calls, f.taken = true, 0, false }), 0, take, 0},
		{"the caller is done", placed().with(out).with(func(f *facts) { f.rec.Ready, f.end = true, true }), 0, end, 0},
		{"the host was rebooted", placed().with(out).with(func(f *facts) { f.rec.Ready, f.boot = true, "c" }), 0, end, 0},
		{"its time is over", placed().with(out).with(func(f *facts) { f.rec.Ready, f.calls, f.age = true, 0, time.Hour }), 0, end, 0},
		{"its time is over, and it is at work", placed().with(out).with(func(f *facts) { f.rec.Ready, f.age, f.drained = true, time.Hour, time.Hour }), 0, nothing, 0},
		{"its time is over, and a check fails", placed().with(out).with(func(f *facts) {
			f.rec.Ready, f.calls, f.age, f.Failing = true, 0, time.Hour, []string{"disk"}
		}), 0, trouble, 0},
		{"the same, and it is said", placed().with(out).with(func(f *facts) {
			f.rec.Ready, f.calls, f.age, f.Failing, f.rec.Trouble = true, 0, time.Hour, []string{"disk"}, "x"
		}), 0, nothing, 0},

		{"it ends", placed().with(func(f *facts) { f.rec.Ending = true }), 0, lift, 0},
		{"it is back", placed().with(func(f *facts) { f.rec.Ending, f.back = true, start }), 0, nothing, time.Minute},
		{"it is back, and a check fails", placed().with(func(f *facts) { f.rec.Ending, f.back, f.Failing = true, start, []string{"disk"} }), 0, nothing, 10 * time.Minute},
		{"the same, for a long time", placed().with(func(f *facts) { f.rec.Ending, f.back, f.Failing = true, start, []string{"disk"} }), 10 * time.Minute, admit, 0},
		{"the same, and other changes may come", placed().with(func(f *facts) {
			f.rec.Ending, f.rec.Returns, f.back, f.Failing = true, true, start, []string{"disk"}
		}), 10 * time.Minute, nothing, time.Hour + 10*time.Minute},
		{"the same, and its time is over", placed().with(func(f *facts) {
			f.rec.Ending, f.back, f.Failing, f.age = true, start, []string{"disk"}, time.Hour
		}), time.Hour, trouble, 0},
		{"the same, and it is said", placed().with(func(f *facts) {
			f.rec.Ending, f.back, f.Failing, f.age, f.rec.Trouble = true, start, []string{"disk"}, time.Hour, "x"
			f.rec.Returns = true
		}), time.Hour, nothing, 0},
		{"it is back, and no check is known", placed().with(func(f *facts) { f.rec.Ending, f.back, f.Checked = true, start, false }), 0, nothing, time.Hour},
		{"the same, later", placed().with(func(f *facts) { f.rec.Ending, f.back, f.Checked, f.age = true, start, false, time.Hour }), time.Hour, nothing, 0},
		{"it is healthy", placed().with(func(f *facts) { f.rec.Ending, f.back = true, start }), time.Minute, finish, 0},
		{"it is over, and the report has it", func() *facts { f := placed(); f.rec.Ending, f.rec.Over = true, true; return f }(), 0, report, 0},
		{"it is over, and the report says so", placed().with(func(f *facts) { f.rec.Ending, f.rec.Over = true, true }), 0, forget, 0},
	} {
		do, again := decide(test.facts, start.Add(test.now))
		var want time.Time
		if test.again > 0 {
			want = start.Add(test.again)
		}
		if do != test.want || !again.Equal(want) {
			t.Errorf("%s: %q, again at %v; want %q, %v", test.name, do, again, test.want, want)
		}
	}
}

// TestDecideSafely: whatever is known, a host accepts only what is offered for the lease that it asks for, tells a
// caller to go ahead only when it is drained and no job runs, and ends only when it is back and healthy.
func TestDecideSafely(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 28)) //nolint:gosec // reproducible
	coin := func() bool { return r.IntN(2) == 0 }
	seen := map[step]int{}
	for range 200_000 {
		f := asking()
		if coin() {
			f = placed()
		}
		g := offered
		if coin() {
			g.Tag = "v"
		}
		if coin() {
			g.State = pace.NotOffered
		}
		f.offer(g)
		f.calls, f.taken, f.Checked, f.end = r.IntN(2), coin(), coin(), r.IntN(8) == 0
		if coin() {
			f.back = start
		}
		f.rec.Out, f.rec.Ready, f.rec.Ending, f.rec.Connected, f.rec.Returns = coin(), r.IntN(3) == 0, r.IntN(3) == 0, coin(), coin()
		if f.rec.Out && coin() {
			f.rec.Drained, f.drained = durable.Stopwatch{Begun: start}, time.Duration(r.IntN(3))*time.Minute/2
		}
		f.rec.Over = f.rec.Ending && f.rec.Grant.Open() && r.IntN(4) == 0
		f.age = time.Duration(r.IntN(3)) * time.Hour / 2
		if r.IntN(4) == 0 {
			f.Failing = []string{"disk"}
		}
		if r.IntN(4) == 0 {
			f.Control.Value.Paused = &cluster.Hold{}
		}
		if f.rec.Reason = []string{"", "a reboot"}[r.IntN(2)]; r.IntN(4) > 0 {
			f.Report = f.rec.in(f.Report, f.node)
		}
		now := start.Add(time.Duration(r.IntN(4)) * time.Minute / 2)
		if r.IntN(4) == 0 {
			now = now.Add(10 * time.Minute)
		}
		do, _ := decide(f, now)
		seen[do]++
		reported := f.rec.in(f.Report, f.node).Equal(f.Report)
		ok := true
		switch do {
		case accept:
			ok = g.Tag == "w" && g.State == pace.Offered && f.Control.Value.Paused == nil && f.calls > 0 && reported && !f.rec.Grant.Open()
		case enter:
			ok = f.taken && f.rec.Grant.Open() && reported && !f.rec.Ending
		case ready:
			ok = f.taken && f.rec.Out && f.drained >= f.rec.Drain && f.calls > 0 && f.rec.Grant.Open()
		case finish:
			ok = !f.back.IsZero() && f.Checked && len(f.Failing) == 0 && f.rec.Ending && now.Sub(f.Since) >= f.rec.MinHealthy
		case admit:
			ok = !f.back.IsZero() && f.Checked && len(f.Failing) > 0 && f.rec.Ending && now.Sub(f.back) >= 10*f.rec.MinHealthy
		case forget:
			ok = f.rec.Over && reported && !f.Report.AtWork()
		case withdraw:
			ok = !f.rec.Grant.Open()
		}
		if !ok {
			t.Fatalf("%q of %+v", do, f)
		}
	}
	for _, do := range []step{nothing, report, withdraw, accept, take, enter, ready, end, trouble, lift, admit, finish, forget} {
		if seen[do] == 0 {
			t.Errorf("%q never came: %v", do, seen)
		}
	}
}

// TestWaits: what a caller hears, and whether waiting helps.
func TestWaits(t *testing.T) {
	t.Parallel()
	waits := func(code pace.Code) change.Grant {
		return change.Grant{Tag: "w", Waits: &change.Waited{Code: code, Reason: "because"}}
	}
	for _, test := range []struct {
		name  string
		facts *facts
		want  Kind
		stops bool
	}{
		{"nothing is known yet", asking(), Waiting, false},
		{"the budget", asking().offer(waits(pace.BecauseBudget)), Budget, false},
		{"a freeze, says the orchestrator", asking().offer(waits(pace.BecauseFreeze)), Freeze, false},
		{"an answer to a lease before", asking().offer(change.Grant{Tag: "v", Waits: &change.Waited{Code: pace.BecauseBudget}}), Waiting, false},
		{"a pause", asking().with(func(f *facts) { f.Control.Value.Paused = &cluster.Hold{} }), Paused, true},
		{"observe-only", asking().with(func(f *facts) { f.Control.Value.ObserveOnly = &cluster.Hold{} }), Paused, true},
		{"a hold", asking().with(func(f *facts) { f.Held = "by me" }), Held, true},
		{"a freeze", asking().with(func(f *facts) {
			f.Control.Value.Freezes = pace.Freezes{{ID: "f", From: start.Add(-time.Hour), To: start.Add(time.Hour), Reason: "a party"}}
		}), Freeze, true},
		{"no orchestrator at the moment", asking().with(func(f *facts) { f.alone = start.Add(-59 * time.Second) }), Waiting, false},
		{"no orchestrator", asking().with(func(f *facts) { f.alone = start.Add(-time.Minute) }), NoOrchestrator, true},
		{"a job runs", placed().with(func(f *facts) { f.busy = true }), Waiting, false},
		{"an end that waits for health", placed().with(func(f *facts) { f.rec.Ending, f.back, f.Failing = true, start, []string{"disk"} }), NotHealthy, false},
	} {
		w := test.facts.waits(start)
		if w == nil || w.Kind != test.want || w.stops() != test.stops || w.Reason == "" && test.want != Budget {
			t.Errorf("%s: %+v; want %s, %v", test.name, w, test.want, test.stops)
		}
	}
	if w := placed().with(func(f *facts) { f.rec.Ready = true }).waits(start); w != nil {
		t.Errorf("a caller that may go ahead waits for %v", w)
	}
}

// TestStatusOnceLoaded: an agent that has read the record of its lease, and does nothing about it yet, says what the record does.
func TestStatusOnceLoaded(t *testing.T) {
	t.Parallel()
	o := recordedLease(t)
	h := NewHost(o)
	if s := h.Status(); s.State != Ready {
		t.Errorf("before it has read the record: %+v", s)
	}
	if err := h.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.State != Ready || s.ID != "me" {
		t.Errorf("once it has: %+v", s)
	}
}

// recordedLease are the options of a host whose agent before this one had a lease.
func recordedLease(t *testing.T) Options {
	t.Helper()
	o := Options{StateDir: t.TempDir()}
	f := placed()
	f.rec.Out, f.rec.Ready = true, true
	before := NewHost(o)
	before.mu.Lock()
	defer before.mu.Unlock()
	if err := before.keep(f.rec); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestCallsWaitForTheirAgent: a call about a lease of before waits until the agent takes part in its cluster, also when it
// has read the record already; it is refused when that takes too long. Without a lease it is refused at once.
func TestCallsWaitForTheirAgent(t *testing.T) {
	t.Parallel()
	for name, loaded := range map[string]bool{"the record is not read yet": false, "the record is read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := recordedLease(t)
			synctest.Test(t, func(t *testing.T) {
				h, called, refused := NewHost(o), time.Now(), make(chan error)
				if loaded {
					if err := h.load(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				go func() {
					_, err := h.Begin(t.Context(), Request{ID: "me"}, func(Status) {})
					refused <- err
				}()
				var r *Refusal
				if err := <-refused; !errors.As(err, &r) || r.Kind != NotMember || time.Since(called) != joinWithin {
					t.Errorf("refused after %s: %v", time.Since(called), err)
				}
			})
		})
	}
	var r *Refusal
	if _, err := NewHost(Options{StateDir: t.TempDir()}).Begin(t.Context(), Request{ID: "me"}, func(Status) {}); !errors.As(err, &r) || r.Kind != NotMember {
		t.Errorf("without a lease: %v", err)
	}
}
