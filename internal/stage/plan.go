package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
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

// Turns is the document of a stage's open turns. It alone counts them, so every
// transaction that offers a turn swaps it.
type Turns struct {
	Seq  uint64          `json:"seq"` // counts turns
	Open map[string]Turn `json:"open,omitempty"`
	// Resting hosts did not answer an offer; none is made to them until then.
	Resting map[string]time.Time `json:"resting,omitempty"`
	// Active: a change began, and not all hosts have it.
	Active bool      `json:"active,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of Active
	// Step is the present step, where the stage has gates; Asks counts the runs that
	// gates asked for.
	Step       *Step            `json:"step,omitempty"`
	PassedGate *pace.PassedGate `json:"passed_gate,omitempty"` // the last one
	Asks       int              `json:"asks,omitempty"`
}

// Turn is the permission for one host to take new content. It stands in Turns until
// it has ended, and at host/<node>/turn-<stage> for the host.
type Turn struct {
	ID      string `json:"id"`
	Content string `json:"content"` // digest of the content that the host may take
	// Session is that of the lock of the orchestrator that offered it: the turn cannot
	// be taken without it.
	Session string    `json:"session"`
	Since   time.Time `json:"since"`
	// Until is when a freeze begins or the window closes: the host refuses the turn from then on.
	// Zero: that is not known.
	Until time.Time `json:"until,omitzero"`
	// DuringFreeze: the host may take it although it is frozen, see Exemption.
	DuringFreeze bool `json:"during_freeze,omitempty"`
	// Withdrawn: the host can no longer take it. The turn ends once the host's report,
	// read after that, does not say that it took it.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// Stops is the document of what stopped a stage.
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
	Turn    string              `json:"turn"`
	Content string              `json:"content"` // digest of what failed on the host
	Inputs  cluster.StageInputs `json:"inputs"`  // what changed with it
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

// State is what a plan is made of, beside the documents. Reports of hosts with an
// open turn were read after the documents.
type State struct {
	Stage   string
	Session string // of the orchestrator's lock
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
	Turns Turns
	Stops Stops
	// Offers and Withdrawals are hosts whose turn is written; their turns are in Turns.
	Offers, Withdrawals []string
	// Denied are hosts that only the budget of the cluster keeps from an offer.
	Denied   []string
	Events   []Event
	GateNext time.Time // when time alone changes the gate, or opens the window; zero: it does not
}

// answerWithin is how long an offer stays without an answer, and how long the host
// is not asked again after that.
const answerWithin = 30 * time.Second

// mostOffers bounds the offers of one transaction.
const mostOffers = 40

// planner is a plan in the making.
type planner struct {
	State
	Planned
	now    time.Time
	policy pace.Policy
	hosts  []*ranked // in the order in which a change reaches them
	order  *order    // as of the present turns and stops; nil: not known
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
	key pace.Key
}

// Plan decides which hosts are offered a turn. It is a pure function; its
// documents are copies.
func Plan(turns Turns, stops Stops, s State, now time.Time) Planned {
	p := newPlanner(turns, stops, s, now)
	ended := p.endTurns()
	p.forgetStops()
	stopped := p.recordFailures(ended)
	stopped += p.steps()
	if stopped == 0 { // first it is written that a change is stopped
		p.offer()
	}
	p.finish()
	return p.Planned
}

func newPlanner(turns Turns, stops Stops, s State, now time.Time) *planner {
	p := &planner{State: s, now: now.UTC().Truncate(time.Millisecond), policy: PolicyOf(s.Hosts), window: windowOf(s.Hosts, now)}
	p.Turns, p.Stops = turns, Stops{Stops: slices.Clone(stops.Stops), Exempt: slices.Clone(stops.Exempt)}
	p.Turns.Open, p.Turns.Resting = map[string]Turn{}, map[string]time.Time{}
	maps.Copy(p.Turns.Open, turns.Open)
	if turns.Step != nil {
		p.Turns.Step = turns.Step.clone()
	}
	for node, until := range turns.Resting {
		if now.Before(until) {
			p.Turns.Resting[node] = until
		}
	}
	for _, h := range s.Hosts {
		p.hosts = append(p.hosts, &ranked{h, p.policy.KeyOf(s.Stage, h.Node, nil, h.Zone)})
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

// endTurns takes in what hosts say of their turns. It returns the hosts whose turn
// is over since the last plan.
func (p *planner) endTurns() (ended map[string]bool) {
	known, ended := map[string]bool{}, map[string]bool{}
	for _, h := range p.hosts {
		known[h.Node] = true
		turn, open := p.Turns.Open[h.Node]
		switch taken := h.Report.Turn != "" && h.Report.Turn == turn.ID; {
		case h.Report.Open() && !(open && taken):
			// The documents were restored, or the offer was replaced: what the host says counts.
			p.Turns.Open[h.Node] = Turn{ID: h.Report.Turn, Content: h.Report.Content, Session: p.Session, Since: p.now}
		case !open, taken && h.Report.Open():
		case taken, turn.Withdrawn:
			delete(p.Turns.Open, h.Node)
			ended[h.Node] = taken
			p.stepAnswered(h.Node, taken)
		case turn.Session != p.Session || h.Report.Wants != turn.Content || p.now.Sub(turn.Since) >= answerWithin || p.Halted || p.window.closed != "" || h.aside() != "" || p.frozen(h.Host) != "" || !turn.Until.IsZero() && !p.now.Before(turn.Until):
			if p.now.Sub(turn.Since) >= answerWithin {
				p.Turns.Resting[h.Node] = p.now.Add(answerWithin)
			}
			p.withdraw(h.Node, turn)
		}
	}
	for node, turn := range p.Turns.Open { // hosts that left
		switch {
		case known[node]:
		case turn.Withdrawn:
			delete(p.Turns.Open, node)
			p.stepAnswered(node, false)
		default:
			p.withdraw(node, turn)
		}
	}
	slices.Sort(p.Withdrawals)
	return ended
}

func (p *planner) withdraw(node string, turn Turn) {
	turn.Withdrawn = true
	p.Turns.Open[node] = turn
	p.Withdrawals = append(p.Withdrawals, node)
}

// recordFailures adds a stop for each turn that failed, and returns their number. A
// turn that ended just now is recorded also if its change no longer matters: people
// read of it in the events.
func (p *planner) recordFailures(ended map[string]bool) (added int) {
	for _, h := range p.hosts {
		r := h.Report
		recorded := func(s Stop) bool { return s.Node == h.Node && s.Turn == r.Turn }
		if !r.Unhealthy() || p.setBack(r) && !ended[h.Node] || slices.ContainsFunc(p.Stops.Stops, recorded) {
			continue
		}
		p.Stops.Stops = append(p.Stops.Stops, Stop{
			Node: h.Node, Turn: r.Turn, Content: r.Content, Inputs: r.Taken, Since: p.now.Truncate(time.Second), Reason: r.Reason,
		})
		p.event(StageStopped, h.Node, "%s on %s: %s (%s)", stateText(r.State), h.Node, text.Line(r.Reason, 300), inputsText(r.Taken))
		added++
	}
	return added
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
	reports := map[string]cluster.StageReport{}
	for _, h := range p.hosts {
		reports[h.Node] = h.Report
	}
	p.Stops.Stops = slices.DeleteFunc(p.Stops.Stops, func(s Stop) bool {
		r, known := reports[s.Node]
		switch {
		case s.Step != "":
			return s.Resumed != nil || p.Turns.Step == nil && !p.wanted(s.Inputs)
		case !known:
			return s.Resumed != nil || !p.wanted(s.Inputs)
		case r.Turn == s.Turn:
			return s.Resumed == nil && p.setBack(r)
		case turnNumber(r.Turn) <= turnNumber(s.Turn):
			return false // the report may be older than the stop
		case r.State == cluster.StageDone:
			return true
		}
		return s.Resumed != nil || (r.State == cluster.StageRestored || r.State == "") && !p.wanted(s.Inputs)
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

// turnNumber returns the number of a turn: of two turns of a stage the later one has the
// higher number.
func turnNumber(id string) (n uint64) {
	number, _, _ := strings.Cut(id, ".")
	n, _ = strconv.ParseUint(number, 10, 64) // 0: no turn
	return n
}

// bad reports whether the host's last change failed and no operator approved it: it
// counts as out of service, whatever its checks say.
func (p *planner) bad(h *ranked) bool { return p.Stops.bad(h.Node, h.Report) }

// bad is planner.bad of a host that reports r. A failure counts also before its stop is recorded.
func (s Stops) bad(node string, r cluster.StageReport) bool {
	recorded := false
	for _, stop := range s.Stops {
		if stop.Node != node {
			continue
		}
		same := stop.Turn == r.Turn
		recorded = recorded || same
		older := turnNumber(r.Turn) < turnNumber(stop.Turn) // the report is, so it may have failed
		if stop.Resumed == nil && (older || same && r.State == cluster.StageFailed) {
			return true
		}
	}
	return r.State == cluster.StageFailed && !recorded
}

// offer offers turns as long as there is room.
func (p *planner) offer() {
	if p.Halted || p.window.closed != "" || len(p.hosts) == 0 {
		return
	}
	allowed := max(1, p.policy.MaxParallel.Of(share(p.Hosts)))
	open, out := 0, 0
	for _, h := range p.hosts {
		_, has := p.Turns.Open[h.Node]
		if has {
			open++
		}
		if has || h.Out || p.bad(h) {
			out++
		}
	}
	open += p.strangers()
	p.order = nil
	candidates := slices.DeleteFunc(slices.Clone(p.hosts), func(h *ranked) bool { return p.Barred(h.Host) != "" })
	// Hosts in service come first: with the others it is not known why they fail.
	slices.SortStableFunc(candidates, func(a, b *ranked) int { return pace.CompareBool(a.Out, b.Out) })
	places := p.Places.Clone()
	for _, h := range candidates {
		itself := h.Out || p.bad(h) // it is counted already
		if open >= allowed || out >= allowed && !itself || len(p.Offers) == mostOffers {
			continue
		}
		if p.admitted(h) != "" || p.stepHolds(h) != "" {
			continue
		}
		if _, admitted := p.left(places, h).Admit(h.Node); !admitted {
			p.Denied = append(p.Denied, h.Node)
			continue
		}
		places.Take(h.Node)
		p.enterStep(h, allowed)
		p.Turns.Seq++
		turn := Turn{
			ID: fmt.Sprintf("%d.%.8s", p.Turns.Seq, p.Session), Content: h.Report.Wants, Session: p.Session, Since: p.now,
			Until: p.window.change, DuringFreeze: p.Stops.exceptions(h.Report).DuringFreeze != "",
		}
		if !turn.DuringFreeze {
			turn.Until = pace.Earliest(turn.Until, p.Freezes.Begins(h.Roles, p.now))
		}
		p.Turns.Open[h.Node] = turn
		p.Offers = append(p.Offers, h.Node)
		p.begins(h)
		if open++; !itself {
			out++
		}
	}
	if len(p.Offers) > 0 && !p.Turns.Active {
		p.Turns.Active, p.Turns.Since = true, p.now.Truncate(time.Second)
		h := p.host(p.Offers[0])
		p.event(StageBegan, "", "%s is the first to take a change (%s)", h.Node, inputsText(h.Report.Changed))
	}
}

// left is what the budget leaves for a host.
func (p *planner) left(places *pace.Account, h *ranked) *pace.Account {
	if p.Stops.exceptions(h.Report).OverBudget != "" {
		return places.Over()
	}
	return places
}

// strangers is how many open turns are of hosts that no longer report the stage.
func (p *planner) strangers() (n int) {
	for node := range p.Turns.Open {
		if p.host(node) == nil {
			n++
		}
	}
	return n
}

func (p *planner) host(node string) *ranked {
	for _, h := range p.hosts {
		if h.Node == node {
			return h
		}
	}
	return nil
}

// Barred returns why a host alone cannot be offered a turn; empty: it can.
func (p *planner) Barred(h Host) string { return p.barred(h, p.frozen(h)) }

// awaited reports whether a host alone can be offered a turn, now or when its freeze ends: others do
// not pass it by.
func (p *planner) awaited(h Host) bool { return p.barred(h, "") == "" }

// barred is Barred of a host in a freeze; empty: it is in none.
func (p *planner) barred(h Host, freeze string) string {
	until, resting := p.Turns.Resting[h.Node]
	stop, stopped := p.Stops.Blocking(h.Node, h.Report.Wants, h.Report.Changed)
	_, has := p.Turns.Open[h.Node]
	switch {
	case h.Report.Wants == "":
		return "its files are as their data says"
	case has:
		return "it has its turn"
	case h.aside() != "":
		return h.aside()
	case !h.Up:
		return "its host or its agent is down"
	case freeze != "":
		return freeze
	case stopped:
		return "the change is stopped: it failed " + stop.Place()
	case resting:
		return "it did not answer; the next offer is at " + until.UTC().Format(time.RFC3339)
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
		_, has := p.Turns.Open[h.Node]
		r := h.Report
		z.free = z.free || h.Up && h.aside() == ""
		if r.Wants != "" && h.aside() != "" {
			z.held = append(z.held, r.Changed)
		}
		switch {
		case has:
			z.busy = true
		case p.policy.ZoneByZone && r.Wants != "" && p.awaited(h.Host):
			z.wants, z.more = true, z.more || r.Changed.More > 0
			for _, i := range r.Changed.List {
				z.inputs[i.Digest] = true
			}
		}
		o.count(tried(h.Report, has), 1)
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
	busy := len(p.Turns.Open) > 0 || p.stepPending() || slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" || p.bad(h) })
	if p.Turns.Active && !busy && len(p.hosts) > 0 {
		p.Turns.Active, p.Turns.Since, p.Turns.Step = false, p.now.Truncate(time.Second), nil
		p.event(StageDone, "", "every host has what its data says")
	}
	if step := p.Turns.Step; step != nil && step.Gate != nil {
		p.GateNext = p.policy.GateNext(*step.Gate)
	}
	if p.window.closed != "" && slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" }) {
		p.GateNext = pace.Earliest(p.GateNext, p.window.change)
	}
	if len(p.Turns.Resting) == 0 {
		p.Turns.Resting = nil
	}
	if len(p.Turns.Open) == 0 {
		p.Turns.Open = nil
	}
}

func (p *planner) event(kind, node, format string, args ...any) {
	p.Events = append(p.Events, Event{Kind: kind, Node: node, Text: fmt.Sprintf("stage %q: ", p.Stage) + fmt.Sprintf(format, args...)})
}
