package pace_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/raced"
)

var histories = flag.Uint64("histories", 40, "random histories of TestHistories")

// TestHistories goes through random histories of a fleet with changes of all kinds: hosts answer or do not, fail,
// die, are drained and join, operators and orchestrators come and go. At each plan world.plan holds package
// pace to what it promises: planning again on a plan decides nothing more, and Explain has no reason exactly
// for the hosts that are offered a grant. The budget, lone hosts, who comes first, and that a damaged change is
// of no concern to the others are held to here.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range raced.Histories(*histories) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible
		w := newWorld(t)
		w.sampled = true
		w.say("seed %d", seed)
		for i := range 2 + r.IntN(8) {
			w.randomHost(r, i)
		}
		for range 120 {
			w.now = w.now.Add(time.Duration(r.IntN(40)) * time.Second)
			for range 1 + r.IntN(3) {
				w.random(r)
			}
			before := w.situation()
			w.alone(before)
			w.plan()
			w.held(before)
		}
		w.ends(r)
	}
}

func (w *world) randomHost(r *rand.Rand, i int) {
	h := w.join(fmt.Sprintf("n%02d", i), []string{"a", "b", "c"}[r.IntN(3)], []string{"web", "db", "cache"}[r.IntN(3)])
	if r.IntN(2) == 0 {
		h.Lone = [][]string{{pace.ConsulServer}, {pace.Candidate}, {pace.ConsulServer, pace.Candidate}}[r.IntN(3)]
	}
}

// randomPolicy is one that is not plain.
func randomPolicy(r *rand.Rand) pace.Policy {
	p := pace.Policy{MaxParallel: pace.Amount{N: 1 + r.IntN(3)}, MaxFailures: r.IntN(3), Canary: r.IntN(3), ZoneByZone: r.IntN(4) == 0, ApproveEach: r.IntN(5) == 0}
	if r.IntN(2) == 0 {
		p.MaxParallel = pace.Amount{N: 20 + r.IntN(60), Percent: true}
	}
	if r.IntN(3) == 0 {
		p.Batches = []pace.Amount{{N: p.Canary + 1}, {N: 60, Percent: true}, {N: 100, Percent: true}}
	}
	if r.IntN(4) == 0 {
		p.Order = []pace.Role{{Name: "db", Limit: pace.Amount{N: 1}}, {Name: "web"}, {Name: "cache", Kept: r.IntN(2) == 0}}
	}
	if r.IntN(2) == 0 {
		p.OnFailure = pace.OnFailureRollback
	}
	if r.IntN(2) == 0 {
		p.MinHealthy, p.Bake = pace.Duration(time.Second), pace.Duration(r.IntN(60))*pace.Duration(time.Second)
	}
	if r.IntN(4) == 0 {
		p.NodeDeadline, p.ProgressDeadline = pace.Duration(10*time.Minute), pace.Duration(20*time.Minute)
	}
	if r.IntN(3) == 0 {
		p.Gate = pace.Gate{Workflow: "slo"}
	}
	return p.Complete()
}

// random is one thing that happens.
func (w *world) random(r *rand.Rand) {
	nodes := w.nodes()
	node := nodes[r.IntN(len(nodes))]
	h := w.hosts[node]
	switch k := r.IntN(40); {
	case k < 16:
		w.answer(r, node)
	case k == 16:
		h.Up, h.DownSince = !h.Up, w.now
	case k == 17:
		h.critical = !h.critical
	case k == 18:
		h.drained = !h.drained
	case k == 19:
		h.Hold = map[bool]string{true: "by ann"}[r.IntN(3) == 0]
	case k == 20 && len(nodes) < 14:
		w.randomHost(r, len(nodes))
	case k == 21:
		w.crash()
	case k == 22:
		w.quiet = w.now.Add(time.Duration(r.IntN(20)) * time.Second)
	case k == 23:
		w.halted = map[bool]string{true: "the cluster is paused"}[r.IntN(4) == 0]
	case k == 24:
		w.budget = []*pace.Budget{nil, {MaxOut: pace.Amount{N: 1 + r.IntN(3)}}, {Zones: 1, MaxOut: pace.Amount{N: 50, Percent: true}}, {Roles: map[string]pace.Amount{"db": {N: 1}}}}[r.IntN(4)]
	case k == 25:
		w.freezes = pace.Freezes{{ID: "f", From: w.now, To: w.now.Add(time.Duration(1+r.IntN(300)) * time.Second), Roles: [][]string{nil, {"db"}}[r.IntN(2)]}}
	case k == 26:
		for _, o := range w.hosts {
			o.Holder = o == h
		}
	case k < 31:
		w.ask(r, node)
	default:
		w.tell(r)
	}
	if !h.Up && h.DownSince.IsZero() {
		h.DownSince = w.now
	}
}

// answer is what a host does with one of its grants.
func (w *world) answer(r *rand.Rand, node string) {
	h := w.hosts[node]
	if len(h.Parts) == 0 || !h.Up {
		return
	}
	p := h.Parts[r.IntN(len(h.Parts))]
	c := w.changes[p.Change]
	var err error
	switch {
	case p.Offered() && r.IntN(5) == 0:
		err = w.decline(node, p.Change, "the disk is full")
	case p.Offered():
		err = w.accept(node, p.Change)
	case p.Declined && !p.Ready:
		h.part(p.Change).Ready = true
	case p.Open() && c.Tag != p.Tag && p.Answer != pace.GrantStrands:
		err = w.strand(node, p.Change)
	case p.Open() && c.Tag != p.Tag:
	case p.Open() && r.IntN(6) == 0:
		err = w.fail(node, p.Change, "exit 1")
	case p.Open() && r.IntN(8) == 0:
		err = w.giveUp(node, p.Change)
	case p.Open() && r.IntN(3) == 0:
		err = w.arrive(node, p.Change)
	case p.Open():
		err = w.done(node, p.Change)
	}
	if err != nil {
		w.fatal("%s: %v", node, err)
	}
	w.say("%s: %s: %+v", node, p.Change, *h.part(p.Change))
}

// ask begins a change.
func (w *world) ask(r *rand.Rand, node string) {
	p := randomPolicy(r)
	switch k := r.IntN(4); {
	case k == 0:
		previous := "v0"
		if before := w.changes["version"]; before != nil {
			previous = before.Tag
		}
		w.begin("version", fmt.Sprint("v", w.now.Unix()), func(c *worldChange) { c.Policy, c.previous = p, previous })
	case k == 1:
		w.begin("files.edge", fmt.Sprint("content", w.now.Unix()), func(c *worldChange) { c.Policy = p })
	case k == 2:
		w.begin("run.patch", fmt.Sprint("patch", w.now.Unix()), func(c *worldChange) { c.Policy, c.Final, c.Disturbs = p, true, r.IntN(2) == 0 })
	case node < "n03": // few leases
		w.begin("lease."+node, fmt.Sprint("lease", w.now.Unix()), func(c *worldChange) {
			c.Policy, c.Final, c.nodes = pace.Policy{MaxParallel: pace.Amount{N: 1}}.Complete(), true, []string{node}
			c.Lease = true
		})
	}
	w.say("changes: %d", len(w.changes))
}

// tell is what an operator, or a gate, says to a change.
func (w *world) tell(r *rand.Rand) {
	ids := slices.Sorted(func(yield func(string) bool) {
		for id := range w.changes {
			if !yield(id) {
				return
			}
		}
	})
	if len(ids) == 0 {
		return
	}
	c := w.changes[ids[r.IntN(len(ids))]]
	switch r.IntN(6) {
	case 0:
		w.promote(c)
	case 1:
		c.Stopped = "it was paused by ann"
	case 2, 3:
		w.resume(c)
	default:
		if c.Gate != nil && c.Gate.Run != "" {
			c.Asked = &pace.GateRun{ID: c.Gate.Run, Answer: []pace.GateAnswer{pace.GateYes, pace.GateYes, pace.GateNo, pace.GateUnanswered}[r.IntN(4)]}
		}
		return
	}
	w.void(c.ID)
}

// promote is an operator's consent.
func (w *world) promote(c *worldChange) {
	c.Approval = &pace.Approval{Step: c.Steps, By: "ann", At: w.now}
	c.Promoted = c.Promoted || c.Phase == pace.Canary && !c.Policy.ApproveEach
}

// resume ends a pause.
func (w *world) resume(c *worldChange) {
	if c.Stopped != "" {
		c.Stopped, c.Forgive, c.Since = "", true, pace.Second(w.now)
		w.reask(c)
	}
}

// held fails the test if more hosts are out of service than the budget allows, beside the hosts that were out
// already or fell out by themselves, or if two lone hosts are.
func (w *world) held(before pace.Situation) {
	w.t.Helper()
	if w.budget == nil {
		return
	}
	s := w.situation()
	was := map[string]bool{}
	for _, h := range before.Hosts {
		was[h.Node] = h.Out != ""
	}
	taken := func(h pace.Host) bool { return h.Out != "" && !h.GivenUp && !was[h.Node] }
	news := slices.ContainsFunc(s.Hosts, taken)
	for _, u := range s.Places.Uses() {
		if u.Kind != pace.OfZones && news && u.Out > u.Allowed && slices.ContainsFunc(s.Hosts, func(h pace.Host) bool {
			return taken(h) && (u.Kind == pace.OfCluster || slices.Contains(h.Roles, u.Name))
		}) {
			w.fatal("hosts were taken out beyond %s", u.Limit)
		}
	}
	for i, a := range s.Hosts {
		for _, b := range s.Hosts[:i] {
			lone := slices.ContainsFunc(a.Lone, func(word string) bool { return slices.Contains(b.Lone, word) && word == pace.ConsulServer })
			if lone && (taken(a) && b.Out != "" && !b.GivenUp || taken(b) && a.Out != "" && !a.GivenUp) {
				w.fatal("%s and %s are both %v, and out", a.Node, b.Node, a.Lone)
			}
		}
	}
}

// alone fails the test if a damaged change makes a difference to the others.
func (w *world) alone(s pace.Situation) {
	w.t.Helper()
	planned := pace.Plan(s, w.now)
	damaged := pace.Change{ID: "a-damaged-one", Tag: "x", Policy: pace.Policy{MaxFailures: -1}, Disturbs: true, Progress: pace.Progress{Phase: pace.Waiting}}
	for _, h := range s.Hosts {
		damaged.Wants = append(damaged.Wants, pace.Want{Node: h.Node})
	}
	s.Changes = append(slices.Clone(s.Changes), damaged)
	beside := pace.Plan(s, w.now)
	delete(beside, damaged.ID)
	if diff := cmp.Diff(planned, beside); diff != "" {
		w.fatal("beside a damaged change the others are planned otherwise: %s", diff)
	}
}

// ends fails the test unless every change ends once faults have ended and operators answer.
func (w *world) ends(r *rand.Rand) {
	w.t.Helper()
	w.halted, w.quiet, w.freezes, w.budget = "", time.Time{}, nil, nil
	for _, h := range w.hosts {
		h.Up, h.DownSince, h.critical, h.drained, h.Hold, h.Holder = true, time.Time{}, false, false, "", false
	}
	for range 400 {
		w.now = w.now.Add(time.Minute)
		w.plan()
		over := true
		for _, c := range w.changes {
			over = over && c.Over()
		}
		w.consent()
		if over {
			return
		}
		w.obey(r, "")
	}
	for id, c := range w.changes {
		if !c.Over() {
			v := pace.NewSurvey(w.situation(), w.change(c), w.now)
			w.fatal("%s does not end: %s, %+v; it waits for %v", id, v.StateText(), v.Now, v.Waits())
		}
	}
}

// obey has all hosts do their parts: what fails does so on each host, for ever.
func (w *world) obey(r *rand.Rand, fails string) {
	w.t.Helper()
	for _, node := range w.nodes() {
		h := w.hosts[node]
		for _, p := range slices.Clone(h.Parts) {
			var err error
			switch c := w.changes[p.Change]; {
			case p.Offered():
				err = w.accept(node, p.Change)
			case p.Open() && c.Tag != p.Tag && p.Answer != pace.GrantStrands:
				err = w.strand(node, p.Change)
			case p.Answer == pace.GrantStrands && r.IntN(10) == 0: // its turn may come after that of one that waits for its place
				err = w.giveUp(node, p.Change)
			case p.Open() && p.Change == fails:
				err = w.fail(node, p.Change, "exit 1")
			case p.Open() && c.Tag == p.Tag:
				err = w.done(node, p.Change)
			case p.Declined:
				h.part(p.Change).Ready = true
			}
			if err != nil {
				w.fatal("%s: %v", node, err)
			}
		}
	}
}

// TestFailingForEver: beside a version that fails on each host, for ever, each other change ends, or it
// waits for the budget, which the failed hosts use up, and says so.
func TestFailingForEver(t *testing.T) {
	t.Parallel()
	waits := 0
	for seed := range raced.Histories(*histories) {
		r := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // reproducible
		w := newWorld(t)
		w.sampled = true
		w.say("seed %d", seed)
		for i := range 3 + r.IntN(6) {
			w.randomHost(r, i)
		}
		if r.IntN(3) > 0 {
			w.budget = &pace.Budget{MaxOut: pace.Amount{N: 1 + r.IntN(4)}}
		}
		for i, id := range []string{"version", "files.edge", "run.patch", "run.backup"} {
			w.begin(id, fmt.Sprint("x", i), func(c *worldChange) {
				c.Policy, c.Final, c.Disturbs = randomPolicy(r), i > 1, i < 3
				c.Policy.OnFailure, c.Policy.MaxFailures, c.Policy.NodeDeadline, c.Policy.ProgressDeadline = pace.OnFailurePause, pace.MostMembers, 0, 0
			})
		}
		for range 200 {
			w.now = w.now.Add(time.Minute)
			w.plan()
			w.consent()
			w.obey(r, "version")
		}
		s := w.situation()
		for id, c := range w.changes {
			if id == "version" || c.Over() {
				continue
			}
			budget := slices.ContainsFunc(s.Hosts, func(h pace.Host) bool { return pace.Explain(s, id, h.Node, w.now).Code == pace.BecauseBudget })
			if waits++; w.budget == nil || !budget || !c.Disturbs {
				v := pace.NewSurvey(s, w.change(c), w.now)
				w.fatal("%s does not end: %s, %+v; it waits for %v", id, v.StateText(), v.Now, v.Waits())
			}
		}
	}
	if waits == 0 {
		t.Error("no change ever waited for the budget: the test shows nothing")
	}
}

// consent is what operators and gates answer to all changes.
func (w *world) consent() {
	for _, c := range w.changes {
		w.resume(c)
		if v := pace.NewSurvey(w.situation(), w.change(c), w.now); v.WaitsForApproval() {
			w.promote(c)
		}
		if c.Gate != nil && c.Gate.Run != "" {
			c.Asked = &pace.GateRun{ID: c.Gate.Run, Answer: pace.GateYes}
		}
	}
}
