package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

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
	// Crowded is since when hosts that are out of service keep all others from a grant; zero: they do not.
	Crowded time.Time `json:"crowded,omitzero"`
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
	Grant   string              `json:"grant"`          // its ID
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

// Host is one host as a plan sees it. Its parts of changes are not filled in.
type Host struct {
	pace.Host

	Report cluster.StageReport
	Answer cluster.Answer          // to what it was granted in the stage
	Grants kv.Entry[change.Grants] // of all changes
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
func (h *Host) aside() string { return cmp.Or(h.Held(), h.Drained) }

// share is the number of hosts that shares are of: the ones that are neither held nor drained.
func share(hosts []Host) (n int) {
	for i := range hosts {
		if hosts[i].aside() == "" {
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
	// Halted is why nothing begins in the whole cluster; empty: it is not halted.
	Halted  string
	Freezes pace.Freezes // of the cluster
	Quiet   time.Time    // until when nothing is granted, as Consul's KV was restored
	Hosts   []Host
	Gate    *pace.GateRun // what is known of the run that the gate asked for; nil: nothing
	// Places is who is out of service for whatever reason, and what the budget of the
	// cluster leaves; nil: there is no budget.
	Places *pace.Account
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
	Denied    []string
	Decisions []event.Decision
	Again     time.Time // when time alone changes what is decided; zero: it does not
}

// planner is a plan in the making.
type planner struct {
	State
	Planned
	now    time.Time
	policy pace.Policy
	hosts  []*ranked // in the order in which a change reaches them
	left   []*ranked // that no longer have the stage
	byNode map[string]*ranked
	open   int // hosts with a grant, or an offer, before the plan
	stored Stops
	survey *pace.Survey // the stage as package pace sees it
}

type ranked struct {
	Host
	in   *pace.Member // of the survey; nil: it no longer has the stage
	part pace.Part
	has  bool // it has a grant, or is offered one
}

// windows are those of all hosts: one of each host has to be open.
func windows(hosts []Host) (lists [][]pace.Window) {
	seen := map[string]bool{"": true}
	for i := range hosts {
		if text := hosts[i].Report.Policy.Window; !seen[text] {
			seen[text] = true
			if all, err := pace.ParseWindows(text); err == nil { // a text that cannot be read does not stop other hosts
				lists = append(lists, all)
			}
		}
	}
	return lists
}

// Plan decides which hosts are offered a grant. It is a pure function; its
// documents are copies.
func Plan(book Book, stops Stops, s State, now time.Time) Planned {
	p := newPlanner(book, stops, s, now)
	p.answers()
	p.forgetStops()
	p.recordFailures()
	p.refresh()
	p.steps()
	p.offer()
	p.finish()
	return p.Planned
}

func newPlanner(book Book, stops Stops, s State, now time.Time) *planner {
	p := &planner{now: now.UTC().Truncate(time.Millisecond), byNode: map[string]*ranked{}}
	hosts := make([]Host, 0, len(s.Hosts))
	all := make([]ranked, len(s.Hosts))
	for i, h := range s.Hosts {
		r := &all[i]
		r.Host, r.part = h, h.part(s.Stage)
		if r.has = r.part.Granted(); r.has {
			p.open++
		}
		if h.Left {
			p.left = append(p.left, r)
			continue
		}
		hosts, p.hosts, p.byNode[h.Node] = append(hosts, h), append(p.hosts, r), r
	}
	s.Hosts = hosts
	p.State, p.policy = s, PolicyOf(hosts)
	p.Book, p.Stops = book, Stops{Stops: slices.Clone(stops.Stops), Exempt: slices.Clone(stops.Exempt)}
	p.stored, p.Book.Past = stops, maps.Clone(book.Past)
	if book.Step != nil {
		p.Book.Step = book.Step.clone()
	}
	p.look()
	return p
}

// look makes the survey, and sorts the hosts by it. What it says of stops and steps follows with refresh.
func (p *planner) look() {
	s := pace.Situation{Places: p.Places, Freezes: p.Freezes, Halted: p.Halted, Quiet: p.Quiet}
	c := pace.Change{
		ID: cluster.FilesChange(p.Stage), Tag: p.Stage, Policy: p.policy, Windows: windows(p.Hosts), Disturbs: true, ByTag: true, CrowdedSince: p.Book.Crowded, Newcomers: -1,
		Words: pace.Words{Noun: "the change"},
	}
	parts := make([]pace.Part, 0, len(p.hosts)+len(p.left))
	for _, h := range slices.Concat(p.hosts, p.left) {
		parts = append(parts, h.part)
		h.Host.Parts = parts[len(parts)-1:]
		w := pace.Want{Node: h.Node, Has: h.Report.Wants == ""}
		if h.Left {
			w.Apart = "it no longer has the stage"
		}
		s.Hosts, c.Wants = append(s.Hosts, h.Host.Host), append(c.Wants, w)
	}
	slices.SortFunc(s.Hosts, func(a, b pace.Host) int { return cmp.Compare(a.Node, b.Node) })
	p.survey = pace.NewSurvey(s, c, p.now)
	p.hosts = p.hosts[:0]
	for i := range p.survey.Members {
		m := &p.survey.Members[i]
		h := p.byNode[m.Node]
		h.in, p.hosts = m, append(p.hosts, h)
	}
}

// refresh has the survey know the present stops and steps.
func (p *planner) refresh() {
	for i := range p.survey.Wants {
		if w := &p.survey.Wants[i]; p.byNode[w.Node] != nil {
			*w = p.want(p.byNode[w.Node])
		}
	}
}

// want is what the stage says of a host.
func (p *planner) want(h *ranked) pace.Want {
	r, g := h.Report, h.grant(p.Stage)
	w := pace.Want{
		Node: h.Node, Has: r.Wants == "", Failing: p.bad(h), Broken: r.Unhealthy(), MoreTags: r.Changed.More > 0, Exceptions: p.Stops.exceptions(r),
		Stale: g.Session != p.Session || g.Spec != p.Spec || g.Tag != r.Wants,
	}
	tries := r.Changed
	if r.Open() {
		tries = r.Taken
	}
	w.Tags = digests(tries)
	if r.State == cluster.StageDone {
		w.Proven = digests(r.Taken)
	}
	if stop, stopped := p.Stops.Blocking(h.Node, r.Wants, r.Changed); stopped {
		w.Barred = "the change is stopped: it failed " + stop.Place()
	}
	w.Later, w.Granted = p.stepHolds(h), p.inStep(h.Node)
	return w
}

func digests(inputs cluster.StageInputs) []string {
	all := make([]string, len(inputs.List))
	for i, input := range inputs.List {
		all[i] = input.Digest
	}
	return all
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

// answers takes in what hosts say of their grants.
func (p *planner) answers() {
	for _, h := range p.hosts {
		p.stepAnswered(h)
	}
	if step := p.Book.Step; step != nil {
		maps.DeleteFunc(step.Hosts, func(node string, took bool) bool { return !took && p.byNode[node] == nil })
	}
	for node, id := range p.Book.Past {
		if h := p.byNode[node]; h == nil || h.Answer.ID != id {
			delete(p.Book.Past, node)
		}
	}
}

// recordFailures adds a stop for each host on which a change failed, also if that no longer matters: people read
// of it in the events.
func (p *planner) recordFailures() {
	for _, h := range p.hosts {
		r, id := h.Report, h.Answer.ID
		recorded := func(s Stop) bool { return s.Node == h.Node && s.Grant == id }
		if !r.Unhealthy() || p.setBack(r) && p.Book.Past[h.Node] == id || slices.ContainsFunc(p.Stops.Stops, recorded) {
			continue
		}
		p.Stops.Stops = append(p.Stops.Stops, Stop{
			Node: h.Node, Grant: id, Content: h.Answer.Tag, Inputs: r.Taken, Since: p.now.Truncate(time.Second), Reason: r.Reason,
		})
		p.event(event.ChangeStopped, h.Node, "%s on %s: %s (%s)", stateText(r.State), h.Node, text.Line(r.Reason, 300), inputsText(r.Taken))
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
	return "changed: " + text.FewOf(", ", names, len(names)+inputs.More)
}

// forgetStops removes stops that no longer count: the host took another change
// since, and its checks passed; or no host has what failed, and none wants it.
func (p *planner) forgetStops() {
	p.Stops.Stops = slices.DeleteFunc(p.Stops.Stops, func(s Stop) bool {
		h := p.byNode[s.Node]
		switch {
		case s.Step != "":
			return s.Resumed != nil || p.Book.Step == nil && !p.wanted(s.Inputs)
		case h == nil:
			return s.Resumed != nil || !p.wanted(s.Inputs)
		case h.Answer.ID == s.Grant:
			past := s.Resumed == nil && p.setBack(h.Report)
			if past {
				if p.Book.Past == nil {
					p.Book.Past = map[string]string{}
				}
				p.Book.Past[s.Node] = s.Grant
			}
			return past
		case !change.Earlier(s.Grant, h.Answer.ID):
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
		same := stop.Grant == h.Answer.ID
		recorded = recorded || same
		older := change.Earlier(h.Answer.ID, stop.Grant) // the report is, so it may have failed
		if stop.Resumed == nil && (older || same && failed) {
			return true
		}
	}
	return failed && !recorded
}

// outlook is what package pace decides of the present stops and steps.
func (p *planner) outlook() pace.Planned {
	p.refresh()
	p.survey.Newcomers = p.newcomers()
	planned := p.survey.Plan()
	next := p.nextStep(planned.Offers)
	if next == nil {
		return planned
	}
	p.Book.Step = next
	for i := range p.survey.Wants {
		if w := &p.survey.Wants[i]; next.Kind == StepZone && p.byNode[w.Node] != nil && p.byNode[w.Node].Zone != next.Zone {
			w.Later = next.String() + " comes first"
		}
	}
	p.survey.Newcomers = next.room()
	return p.survey.Plan()
}

// offer offers grants as long as there is room, and withdraws offers that hosts can or should no longer accept.
func (p *planner) offer() {
	before := p.Book
	planned := p.outlook()
	p.Again = planned.Again
	for _, node := range slices.Sorted(slices.Values(planned.Withdrawals)) {
		h := p.byNode[node]
		if i := slices.IndexFunc(p.left, func(h *ranked) bool { return h.Node == node }); i >= 0 {
			h = p.left[i]
		}
		p.grant(h, h.grant(p.Stage).Withdrawn(p.now))
		p.Withdrawals = append(p.Withdrawals, node)
	}
	if !text.SameJSON(p.Stops, p.stored) { // first the stops are written: offers depend on them
		p.Book = before
		return
	}
	for _, d := range planned.Denied {
		p.Denied = append(p.Denied, d.Node)
	}
	switch {
	case !planned.Crowded:
		p.Book.Crowded = time.Time{}
	case p.Book.Crowded.IsZero():
		p.Book.Crowded = p.now.UTC().Truncate(time.Second)
	}
	for _, o := range planned.Offers[:min(len(planned.Offers), change.PerTransaction-len(p.Grants))] {
		h := p.byNode[o.Node]
		p.enterStep(h, o.Early)
		p.grant(h, change.Grant{
			Change: cluster.FilesChange(p.Stage), Tag: h.Report.Wants, State: pace.Offered, Since: p.now, Spec: p.Spec, Tries: o.Tries, Until: o.Until,
			DuringFreeze: p.Stops.exceptions(h.Report).DuringFreeze != "",
		})
		p.Offers = append(p.Offers, h.Node)
	}
	if len(p.Offers) > 0 && !p.Book.Active {
		p.Book.Active, p.Book.Since = true, p.now.Truncate(time.Second)
		h := p.byNode[p.Offers[0]]
		p.event(event.ChangeBegan, "", "%s is the first to take a change (%s)", h.Node, inputsText(h.Report.Changed))
	}
}

func (p *planner) grant(h *ranked, g change.Grant) {
	p.Grants = append(p.Grants, change.Next{Node: h.Node, Old: h.Grants, Grants: []change.Grant{g}})
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
		p.event(event.ChangeDone, "", "every host has what its data says")
	}
	if step := p.Book.Step; step != nil && step.Gate != nil {
		p.Again = pace.Earliest(p.Again, p.policy.GateNext(*step.Gate))
	}
	if len(p.Book.Past) == 0 {
		p.Book.Past = nil
	}
}

func (p *planner) event(kind, node, format string, args ...any) {
	p.Decisions = append(p.Decisions, event.Decision{
		Kind: kind, Change: cluster.FilesChange(p.Stage), Node: node, Text: fmt.Sprintf("stage %q: ", p.Stage) + fmt.Sprintf(format, args...), After: cmp.Or(node, p.Stage),
	})
}
