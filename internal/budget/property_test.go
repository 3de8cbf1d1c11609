package budget_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/raced"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// step is one thing that happens, of all that can.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.r.IntN(4)) * time.Second)
	switch k := w.r.IntN(100); {
	case k < 12:
		w.planVersion()
	case k < 24:
		w.planStages()
	case k < 36:
		w.planRuns()
	case k < 42:
		w.planLeases()
	case k < 46:
		w.late()
	case k == 46:
		w.takeOver()
	case k < 51:
		w.operate()
	default:
		w.hostStep()
	}
	w.check()
}

// hostStep is one thing that a host does, or that happens to it.
func (w *world) hostStep() {
	h := w.hosts[w.r.IntN(len(w.hosts))]
	name := stageNames[w.r.IntN(len(stageNames))]
	switch k := w.r.IntN(66); {
	case k < 12:
		w.converge(h)
	case k < 20:
		w.take(h, name)
	case k < 34:
		w.work(h, name)
	case k < 52:
		w.job(h)
	case k < 58:
		w.leave(h)
	case w.calm:
	case k == 58:
		h.up = !h.up
		w.note("%s is up: %v", h.node, h.up)
	case k == 59:
		h.critical = w.r.IntN(4) == 0
	case k == 60:
		h.drained = w.r.IntN(5) == 0
	case k < 64:
		h.up, h.critical, h.drained = true, h.critical && w.r.IntN(2) == 0, h.drained && w.r.IntN(2) == 0
	}
	w.check()
}

// converge is what the host does for a version: it accepts or declines an offer, fails, or arrives.
func (w *world) converge(h *host) {
	switch {
	case !h.up:
	case h.answer.Open() && h.answer.Tag != w.desired && h.answer.State != cluster.GrantStranded:
		w.reports(h, func() { h.answer.State = cluster.GrantStranded })
		w.note("%s is stranded", h.node)
	case w.offered(h) && !w.calm && w.r.IntN(8) == 0:
		w.reports(h, func() { h.answer.Declined, h.answer.Ready, h.answer.Reason = h.grant.ID, true, "something is missing" })
	case w.offered(h):
		w.reports(h, func() {
			h.answer, h.failed = cluster.Answer{Change: cluster.VersionChange, ID: h.grant.ID, Tag: h.grant.Tag, State: cluster.GrantAccepted, Since: w.now}, false
		})
		w.note("%s accepts %s", h.node, h.answer.Tag)
	case !h.answer.Open() || h.answer.State == cluster.GrantStranded:
	case !w.calm && !h.failed && w.r.IntN(6) == 0:
		w.reports(h, func() { h.failed, h.answer.State = true, cluster.GrantFailed })
		w.note("%s fails in %s", h.node, h.answer.Tag)
	case w.r.IntN(2) == 0:
		w.reports(h, func() { h.version, h.answer.State, h.failed = h.answer.Tag, cluster.GrantDone, false })
		w.note("%s runs %s", h.node, h.version)
	}
}

// leave is what the host does about its lease: it asks for one, accepts it, or is back in service.
func (w *world) leave(h *host) {
	switch {
	case !h.up:
	case w.leases(h):
		w.reports(h, func() {
			h.lease.answer = cluster.Answer{Change: h.lease.grant.Change, ID: h.lease.grant.ID, Tag: h.lease.grant.Tag, State: cluster.GrantAccepted, Since: w.now}
		})
		w.note("%s accepts its lease", h.node)
	case h.lease.answer.Open() && !h.critical:
		w.reports(h, func() { h.lease.wish, h.lease.answer = cluster.Wish{}, cluster.Answer{} })
		w.note("the lease of %s is over", h.node)
		w.count["lease over"]++
	case h.lease.wish.ID == "" && !w.calm && w.r.IntN(6) == 0:
		w.reports(h, func() { h.lease.wish = cluster.Wish{ID: fmt.Sprint("w", w.index), Since: w.now} })
		w.note("%s asks for a lease", h.node)
	}
}

func value(name string, n int) string { return fmt.Sprint(name, n) }

func inputs(name string, n int) cluster.StageInputs {
	return cluster.StageInputsOf([]cluster.StageInput{{Name: "key " + name, Digest: value(name, n)}})
}

// ask is what the template engine does after each change of the value.
func (w *world) ask(h *host, name string, n int) {
	p := h.parts[name]
	w.reports(h, func() {
		p.report.Wants, p.report.Changed = "", cluster.StageInputs{}
		if p.has != n {
			p.report.Wants, p.report.Changed = value(name, n), inputs(name, n)
		}
	})
}

// take is what a host does with the offer of a turn.
func (w *world) take(h *host, name string) {
	p := h.parts[name]
	g := p.grant
	if !h.up || g.State != pace.Offered || g.ID == p.answer.ID || g.Session != w.lock() || g.Spec != w.stages[name].stopsAt || g.Tag != p.report.Wants || p.report.Open() {
		return
	}
	w.reports(h, func() {
		fmt.Sscanf(p.report.Wants, name+"%d", &p.taking)
		p.old = p.has
		p.answer = cluster.Answer{Change: g.Change, ID: g.ID, Tag: g.Tag, State: cluster.GrantAccepted, Since: w.now}
		p.report.State, p.report.Taken = cluster.StageChanging, p.report.Changed
		p.report.Wants, p.report.Changed = "", cluster.StageInputs{}
	})
	w.note("%s takes turn %s of %s", h.node, g.ID, name)
}

// work is what a host with a turn does next.
func (w *world) work(h *host, name string) {
	p := h.parts[name]
	if !h.up || !p.report.Open() {
		return
	}
	w.reports(h, func() {
		switch p.report.State {
		case cluster.StageChanging:
			p.report.State, p.has = cluster.StageSettling, p.taking
		case cluster.StageSettling:
			p.report.State = cluster.StageDone
			if w.bad[value(name, p.taking)] {
				p.report.State = []string{cluster.StageFailed, cluster.StageRestoring}[w.r.IntN(2)]
			}
		case cluster.StageRestoring:
			p.report.State, p.has = cluster.StageRestored, p.old
		}
		if !p.report.Open() {
			p.answer.State, p.answer.Ended = cluster.GrantDone, w.now
		}
		w.note("%s: %s is %s", h.node, name, p.report.State)
	})
	if !p.report.Open() {
		w.ask(h, name, w.wanted(name))
	}
}

// wanted is the value of the stage's input.
func (w *world) wanted(name string) int { return w.count["value of "+name] }

func (w *world) set(name string, n int, bad bool) {
	w.count["value of "+name] = n
	if _, known := w.bad[value(name, n)]; !known {
		w.bad[value(name, n)] = bad
	}
	w.note("%s is set to %d, bad: %v", name, n, w.bad[value(name, n)])
	for _, h := range w.hosts {
		w.ask(h, name, n)
	}
}

// job is what a host does with the first job of its queue that has not ended.
func (w *world) job(h *host) {
	i := slices.IndexFunc(h.queue.Jobs, func(e runs.Queued) bool { return !e.State.Ended() })
	if !h.up || i < 0 {
		return
	}
	h.queue.Jobs, h.queueAt = slices.Clone(h.queue.Jobs), w.write()
	switch e := &h.queue.Jobs[i]; {
	case e.State == runs.Pending:
		e.State, e.Started = runs.Running, w.now
	case !w.calm && w.r.IntN(6) == 0:
		e.State, e.Ended = runs.Failed, w.now
	default:
		e.State, e.Ended = runs.Done, w.now
	}
	w.note("%s: job %s is %s", h.node, h.queue.Jobs[i].Job, h.queue.Jobs[i].State)
}

// operate is what operators and other programs do.
func (w *world) operate() {
	name := stageNames[w.r.IntN(len(stageNames))]
	h := w.hosts[w.r.IntN(len(w.hosts))]
	switch w.r.IntN(12) {
	case 0, 1, 2:
		if w.doc.Over() || w.r.IntN(8) == 0 {
			w.trigger(fmt.Sprintf("v%d", w.index), false)
		}
	case 3:
		if !w.doc.Over() && w.doc.RollbackOf == nil {
			w.trigger(w.doc.Previous, true)
			w.count["restores"]++
		}
	case 4, 5:
		w.set(name, w.wanted(name)+1, w.r.IntN(3) == 0)
	case 6:
		if n := w.wanted(name); n > 0 {
			w.set(name, n-1, false)
		}
	case 7:
		w.resume(name)
	case 8:
		if len(w.runs) < 12 {
			w.start(w.r.IntN(3) > 0)
		}
	case 9:
		if h.answer.Open() {
			w.giveUp(h)
		}
	case 10:
		w.carryOn()
	default:
		if w.r.IntN(3) == 0 {
			w.setBudget()
		}
	}
}

func (w *world) trigger(version string, restores bool) {
	p := pace.Policy{MaxParallel: pace.Amount{N: 1 + w.r.IntN(4)}, MaxFailures: w.r.IntN(3), ZoneByZone: w.r.IntN(4) == 0}
	if w.r.IntN(3) == 0 { // as one without a policy
		p = pace.Policy{MaxParallel: pace.Amount{N: 100, Percent: true}}
	}
	if w.r.IntN(2) == 0 {
		p.OnFailure = pace.OnFailureRollback
	}
	previous := w.doc.Previous
	if w.doc.Phase == pace.Done && w.doc.Counts.Failed == 0 {
		previous = w.doc.Version
	}
	d := rollout.Document{Spec: rollout.Spec{Version: version, Previous: previous, Policy: p.Complete(), Started: pace.Second(w.now)}, Progress: pace.Progress{Since: pace.Second(w.now), Phase: pace.Waiting}}
	if restores {
		d.Previous, d.RollbackOf = version, &rollout.Rollback{Version: w.doc.Version, Reason: "an operator"}
	}
	w.doc, w.docAt, w.desired = d, w.write(), version
	w.note("trigger %s, restores: %v, %+v", version, restores, p)
	w.count["versions"]++
}

func (w *world) giveUp(h *host) {
	w.note("give up %s", h.node)
	h.grant, h.grantAt = change.Grant{Change: cluster.VersionChange, ID: h.answer.ID, Tag: h.answer.Tag, State: pace.GivenUp, Since: w.now, Tries: 1}, w.write()
	w.count["given up"]++
}

// carryOn resumes a rollout that is paused.
func (w *world) carryOn() {
	if w.doc.Stopped != nil && !w.doc.Over() {
		w.doc.Stopped, w.doc.Forgive, w.doc.Since, w.docAt = nil, true, pace.Second(w.now), w.write()
		w.note("update resume")
	}
}

// resume approves what is stopped.
func (w *world) resume(name string) {
	d := w.stages[name]
	d.stops.Stops = slices.Clone(d.stops.Stops)
	for i := range d.stops.Stops {
		d.stops.Stops[i].Resumed = &cluster.Hold{By: "ann"}
	}
	d.stopsAt = w.write()
}

func (w *world) start(disturbs bool) {
	id := fmt.Sprintf("r%02d", len(w.runs))
	q := runs.Request{Workflow: map[bool]string{true: "patch", false: "look"}[disturbs]}
	if w.r.IntN(2) == 0 {
		q.MaxParallel = pace.Amount{N: 1 + w.r.IntN(3)}
	}
	if w.r.IntN(2) == 0 {
		q.MinHealthy = pace.Duration(time.Second)
	}
	w.runs[id] = runs.Active{Run: runs.Run{ID: id, Request: q, Created: w.now, State: runs.Pending}}
	w.runAt[id] = w.write()
	w.note("run %s of %s", id, q.Workflow)
	w.count["runs"]++
}

// settle lets everything end: hosts are well, and operators resume what is stopped.
func (w *world) settle() {
	w.calm, w.bad = true, map[string]bool{}
	for _, h := range w.hosts {
		h.up, h.critical, h.drained = true, false, false
	}
	for _, name := range stageNames {
		w.set(name, w.wanted(name)+1000, false)
	}
	left := func() (all []string) {
		if !w.doc.Over() {
			all = append(all, fmt.Sprintf("version: %s, stopped %v, %+v", w.doc.Phase, w.doc.Stopped, w.doc.Counts))
		}
		for _, h := range w.hosts {
			if why := w.busy(h); why != "" {
				all = append(all, h.node+": "+why)
			}
			if h.lease.wish.ID != "" {
				all = append(all, h.node+" asks for a lease")
			}
			for _, name := range stageNames {
				if h.parts[name].has != w.wanted(name) {
					all = append(all, h.node+" waits in "+name)
				}
			}
		}
		for id, r := range w.runs {
			if !r.Run.State.Ended() {
				all = append(all, "run "+id+": "+r.Run.Why)
			}
		}
		return all
	}
	for round := range 4000 {
		if len(left()) == 0 {
			return
		}
		w.now = w.now.Add(time.Second)
		w.carryOn()
		for _, name := range stageNames {
			if w.stages[name].stops.Unresumed() {
				w.resume(name)
			}
		}
		w.planVersion()
		w.planStages()
		w.planRuns()
		w.planLeases()
		for range 6 {
			w.hostStep()
		}
		for _, h := range w.hosts {
			switch {
			case h.answer.State == cluster.GrantFailed: // it tries again
				w.reports(h, func() { h.answer.State, h.failed = cluster.GrantAccepted, false })
			case h.answer.State == cluster.GrantStranded && !w.offered(h) && !h.givenUp() && round > 1000: // its turn comes later, and it may hold the only place
				w.giveUp(h)
			}
		}
		w.check()
	}
	w.violate("it does not end: %v; they wait for a place: %+v", left(), w.demands)
}

// histories is how many random histories the property goes through; a failure names its seed.
var (
	histories    = flag.Uint64("histories", 20, "random histories")
	firstHistory = flag.Uint64("first-history", 0, "seed of the first of them")
)

// history goes through one history and returns what was violated; empty: nothing.
func history(t testing.TB, seed uint64, fault string) *world {
	w := newWorld(t, seed, fault)
	for range 900 {
		if w.step(); w.violated != "" {
			return w
		}
	}
	if fault == "" {
		w.settle()
	}
	return w
}

// TestOutWithinTheBudget: whatever mixture of versions, leases, stages and runs, of late transactions,
// orchestrators that replace each other, hosts that fall and return or are drained, rollbacks, unanswered
// offers and budgets that change: never are more hosts out of service than the budget allows
// beside the ones that are by themselves, and everything ends once hosts are well.
func TestOutWithinTheBudget(t *testing.T) {
	t.Parallel()
	all := map[string]int{}
	for seed := *firstHistory; seed < *firstHistory+raced.Histories(*histories); seed++ {
		w := history(t, seed, "")
		if w.violated != "" {
			t.Fatalf("seed %d: %s", seed, w.violated)
		}
		for what, n := range w.count {
			all[what] += n
		}
	}
	for _, what := range []string{
		"offered to version", "offered to stage", "offered to run", "offered to lease", "lease over", "waits for a place", "late commit", "late commit refused", "lock given away", "restores", "given up",
		"version " + event.ChangeTakenBack, event.ChangeStopped, "run done", "run failed",
	} {
		if all[what] == 0 && !raced.Enabled { // all histories together have each of them
			t.Errorf("%q never happened: %v", what, all)
		}
	}
}

// TestTheBudgetCanBeBroken: the property finds planners that do not keep to the budget.
func TestTheBudgetCanBeBroken(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		"versions ignore the account", "stages ignore the account", "runs ignore the account", "leases ignore the account", "runs without the ledger", "turns do not count", "jobs do not count",
		"reports older than the last write",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				if history(t, seed, fault).violated != "" {
					return
				}
			}
			t.Error("no history breaks the budget")
		})
	}
}
