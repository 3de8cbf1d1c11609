package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Kinds of events.
const (
	StageBegan      = "stage_began"       // the first host takes a change
	StageStopped    = "stage_stopped"     // a change failed on a host, or a gate failed: no other host takes it
	StageStepDone   = "stage_step_done"   // a step is done, and its gate begins
	StageGatePassed = "stage_gate_passed" // the gate of a step is passed
	StageDone       = "stage_done"        // all hosts have what they want
)

// Kinds returns the kinds of events.
func Kinds() []string {
	return []string{StageBegan, StageDone, StageGatePassed, StageStepDone, StageStopped}
}

// Book is the orchestrator's own book of a stage; no host reads it.
type Book struct {
	// Active: a change began, and not all hosts have it.
	Active bool      `json:"active,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of Active
	// Step is the present step, where the stage has gates; Asks counts the runs that
	// gates asked for.
	Step       *Step            `json:"step,omitempty"`
	PassedGate *pace.PassedGate `json:"passed_gate,omitempty"` // the last one
	Asks       int              `json:"asks,omitempty"`
	// Past are failures that were recorded and no longer matter: IDs of grants, by host.
	Past map[string]string `json:"past,omitempty"`
}

// Stops is the document of what stopped a stage. Each offer depends on it: it is the spec of the change.
type Stops struct {
	Stops []Stop `json:"stops,omitempty"`
	// Exempt is content that hosts take although a rule of the cluster forbids it, until none waits for it.
	Exempt []Exemption `json:"exempt,omitempty"`
}

// Unresumed reports whether one of the stops still counts.
func (s Stops) Unresumed() bool {
	return slices.ContainsFunc(s.Stops, func(stop Stop) bool { return stop.Resumed == nil })
}

// Stop is a change that failed on a host, or whose gate failed.
type Stop struct {
	Node    string              `json:"node"`
	Step    string              `json:"step,omitempty"` // the step of the gate, in words; without a node
	Turn    string              `json:"turn"`           // ID of the grant
	Content string              `json:"content"`        // digest of what failed on the host
	Inputs  cluster.StageInputs `json:"inputs"`         // what changed with it
	Since   time.Time           `json:"since"`
	Reason  string              `json:"reason,omitempty"`
	// Resumed: an operator approved the change. The stop no longer counts.
	Resumed *cluster.Hold `json:"resumed,omitempty"`
}

// Place is where the change failed, in words.
func (s Stop) Place() string {
	if s.Step != "" {
		return "after " + s.Step
	}
	return "on " + s.Node
}

// Blocks reports whether a host may not take new content because of the stop. A
// change is known by each of its inputs: a host is blocked if it would take one of
// the inputs that failed. The host on which the change failed may try again as soon as
// one of them is different.
func (s Stop) Blocks(node, wants string, changed cluster.StageInputs) bool {
	switch {
	case s.Resumed != nil:
		return false
	case s.Node == node && (s.Inputs.More > 0 || changed.More > 0):
		return s.Content == wants
	case s.Node == node:
		return !slices.ContainsFunc(s.Inputs.List, func(i cluster.StageInput) bool { return !changed.Has(i.Digest) })
	case s.Inputs.More > 0 || changed.More > 0:
		return true // it is not known whether they have something in common
	}
	return slices.ContainsFunc(s.Inputs.List, func(i cluster.StageInput) bool { return changed.Has(i.Digest) })
}

// Blocking returns the first stop that keeps a host from new content.
func (s Stops) Blocking(node, wants string, changed cluster.StageInputs) (Stop, bool) {
	for _, stop := range s.Stops {
		if stop.Blocks(node, wants, changed) {
			return stop, true
		}
	}
	return Stop{}, false
}

// Host is one host as a plan sees it.
type Host struct {
	Node  string
	Zone  string
	Roles []string
	Up    bool // its host and its agent
	// Out: it is out of service for another reason than a turn.
	Out      bool
	Critical bool   // it has a critical check
	Hold     string // what holds it, in words; empty: nothing does
	Drained  bool   // it is in maintenance that jorc did not begin
	Report   cluster.StageReport
	Answer   cluster.Answer          // to what it was granted in the stage
	Grants   kv.Entry[change.Grants] // of all changes
	// Left: it no longer has the stage.
	Left bool
}

// Open is how many hosts of a stage have a grant, or are offered one.
func Open(stage string, hosts []Host) (n int) {
	for _, h := range hosts {
		if part := h.part(stage); part.Granted() {
			n++
		}
	}
	return n
}

// grant is what the host is granted in a stage.
func (h Host) grant(stage string) change.Grant { return h.Grants.Value.Of(cluster.FilesChange(stage)) }

// part is the host's part in the change of a stage as plans see it. An offer counts until it is withdrawn.
func (h Host) part(stage string) pace.Part {
	return change.PartOf(cluster.FilesChange(stage), h.grant(stage), h.Answer, "")
}

// aside says why steps leave the host out: it is held or drained. Empty: they do not.
func (h Host) aside() string {
	switch {
	case h.Hold != "":
		return "it is held: " + h.Hold
	case h.Drained:
		return cluster.DrainedText
	}
	return ""
}

// share is the number of hosts that shares are of: the ones that are neither held nor drained.
func share(hosts []Host) (n int) {
	for _, h := range hosts {
		if h.aside() == "" {
			n++
		}
	}
	return n
}

// State is what a plan is made of, beside the documents. No report of a host is older than what the orchestrator granted
// last.
type State struct {
	Stage   string
	Session string // of the orchestrator's lock
	Spec    uint64 // index of the stops
	Halted  bool   // the cluster is paused or only observed
	// Freezes are those of the cluster.
	Freezes pace.Freezes
	Hosts   []Host
	Gate    *pace.GateRun // what is known of the run that the gate asked for; nil: nothing
	// Places is who is out of service for whatever reason, and what the budget of the
	// cluster leaves; nil: there is no budget.
	Places *pace.Account
}

// Event is one thing that a plan decided, for people.
type Event struct {
	Kind string
	Node string
	Text string
}

// Planned is what Plan decided.
type Planned struct {
	Book  Book
	Stops Stops
	// Grants are to be written: those of hosts that are offered something, and those of which it is withdrawn.
	Grants []change.Next
	// Offers and Withdrawals are the hosts of Grants. There are no offers of a stage whose stops change.
	Offers, Withdrawals []string
	// Denied are hosts that only the budget of the cluster keeps from an offer.
	Denied   []string
	Events   []Event
	GateNext time.Time // when time alone changes the gate, or opens the window; zero: it does not
}

// planner is a plan in the making.
type planner struct {
	State
	Planned
	now    time.Time
	policy pace.Policy
	hosts  []*ranked // in the order in which a change reaches them
	left   []*ranked // that no longer have the stage
	open   int       // hosts with a grant, or an offer, before the plan
	order  *order    // as of the present grants and stops; nil: not known
	window window
}

// window is how the window of a stage is now.
type window struct {
	closed string    // why no host gets a turn; empty: it is open
	change time.Time // when that changes; zero: never
}

// windowOf returns the window of a stage: what the windows of all its hosts have in common.
func windowOf(hosts []Host, now time.Time) (w window) {
	var lists [][]pace.Window
	seen := map[string]bool{"": true}
	for _, h := range hosts {
		if text := h.Report.Policy.Window; !seen[text] {
			seen[text] = true
			if windows, err := pace.ParseWindows(text); err == nil { // a text that cannot be read does not stop other hosts
				lists = append(lists, windows)
			}
		}
	}
	if len(lists) == 0 {
		return w
	}
	if w.change = pace.EachChange(lists, now); !pace.EachOpen(lists, now) {
		w.closed = pace.ClosedText(w.change)
	}
	return w
}

type ranked struct {
	Host
	key  pace.Key
	part pace.Part
	has  bool // it has a grant, or is offered one
}

// Plan decides which hosts are offered a turn. It is a pure function; its
// documents are copies.
func Plan(book Book, stops Stops, s State, now time.Time) Planned {
	p := newPlanner(book, stops, s, now)
	p.answers()
	p.forgetStops()
	p.recordFailures()
	p.steps()
	if text.SameJSON(p.Stops, stops) { // first the stops are written: offers depend on them
		p.offer()
	}
	p.finish()
	return p.Planned
}

func newPlanner(book Book, stops Stops, s State, now time.Time) *planner {
	p := &planner{now: now.UTC().Truncate(time.Millisecond)}
	hosts := make([]Host, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		r := &ranked{Host: h, part: h.part(s.Stage)}
		if r.has = r.part.Granted(); r.has {
			p.open++
		}
		if h.Left {
			p.left = append(p.left, r)
			continue
		}
		hosts, p.hosts = append(hosts, h), append(p.hosts, r)
	}
	s.Hosts = hosts
	p.State, p.policy, p.window = s, PolicyOf(hosts), windowOf(hosts, now)
	p.Book, p.Stops = book, Stops{Stops: slices.Clone(stops.Stops), Exempt: slices.Clone(stops.Exempt)}
	p.Book.Past = maps.Clone(book.Past)
	if book.Step != nil {
		p.Book.Step = book.Step.clone()
	}
	for _, h := range p.hosts {
		h.key = p.policy.KeyOf(s.Stage, h.Node, nil, h.Zone)
	}
	slices.SortFunc(p.hosts, func(a, b *ranked) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.Node, b.Node)) })
	return p
}

// PolicyOf returns the policy of a stage: where the configurations of hosts differ,
// the most cautious value of each setting.
func PolicyOf(hosts []Host) pace.Policy {
	var policy pace.Policy
	n := share(hosts)
	for _, h := range hosts {
		reported := h.Report.Policy
		amount, err := pace.ParseAmount(reported.MaxParallel)
		if err != nil {
			amount = pace.Amount{N: 1}
		}
		if policy.MaxParallel.N == 0 || amount.Of(n) < policy.MaxParallel.Of(n) {
			policy.MaxParallel = amount
		}
		policy.Canary = max(policy.Canary, reported.Canary)
		policy.ZoneByZone = policy.ZoneByZone || reported.ZoneByZone
		addGates(&policy, reported)
	}
	return policy.WithGateDefaults()
}

// addGates adds what a host reports of gates. Of several workflows the first one
// counts.
func addGates(policy *pace.Policy, reported cluster.StagePolicy) {
	longest := func(d *pace.Duration, text string) {
		var v pace.Duration
		if text != "" && v.UnmarshalText([]byte(text)) == nil {
			*d = max(*d, v)
		}
	}
	longest(&policy.Bake, reported.Bake)
	policy.ApproveEach = policy.ApproveEach || reported.ApproveEach
	if reported.Gate == "" {
		return
	}
	g := &policy.Gate
	if g.Workflow == "" || reported.Gate < g.Workflow {
		g.Workflow = reported.Gate
	}
	g.Samples = max(g.Samples, reported.GateSamples)
	longest(&g.Interval, reported.GateInterval)
	longest(&g.Timeout, reported.GateTimeout)
}

// reportedPolicy is what a host reports of its configuration.
func reportedPolicy(s config.Stage) cluster.StagePolicy {
	p := cluster.StagePolicy{MaxParallel: s.MaxParallel, Canary: s.Canary, ZoneByZone: s.ZoneByZone, Gate: s.Gate, ApproveEach: s.ApproveEach, Window: s.Window}
	if s.Bake > 0 {
		p.Bake = s.Bake.String()
	}
	if s.Gate != "" {
		p.GateSamples, p.GateTimeout = s.GateSamples, s.GateTimeout.String()
	}
	if p.GateSamples > 1 {
		p.GateInterval = s.GateInterval.String()
	}
	return p
}

// answers takes in what hosts say of their grants, and withdraws offers that they can or should no longer accept.
func (p *planner) answers() {
	for _, h := range p.left {
		if h.part.Offered() {
			p.withdraw(h)
		}
	}
	for _, h := range p.hosts {
		if h.part.Offered() && p.expired(h) {
			p.withdraw(h)
		}
		p.stepAnswered(h)
	}
	if step := p.Book.Step; step != nil {
		maps.DeleteFunc(step.Hosts, func(node string, took bool) bool { return !took && p.host(node) == nil })
	}
	slices.Sort(p.Withdrawals)
	for node, id := range p.Book.Past {
		if h := p.host(node); h == nil || h.Answer.ID != id {
			delete(p.Book.Past, node)
		}
	}
}

// expired reports whether a host's offer is to be withdrawn.
func (p *planner) expired(h *ranked) bool {
	g := h.grant(p.Stage)
	switch {
	case g.Session != p.Session, g.Spec != p.Spec, h.Report.Wants != g.Tag, p.now.Sub(g.Since) >= pace.AnswerWithin, !g.Until.IsZero() && !p.now.Before(g.Until):
		return true
	}
	return p.Halted || p.window.closed != "" || h.aside() != "" || p.frozen(h.Host) != ""
}

func (p *planner) withdraw(h *ranked) {
	p.Grants = append(p.Grants, change.Next{Node: h.Node, Old: h.Grants, Grants: []change.Grant{h.grant(p.Stage).Withdrawn(p.now)}})
	p.Withdrawals = append(p.Withdrawals, h.Node)
}

// recordFailures adds a stop for each host on which a change failed, also if that no longer matters: people read
// of it in the events.
func (p *planner) recordFailures() {
	for _, h := range p.hosts {
		r, id := h.Report, h.Answer.ID
		recorded := func(s Stop) bool { return s.Node == h.Node && s.Turn == id }
		if !r.Unhealthy() || p.setBack(r) && p.Book.Past[h.Node] == id || slices.ContainsFunc(p.Stops.Stops, recorded) {
			continue
		}
		p.Stops.Stops = append(p.Stops.Stops, Stop{
			Node: h.Node, Turn: id, Content: h.Answer.Tag, Inputs: r.Taken, Since: p.now.Truncate(time.Second), Reason: r.Reason,
		})
		p.event(StageStopped, h.Node, "%s on %s: %s (%s)", stateText(r.State), h.Node, text.Line(r.Reason, 300), inputsText(r.Taken))
	}
}

func stateText(state string) string {
	if state == cluster.StageRestored {
		return "a change failed, and the old files are back,"
	}
	return "a change failed, and stays for inspection,"
}

// inputsText names what changed.
func inputsText(inputs cluster.StageInputs) string {
	names := inputs.Names()
	if len(names) == 0 {
		return "what changed is not known"
	}
	if inputs.More > 0 {
		names = append(names, fmt.Sprintf("%d more", inputs.More))
	}
	return "changed: " + strings.Join(names, ", ")
}

// forgetStops removes stops that no longer count: the host took another change
// since, and its checks passed; or no host has what failed, and none wants it.
func (p *planner) forgetStops() {
	hosts := map[string]*ranked{}
	for _, h := range p.hosts {
		hosts[h.Node] = h
	}
	p.Stops.Stops = slices.DeleteFunc(p.Stops.Stops, func(s Stop) bool {
		h := hosts[s.Node]
		switch {
		case s.Step != "":
			return s.Resumed != nil || p.Book.Step == nil && !p.wanted(s.Inputs)
		case h == nil:
			return s.Resumed != nil || !p.wanted(s.Inputs)
		case h.Answer.ID == s.Turn:
			past := s.Resumed == nil && p.setBack(h.Report)
			if past {
				if p.Book.Past == nil {
					p.Book.Past = map[string]string{}
				}
				p.Book.Past[s.Node] = s.Turn
			}
			return past
		case !change.Earlier(s.Turn, h.Answer.ID):
			return false // the report may be older than the stop
		case h.Report.State == cluster.StageDone:
			return true
		}
		return s.Resumed != nil || (h.Report.State == cluster.StageRestored || h.Report.State == "") && !p.wanted(s.Inputs)
	})
	p.Stops.Exempt = slices.DeleteFunc(p.Stops.Exempt, func(e Exemption) bool {
		return !slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" && e.of(h.Report) })
	})
	if len(p.Stops.Exempt) == 0 {
		p.Stops.Exempt = nil
	}
}

// setBack reports whether a change that failed no longer matters: the old files are back,
// and no host wants what failed. It matters again once a host does.
func (p *planner) setBack(r cluster.StageReport) bool {
	return r.State == cluster.StageRestored && !p.wanted(r.Taken)
}

// bad reports whether the host's last change failed and no operator approved it: it
// counts as out of service, whatever its checks say.
func (p *planner) bad(h *ranked) bool { return p.Stops.bad(h.Host) }

// bad is planner.bad. A failure counts also before its stop is recorded.
func (s Stops) bad(h Host) bool {
	recorded, failed := false, h.Report.State == cluster.StageFailed
	for _, stop := range s.Stops {
		if stop.Node != h.Node {
			continue
		}
		same := stop.Turn == h.Answer.ID
		recorded = recorded || same
		older := change.Earlier(h.Answer.ID, stop.Turn) // the report is, so it may have failed
		if stop.Resumed == nil && (older || same && failed) {
			return true
		}
	}
	return failed && !recorded
}

// offer offers turns as long as there is room.
func (p *planner) offer() {
	if p.Halted || p.window.closed != "" || len(p.hosts) == 0 {
		return
	}
	allowed := max(1, p.policy.MaxParallel.Of(share(p.Hosts)))
	open, out := p.open, 0
	for _, h := range p.hosts {
		if h.has || h.Out || p.bad(h) {
			out++
		}
	}
	p.order = nil
	candidates := slices.DeleteFunc(slices.Clone(p.hosts), func(h *ranked) bool { return p.barred(h, p.frozen(h.Host)) != "" })
	// Hosts in service come first: with the others it is not known why they fail.
	slices.SortStableFunc(candidates, func(a, b *ranked) int { return pace.CompareBool(a.Out, b.Out) })
	places := p.Places.Clone()
	for _, h := range candidates {
		itself := h.Out || p.bad(h) // it is counted already
		if open >= allowed || out >= allowed && !itself || len(p.Grants) == change.PerTransaction {
			continue
		}
		if p.admitted(h) != "" || p.stepHolds(h) != "" {
			continue
		}
		if _, admitted := p.room(places, h).Admit(h.Node); !admitted {
			p.Denied = append(p.Denied, h.Node)
			continue
		}
		places.Take(h.Node)
		p.enterStep(h, allowed)
		g := change.Grant{
			Change: cluster.FilesChange(p.Stage), Tag: h.Report.Wants, State: pace.Offered, Since: p.now, Spec: p.Spec, Tries: h.part.Tries(),
			Until: p.window.change, DuringFreeze: p.Stops.exceptions(h.Report).DuringFreeze != "",
		}
		if !g.DuringFreeze {
			g.Until = pace.Earliest(g.Until, p.Freezes.Begins(h.Roles, p.now))
		}
		p.Grants = append(p.Grants, change.Next{Node: h.Node, Old: h.Grants, Grants: []change.Grant{g}})
		p.Offers = append(p.Offers, h.Node)
		h.has = true
		p.begins(h)
		if open++; !itself {
			out++
		}
	}
	if len(p.Offers) > 0 && !p.Book.Active {
		p.Book.Active, p.Book.Since = true, p.now.Truncate(time.Second)
		h := p.host(p.Offers[0])
		p.event(StageBegan, "", "%s is the first to take a change (%s)", h.Node, inputsText(h.Report.Changed))
	}
}

// room is what the budget leaves for a host.
func (p *planner) room(places *pace.Account, h *ranked) *pace.Account {
	if p.Stops.exceptions(h.Report).OverBudget != "" {
		return places.Over()
	}
	return places
}

func (p *planner) host(node string) *ranked {
	for _, h := range p.hosts {
		if h.Node == node {
			return h
		}
	}
	return nil
}

// awaited reports whether a host alone can be offered a turn, now or when its freeze ends: others do
// not pass it by.
func (p *planner) awaited(h *ranked) bool { return p.barred(h, "") == "" }

// barred returns why a host alone, in a freeze if that is not empty, cannot be offered a turn; empty: it can.
func (p *planner) barred(h *ranked, freeze string) string {
	rested := h.part.Rested()
	stop, stopped := p.Stops.Blocking(h.Node, h.Report.Wants, h.Report.Changed)
	switch {
	case h.Report.Wants == "":
		return "its files are as their data says"
	case h.has:
		return "it has its turn"
	case h.aside() != "":
		return h.aside()
	case !h.Up:
		return "its host or its agent is down"
	case freeze != "":
		return freeze
	case stopped:
		return "the change is stopped: it failed " + stop.Place()
	case h.part.Silent() && p.now.Before(rested):
		return "it did not answer; the next offer is at " + rested.UTC().Format(time.RFC3339)
	}
	return ""
}

// frozen returns the freeze that keeps the host from a turn, in words; empty: none.
func (p *planner) frozen(h Host) string {
	if frozen, is := p.Freezes.At(h.Roles, p.now); is && p.Stops.exceptions(h.Report).DuringFreeze == "" {
		return frozen.String()
	}
	return ""
}

// order is what admitted compares a host with: what all hosts do, in one pass.
type order struct {
	zones  map[string]*zoneOrder
	spread map[string]*spread // by the digest of an input
}

// zoneOrder is what the hosts of a zone do.
type zoneOrder struct {
	busy   bool                  // a host has its turn
	wants  bool                  // a host may be offered one, now or when its freeze ends
	more   bool                  // such a host wants more inputs than it reports
	inputs map[string]bool       // digests of the inputs that such hosts want
	free   bool                  // a host is neither held, drained nor down
	held   []cluster.StageInputs // that hosts want which are held or drained
}

// heldUp reports whether nothing but hosts that are held or drained is left in the zone, and one of them
// wants an input that another host wants, too.
func (z *zoneOrder) heldUp(inputs cluster.StageInputs) bool {
	return !z.free && slices.ContainsFunc(z.held, func(i cluster.StageInputs) bool { return common(i, inputs) })
}

// takes reports whether a host of the zone has its turn, or may be offered one for an
// input that another host wants, too; see common.
func (z *zoneOrder) takes(inputs cluster.StageInputs) bool {
	return z.busy || z.wants && (z.more || inputs.More > 0 || slices.ContainsFunc(inputs.List, func(i cluster.StageInput) bool { return z.inputs[i.Digest] }))
}

// spread is on how many hosts an input is, or is about to be, and on how many of them
// the checks passed with it.
type spread struct{ tried, proven int }

// newOrder goes through all hosts.
func (p *planner) newOrder() *order {
	o := &order{zones: map[string]*zoneOrder{}, spread: map[string]*spread{}}
	for _, h := range p.hosts {
		z := o.zones[h.key.Zone]
		if z == nil {
			z = &zoneOrder{inputs: map[string]bool{}}
			o.zones[h.key.Zone] = z
		}
		r := h.Report
		z.free = z.free || h.Up && h.aside() == ""
		if r.Wants != "" && h.aside() != "" {
			z.held = append(z.held, r.Changed)
		}
		switch {
		case h.has:
			z.busy = true
		case p.policy.ZoneByZone && r.Wants != "" && p.awaited(h):
			z.wants, z.more = true, z.more || r.Changed.More > 0
			for _, i := range r.Changed.List {
				z.inputs[i.Digest] = true
			}
		}
		o.count(tried(h.Report, h.has), 1)
	}
	return o
}

// begins notes that the host was offered a turn: the order is then as newOrder makes it.
func (p *planner) begins(h *ranked) {
	if p.policy.ZoneByZone || p.order == nil {
		p.order = nil // whether a zone has hosts that want something is a matter of all of them
		return
	}
	p.order.count(tried(h.Report, false), -1)
	p.order.count(tried(h.Report, true), 1)
}

// tried returns the inputs, by digest, that a host with such a report has or tries, and whether the checks passed with
// them; has: it has a turn.
func tried(r cluster.StageReport, has bool) map[string]bool {
	digests := map[string]bool{}
	if r.State == cluster.StageDone {
		for _, i := range r.Taken.List {
			digests[i.Digest] = true
		}
	}
	if has {
		tries := r.Changed
		if r.Open() {
			tries = r.Taken
		}
		for _, i := range tries.List {
			digests[i.Digest] = false
		}
	}
	return digests
}

// count adds a host's inputs, of tried, to those of all hosts (n is 1), or takes them out (-1).
func (o *order) count(digests map[string]bool, n int) {
	for digest, proven := range digests {
		s := o.spread[digest]
		if s == nil {
			s = new(spread)
			o.spread[digest] = s
		}
		if s.tried += n; proven {
			s.proven += n
		}
	}
}

// admitted returns why the order keeps the host back; empty: its turn may come.
func (p *planner) admitted(h *ranked) string {
	if !p.policy.ZoneByZone && p.policy.Canary == 0 {
		return ""
	}
	if p.order == nil {
		p.order = p.newOrder()
	}
	if p.policy.ZoneByZone {
		for _, zone := range slices.Sorted(maps.Keys(p.order.zones)) {
			if zone >= h.key.Zone {
				break
			}
			if p.order.zones[zone].takes(h.Report.Changed) {
				return fmt.Sprintf("zone %q comes first", zone)
			}
			if p.order.zones[zone].heldUp(h.Report.Changed) {
				return fmt.Sprintf("zone %q comes first, and all its hosts are held or drained", zone)
			}
		}
	}
	if n := p.policy.Canary; n > 0 {
		for _, i := range h.Report.Changed.List {
			if s := p.order.spread[i.Digest]; s != nil && s.proven < n && s.tried >= n {
				return fmt.Sprintf("%d of %d canaries have passed", s.proven, n)
			}
		}
	}
	return ""
}

// common reports whether two hosts would take the same input.
func common(a, b cluster.StageInputs) bool {
	return a.More > 0 || b.More > 0 || slices.ContainsFunc(a.List, func(i cluster.StageInput) bool { return b.Has(i.Digest) })
}

// finish notes that no host wants anything.
func (p *planner) finish() {
	busy := p.atWork() || len(p.Offers) > 0 || p.stepPending() || slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" || p.bad(h) })
	if p.Book.Active && !busy && len(p.hosts) > 0 {
		p.Book.Active, p.Book.Since, p.Book.Step = false, p.now.Truncate(time.Second), nil
		p.event(StageDone, "", "every host has what its data says")
	}
	if step := p.Book.Step; step != nil && step.Gate != nil {
		p.GateNext = p.policy.GateNext(*step.Gate)
	}
	if p.window.closed != "" && slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" }) {
		p.GateNext = pace.Earliest(p.GateNext, p.window.change)
	}
	if len(p.Book.Past) == 0 {
		p.Book.Past = nil
	}
}

func (p *planner) event(kind, node, format string, args ...any) {
	p.Events = append(p.Events, Event{Kind: kind, Node: node, Text: fmt.Sprintf("stage %q: ", p.Stage) + fmt.Sprintf(format, args...)})
}
