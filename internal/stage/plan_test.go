package stage_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/raced"
	"github.com/jorc/jorc/internal/recorded"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

// world is a stage in which everything can happen at any time.
type world struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	policy  cluster.StagePolicy
	allowed int
	book    stage.Book
	stops   stage.Stops
	spec    uint64 // index of stops
	seq     int    // of the ledger
	session int
	values  map[string]int // of the inputs that all hosts share
	bad     map[string]bool
	hosts   []*host
	gates   gates
	log     []string
	holds   bool // operators hold hosts, drain them, and end that

	recorder *recorded.Recorder // nil: plans are not recorded
}

type host struct {
	node, zone string
	up         bool
	critical   bool
	hold       string
	drained    bool
	wasOut     bool // it was out of service when it was offered a grant
	stop       bool // on_unhealthy = "stop"
	has, old   map[string]string
	grant      change.Grant // as it was last written
	reported
	seen   reported // as a lagging orchestrator knows it
	taking map[string]string
}

// reported is what a host says.
type reported struct {
	report cluster.StageReport
	answer cluster.Answer
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 15))
	n := 2 + r.IntN(8)
	w := &world{t: t, r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), values: map[string]int{"a": 0, "b": 0}, bad: map[string]bool{}, session: 1, spec: 1}
	w.allowed = 1 + r.IntN(3)
	w.policy = cluster.StagePolicy{MaxParallel: fmt.Sprint(w.allowed), Canary: r.IntN(3), ZoneByZone: r.IntN(2) == 0}
	w.addGates()
	for i := range n {
		w.hosts = append(w.hosts, &host{node: fmt.Sprintf("n%d", i), zone: string(rune('x' + r.IntN(3))), up: true, stop: r.IntN(3) == 0})
	}
	for _, h := range w.hosts {
		h.has = w.wanted(h)
		h.report.Policy = w.policy
		h.seen = h.reported
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

// set sets a value. One that was set before is as bad as it was.
func (w *world) set(name string, value int, bad bool) {
	w.values[name] = value
	digest := fmt.Sprint(name, value)
	if _, known := w.bad[digest]; !known {
		w.bad[digest] = bad
	}
	w.note("%s is set, bad: %v", digest, w.bad[digest])
	for _, h := range w.hosts {
		w.ask(h)
	}
}

func (w *world) plan() {
	s := stage.State{Stage: "edge", Session: fmt.Sprint("s", w.session), Spec: w.spec, Halted: []string{19: "paused"}[w.r.IntN(20)]}
	for _, h := range w.hosts {
		s.Hosts = append(s.Hosts, stage.Host{
			Host:   pace.Host{Node: h.node, Zone: h.zone, Up: h.up, Service: service(h.up, h.critical, h.drained), Hold: h.hold, Drained: drained(h.drained)},
			Report: h.seen.report, Answer: h.seen.answer, Grants: granted(h.grant),
		})
	}
	s.Gate = w.gateRun()
	p := stage.Plan(w.book, w.stops, s, w.now)
	w.record(s, p)
	for _, h := range w.hosts {
		if h.report.Open() || h.seen.report.Open() {
			w.gates.work = w.now // it had a grant until now
		}
	}
	w.checkGates(w.book.Step, s, p)
	w.checkOffers(s, p)
	stopped := !text.SameJSON(w.stops, p.Stops)
	if stopped {
		w.spec++
	}
	if stopped && len(p.Offers) > 0 {
		w.t.Fatalf("%v are offered a grant with stops that are replaced\n%s", p.Offers, strings.Join(w.log, "\n"))
	}
	if stopped || len(p.Grants) > 0 || !text.SameJSON(w.book, p.Book) {
		w.see()
	}
	w.book, w.stops, w.seq = p.Book, p.Stops, w.seq+1
	for _, n := range p.Grants {
		i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.node == n.Node })
		h, g := w.hosts[i], n.Grants[0]
		if g.State == pace.Offered {
			g.ID, g.Session = fmt.Sprintf("1.%d.%s", w.seq, s.Session), s.Session
		}
		h.grant, h.wasOut = g, h.critical
		if g.State == pace.Offered && (h.hold != "" || h.drained) {
			w.t.Fatalf("%s is offered a grant, and is held or drained\n%s", n.Node, strings.Join(w.log, "\n"))
		}
		w.note("grant of %s: %+v", n.Node, g)
	}
}

// see has the orchestrator read everything: no state is older than what it wrote last.
func (w *world) see() {
	for _, h := range w.hosts {
		h.seen = h.reported
	}
}

// service is why a host is out of service.
func service(up, critical, drained bool) pace.OutReason {
	switch {
	case !up:
		return pace.OutDown
	case critical:
		return pace.OutCritical
	case drained:
		return pace.OutMaintenance
	}
	return pace.InService
}

func drained(is bool) string {
	if is {
		return cluster.DrainedText
	}
	return ""
}

// granted is a host's document with one grant.
func granted(g change.Grant) (e kv.Entry[change.Grants]) {
	if g.Change != "" {
		e.Value.All = []change.Grant{g}
	}
	return e
}

// checkOffers holds a plan to its promise: no host is offered what failed on another
// one, as long as that one reports it and no operator approved it.
func (w *world) checkOffers(s stage.State, p stage.Planned) {
	for _, bad := range s.Hosts {
		resumed := func(stop stage.Stop) bool {
			return stop.Node == bad.Node && stop.Grant == bad.Answer.ID && stop.Resumed != nil
		}
		if !bad.Report.Unhealthy() || slices.ContainsFunc(p.Stops.Stops, resumed) {
			continue
		}
		for _, h := range s.Hosts {
			if h.Node != bad.Node && slices.Contains(p.Offers, h.Node) && slices.ContainsFunc(h.Report.Changed.List, func(i cluster.StageInput) bool { return bad.Report.Taken.Has(i.Digest) }) {
				w.t.Fatalf("%s is offered what failed on %s: %v\n%s", h.Node, bad.Node, bad.Report.Taken, strings.Join(w.log, "\n"))
			}
		}
	}
}

// take is what a host does with an offer, at the end of one transaction.
func (w *world) take(h *host) {
	next, g := w.wanted(h), h.grant
	if g.State != pace.Offered || g.ID == h.answer.ID || g.Session != fmt.Sprint("s", w.session) || g.Spec != w.spec ||
		g.Tag != content(next) || content(next) == content(h.has) || h.report.Open() {
		return
	}
	h.taking, h.old = next, h.has
	h.answer = cluster.Answer{Change: g.Change, ID: g.ID, Tag: g.Tag, State: cluster.GrantAccepted, Since: w.now}
	h.report.State, h.report.Taken = cluster.StageChanging, changed(h.has, next)
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
		h.answer.State, h.answer.Ended = cluster.GrantDone, w.now
		w.ask(h)
	}
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.r.IntN(8)) * time.Second)
	h := w.hosts[w.r.IntN(len(w.hosts))]
	if w.holds && w.r.IntN(15) == 0 {
		h.hold, h.drained = []string{"", "", "by ann"}[w.r.IntN(3)], w.r.IntN(4) == 0
		w.note("%s: hold %q, drained %v", h.node, h.hold, h.drained)
		return
	}
	switch w.r.IntN(44) {
	case 0, 1:
		name := []string{"a", "b", h.node}[w.r.IntN(3)]
		if w.values[name] > 0 && w.r.IntN(3) == 0 {
			w.set(name, w.values[name]-1, false) // set back
		} else {
			w.set(name, w.values[name]+1, w.r.IntN(3) == 0)
		}
	case 2:
		h.up = !h.up
	case 3:
		w.session++
		w.see()
	case 4:
		for i := range w.stops.Stops {
			w.stops.Stops[i].Resumed = &cluster.Hold{By: "ann"}
		}
		w.spec++
		w.note("resumed")
	case 40:
		h.critical = w.r.IntN(10) == 0
	case 41:
		w.approve()
	case 42, 43:
		w.answerGate(false)
	case 5, 6, 7, 8, 9, 10:
		h.seen = h.reported
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
		resumed := slices.ContainsFunc(w.stops.Stops, func(s stage.Stop) bool { return s.Node == h.node && s.Grant == h.answer.ID && s.Resumed != nil })
		if h.report.Open() {
			open = append(open, h.node)
		}
		if !h.wasOut && (h.report.Open() || h.report.State == cluster.StageFailed && !resumed) {
			bad = append(bad, h.node)
		}
	}
	if len(open) > w.allowed || len(bad) > w.allowed {
		w.t.Fatalf("%v are at work, %v are at work or have failed; %d may be: book %+v, stops %+v\n%s", open, bad, w.allowed, w.book, w.stops, strings.Join(w.log, "\n"))
	}
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// TestNeverMoreThanMaxParallel: whatever happens, no more hosts than the policy says
// are between accepting a grant and its end, and no host takes what failed on another one.
func TestNeverMoreThanMaxParallel(t *testing.T) {
	t.Parallel()
	for seed := range raced.Histories(400) {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
		}
	}
}

// TestHoldsInStages: the same while operators hold and drain hosts. Hosts that are held or drained
// get no grant, and have what they want once that has ended.
func TestHoldsInStages(t *testing.T) {
	t.Parallel()
	for seed := range raced.Histories(200) {
		w := newWorld(t, seed)
		w.holds = true
		for range 600 {
			w.step()
		}
		w.holds = false
		w.renew()
		w.arrive()
	}
}

// TestEverythingArrives: without bad values all hosts come to have what they want.
func TestEverythingArrives(t *testing.T) {
	t.Parallel()
	for seed := range raced.Histories(200) {
		w := newWorld(t, seed)
		for range 300 {
			w.step()
		}
		w.renew()
		w.arrive()
	}
}

// TestSetBackEndsTheStop: once a bad value is set back and no host wants it, nothing stops
// the stage, without an operator; a gate that failed because of it ends, too.
func TestSetBackEndsTheStop(t *testing.T) {
	t.Parallel()
	failed, gates := 0, 0
	for seed := range raced.Histories(200) {
		w := newWorld(t, seed)
		for range 100 {
			w.step()
		}
		w.renew()
		w.arrive()
		before := w.values["a"]
		w.set("a", before+1, true)
		for range 20 + w.r.IntN(200) {
			w.now = w.now.Add(time.Duration(w.r.IntN(8)) * time.Second)
			h := w.hosts[w.r.IntN(len(w.hosts))]
			switch w.r.IntN(6) {
			case 0:
				h.seen = h.reported
			case 1:
				w.plan()
			case 2:
				w.take(h)
			case 3:
				w.answerGate(false)
			default:
				w.work(h)
			}
			w.check()
		}
		if w.stops.Unresumed() {
			failed++
		}
		if slices.ContainsFunc(w.stops.Stops, func(s stage.Stop) bool { return s.Step != "" }) {
			gates++
		}
		w.set("a", before, false)
		w.arrive()
	}
	if failed < 50 && !raced.Enabled {
		t.Errorf("of 200 worlds %d were stopped, %d of them by a gate", failed, gates)
	}
}

// unused is more than the values that a world sets one after the other.
const unused = 1000

// renew gives all hosts values that never were, and are good.
func (w *world) renew() {
	w.bad = map[string]bool{}
	for _, h := range w.hosts {
		h.up, h.critical, h.hold, h.drained = true, false, "", false
		w.values[h.node] += unused
	}
	w.values["b"] += unused
	w.set("a", w.values["a"]+unused, false)
}

// arrive waits until all hosts have what they want, and nothing stops the stage.
func (w *world) arrive() {
	underway := func(h *host) bool { return content(h.has) != content(w.wanted(h)) || h.report.Open() }
	for round := 0; w.book.Active || w.stops.Unresumed() || slices.ContainsFunc(w.hosts, underway); round++ {
		if round == 2000 {
			w.t.Fatalf("book %+v, step %#v, stops %+v\n%s", w.book, w.book.Step, w.stops, strings.Join(w.log, "\n"))
		}
		w.now = w.now.Add(time.Second)
		for _, h := range w.hosts {
			h.seen = h.reported
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

// TestManyInputsKeepNoStop: a host that took more inputs than it reports, before, does not
// keep a gate's stop and its step from their end.
func TestManyInputsKeepNoStop(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	policy := cluster.StagePolicy{MaxParallel: "1", Gate: "slo"}
	bad, good := limit("bad"), limit("good")
	first := cluster.StageReport{Policy: policy, Rendered: true, State: cluster.StageDone, Taken: cluster.StageInputs{List: limit("older").List, More: 3}}
	canary := cluster.StageReport{Policy: policy, Rendered: true, State: cluster.StageDone, Taken: bad, Wants: "good", Changed: good}
	book := stage.Book{Active: true, Step: &stage.Step{
		Number: 1, Kind: stage.StepBatch, Size: 1, Hosts: map[string]bool{"n1": true}, Inputs: bad, Gate: &pace.GateProgress{Failed: true},
	}}
	stops := stage.Stops{Stops: []stage.Stop{{Step: "batch 1", Inputs: bad}}}
	hosts := []stage.Host{
		{Host: up("n1"), Report: canary, Answer: took("1.2.s", "bad")}, {Host: up("n2"), Report: first, Answer: took("1.1.s", "older")},
	}
	p := stage.Plan(book, stops, stage.State{Stage: "edge", Session: "s", Hosts: hosts}, now)
	if p.Stops.Unresumed() || len(p.Offers) > 0 {
		t.Errorf("after a gate failed: got %+v", p)
	}
	if p = stage.Plan(p.Book, p.Stops, stage.State{Stage: "edge", Session: "s", Hosts: hosts}, now); !slices.Equal(p.Offers, []string{"n1"}) {
		t.Errorf("once no stop is left: got %+v", p)
	}
	stops.Stops[0] = stage.Stop{Node: "n1", Grant: "1.2.s", Inputs: bad}
	book.Step.Gate = nil
	hosts[0].Report.State, hosts[0].Report.Wants, hosts[0].Report.Changed = cluster.StageRestored, "", cluster.StageInputs{}
	if p := stage.Plan(book, stops, stage.State{Stage: "edge", Session: "s", Hosts: hosts}, now); p.Stops.Unresumed() || p.Book.Step != nil || p.Book.Active {
		t.Errorf("after a host failed: got %+v", p)
	}
}

// TestRepairBeforeItsTurn: a host that is out of service takes other content before its turn where it uses up the room of the hosts
// whose turn it is. They would wait for it for ever.
func TestRepairBeforeItsTurn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	zoned := func(node, zone string, out pace.OutReason, state string) stage.Host {
		h := stage.Host{Host: up(node), Answer: took("1.1.s", "bad"), Report: cluster.StageReport{
			Policy: cluster.StagePolicy{MaxParallel: "1", ZoneByZone: true}, Rendered: true, State: state, Taken: limit("bad"), Wants: "good", Changed: limit("good"),
		}}
		h.Zone, h.Service = zone, out
		return h
	}
	done, failed := cluster.StageDone, cluster.StageFailed
	for _, test := range []struct {
		name    string
		first   stage.Host
		second  stage.Host
		crowded time.Duration // so long hosts that are out have kept the others from a grant
		want    []string
	}{
		{"all are in service", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.InService, done), 0, []string{"n1"}},
		{"a change failed on the second", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutCritical, failed), 0, []string{"n2"}},
		{"its old files are back, and it is still out", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutCritical, cluster.StageRestored), 0, []string{"n2"}},
		{"its check fails for a reason that is not known", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutCritical, done), 0, nil},
		{"the same almost five minutes later", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutCritical, done), 5*time.Minute - time.Second, nil},
		{"the same after five minutes", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutCritical, done), 5 * time.Minute, []string{"n2"}},
		{"maintenance mode after five minutes", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.OutMaintenance, done), 5 * time.Minute, []string{"n2"}},
		{"it is back", zoned("n1", "a", pace.InService, done), zoned("n2", "b", pace.InService, failed), 0, []string{"n1"}},
		{"both are out", zoned("n1", "a", pace.OutCritical, failed), zoned("n2", "b", pace.OutCritical, failed), 0, []string{"n1"}},
	} {
		hosts, stops, book := []stage.Host{test.first, test.second}, stage.Stops{}, stage.Book{}
		if test.crowded > 0 {
			book.Crowded = now.Add(-test.crowded)
		}
		for _, h := range hosts {
			if h.Report.Unhealthy() {
				stops.Stops = append(stops.Stops, stage.Stop{Node: h.Node, Grant: "1.1.s", Content: "bad", Inputs: limit("bad"), Resumed: &cluster.Hold{By: "ann"}})
			}
		}
		p := stage.Plan(book, stops, stage.State{Stage: "edge", Session: "s", Hosts: hosts}, now)
		if !slices.Equal(p.Offers, test.want) {
			t.Errorf("%s: %v are offered a grant, want %v", test.name, p.Offers, test.want)
		}
		if len(test.want) == 0 {
			since := now.Add(-test.crowded)
			if again := since.Add(5 * time.Minute); !p.Book.Crowded.Equal(since) || test.crowded > 0 && !p.Again.Equal(again) {
				t.Errorf("%s: crowded since %v, and planned again at %v; want %v, %v", test.name, p.Book.Crowded, p.Again, since, again)
			}
		}
		for i := range hosts { // the same where steps have gates
			hosts[i].Report.Policy.ApproveEach = true
		}
		s := stage.State{Stage: "edge", Session: "s", Hosts: hosts}
		if p = stage.Plan(book, stops, s, now); !slices.Equal(p.Offers, test.want) || (p.Book.Step == nil) != (len(test.want) == 0 || test.want[0] == "n2") {
			t.Errorf("%s: %v are offered a grant in step %+v, want %v", test.name, p.Offers, p.Book.Step, test.want)
		}
	}
}

// TestFailedBeforeItsStop: a host on which a change failed is out of service from its report on, not only
// once the stop is recorded, until an operator approves the change.
func TestFailedBeforeItsStop(t *testing.T) {
	t.Parallel()
	host := &cluster.Host{Node: "n1", Report: cluster.Report{}.WithStage("edge", cluster.StageReport{State: cluster.StageFailed, Taken: limit("bad")}).WithAnswer(took("1.2.s", "bad"))}
	stop := stage.Stop{Node: "n1", Grant: "1.2.s", Inputs: limit("bad")}
	resumed := stop
	resumed.Resumed = &cluster.Hold{By: "ann"}
	older := stop
	older.Grant, older.Resumed = "1.1.s", resumed.Resumed
	for _, test := range []struct {
		name  string
		stops []stage.Stop
		want  bool
	}{
		{"not recorded", nil, true},
		{"recorded", []stage.Stop{stop}, true},
		{"an older one was approved", []stage.Stop{older}, true},
		{"approved", []stage.Stop{resumed}, false},
	} {
		documents := map[string]stage.Documents{"edge": {Stage: "edge", Stops: stage.Stops{Stops: test.stops}}}
		if why, name := stage.HoldsOf(host, granted(change.Grant{}), documents); (name == "edge") != test.want || why.Failed != test.want {
			t.Errorf("%s: stage %q keeps it out of service (%+v), want that: %t", test.name, name, why, test.want)
		}
	}
}

// took is the answer of a host that has done what it was granted.
func took(id, content string) cluster.Answer {
	return cluster.Answer{Change: cluster.FilesChange("edge"), ID: id, Tag: content, State: cluster.GrantDone}
}

// up is a host that is up.
func up(node string) pace.Host { return pace.Host{Node: node, Up: true} }

// limit is an input of hosts.
func limit(value string) cluster.StageInputs {
	return cluster.StageInputsOf([]cluster.StageInput{{Name: "key limit", Digest: value}})
}

// BenchmarkPlan: 5,000 hosts in ten zones want the same change, and a canary is out.
func BenchmarkPlan(b *testing.B) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := stage.State{Stage: "pool", Session: "session"}
	inputs := cluster.StageInputsOf([]cluster.StageInput{{Name: "key a", Digest: "a1"}})
	for i := range 5000 {
		s.Hosts = append(s.Hosts, stage.Host{
			Host: pace.Host{Node: fmt.Sprintf("n%04d", i), Zone: fmt.Sprint(i % 10), Up: true},
			Report: cluster.StageReport{
				Policy: cluster.StagePolicy{MaxParallel: "10%", Canary: 1, ZoneByZone: true}, Rendered: true, Wants: "w", Changed: inputs,
			},
		})
	}
	var offered int
	for b.Loop() {
		plan := stage.Plan(stage.Book{}, stage.Stops{}, s, now)
		offered = len(plan.Offers)
		stage.Describe(stage.Documents{Book: plan.Book}, s, true, now)
	}
	if offered != 1 {
		b.Fatalf("%d hosts were offered a grant, want the canary", offered)
	}
}
