package budget_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// world is a cluster with a budget in memory: what is in KV, hosts that obey it, and orchestrators
// of which each plans versions, leases, stages and runs, and whose transactions may be carried out late.
type world struct {
	t     testing.TB
	r     *rand.Rand
	fault string // what the orchestrators do wrong; empty: nothing
	store *kv.Store
	all   *rollout.Rollouts

	now   time.Time
	index uint64
	hosts []*host
	calm  bool // nothing fails by itself

	budget  *pace.Budget
	control uint64 // index of the budget
	desired string
	doc     rollout.Document
	docAt   uint64
	stages  map[string]*documents
	runs    map[string]runs.Active
	runAt   map[string]uint64 // index of the run's own document
	bad     map[string]bool   // digests of inputs with which checks fail

	session int
	holder  *host // nil: a host that is not a member
	ledger  kv.Entry[change.Ledger]
	renewed bool   // the ledger is as this session wrote it last
	barrier uint64 // reports that are older than that are not planned on
	demands map[string]pace.Demand
	healthy map[string]time.Time // when members were last seen out of service
	down    map[string]time.Time
	sent    []transaction // whose outcome its orchestrator does not know

	allowed  map[string]int // how many may be out by limit, as a budget that is lowered ends nothing
	log      []string
	count    map[string]int // what happened
	violated string
}

type documents struct {
	book    stage.Book
	stops   stage.Stops
	at      uint64
	stopsAt uint64
}

// transaction is an offer with what it was made of.
type transaction struct {
	what    string
	look    *look
	session int
	ledger  kv.Entry[change.Ledger]
	control uint64
	nodes   []string // that it takes out of service
	ready   func() bool
	do      func(l change.Ledger)
}

// look is what a planner saw.
type look struct {
	state   cluster.State
	members rollout.State
	stored  rollout.Stored
	ledger  kv.Entry[change.Ledger]
	base    *pace.Account
	stages  map[string]documents
	self    map[string]bool // hosts that were out of service by themselves
	mine    map[string]bool // hosts that had a place of the budget
	busy    map[string]bool // hosts that were counted as out of service
}

type host struct {
	node, zone string
	roles      []string
	server     bool // of Consul
	candidate  bool
	up         bool
	critical   bool
	drained    bool

	version  string
	grant    change.Grant
	grantAt  uint64
	answer   cluster.Answer
	failed   bool // its convergence
	lease    leased
	parts    map[string]*part
	queue    runs.Queue
	queueAt  uint64
	reportAt uint64
	before   cluster.Report // that it wrote until reportAt

	mine       bool // it has a place of the budget
	mineBefore bool // it had one until reportAt
}

// leased is the lease that a host asks for, or has.
type leased struct {
	wish   cluster.Wish // the zero Wish: it asks for none
	grant  change.Grant // as it was last written
	answer cluster.Answer
}

// part is a host's part of a stage.
type part struct {
	has, old, taking int
	grant            change.Grant // as it was last written
	report           cluster.StageReport
	answer           cluster.Answer
}

var stageNames = []string{"core", "edge"}

func newWorld(t testing.TB, seed uint64, fault string) *world {
	client, err := consul.New(config.Consul{Address: "127.0.0.1:1"}) // no request is sent
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 27)), fault: fault, //nolint:gosec // reproducible
		store: kv.New(client, "jorc/prod"), all: rollout.New(client, "jorc", "prod"),
		now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), index: 10, control: 1, stages: map[string]*documents{}, runs: map[string]runs.Active{},
		runAt: map[string]uint64{}, bad: map[string]bool{}, demands: map[string]pace.Demand{}, count: map[string]int{},
	}
	for _, name := range stageNames {
		w.stages[name] = &documents{at: 1, stopsAt: 1}
	}
	policies := map[string]cluster.StagePolicy{}
	for _, name := range stageNames {
		policies[name] = cluster.StagePolicy{MaxParallel: fmt.Sprint(1 + w.r.IntN(4)), Canary: w.r.IntN(2), ZoneByZone: w.r.IntN(3) == 0}
	}
	for i := range 4 + w.r.IntN(7) {
		h := &host{
			node: fmt.Sprintf("n%d", i), zone: string(rune('a' + w.r.IntN(3))), roles: []string{[]string{"db", "web"}[w.r.IntN(2)]}, up: true, version: "v0",
			server: i < 3 && w.r.IntN(2) == 0, candidate: w.r.IntN(3) == 0, parts: map[string]*part{},
		}
		for _, name := range stageNames {
			h.parts[name] = &part{report: cluster.StageReport{Policy: policies[name], Rendered: true}}
		}
		w.hosts = append(w.hosts, h)
	}
	w.doc, w.docAt, w.desired = rollout.Document{Spec: rollout.Spec{Version: "v0", Previous: "v0", Policy: pace.Policy{MaxParallel: pace.Amount{N: 1}}.Complete()}, Progress: pace.Progress{Phase: pace.Done}}, w.write(), "v0"
	w.setBudget()
	w.takeOver()
	return w
}

func (w *world) write() uint64 {
	w.index++
	return w.index
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// violate notes the first thing that must not be.
func (w *world) violate(format string, args ...any) {
	if w.violated == "" {
		w.violated = fmt.Sprintf(format, args...) + fmt.Sprintf("; the budget: %s\n%s", w.budget, strings.Join(w.log[max(0, len(w.log)-60):], "\n"))
	}
}

func (w *world) host(node string) *host {
	return w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.node == node })]
}

// givenUp reports whether an operator gave up on the host.
func (h *host) givenUp() bool {
	return h.answer.Open() && h.grant.State == pace.GivenUp && h.grant.ID == h.answer.ID
}

// grants is what the host is granted.
func (h *host) grants() (all []change.Grant) {
	if h.grant.ID != "" {
		all = append(all, h.grant)
	}
	if h.lease.grant.Change != "" {
		all = append(all, h.lease.grant)
	}
	for _, name := range stageNames {
		if g := h.parts[name].grant; g.ID != "" {
			all = append(all, g)
		}
	}
	return all
}

// self reports whether the host is out of service without jorc.
func (h *host) self() bool { return !h.up || h.critical || h.drained }

func (w *world) lock() string { return fmt.Sprintf("session%d", w.session) }

// offered reports whether the host could accept its grant.
func (w *world) offered(h *host) bool {
	g := h.grant
	return g.State == pace.Offered && g.ID != h.answer.ID && g.ID != h.answer.Declined && g.Spec == w.docAt && g.Session == w.lock() && g.Tag == w.desired
}

// leases reports whether the host could accept the lease that it is offered.
func (w *world) leases(h *host) bool {
	g := h.lease.grant
	return g.State == pace.Offered && g.ID != h.lease.answer.ID && g.Session == w.lock() && g.Tag == h.lease.wish.ID && g.Tag != ""
}

// busy is what jorc brings to the host, or may bring to it at any moment; empty: nothing.
func (w *world) busy(h *host) string {
	// What an operator gave up on does not count, nor what had begun before.
	counts := func(begun time.Time) bool { return !h.givenUp() || begun.IsZero() || begun.After(h.grant.Since) }
	switch {
	case h.answer.Open() && !h.givenUp():
		return "grant " + h.answer.ID
	case w.offered(h):
		return "offer " + h.grant.ID
	case h.lease.answer.Open() && counts(h.lease.answer.Since):
		return "lease " + h.lease.answer.ID
	case w.leases(h):
		return "offer of lease " + h.lease.grant.ID
	}
	for _, name := range stageNames {
		p, d := h.parts[name], w.stages[name]
		resumed := slices.ContainsFunc(d.stops.Stops, func(s stage.Stop) bool { return s.Node == h.node && s.Grant == p.answer.ID && s.Resumed != nil })
		switch {
		case (p.report.Open() || p.report.State == cluster.StageFailed && !resumed) && counts(p.answer.Since):
			return "turn " + p.answer.ID + " of " + name
		case p.grant.State == pace.Offered && p.grant.ID != p.answer.ID: // until it is withdrawn
			return "offer of turn " + p.grant.ID + " of " + name
		}
	}
	for _, e := range h.queue.Jobs {
		if e.Disturbs && counts(e.Started) {
			return "job " + e.Job
		}
	}
	return ""
}

// limits are the limits that a host counts for, and how many of its kind may be out.
func (w *world) limits(h *host) map[string]int {
	all := map[string]int{}
	if w.budget.MaxOut != (pace.Amount{}) {
		all["cluster"] = w.budget.MaxOut.Of(len(w.hosts))
	}
	for _, role := range h.roles {
		if a, limited := w.budget.Roles[role]; limited {
			n := 0
			for _, o := range w.hosts {
				if slices.Contains(o.roles, role) {
					n++
				}
			}
			all["role "+role] = a.Of(n)
		}
	}
	if h.server {
		all["server"] = 1
	}
	if h.candidate {
		all["candidate"] = 1
	}
	return all
}

// check holds the cluster to its budget: never are more hosts out of service than it allows
// beside the ones that fell out, or were taken out, by themselves.
func (w *world) check() {
	out, limits, names := map[string]int{}, map[string]int{}, map[string][]string{}
	for _, h := range w.hosts {
		why := w.busy(h)
		if h.mine = h.mine && why != ""; !h.mine {
			continue
		}
		for name, n := range w.limits(h) {
			limits[name] = n
			out[name]++
			names[name] = append(names[name], h.node+" ("+why+")")
		}
	}
	for name, n := range out {
		if allowed := max(limits[name], w.allowed[name]); n > allowed {
			w.violate("%d are out of service of %s, at most %d may: %v", n, name, allowed, names[name])
		}
		w.allowed[name] = n // what is given back is gone
	}
	for name := range w.allowed {
		w.allowed[name] = min(w.allowed[name], out[name])
	}
}

// setBudget is an operator's.
func (w *world) setBudget() {
	b := &pace.Budget{MaxOut: pace.Amount{N: 1 + w.r.IntN(2)}}
	switch w.r.IntN(5) {
	case 0:
		b.MaxOut = pace.Amount{N: 10 + w.r.IntN(40), Percent: true}
	case 1:
		b.Roles = map[string]pace.Amount{"db": {N: 1}}
	case 2:
		b.Zones = 1
	case 3:
		b.MaxOut, b.Zones = pace.Amount{N: 3}, 2
	}
	w.budget, w.control, w.allowed = b, w.write(), map[string]int{}
	for _, h := range w.hosts {
		if h.mine = h.mine && w.busy(h) != ""; h.mine {
			for name := range w.limits(h) {
				w.allowed[name]++
			}
		}
	}
	w.note("budget: %s", b)
}

// takeOver: another orchestrator holds the lock, renews the ledger, and reads everything consistently.
func (w *world) takeOver() {
	w.session++
	w.holder = nil
	var able []*host
	for _, h := range w.hosts {
		if h.candidate && h.up {
			able = append(able, h)
		}
	}
	if len(able) > 0 && w.r.IntN(4) > 0 {
		w.holder = able[w.r.IntN(len(able))]
	}
	w.ledger.Value.Term++
	w.renew()
	w.demands, w.healthy, w.down = map[string]pace.Demand{}, map[string]time.Time{}, map[string]time.Time{}
	w.note("session %d, of %s", w.session, w.holderNode())
}

func (w *world) holderNode() string {
	if w.holder == nil {
		return ""
	}
	return w.holder.node
}

func (w *world) renew() {
	w.ledger.Value.Seq++
	w.ledger.Index = w.write()
	w.renewed, w.barrier = true, w.index
}

// report is what the host says now.
func (h *host) report() cluster.Report {
	r := cluster.Report{Version: h.version, Stages: map[string]cluster.StageReport{}, States: map[string]cluster.CategoryState{}}
	state := cluster.CategoryState{State: cluster.StateSuccess, Version: h.version}
	if h.answer.Open() {
		state = cluster.CategoryState{State: cluster.StateRunning, Version: h.answer.Tag, Since: h.answer.Since}
		if h.failed {
			state = cluster.CategoryState{State: cluster.StateFailed, Version: h.answer.Tag, Since: h.answer.Since, Detail: "broken"}
		}
	}
	r.States[cluster.CategoryConfig] = state
	answer := h.answer
	answer.Change = cluster.VersionChange
	r = r.WithAnswer(answer)
	if wish := h.lease.wish; wish.ID != "" {
		r = r.Wishing(&wish).WithAnswer(h.lease.answer)
	}
	for _, name := range stageNames {
		r.Stages[name] = h.parts[name].report
		r = r.WithAnswer(h.parts[name].answer)
	}
	return r
}

// reports has the host write what change does to its report.
func (w *world) reports(h *host, change func()) {
	before, mine := h.report(), h.mine
	change()
	h.before, h.mineBefore, h.reportAt = before, mine, w.write()
}

func (h *host) condition() cluster.Condition {
	s := cluster.Signals{Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceNone, Checks: consul.HealthPassing}
	if !h.up {
		s.Agent = cluster.SignalFailing
	}
	if h.critical {
		s.Checks = consul.HealthCritical
	}
	if h.drained {
		s.Maintenance = cluster.MaintenanceForeign
	}
	return cluster.Assess(s)
}

// entry is a document as Consul has it.
func (w *world) entry(key string, v any, index uint64) kv.Entry[string] {
	raw, err := json.Marshal(v)
	if err == nil {
		raw = []byte(strings.Replace(`{"format":1,`+string(raw[1:]), ",}", "}", 1)) // an empty document
		var e kv.Entry[string]
		if e, err = kv.NewText(w.store, key).Find(consul.KVPairs{{Key: w.store.Path(key), Value: raw, ModifyIndex: index}}); err == nil {
			return e
		}
	}
	w.t.Fatal(err)
	return kv.Entry[string]{}
}

// look is what the orchestrator reads: nothing that is older than what it wrote last.
func (w *world) look() *look {
	l := &look{ledger: w.ledger, stages: map[string]documents{}, self: map[string]bool{}, mine: map[string]bool{}, busy: map[string]bool{}}
	l.state = cluster.State{
		Hosts: map[string]*cluster.Host{}, Desired: w.desired, Control: cluster.Control{Budget: w.budget}, Indexes: map[string]uint64{cluster.KeyDesired: 1},
		Rollout: w.entry(cluster.KeyVersion, w.doc.Spec, w.docAt), RolloutState: w.entry(cluster.KeyVersionState, w.doc.Book(), w.docAt), Stages: map[string]cluster.StageDocuments{},
	}
	old := map[string]bool{}
	for _, h := range w.hosts {
		report := h.report()
		if h.reportAt > w.barrier && w.r.IntN(3) == 0 || w.fault == "reports older than the last write" && h.reportAt > 0 && w.r.IntN(3) == 0 {
			report, old[h.node] = h.before, true
		}
		one := &cluster.Host{
			Node: h.node, Member: true, Reported: true, Record: cluster.Record{Roles: h.roles, Zone: h.zone, Orchestrates: h.candidate},
			Report: report, Condition: h.condition(), Results: w.entry(cluster.ResultsKey(h.node), h.queue.Results(), max(1, h.queueAt)),
		}
		if all := h.queue.Granted(change.Grants{All: h.grants()}, w.now).All; len(all) > 0 {
			one.Grants = w.entry(cluster.GrantsKey(h.node), change.Grants{All: all}, max(1, h.grantAt))
		}
		if h.server {
			one.Services = map[string]cluster.Tally{"consul": {Passing: 1}}
		}
		l.state.Hosts[h.node] = one
		l.self[h.node], l.mine[h.node] = h.self(), h.mine || old[h.node] && h.mineBefore
	}
	for _, name := range stageNames {
		d := w.stages[name]
		l.stages[name] = *d
		l.state.Stages[name] = cluster.StageDocuments{State: w.entry(cluster.StageStateKey(name), d.book, d.at), Stops: w.entry(cluster.StageStopsKey(name), d.stops, d.stopsAt)}
	}
	var err error
	if l.stored, err = w.all.StoredIn(&l.state, w.ledger.Value); err != nil {
		w.t.Fatal(err)
	}
	l.stored.Session = w.lock()
	if l.members, err = rollout.StateOf(&l.state, l.stored); err != nil {
		w.t.Fatal(err)
	}
	d := budget.DocumentsOf(w.store, l.state.Stages)
	if len(d.Stages) != len(stageNames) {
		w.t.Fatal("a document of a stage cannot be read")
	}
	counted, members := l.state, l.members
	switch w.fault {
	case "turns do not count":
		d.Stages = nil
		counted.Hosts, members.Members = maps.Clone(counted.Hosts), slices.Clone(members.Members)
		for i := range members.Members {
			m := &members.Members[i]
			h := *counted.Hosts[m.Node]
			h.Report.Stages, m.Grants = nil, kv.Entry[change.Grants]{}
			h.Report.Grants = slices.DeleteFunc(slices.Clone(h.Report.Grants), func(a cluster.Answer) bool { return a.Change != cluster.VersionChange })
			counted.Hosts[m.Node] = &h
		}
	case "jobs do not count":
		d.Runs = nil
	}
	l.base = budget.Count(&counted, members, d, w.holderNode(), nil, w.now)
	for _, h := range w.hosts {
		out, busy := l.base.IsOut(h.node), w.busy(h)
		if l.busy[h.node] = out; !old[h.node] && w.fault == "" && out != (busy != "" || h.self() && !h.givenUp()) {
			w.violate("%s counts as out of service: %t; it has %q, and is out by itself: %t", h.node, out, busy, h.self())
		}
	}
	return l
}

// places is what the budget leaves for a change.
func (w *world) places(l *look, d pace.Demand, taken ...string) *pace.Account {
	return l.base.LeftFor(d, slices.Collect(maps.Values(w.demands)), taken...)
}

func (w *world) wants(l *look, d pace.Demand) {
	delete(w.demands, d.Change)
	if len(d.Nodes) > 0 {
		w.demands[d.Change] = d
		w.count["waits for a place"]++
	}
	if len(d.Nodes) == 1 && w.holder != nil && d.Nodes[0] == w.holder.node {
		if limit, ok := w.places(l, d).Admit(d.Nodes[0]); !ok && limit.Kind == pace.OfHolder {
			w.count["lock given away"]++
			w.takeOver()
		}
	}
}

// round has a planner plan on a look; others do things before what comes of it is carried out.
func (w *world) round(do func(l *look)) {
	if !w.renewed {
		w.renew()
	}
	do(w.look())
}

// send carries a transaction out, now or late. ok reports whether its orchestrator continues with the
// same look.
func (w *world) send(t transaction) (ok bool) {
	t.session, t.control = w.session, w.control
	if t.ledger.Index == 0 {
		t.ledger = t.look.ledger
	}
	for range w.r.IntN(3) {
		w.hostStep()
	}
	if w.r.IntN(5) == 0 {
		w.sent = append(w.sent, t)
		w.renewed = false
		w.count["outcome unknown"]++
		if w.r.IntN(2) == 0 {
			w.late()
		}
		return false
	}
	if !w.commit(t) {
		w.renewed = false
		return false
	}
	for _, node := range t.nodes {
		t.look.base.Take(node)
	}
	t.look.ledger = w.ledger
	return true
}

// late carries out one of the transactions that are on their way.
func (w *world) late() {
	if len(w.sent) == 0 {
		return
	}
	i := w.r.IntN(len(w.sent))
	t := w.sent[i]
	w.sent = slices.Delete(w.sent, i, i+1)
	if w.commit(t) {
		w.count["late commit"]++
	} else {
		w.count["late commit refused"]++
	}
}

// commit carries a transaction out if what it depends on still is so.
func (w *world) commit(t transaction) bool {
	offers := len(t.nodes) > 0
	fenced := offers && (w.fault != "runs without the ledger" || t.what != "run")
	if t.session != w.session || fenced && (t.ledger.Index != w.ledger.Index || t.control != w.control) || !t.ready() {
		return false
	}
	if offers {
		w.admitted(t)
	}
	for _, node := range t.nodes {
		h := w.host(node)
		h.mine = !t.look.busy[node] || h.mine || t.look.mine[node]
		w.count["offered to "+t.what]++
	}
	next := w.ledger.Value
	if fenced {
		next.Seq++
		w.ledger = kv.Entry[change.Ledger]{Value: next, Index: w.write()}
	}
	t.do(next)
	w.barrier = w.index
	w.check()
	return true
}

// admitted holds a transaction to the budget when it is carried out: together with what was out of
// service when it was planned, and still is, it is within the budget.
func (w *world) admitted(t transaction) {
	limits, out, added, zones := map[string]int{}, map[string][]string{}, map[string]int{}, map[string]bool{}
	fresh := map[string]bool{}
	for _, node := range t.nodes {
		if h := w.host(node); t.look.state.Hosts[node].Condition.Drained() {
			w.violate("%s is drained, and is offered a %s", node, t.what)
		} else if !t.look.busy[node] && !h.givenUp() {
			fresh[node] = true
			if w.holder == h && slices.ContainsFunc(w.hosts, func(o *host) bool {
				return o != h && o.candidate && t.look.state.Hosts[o.node].Condition.Agent == cluster.AgentUp
			}) {
				w.violate("%s holds the lock, and is offered a %s", node, t.what)
			}
		}
	}
	for _, h := range w.hosts {
		busy := w.busy(h)
		for name, n := range w.limits(h) {
			limits[name] = n
			switch {
			case fresh[h.node]:
				added[name]++
			case busy != "":
				out[name] = append(out[name], h.node+" ("+busy+")")
			case h.self() && t.look.self[h.node] && !h.givenUp():
				out[name] = append(out[name], h.node)
			}
		}
		failed := h.answer.Open() && h.failed || slices.ContainsFunc(stageNames, func(name string) bool { return h.parts[name].report.State == cluster.StageFailed })
		if fresh[h.node] || busy != "" && h.mine && !failed {
			zones[h.zone] = true
		}
	}
	for name, n := range added {
		alone := name == "candidate" && w.holder != nil && fresh[w.holder.node] // no other is up
		if n+len(out[name]) > limits[name] && !alone {
			w.violate("%v are offered a %s beside %v: at most %d of %s may be out of service; planned with %+v; %+v", t.nodes, t.what, out[name], limits[name], name, t.look.base.Out(), t.look.base.Uses())
		}
	}
	if w.budget.Zones > 0 && len(fresh) > 0 && len(zones) > w.budget.Zones {
		w.violate("%v are offered a %s: hosts of the zones %v are out of service", t.nodes, t.what, slices.Sorted(maps.Keys(zones)))
	}
}

// unwritten returns whether what the hosts are granted is as it is now.
func (w *world) unwritten(nodes []string) func() bool {
	grants := map[string]uint64{}
	for _, node := range nodes {
		grants[node] = w.host(node).grantAt
	}
	return func() bool {
		for node, index := range grants {
			if w.host(node).grantAt != index {
				return false
			}
		}
		return true
	}
}

// offer is g as it is written: an offer has the session and a name of its own.
func (w *world) offer(g change.Grant, l change.Ledger) change.Grant {
	if g.State == pace.Offered {
		g.ID, g.Session = fmt.Sprintf("%d.%d.%s", l.Term, l.Seq, w.lock()), w.lock()
	}
	return g
}

// planVersion offers grants, or moves the rollout on.
func (w *world) planVersion() {
	w.round(func(l *look) {
		d := pace.Demand{Change: "version", Restores: l.stored.Document.RollbackOf != nil, Open: l.members.Open(), Created: l.stored.Document.Started}
		s := l.members
		if s.Places = w.places(l, d); w.fault == "versions ignore the account" {
			s.Places = nil
		}
		at, plan := w.docAt, rollout.Plan(l.stored.Document, s, w.now)
		if !same(w.t, plan.Document, l.stored.Document) {
			if w.docAt == at {
				for _, one := range plan.Decisions {
					w.note("version: %s: %s (%s)", one.Kind, one.Text, one.Reason)
					w.count["version "+one.Kind]++
				}
				w.doc, w.docAt, w.desired = plan.Document, w.write(), plan.Document.Version
				w.barrier = w.index
			}
			return
		}
		for _, one := range plan.Denied {
			d.Nodes = append(d.Nodes, one.Node)
		}
		w.wants(l, d)
		if len(plan.Offers)+len(plan.Withdrawals) == 0 {
			return
		}
		var nodes []string
		tries := map[string]int{}
		for _, o := range plan.Offers {
			nodes = append(nodes, o.Node)
			tries[o.Node] = o.Tries
		}
		unwritten := w.unwritten(slices.Concat(nodes, plan.Withdrawals))
		w.send(transaction{
			what: "version", look: l, nodes: nodes,
			ready: func() bool { return w.docAt == at && unwritten() },
			do: func(ledger change.Ledger) {
				for _, node := range plan.Withdrawals {
					h := w.host(node)
					h.grant.State, h.grant.Tries, h.grantAt = pace.Withdrawn, h.grant.Tries+1, w.write()
				}
				for _, node := range nodes {
					h := w.host(node)
					h.grant, h.grantAt = w.offer(change.Grant{
						Change: cluster.VersionChange, Tag: w.desired, State: pace.Offered, Since: w.now, Spec: w.docAt, Tries: tries[node],
					}, ledger), w.write()
				}
				w.note("version: offered to %v, withdrawn from %v", nodes, plan.Withdrawals)
			},
		})
	})
}

// planLeases gives leases to hosts that ask for one.
func (w *world) planLeases() {
	w.round(func(l *look) {
		members := l.members
		all := lease.AskingIn(&l.state, &members)
		d, waits := lease.Demand(all)
		if !waits {
			w.wants(l, d)
			return
		}
		if members.Places = w.places(l, d); w.fault == "leases ignore the account" {
			members.Places = nil
		}
		next, denied, _ := lease.Plan(all, &members, w.lock(), w.now)
		d.Nodes = denied
		session := w.session
		if w.wants(l, d); w.session != session || len(next) == 0 {
			return
		}
		var nodes, written []string
		for _, n := range next {
			if written = append(written, n.Node); n.Grants[0].State == pace.Offered {
				nodes = append(nodes, n.Node)
			}
		}
		w.send(transaction{
			what: "lease", look: l, nodes: nodes, ready: w.unwritten(written),
			do: func(ledger change.Ledger) {
				for _, n := range next {
					h := w.host(n.Node)
					h.lease.grant, h.grantAt = w.offer(n.Grants[0], ledger), w.write()
				}
				w.note("leases: offered to %v", nodes)
			},
		})
	})
}

// planStages gives turns in all stages, one after the other on the same look.
func (w *world) planStages() {
	w.round(func(l *look) {
		hosts := stage.HostsOf(&l.state)
		for _, name := range stageNames {
			seen, at := l.stages[name], l.stages[name].at
			d := pace.Demand{Change: cluster.FilesChange(name), Open: stage.Open(name, hosts[name]), Created: seen.book.Since}
			s := stage.State{Stage: name, Session: w.lock(), Spec: seen.stopsAt, Hosts: hosts[name], Places: w.places(l, d)}
			if w.fault == "stages ignore the account" {
				s.Places = nil
			}
			plan := stage.Plan(seen.book, seen.stops, s, w.now)
			session := w.session
			d.Nodes = plan.Denied
			if w.wants(l, d); w.session != session {
				return
			}
			stops := !same(w.t, plan.Stops, seen.stops)
			if same(w.t, plan.Book, seen.book) && !stops && len(plan.Grants) == 0 {
				continue
			}
			var written []string
			for _, n := range plan.Grants {
				written = append(written, n.Node)
			}
			unwritten := w.unwritten(written)
			ok := w.send(transaction{
				what: "stage", look: l, nodes: plan.Offers,
				ready: func() bool {
					return unwritten() && w.stages[name].at == at && w.stages[name].stopsAt == seen.stopsAt
				},
				do: func(ledger change.Ledger) {
					for _, e := range plan.Decisions {
						w.note("%s", e.Text)
						w.count[e.Kind]++
					}
					next := &documents{plan.Book, plan.Stops, w.write(), seen.stopsAt}
					if stops {
						next.stopsAt = w.write()
					}
					w.stages[name] = next
					for _, n := range plan.Grants {
						h := w.host(n.Node)
						h.parts[name].grant, h.grantAt = w.offer(n.Grants[0], ledger), w.write()
					}
					w.note("stage %s: offered to %v, withdrawn from %v", name, plan.Offers, plan.Withdrawals)
				},
			})
			if !ok {
				return
			}
		}
	})
}

// planRuns gives jobs.
func (w *world) planRuns() {
	w.round(func(l *look) {
		s := runs.Situation{
			Now: w.now, Members: l.state.Members(nil), Holder: cmp.Or(w.holderNode(), "boss"), Grace: time.Minute, Down: w.down, Out: w.healthy,
			Barred: func(node string) string { return budget.Barred(&l.state, node) },
			Left:   func(d pace.Demand, taken []string) *pace.Account { return w.places(l, d, taken...) },
		}
		if w.fault == "runs ignore the account" {
			s.Left = nil
		}
		queues, at := map[string]runs.Queue{}, map[string]uint64{}
		for i := range s.Members {
			m := &s.Members[i]
			h := w.host(m.Node)
			m.Condition, m.Agent, m.Disturbing = l.state.Hosts[m.Node].Condition, l.state.Hosts[m.Node].Condition.Agent, []string{"patch"}
			queues[m.Node], at[m.Node] = runs.Queue{Jobs: slices.Clone(h.queue.Jobs)}, h.queueAt
			if _, seen := w.healthy[m.Node]; !seen || h.self() {
				w.healthy[m.Node] = w.now
			}
			if _, known := w.down[m.Node]; h.up {
				delete(w.down, m.Node)
			} else if !known {
				w.down[m.Node] = w.now
			}
		}
		active, runAt := slices.Collect(maps.Values(w.runs)), maps.Clone(w.runAt)
		c := runs.Plan(s, active, queues)
		for name := range w.demands {
			if _, is := cluster.RunOf(name); is && !slices.ContainsFunc(c.Denied, func(d pace.Demand) bool { return d.Change == name }) {
				delete(w.demands, name)
			}
		}
		for _, d := range c.Denied {
			session := w.session
			if w.wants(l, d); w.session != session {
				return
			}
		}
		var takes []string
		for node, q := range c.Queues {
			if slices.ContainsFunc(q.Jobs, func(e runs.Queued) bool {
				return e.Disturbs && !slices.ContainsFunc(queues[node].Jobs, func(o runs.Queued) bool { return o.Job == e.Job })
			}) {
				takes = append(takes, node)
			}
		}
		if len(c.Queues)+len(c.Jobs)+len(c.Rosters)+len(c.Runs) == 0 {
			return
		}
		slices.Sort(takes)
		w.send(transaction{
			what: "run", look: l, nodes: takes,
			ready: func() bool {
				for node := range c.Queues {
					if w.host(node).queueAt != at[node] {
						return false
					}
				}
				return maps.Equal(runAt, w.runAt)
			},
			do: func(change.Ledger) { w.carryOut(c); w.note("runs: jobs for %v", takes) },
		})
	})
}

// carryOut writes what a plan of runs changes.
func (w *world) carryOut(c runs.Changes) {
	changed := map[string]runs.Active{}
	of := func(id string) runs.Active {
		if a, known := changed[id]; known {
			return a
		}
		a := w.runs[id]
		a.Jobs, a.Back = maps.Clone(a.Jobs), maps.Clone(a.Back)
		if a.Jobs == nil {
			a.Jobs = map[string]runs.Job{}
		}
		return a
	}
	for id, r := range c.Runs {
		a := of(id)
		a.Run = r
		changed[id] = a
	}
	for id, nodes := range c.Rosters {
		a := of(id)
		a.Roster = nodes
		changed[id] = a
	}
	for id, jobs := range c.Jobs {
		a := of(id)
		maps.Copy(a.Jobs, jobs)
		changed[id] = a
	}
	for id, a := range changed {
		w.runs[id], w.runAt[id] = a, w.write()
		if a.Run.State.Ended() {
			w.count["run "+string(a.Run.State)]++
		}
	}
	for node, q := range c.Queues {
		h := w.host(node)
		h.queue, h.queueAt = q, w.write()
	}
}

// same reports whether both are stored alike.
func same(t testing.TB, a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
