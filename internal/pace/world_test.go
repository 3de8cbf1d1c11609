package pace_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
)

// world is a fleet with changes of all kinds, and the orchestrator that plans them: what the
// kinds of changes, hosts and operators do around package pace.
type world struct {
	t       testing.TB
	now     time.Time
	hosts   map[string]*worldHost
	changes map[string]*worldChange
	budget  *pace.Budget
	freezes pace.Freezes
	halted  string
	allHeld bool
	quiet   time.Time
	took    time.Time // when the orchestrator took over
	log     []string
	sampled bool // plans are too many to explain each host of each
}

// worldHost is one host. What it has and failed is by the tag of a change.
type worldHost struct {
	pace.Host
	critical, drained, left bool
	has                     map[string]time.Time
	failed                  map[string]string
	apart                   map[string]string // by change
	works                   bool              // it converges without a grant
}

// worldChange is one change as its kind keeps it.
type worldChange struct {
	pace.Change
	name     string
	previous string // tag that is taken back to; empty: there is no way back
	nodes    []string
}

func newWorld(t testing.TB) *world {
	return &world{t: t, now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), hosts: map[string]*worldHost{}, changes: map[string]*worldChange{}}
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, w.now.Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
}

// join adds a host that is up and in service.
func (w *world) join(node, zone string, roles ...string) *worldHost {
	h := &worldHost{has: map[string]time.Time{}, failed: map[string]string{}, apart: map[string]string{}}
	h.Node, h.Zone, h.Roles, h.Up = node, zone, roles, true
	w.hosts[node] = h
	return h
}

// nodes are the names of the hosts.
func (w *world) nodes() []string { return slices.Sorted(maps.Keys(w.hosts)) }

// service is why the host is out of service without a grant.
func (h *worldHost) service() pace.OutReason {
	switch {
	case !h.Up:
		return pace.OutDown
	case h.drained:
		return pace.OutMaintenance
	case h.critical:
		return pace.OutCritical
	}
	return pace.InService
}

// part returns the host's part of a change; nil: it never had one.
func (h *worldHost) part(change string) *pace.Part {
	if i := slices.IndexFunc(h.Parts, func(p pace.Part) bool { return p.Change == change }); i >= 0 {
		return &h.Parts[i]
	}
	return nil
}

// seen is the host as package pace sees it, with why it is out of service.
func (w *world) seen(h *worldHost) pace.Host {
	s := h.Host
	s.Parts, s.Roles = slices.Clone(h.Parts), slices.Clone(h.Roles)
	s.Service = h.service()
	if w.allHeld {
		s.Hold = "the whole cluster, by ann"
	}
	if s.Drained = ""; h.drained {
		s.Drained = "it is in maintenance that jorc did not begin"
	}
	for _, p := range h.Parts {
		c := w.changes[p.Change]
		if (p.Granted() || p.GivenUp()) && (c == nil || c.Disturbs) {
			s.For, s.Out, s.Since, s.GivenUp = p.Change, "it has a grant of "+p.Change, p.GrantedSince(), p.GivenUp()
			if s.Failed = p.Answer == pace.GrantFailed; s.Failed {
				s.Out = "its grant of " + p.Change + " failed"
			}
			return s
		}
	}
	switch reason := s.Service; {
	case h.left:
		s.Out, s.Down = reason.Text(), true
	case reason != pace.InService:
		s.Out, s.Failed, s.Down = reason.Text(), reason != pace.OutMaintenance, reason == pace.OutDown
	case h.works:
		s.Out = "it converges without a grant"
	}
	return s
}

// situation is what the orchestrator reads.
func (w *world) situation() pace.Situation {
	s := pace.Situation{
		Freezes: w.freezes, Halted: w.halted, AllHeld: w.allHeld, Quiet: w.quiet, PlannedSince: w.took, Turns: w.freezes.Change(w.now),
	}
	for _, node := range w.nodes() {
		s.Hosts = append(s.Hosts, w.seen(w.hosts[node]))
	}
	for _, id := range slices.Sorted(maps.Keys(w.changes)) {
		s.Changes = append(s.Changes, w.change(w.changes[id]))
	}
	if w.budget != nil {
		s.Places = pace.NewAccount(w.budget, s.Hosts)
	}
	return s
}

// change is the projection of its kind.
func (w *world) change(c *worldChange) pace.Change {
	p := c.Change
	p.Wants = nil
	nodes := c.nodes
	if nodes == nil {
		nodes = w.nodes()
	}
	for _, node := range nodes {
		h := w.hosts[node]
		if h == nil {
			continue
		}
		arrived, has := h.has[c.Tag]
		want := pace.Want{Node: node, Has: has, Arrived: arrived, Failure: h.failed[c.Tag], Apart: h.apart[c.ID], Works: h.works}
		if role := c.Policy.KeepsBack(h.Roles); role != "" {
			want.Apart = fmt.Sprintf("the policy keeps back role %q", role)
		}
		want.Granted = h.part(c.ID) != nil
		p.Wants = append(p.Wants, want)
	}
	return p
}

// void takes back the offers of a change that hosts did not accept: what they check was
// written.
func (w *world) void(id string) {
	for _, h := range w.hosts {
		if p := h.part(id); p != nil && p.Offer == pace.Offered {
			p.Offer = pace.NotOffered
		}
	}
}

// plan is what the orchestrator does once something has happened: it plans, writes, and plans
// again until nothing more is decided. It fails the test where a plan is not what package
// pace promises. It returns when time alone changes something.
func (w *world) plan() (again time.Time) {
	w.t.Helper()
	for range 100 {
		s := w.situation()
		planned := pace.Plan(s, w.now)
		w.explained(s, planned)
		w.fair(s, planned)
		moved := false
		again = time.Time{}
		for _, id := range slices.Sorted(maps.Keys(planned)) {
			p := planned[id]
			again = pace.Earliest(again, p.Again)
			moved = w.apply(w.changes[id], p) || moved
		}
		w.settled(s, planned)
		if !moved {
			return again
		}
	}
	w.fatal("the orchestrator never stops planning")
	return again
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.log[max(0, len(w.log)-60):], "\n"))
}

// apply writes what was decided of a change. It reports whether that is anything.
func (w *world) apply(c *worldChange, p pace.Planned) bool {
	if n := p.Next; n != nil {
		c.Progress = n.Progress
		for _, d := range n.Decisions {
			if d.Kind != event.ChangeTakenBack {
				w.decision(c, d)
			}
		}
		switch {
		case n.Restore != "":
			w.takeBack(c, *n)
		case n.Stop != "":
			c.Stopped = "it was paused by jorc: " + n.Stop
			w.void(c.ID)
		}
		if len(p.Offers)+len(p.Withdrawals) > 0 {
			w.fatal("%s is offered in a plan that changes it", c.name)
		}
		return true
	}
	for _, node := range p.Withdrawals {
		part := w.hosts[node].part(c.ID)
		if w.now.Sub(part.Since) >= pace.AnswerWithin {
			part.Unanswered++
		}
		part.Offer, part.Since = pace.Withdrawn, w.now
		w.say("%s: the offer to %s is withdrawn", c.name, node)
	}
	for _, o := range p.Offers {
		h := w.hosts[o.Node]
		part := h.part(c.ID)
		if part == nil {
			h.Parts = append(h.Parts, pace.Part{Change: c.ID})
			part = h.part(c.ID)
		}
		part.Offer, part.Since, part.Until, part.Unanswered, part.Declined, part.Ready = pace.Offered, w.now, o.Until, o.Tries, false, false
		said := ""
		if !o.Until.IsZero() {
			said = ", to begin before " + pace.Stamp(o.Until)
		}
		w.say("%s: %s is offered a grant%s", c.name, o.Node, said)
	}
	return len(p.Offers)+len(p.Withdrawals) > 0
}

func (w *world) decision(c *worldChange, d pace.Decision) {
	said := d.Text
	if d.Reason != "" {
		said += " (" + d.Reason + ")"
	}
	if len(d.Nodes) > 0 && !strings.Contains(said, d.Nodes[0]) {
		said += ": " + strings.Join(d.Nodes, ", ")
	}
	w.say("%s: %s: %s", c.name, d.Kind, said)
}

// takeBack is what the kind makes of a change that is taken back.
func (w *world) takeBack(c *worldChange, fallen pace.Next) {
	w.say("%s: is taken back to %s: %s", c.name, c.previous, fallen.Restore)
	p := c.Policy.Ungated()
	p.Canary, p.Batches, p.OnFailure = 0, nil, pace.OnFailurePause
	progress := pace.Progress{Phase: pace.RollingBack, Since: pace.Second(w.now), Counts: fallen.Now}
	w.begin(c.ID, c.previous, func(n *worldChange) {
		n.Policy, n.Progress, n.Restores, n.previous, n.Unfrozen, n.nodes = p, progress, true, c.previous, true, c.nodes
	})
	now := w.changes[c.ID]
	next := pace.TakeBack(w.situation(), w.change(now), w.now)
	now.Progress = next.Progress
	for _, d := range next.Decisions {
		w.decision(now, d)
	}
}

// begin asks for a change. Before it, the change of the same id is over.
func (w *world) begin(id, tag string, with func(*worldChange)) {
	kind, name, _ := strings.Cut(id, ".")
	c := &worldChange{name: strings.TrimSpace(kind + " " + cmp.Or(name, tag))}
	c.ID, c.Tag, c.Created, c.Disturbs = id, tag, w.now, true
	c.Progress = pace.Progress{Phase: pace.Waiting, Since: pace.Second(w.now)}
	c.Words = pace.Words{
		Change: c.name, Noun: "it", Have: "have " + tag, Noted: "no host arrived",
		Resume: "resume " + id, Approve: "approve " + id, GiveUp: "give-up",
	}
	with(c)
	if c.previous == "" && !c.Restores {
		c.NoWayBack = "it cannot be taken back"
	}
	w.changes[id] = c
	w.void(id)
}

// explained fails the test unless Explain has no reason exactly for the hosts that the plan offers.
func (w *world) explained(s pace.Situation, planned map[string]pace.Planned) {
	w.t.Helper()
	for id, p := range planned {
		for i, h := range s.Hosts {
			offered := slices.ContainsFunc(p.Offers, func(o pace.Offer) bool { return o.Node == h.Node })
			if w.sampled && !offered && (i+len(id)+int(w.now.Unix()))%5 > 0 {
				continue
			}
			if why := pace.Explain(s, id, h.Node, w.now); why.None() != offered {
				w.fatal("%s is offered %s: %t, but the reason why not is %+v", h.Node, id, offered, why)
			} else if !offered && why.Text("it") == "" {
				w.fatal("the reason why %s is not offered %s has no words: %+v", h.Node, id, why)
			}
		}
	}
}

// fair fails the test if a change takes a place of the cluster that another waits for which comes first.
func (w *world) fair(s pace.Situation, planned map[string]pace.Planned) {
	w.t.Helper()
	demands, offers := map[string]pace.Demand{}, map[string]int{}
	for i := range s.Changes {
		c := &s.Changes[i]
		d := pace.Demand{Change: c.ID, Restores: c.Restores || c.Phase == pace.RollingBack, Created: c.Created}
		for _, h := range s.Hosts {
			if slices.ContainsFunc(h.Parts, func(p pace.Part) bool { return p.Change == c.ID && p.Granted() }) {
				d.Open++
			}
		}
		demands[c.ID] = d
		for _, o := range planned[c.ID].Offers {
			offers[o.Node]++
		}
	}
	takes := func(o pace.Offer) bool {
		i := slices.IndexFunc(s.Hosts, func(h pace.Host) bool { return h.Node == o.Node })
		return s.Hosts[i].Out == "" && offers[o.Node] == 1
	}
	for id, p := range planned {
		waits := slices.ContainsFunc(p.Denied, func(d pace.Denied) bool { return d.Limit.Kind == pace.OfCluster })
		for other, o := range planned {
			if waits && w.changes[other].Disturbs && slices.ContainsFunc(o.Offers, takes) && demands[other].Compare(demands[id]) > 0 {
				w.fatal("%+v gets a place that %+v waits for", demands[other], demands[id])
			}
		}
	}
}

// settled fails the test if a plan decides more of a change once its first decision is written.
func (w *world) settled(before pace.Situation, planned map[string]pace.Planned) {
	w.t.Helper()
	for i := range before.Changes {
		c := &before.Changes[i]
		n := planned[c.ID].Next
		if n == nil || n.Restore != "" {
			continue
		}
		c.Progress = n.Progress
		if n.Stop != "" {
			c.Stopped = n.Stop
		}
	}
	for id, p := range pace.Plan(before, w.now) {
		first := planned[id].Next
		if p.Next != nil && first != nil && first.Restore == "" {
			w.fatal("planning again decides more of %s: %+v", id, p.Next)
		}
	}
}

// pass moves the clock on. The orchestrator plans when the last plan asked for that.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	end := w.now.Add(d)
	for range 1000 {
		again := w.plan()
		if again.IsZero() || !again.Before(end) {
			w.now = end
			return
		}
		w.now = again
	}
	w.fatal("the orchestrator plans again and again")
}

// Errors of what a host or an operator cannot do.
var (
	errHost   = errors.New("there is no such host")
	errChange = errors.New("there is no such change")
	errPart   = errors.New("the host has no such grant")
)

// one returns the host, and its part that is as wanted: of the change, or the only one.
func (w *world) one(node, change string, wanted func(*pace.Part) bool) (*worldHost, *worldChange, *pace.Part, error) {
	h := w.hosts[node]
	if h == nil {
		return nil, nil, nil, fmt.Errorf("%w: %s", errHost, node)
	}
	var found *pace.Part
	for i := range h.Parts {
		p := &h.Parts[i]
		if !wanted(p) || change != "" && p.Change != change {
			continue
		}
		if found != nil {
			return nil, nil, nil, fmt.Errorf("%w: it has several: name the change", errPart)
		}
		found = p
	}
	if found == nil {
		return nil, nil, nil, fmt.Errorf("%w: %s", errPart, node)
	}
	c := w.changes[found.Change]
	if c == nil {
		c = &worldChange{name: found.Change}
		c.ID = found.Change
	}
	return h, c, found, nil
}

// accept: the host begins.
func (w *world) accept(node, change string) error {
	_, c, p, err := w.one(node, change, (*pace.Part).Offered)
	if err != nil {
		return err
	}
	p.Offer, p.Answer, p.Tag, p.Accepted, p.Reason = pace.NotOffered, pace.Accepted, c.Tag, w.now, ""
	return nil
}

// decline: the host cannot begin. Later it may be ready.
func (w *world) decline(node, change, reason string) error {
	_, _, p, err := w.one(node, change, (*pace.Part).Offered)
	if err == nil {
		p.Offer, p.Declined, p.Reason = pace.NotOffered, true, reason
	}
	return err
}

// arrive: the host has what the change brings, and waits until it is healthy.
func (w *world) arrive(node, change string) error {
	h, _, p, err := w.one(node, change, (*pace.Part).Open)
	if err == nil {
		h.take(p, w.now)
		p.Answer, p.Reason = pace.Accepted, ""
	}
	return err
}

// take has the host have what a grant brings. It has one version at a time.
func (h *worldHost) take(p *pace.Part, now time.Time) {
	if p.Change == "version" {
		maps.DeleteFunc(h.has, func(tag string, _ time.Time) bool { return tag[0] == 'v' && tag != p.Tag })
	}
	if _, has := h.has[p.Tag]; !has {
		h.has[p.Tag] = now
	}
	delete(h.failed, p.Tag)
}

// done: the host is healthy, and its grant ends.
func (w *world) done(node, change string) error {
	h, _, p, err := w.one(node, change, (*pace.Part).Open)
	if err == nil {
		h.take(p, w.now)
		*p = pace.Part{Change: p.Change}
	}
	return err
}

// fail: what the change brings failed on the host. Of a run that is the end.
func (w *world) fail(node, change, reason string) error {
	h, c, p, err := w.one(node, change, (*pace.Part).Open)
	switch {
	case err != nil:
		return err
	case c.Final:
		*p = pace.Part{Change: p.Change}
	default:
		p.Answer, p.Reason = pace.GrantFailed, reason
	}
	h.failed[c.Tag] = reason
	return nil
}

// strand: the host ended its task, as something else is asked for.
func (w *world) strand(node, change string) error {
	_, _, p, err := w.one(node, change, (*pace.Part).Open)
	if err == nil {
		p.Answer = pace.GrantStrands
	}
	return err
}

// giveUp: an operator no longer counts the host.
func (w *world) giveUp(node, change string) error {
	_, _, p, err := w.one(node, change, (*pace.Part).Open)
	if err == nil {
		p.Offer = pace.GivenUp
	}
	return err
}

// crash: another agent holds the orchestrator's lock. No host accepts what the one before
// offered.
func (w *world) crash() {
	w.took = w.now
	for id := range w.changes {
		w.void(id)
	}
}
