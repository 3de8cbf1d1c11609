package stage_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/recorded"
	"github.com/jorc/jorc/internal/stage"
)

// world is a stage in which everything can happen at any time.
type world struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	policy  cluster.StagePolicy
	allowed int
	turns   stage.Turns
	stops   stage.Stops
	session int
	values  map[string]int // of the inputs that all hosts share
	bad     map[string]bool
	hosts   []*host
	gates   gates
	log     []string

	recorder *recorded.Recorder // nil: plans are not recorded
}

type host struct {
	node, zone string
	up         bool
	critical   bool
	wasOut     bool // it was out of service when it was offered its turn
	stop       bool // on_unhealthy = "stop"
	has, old   map[string]string
	turn       stage.Turn // as it was last written
	report     cluster.StageReport
	seen       cluster.StageReport // as a lagging orchestrator knows it
	taking     map[string]string
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 15))
	n := 2 + r.IntN(8)
	w := &world{t: t, r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), values: map[string]int{"a": 0, "b": 0}, bad: map[string]bool{}, session: 1}
	w.allowed = 1 + r.IntN(3)
	w.policy = cluster.StagePolicy{MaxParallel: fmt.Sprint(w.allowed), Canary: r.IntN(3), ZoneByZone: r.IntN(2) == 0}
	w.addGates()
	for i := range n {
		w.hosts = append(w.hosts, &host{node: fmt.Sprintf("n%d", i), zone: string(rune('x' + r.IntN(3))), up: true, stop: r.IntN(3) == 0})
	}
	for _, h := range w.hosts {
		h.has = w.wanted(h)
		h.report.Policy = w.policy
		h.seen = h.report
	}
	return w
}

// wanted are the digests of a host's inputs: two that all share, and one of its own.
func (w *world) wanted(h *host) map[string]string {
	return map[string]string{"a": fmt.Sprint("a", w.values["a"]), "b": fmt.Sprint("b", w.values["b"]), "own": fmt.Sprint(h.node, w.values[h.node])}
}

func content(m map[string]string) string { return m["a"] + m["b"] + m["own"] }

func changed(has, next map[string]string) cluster.StageInputs {
	var list []cluster.StageInput
	for name, digest := range next {
		if has[name] != digest {
			list = append(list, cluster.StageInput{Name: name, Digest: digest})
		}
	}
	return cluster.StageInputsOf(list)
}

// ask is what the template engine does after each change.
func (w *world) ask(h *host) {
	next := w.wanted(h)
	h.report.Wants, h.report.Changed = "", cluster.StageInputs{}
	if content(next) != content(h.has) {
		h.report.Wants, h.report.Changed = content(next), changed(h.has, next)
	}
}

func (w *world) plan() {
	s := stage.State{Stage: "edge", Session: fmt.Sprint("s", w.session), Halted: w.r.IntN(20) == 0}
	for _, h := range w.hosts {
		report := h.seen
		if _, open := w.turns.Open[h.node]; open {
			report = h.report
		}
		s.Hosts = append(s.Hosts, stage.Host{Node: h.node, Zone: h.zone, Up: h.up, Out: !h.up || h.critical, Critical: h.critical, Report: report})
	}
	s.Gate = w.gateRun()
	p := stage.Plan(w.turns, w.stops, s, w.now)
	w.record(s, p)
	for _, h := range w.hosts {
		if h.report.Open() || h.report.Turn != "" && w.turns.Open[h.node].ID == h.report.Turn {
			w.gates.work = w.now // it had a turn until now
		}
	}
	w.checkGates(w.turns.Step, s, p)
	w.turns, w.stops = p.Turns, p.Stops
	for _, node := range slices.Concat(p.Withdrawals, p.Offers) {
		i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.node == node })
		w.hosts[i].turn, w.hosts[i].wasOut = p.Turns.Open[node], w.hosts[i].critical
		w.note("turn of %s: %+v", node, p.Turns.Open[node])
	}
}

// take is what a host does with an offer, at the end of one transaction.
func (w *world) take(h *host) {
	next := w.wanted(h)
	_, stopped := w.stops.Blocking(h.node, content(next), changed(h.has, next))
	if h.turn.ID == "" || h.turn.ID == h.report.Turn || h.turn.Withdrawn || h.turn.Session != fmt.Sprint("s", w.session) ||
		h.turn.Content != content(next) || content(next) == content(h.has) || h.report.Open() || stopped {
		return
	}
	h.taking, h.old = next, h.has
	h.report.Turn, h.report.State, h.report.Content, h.report.Taken = h.turn.ID, cluster.StageChanging, content(next), changed(h.has, next)
	h.report.Wants, h.report.Changed = "", cluster.StageInputs{}
	w.note("%s takes %v", h.node, h.report.Taken)
	w.took(h)
	for _, i := range h.report.Taken.List {
		if slices.ContainsFunc(w.stops.Stops, func(s stage.Stop) bool {
			return (s.Step != "" || w.bad[i.Digest] && s.Node != h.node) && s.Resumed == nil && s.Inputs.Has(i.Digest)
		}) {
			w.t.Fatalf("%s takes %s, which is stopped\n%s", h.node, i.Digest, strings.Join(w.log, "\n"))
		}
	}
}

func (w *world) work(h *host) {
	switch h.report.State {
	case cluster.StageChanging:
		h.report.State, h.has = cluster.StageSettling, h.taking
	case cluster.StageSettling:
		h.report.State = cluster.StageDone
		if slices.ContainsFunc(h.report.Taken.List, func(i cluster.StageInput) bool { return w.bad[i.Digest] }) {
			h.report.State = cluster.StageFailed
			if !h.stop {
				h.report.State = cluster.StageRestoring
			}
		}
		w.note("%s is %s", h.node, h.report.State)
	case cluster.StageRestoring:
		h.report.State, h.has = cluster.StageRestored, h.old
	default:
		return
	}
	if !h.report.Open() {
		w.ask(h)
	}
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.r.IntN(8)) * time.Second)
	h := w.hosts[w.r.IntN(len(w.hosts))]
	switch w.r.IntN(44) {
	case 0, 1:
		name := []string{"a", "b", h.node}[w.r.IntN(3)]
		w.values[name]++
		digest := fmt.Sprint(name, w.values[name])
		w.bad[digest] = w.r.IntN(3) == 0
		w.note("%s is set, bad: %v", digest, w.bad[digest])
		for _, h := range w.hosts {
			w.ask(h)
		}
	case 2:
		h.up = !h.up
	case 3:
		w.session++
	case 4:
		for i := range w.stops.Stops {
			w.stops.Stops[i].Resumed = &cluster.Hold{By: "ann"}
		}
		w.note("resumed")
	case 40:
		h.critical = w.r.IntN(10) == 0
	case 41:
		w.approve()
	case 42, 43:
		w.answerGate(false)
	case 5, 6, 7, 8, 9, 10:
		h.seen = h.report
	case 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
		w.plan()
	case 21, 22, 23, 24, 25, 26, 27:
		if h.up {
			w.take(h)
		}
	default:
		if h.up {
			w.work(h)
		}
	}
	w.check()
}

func (w *world) check() {
	var open, bad []string
	for _, h := range w.hosts {
		resumed := slices.ContainsFunc(w.stops.Stops, func(s stage.Stop) bool { return s.Node == h.node && s.Turn == h.report.Turn && s.Resumed != nil })
		if h.report.Open() {
			open = append(open, h.node)
		}
		if !h.wasOut && (h.report.Open() || h.report.State == cluster.StageFailed && !resumed) {
			bad = append(bad, h.node)
		}
	}
	if len(open) > w.allowed || len(bad) > w.allowed {
		w.t.Fatalf("%v are at work, %v are at work or have failed; %d may be: turns %+v, stops %+v\n%s", open, bad, w.allowed, w.turns, w.stops, strings.Join(w.log, "\n"))
	}
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// TestNeverMoreThanMaxParallel: whatever happens, no more hosts than the policy says
// are between taking a turn and its end, and no host takes what failed on another one.
func TestNeverMoreThanMaxParallel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
		}
	}
}

// TestEverythingArrives: without bad values all hosts come to have what they want.
func TestEverythingArrives(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		for range 300 {
			w.step()
		}
		w.values["a"], w.values["b"], w.bad = w.values["a"]+1, w.values["b"]+1, map[string]bool{}
		for _, h := range w.hosts {
			h.up, h.critical = true, false
			w.values[h.node]++
			w.ask(h)
		}
		for round := 0; slices.ContainsFunc(w.hosts, func(h *host) bool { return content(h.has) != content(w.wanted(h)) || h.report.Open() }); round++ {
			if round == 2000 {
				t.Fatalf("seed %d: turns %+v, step %#v, stops %+v\n%s", seed, w.turns, w.turns.Step, w.stops, strings.Join(w.log, "\n"))
			}
			w.now = w.now.Add(time.Second)
			for _, h := range w.hosts {
				h.seen = h.report
			}
			w.plan()
			w.answerGate(true)
			w.approve()
			for _, h := range w.hosts {
				w.take(h)
				w.work(h)
				w.check()
			}
		}
	}
}

// BenchmarkPlan: 5,000 hosts in ten zones want the same change, and a canary is out.
func BenchmarkPlan(b *testing.B) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := stage.State{Stage: "pool", Session: "session"}
	inputs := cluster.StageInputsOf([]cluster.StageInput{{Name: "key a", Digest: "a1"}})
	for i := range 5000 {
		s.Hosts = append(s.Hosts, stage.Host{
			Node: fmt.Sprintf("n%04d", i), Zone: fmt.Sprint(i % 10), Up: true,
			Report: cluster.StageReport{
				Policy: cluster.StagePolicy{MaxParallel: "10%", Canary: 1, ZoneByZone: true}, Rendered: true, Wants: "w", Changed: inputs,
			},
		})
	}
	var offered int
	for b.Loop() {
		plan := stage.Plan(stage.Turns{}, stage.Stops{}, s, now)
		offered = len(plan.Offers)
		stage.Describe(stage.Documents{Turns: plan.Turns}, s, true, now)
	}
	if offered != 1 {
		b.Fatalf("%d hosts were offered a turn, want the canary", offered)
	}
}
