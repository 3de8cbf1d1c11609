package rollout

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/raced"
)

// randomPolicy is a policy that Validate takes and that is not plain.
func randomPolicy(t *testing.T, r *rand.Rand) pace.Policy {
	t.Helper()
	p := pace.Policy{MaxParallel: pace.Amount{N: 1 + r.IntN(4)}, MaxFailures: r.IntN(4), Canary: r.IntN(3), ZoneByZone: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		p.MaxParallel = pace.Amount{N: 10 + r.IntN(40), Percent: true}
	}
	if r.IntN(2) == 0 {
		p.Batches = []pace.Amount{{N: p.Canary + 1 + r.IntN(3)}, {N: 20 + r.IntN(60), Percent: true}, {N: 100, Percent: true}}
	}
	if r.IntN(3) == 0 {
		p.Order = []pace.Role{{Name: "db", Limit: pace.Amount{N: 1}}, {Name: "web"}}
	}
	if r.IntN(4) == 0 {
		p.Order = append(p.Order, pace.Role{Name: "cache", Kept: true})
	}
	if r.IntN(3) == 0 {
		p.OnFailure = pace.OnFailureRollback
	}
	if r.IntN(2) == 0 {
		p.MinHealthy = pace.Duration(time.Second)
	}
	if r.IntN(4) == 0 {
		p.ProgressDeadline = pace.Duration(10 * time.Minute)
	}
	if r.IntN(2) == 0 {
		p.Bake = pace.Duration(time.Duration(1+r.IntN(30)) * time.Second)
	}
	if r.IntN(2) == 0 {
		p.Gate = pace.Gate{Workflow: "slo", Samples: 1 + r.IntN(3), Interval: pace.Duration(10 * time.Second), Timeout: pace.Duration(time.Minute)}
	}
	p.ApproveEach = r.IntN(4) == 0
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// step is one thing that happens, of all that can.
func (f *simFleet) step() {
	f.now = f.now.Add(time.Second)
	names := slices.Sorted(maps.Keys(f.nodes))
	n := f.nodes[names[f.random.IntN(len(names))]]
	if f.holds && f.random.IntN(20) == 0 {
		f.setAside(n)
		return
	}
	switch k := f.random.IntN(100); {
	case k < 15:
		f.observe()
	case k < 28:
		f.act()
	case k < 45:
		f.send()
	case k < 65:
		f.try(n)
	case k < 81:
		f.work(n)
	case k < 84:
		f.answerGate()
	case k == 84 && len(f.passes) > 0:
		f.commit()
	case k == 85:
		f.takeOver()
	case f.healthy:
	case k < 91:
		f.operator()
	default:
		f.mishap(n)
	}
}

func (f *simFleet) operator() {
	switch k := f.random.IntN(20); {
	case k < 6:
		f.approve()
	case k < 10 && f.doc.Stopped != nil:
		f.note("resume")
		f.operate(f.doc.resumed(f.now))
	case k == 11:
		f.note("pause")
		f.operate(f.doc.paused(Stop{By: "ann"}, f.now))
	case k == 12:
		p := randomPolicy(f.t, f.random)
		f.note("policy %+v", p)
		d := f.doc.repolicied(p, f.now)
		d.Repolicied = &Repolicied{By: "ann", At: pace.Second(f.now)}
		f.operate(d)
	case k == 13 && f.doc.Over():
		f.trigger("v"+f.now.Format("150405"), randomPolicy(f.t, f.random))
	case k == 14 && f.random.IntN(4) == 0:
		f.note("abort")
		f.operate(f.doc.aborted(Stop{}, f.now))
	case k == 15:
		names := slices.Sorted(maps.Keys(f.nodes))
		if n := f.nodes[names[f.random.IntN(len(names))]]; n.Answer.Open() {
			f.note("give up %s", n.Node)
			n.Grant = change.Grant{ID: n.Answer.ID, Tag: n.Answer.Tag, State: pace.GivenUp, Since: f.now, Tries: 1}
		}
	}
}

// setAside is what operators do with hosts that steps leave out.
func (f *simFleet) setAside(n *simNode) {
	switch k := f.random.IntN(12); {
	case k < 2:
		n.Hold = "by ann"
	case k < 5:
		n.Hold = ""
	case k == 5:
		n.HoldFile = "touched"
	case k == 6:
		n.HoldFile = ""
	case k < 9:
		n.drained = true
	case k < 11:
		n.drained = false
	default:
		f.allHeld = !f.allHeld && f.random.IntN(3) == 0
	}
	for _, o := range f.nodes {
		o.stumbled = o.stumbled || f.allHeld || o.held() != ""
	}
	n.set(n.Up(), n.Condition.Health == "critical")
	f.note("%s: hold %q, hold file %q, drained %v; all: %v", n.Node, n.Hold, n.HoldFile, n.drained, f.allHeld)
}

func (f *simFleet) mishap(n *simNode) {
	critical := n.Condition.Health == "critical"
	switch k := f.random.IntN(13); {
	case k < 3:
		f.note("%s up: %v", n.Node, !n.Up())
		n.set(!n.Up(), critical)
	case k < 6:
		n.set(true, critical)
	case k == 6:
		n.set(n.Up(), !critical)
	case k < 9:
		n.set(n.Up(), false)
	case k == 9 && len(f.nodes) < 30:
		f.join()
	case k == 10 && len(f.nodes) > 4 && !n.Answer.Open():
		n.gone = true
	case k == 11:
		n.Zone = f.zone()
	case k == 12 && n.record != "":
		f.note("%s is wiped", n.Node)
		n.record = ""
	}
}

// histories is how many random histories each test goes through; a failure
// names its seed.
var (
	histories    = flag.Uint64("histories", 12, "random histories for each test")
	firstHistory = flag.Uint64("first-history", 0, "seed of the first of them")
)

// TestHistories: hosts that obey their grants, die, fail, decline, are wiped,
// join, leave and move, under orchestrators that replace each other, whose
// transactions are late, and operators that change the policy, pause, abort and
// give up. What must hold is checked at every plan, offer and acceptance.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := *firstHistory; seed < *firstHistory+raced.Histories(*histories); seed++ {
		random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible
		f := newFleet(t, random, 4+random.IntN(16))
		f.note("seed %d", seed)
		f.doc.Previous = "v0"
		f.trigger("v1", randomPolicy(t, random))
		for range 2000 {
			f.step()
		}
		f.settle(seed)
	}
}

// TestHistoriesWithHolds: the same with operators that hold and drain hosts, or hold the whole
// cluster, and end that.
func TestHistoriesWithHolds(t *testing.T) {
	t.Parallel()
	for seed := *firstHistory; seed < *firstHistory+raced.Histories(*histories); seed++ {
		random := rand.New(rand.NewPCG(seed, 8)) //nolint:gosec // reproducible
		f := newFleet(t, random, 4+random.IntN(16))
		f.note("seed %d", seed)
		f.doc.Previous, f.holds, f.healthy = "v0", true, seed%3 == 0
		f.trigger("v1", randomPolicy(t, random))
		for range 2000 {
			f.step()
		}
		f.settle(seed)
	}
}

// TestHeldHostsStopNothing: every rollout without a failure in which some hosts are held or
// drained from the beginning ends without them, or waits where the next step has no other
// host; they follow when that ends.
func TestHeldHostsStopNothing(t *testing.T) {
	t.Parallel()
	for seed := *firstHistory; seed < *firstHistory+raced.Histories(*histories); seed++ {
		random := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // reproducible
		f := newFleet(t, random, 2+random.IntN(20))
		f.healthy = true
		p := randomPolicy(t, random)
		p.MinHealthy, p.ProgressDeadline, p.Order, p.ZoneByZone, p.MaxParallel = pace.Duration(time.Second), 0, nil, false, pace.Amount{N: 50, Percent: true}
		f.trigger("v1", p)
		names := slices.Sorted(maps.Keys(f.nodes))
		for i, name := range names[:len(names)/2] {
			n := f.nodes[name]
			if n.drained = i == 0 && len(names) > 5; !n.drained {
				n.Hold = "by ann"
			}
			n.set(true, false)
		}
		ends := func() {
			for range 20000 {
				f.now = f.now.Add(time.Second)
				f.observe()
				f.act()
				f.approve()
				f.answerGate()
				f.send()
				f.try(f.nodes[names[random.IntN(len(names))]])
				f.work(f.nodes[names[random.IntN(len(names))]])
				if p := newPlanner(f.doc, f.state(), f.now); (f.doc.Over() || len(p.HeldUp()) > 0) && p.counts.Waiting+p.counts.Working == 0 {
					return
				}
			}
		}
		ends()
		scope := newPlanner(f.doc, f.state(), f.now)
		waits := len(scope.HeldUp()) > 0 && (p.Canary >= scope.counts.Done || len(p.Batches) > 0) // no host is left for another step
		if c := scope.counts; c.Done+c.Held != c.Members || f.doc.Phase != pace.Done && !waits {
			f.fail("seed %d: with held hosts it is %s with %+v", seed, f.doc.StateText(), c)
		}
		for _, n := range f.nodes {
			n.Hold, n.drained = "", false
			n.set(true, false)
		}
		ends()
		if c := newPlanner(f.doc, f.state(), f.now).counts; c.Done != c.Members {
			f.fail("seed %d: after the holds it is %s with %+v", seed, f.doc.StateText(), c)
		}
	}
}

// settle ends all faults: whatever happened, the rollout ends.
func (f *simFleet) settle(seed uint64) {
	f.t.Helper()
	f.healthy, f.holds, f.allHeld = true, false, false
	for _, n := range f.nodes {
		n.Hold, n.HoldFile, n.drained = "", "", false
		n.set(true, false)
	}
	for range 40 {
		if f.doc.Phase == pace.Aborted {
			f.trigger("v"+f.now.Format("150405"), pace.Policy{MaxParallel: pace.Amount{N: 2}})
		}
		f.operate(f.doc.resumed(f.now))
		f.approve()
		for _, n := range f.nodes { // one whose turn comes later, or never, may hold the only place
			if n.Answer.Open() && n.Answer.State == cluster.GrantStranded {
				n.Grant = change.Grant{ID: n.Answer.ID, Tag: n.Answer.Tag, State: pace.GivenUp, Since: f.now, Tries: 1}
			}
		}
		for i := range 2000 {
			if f.step(); i%20 > 0 {
				continue
			}
			f.approve()
			p := newPlanner(f.doc, f.state(), f.now)
			kept := slices.ContainsFunc(p.others, func(m ranked) bool { return m.stranded() }) // the policy keeps it back
			if len(p.members) == 0 || f.doc.Phase == pace.Done && (f.open() == 0 || kept) {
				return
			}
		}
	}
	f.fail("seed %d: the rollout does not end; it waits for %v", seed, newPlanner(f.doc, f.state(), f.now).Waits())
}

// TestWithoutFailures: every rollout without a failure ends done, with every
// member at the version.
func TestWithoutFailures(t *testing.T) {
	t.Parallel()
	for seed := *firstHistory; seed < *firstHistory+raced.Histories(*histories); seed++ {
		random := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible
		f := newFleet(t, random, 1+random.IntN(20))
		f.healthy = true
		p := randomPolicy(t, random)
		p.MinHealthy, p.ProgressDeadline = pace.Duration(time.Second), 0
		f.trigger("v1", p)
		for range 20000 {
			names := slices.Sorted(maps.Keys(f.nodes))
			f.now = f.now.Add(time.Second)
			f.observe()
			f.act()
			f.approve()
			f.answerGate()
			f.send()
			f.try(f.nodes[names[random.IntN(len(names))]])
			f.work(f.nodes[names[random.IntN(len(names))]])
			if f.doc.Over() {
				break
			}
		}
		if scope := newPlanner(f.doc, f.state(), f.now); len(scope.members) > 0 && (f.doc.Phase != pace.Done || scope.counts.Done != len(scope.members)) {
			f.fail("seed %d: it ends as %s with %+v", seed, f.doc.StateText(), scope.counts)
		}
	}
}
