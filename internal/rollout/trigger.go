package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Request is a version that members are to have.
type Request struct {
	Version string
	// Policy changes the policy of the rollout of this version that is under
	// way, or makes that of a new one from the plain one; nil leaves both.
	Policy func(*pace.Policy)
	By     string
	Reason string // shown to others
	// Exceptions are the rules of the cluster that it does not follow; what is empty stays as it is in
	// the running rollout of this version.
	pace.Exceptions
	// DryRun writes nothing. RequireConverged refuses while members are behind
	// the version that was desired so far, or failed.
	DryRun, RequireConverged bool
	// Announce, if not nil, is called before something is written, again after a conflict.
	// Its error ends the request.
	Announce func(Triggered) error

	// WithGates: what takes a rollout back passes gates, bakes, consent, windows and freezes, too.
	WithGates bool

	rollback *Rollback // what the request takes back; nil: nothing
}

// Triggered is what a trigger changed.
type Triggered struct {
	Version  string   `json:"version"`
	Previous string   `json:"previous"` // desired before
	Changed  bool     `json:"changed"`
	Document Document `json:"rollout"`
	// Out are members that are out of service already, or still, by reason.
	Out []Out `json:"out"`
	// Obstacles are what else stands in the way.
	Obstacles []Obstacle `json:"obstacles"`
	// Superseded is the unfinished rollout that this one took the place of.
	Superseded *Superseded `json:"superseded,omitempty"`
	// Plan says who is to be admitted step by step, for a dry run; Waits what it
	// waits for when no member is.
	Plan  []pace.Decision `json:"plan,omitempty"`
	Waits []string        `json:"waits,omitempty"`
	// Note says what was left as it is, when that may surprise, and what was damaged.
	Note string `json:"note,omitempty"`

	fresh bool // the rollout is new
}

// Superseded names the hosts that a rollout left behind.
type Superseded struct {
	Version string    `json:"version"`
	By      string    `json:"by,omitempty"` // who triggered it
	Started time.Time `json:"started,omitzero"`
	Policy  string    `json:"policy"` // in words
	State   string    `json:"state"`
	Behind  []string  `json:"behind"` // not at the version; the first of them
	Count   int       `json:"count"`  // all of them
	Failed  []string  `json:"failed"` // the first of them

	paced   bool
	healthy bool // members exist, and all run the version without a failure
}

// TriggeredText says who triggered the rollout, and when, as an addition to its version.
func (b Superseded) TriggeredText() string { return triggeredText(b.By, b.Started) }

// Unpaced reports whether the trigger ends a rollout with a policy that is running and
// has none itself: it lets all members begin at once.
func (t Triggered) Unpaced() bool {
	return t.Superseded != nil && t.Superseded.paced && !t.Document.Paced()
}

// Trigger makes a version the desired one, together with its rollout, in one
// transaction; an unfinished one is superseded. Triggering the same version
// again changes its policy, and nothing when that is the same.
//
// It returns text.ErrName, ErrPolicy, ErrNoMembers, ErrNotConverged, kv.ErrNewer,
// consul.ErrRefused for a version that this Consul takes in no key, consul.ErrOutcomeUnknown, or what Load and Observe return.
func (r *Rollouts) Trigger(ctx context.Context, q Request) (Triggered, error) {
	if err := cluster.CheckVersion(q.Version); err != nil {
		return Triggered{}, err
	}
	if q.Policy != nil { // what contradicts itself does so in any policy
		var p pace.Policy
		if q.Policy(&p); p.Validate() != nil {
			return Triggered{}, p.Validate()
		}
	}
	var t Triggered
	err := kv.RetryConflicts(ctx, func() (err error) {
		t, err = r.trigger(ctx, q)
		return err
	})
	return t, err
}

// trigger is one attempt of Trigger.
func (r *Rollouts) trigger(ctx context.Context, q Request) (Triggered, error) {
	s, err := r.Load(ctx)
	if err != nil {
		return Triggered{}, err
	}
	next, fresh, err := q.next(s, r.now())
	if err != nil {
		return Triggered{}, err
	}
	t := Triggered{Version: q.Version, Previous: s.Desired, Document: next, Out: []Out{}, Obstacles: []Obstacle{}, fresh: fresh}
	switch d := s.Document; {
	case q.rollback != nil:
		t.Note = q.rollbackNote(d.Policy)
	case fresh || d.Over():
	case q.Policy == nil && d.Paced():
		t.Note = "the rollout of " + q.Version + " that is under way" + d.TriggeredText() + ", keeps its policy: flags such as --max-parallel change it"
	case !next.equal(d) && d.By != q.By:
		t.Note = "the rollout of " + q.Version + " is under way" + d.TriggeredText() + ": it had the policy " + d.Policy.String()
	}
	if s.Damaged != nil {
		t.Note = strings.TrimSuffix(s.Damaged.Error()+": it is written anew; "+t.Note, "; ")
	}
	bare := r.cluster.Name() == "" && q.Policy == nil && !s.spec.Exists
	t.Changed = s.Desired != q.Version || s.badDesired || !bare && (!s.Exists || !next.equal(s.Document))
	if t.Changed || q.RequireConverged || q.DryRun {
		if err := r.consider(ctx, s, q, &t); err != nil {
			return Triggered{}, err
		}
	}
	if t.Changed && q.rollback == nil { // hosts ran what a rollback returns to
		if err := r.cluster.CheckVersionKey(ctx, q.Version); err != nil {
			return Triggered{}, err
		}
	}
	if !t.Changed || q.DryRun {
		return t, nil
	}
	if q.Announce != nil {
		if err := q.Announce(t); err != nil {
			return t, err
		}
	}
	if bare { // hosts without a cluster know no other key
		ctx = kv.WithRecorder(ctx, nil)
		_, err = r.desired.CompareAndSwap(ctx, s.desired, q.Version)
	} else {
		txn := r.store.Txn()
		r.write(txn, s, t.Document)
		_, err = txn.Commit(ctx)
	}
	return t, err
}

// next is the document that the request makes of what is stored; fresh reports
// whether it is of a new rollout.
func (q Request) next(s Stored, now time.Time) (next Document, fresh bool, err error) {
	old := s.Document
	exceptions := pace.Exceptions{DuringFreeze: text.Line(q.DuringFreeze, mostText), OverBudget: text.Line(q.OverBudget, mostText)}
	var p pace.Policy
	if fresh = !s.Exists || old.Version != q.Version || s.Desired != q.Version || old.Phase == pace.Aborted; !fresh {
		p = old.Policy
		p.Batches, p.Order, p.Windows = slices.Clone(p.Batches), slices.Clone(p.Order), slices.Clone(p.Windows)
	}
	if q.Policy != nil {
		if q.Policy(&p); p.Plain() { // max failures 0 is a policy, too
			p.MaxParallel = pace.DefaultParallel()
		}
	}
	if !fresh {
		exceptions = exceptions.Or(old.Exceptions)
	}
	p = s.pacing(p, exceptions.DuringFreeze != "", now)
	if q.rollback != nil {
		p = old.Policy
		if !q.WithGates {
			p = p.Ungated()
		}
		d := begin(q.Version, s.pacing(p, !q.WithGates, now), q.By, "", now)
		d.Consented, d.Exceptions = !q.WithGates, exceptions
		d.Promoted = d.Consented
		if d.RollbackOf = q.rollback; q.Version == old.Previous {
			d.Previous = q.Version
		}
		return d, true, nil
	}
	if fresh {
		d := begin(q.Version, p, q.By, "", now)
		d.Reason, d.Exceptions = text.Line(q.Reason, mostText), exceptions
		return d, true, p.Validate()
	}
	next = old.repolicied(p, now)
	if next.Exceptions = exceptions; !next.equal(old) {
		next.Repolicied = &Repolicied{By: q.By, At: pace.Second(now)}
	}
	return next, false, p.Validate()
}

// rollbackNote says which parts of the policy that it takes over a rollback does without.
func (q Request) rollbackNote(p pace.Policy) string {
	without := p.UngatedText()
	switch {
	case q.WithGates:
		return "the rollback passes gates, bakes, consent, windows and freezes, as --with-gates asks for them"
	case without == "":
		return "the rollback waits for no freeze; --with-gates asks for it. Limits such as --max-parallel and the budget hold"
	}
	return "the rollback does without " + without + ", and waits for no freeze; --with-gates asks for them. Limits such as --max-parallel and the budget hold"
}

// outOfService are the members that take part in d and are out of service, by
// reason.
func outOfService(d Document, s State, now time.Time) []Out {
	return groups(newPlanner(d, s, now).members, func(m *Member) string {
		if m.granted() {
			return "it has a grant of " + cmp.Or(m.Answer.Tag, m.Grant.Tag)
		}
		return m.out().Text()
	})
}

// outList is all in one line.
func outList(all []Out) string {
	var parts []string
	for _, o := range all {
		parts = append(parts, text.FewOf(", ", o.Nodes, o.Count)+": "+o.Reason)
	}
	return "out of service: " + strings.Join(parts, "; ")
}

// OutText names the members that are out of service, in one line; empty: all are
// in service.
func (t Triggered) OutText() string {
	if len(t.Out) == 0 {
		return ""
	}
	return outList(t.Out)
}

// consider checks the request against the present members.
func (r *Rollouts) consider(ctx context.Context, s Stored, q Request, t *Triggered) error {
	now := r.now()
	v, err := r.Observe(ctx, s)
	if err != nil {
		return err
	}
	if err := t.Document.matches(v); err != nil {
		return err
	}
	behind := s.behind(v, now)
	t.Out = outOfService(t.Document, v, now)
	t.Obstacles = obstacles(t.Document, v, now)
	if q.RequireConverged {
		if all := t.notConverged(behind); len(all) > 0 {
			return fmt.Errorf("%w: %s", ErrNotConverged, strings.Join(all, "; "))
		}
	}
	if t.fresh {
		if t.Document.Previous == "" {
			t.Document.Previous = s.lastHealthy(behind)
		}
		unfinished := s.Exists && !s.Document.Over() && s.Document.Version == s.Desired
		if unfinished && (behind.Count+len(behind.Failed) > 0 || !s.Document.Policy.Plain()) {
			t.Superseded = behind
			t.Document.Supersedes = &Supersedes{Version: behind.Version, By: behind.By, Started: behind.Started}
		}
	}
	if q.DryRun {
		if t.Plan = Foresee(t.Document, v, now); len(t.Plan) == 0 {
			t.Waits = Describe(Plan(t.Document, v, now).Document, v, now).Waits
		}
	}
	return nil
}

// notConverged lists all that RequireConverged refuses for.
func (t *Triggered) notConverged(behind *Superseded) (all []string) {
	if behind != nil && behind.Count+len(behind.Failed) > 0 {
		all = append(all, behind.String())
	}
	if len(t.Out) > 0 {
		all = append(all, outList(t.Out))
	}
	for _, o := range t.Obstacles {
		if !o.Possible {
			all = append(all, o.String())
		}
	}
	return all
}

// matches returns ErrNoMembers unless the members have every role that the policy
// names, and some of them are to be admitted.
func (d Document) matches(v State) error {
	if d.Policy.Plain() || d.RollbackOf != nil {
		return nil
	}
	for _, role := range d.Policy.Order {
		if !slices.ContainsFunc(v.Members, func(m Member) bool { return slices.Contains(m.Roles, role.Name) }) {
			var known []string
			for _, m := range v.Members {
				known = append(known, m.Roles...)
			}
			return fmt.Errorf("%w: no member has role %q%s", ErrNoMembers, role.Name, text.Unknown(role.Name, "roles", known))
		}
	}
	if !slices.ContainsFunc(v.Members, func(m Member) bool { return m.takesPart(d.Policy) }) {
		if len(v.Members) == 0 {
			return fmt.Errorf("%w: the cluster has none: 'jorc cluster join' makes a host a member", ErrNoMembers)
		}
		return fmt.Errorf("%w: none of %s takes part: managers, logical members, roles that are kept back and members outside the cluster's filter do not; "+
			"'jorc cluster join' makes a host a member", ErrNoMembers, text.Count(len(v.Members), "member", "members"))
	}
	return nil
}

// behind returns the members that are not at the version that is desired, or
// failed on the way; nil: none is desired.
func (s Stored) behind(v State, now time.Time) *Superseded {
	if s.Desired == "" {
		return nil
	}
	d := s.Document
	if !s.Exists || d.Version != s.Desired {
		d = Document{Spec: Spec{Version: s.Desired}, Progress: pace.Progress{Phase: pace.Waiting}}
	}
	p := newPlanner(d, v, now)
	behind := p.with(func(m ranked) bool { return m.Version != d.Version })
	return &Superseded{
		Version: d.Version, By: d.By, Started: d.Started, Policy: d.Policy.String(), State: d.State(), paced: d.Paced(),
		Behind: names(behind), Count: len(behind), Failed: names(p.in(pace.Failed)),
		healthy: len(behind) == 0 && p.counts.Failed == 0 && p.counts.Members > 0,
	}
}

func (b Superseded) String() string {
	list := fmt.Sprintf("%s not at %s", text.Count(b.Count, "is", "are"), b.Version)
	if b.Count > 0 {
		list += ": " + text.FewOf(", ", b.Behind, b.Count)
	}
	if len(b.Failed) > 0 {
		list += "; failed: " + strings.Join(b.Failed, ", ")
	}
	return list
}

// lastHealthy is the version to go back to: the one that was desired when all
// members run it without a failure.
func (s Stored) lastHealthy(b *Superseded) string {
	if b != nil && b.healthy {
		return s.Desired
	}
	if s.Exists {
		return s.Document.lastHealthy()
	}
	return ""
}
