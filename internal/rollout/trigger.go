package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
)

// Request is a version that members are to have.
type Request struct {
	Version string
	// Policy changes the policy of the rollout of this version that is under
	// way, or makes that of a new one from the plain one; nil leaves both.
	Policy func(*Policy)
	By     string
	// DryRun writes nothing. RequireConverged refuses while members are behind
	// the version that was desired so far, or failed.
	DryRun, RequireConverged bool
}

// Triggered is what a trigger changed.
type Triggered struct {
	Version  string   `json:"version"`
	Previous string   `json:"previous"` // desired before
	Changed  bool     `json:"changed"`
	Document Document `json:"rollout"`
	// Superseded is the unfinished rollout that this one took the place of.
	Superseded *Superseded `json:"superseded,omitempty"`
	// Plan says who is to be admitted step by step, for a dry run; Waits what it
	// waits for when that is nobody.
	Plan  []Decision `json:"plan,omitempty"`
	Waits []string   `json:"waits,omitempty"`
	// Note says what was left as it is, when that may surprise.
	Note string `json:"note,omitempty"`

	fresh bool // the rollout is new
}

// Superseded says whom a rollout left behind.
type Superseded struct {
	Version string   `json:"version"`
	State   string   `json:"state"`
	Behind  []string `json:"behind"` // not at the version; the first of them
	Count   int      `json:"count"`  // all of them
	Failed  []string `json:"failed"` // the first of them

	healthy bool // nobody is behind or failed, and there is somebody
}

// Trigger makes a version the desired one, together with its rollout, in one
// transaction; an unfinished one is superseded. Triggering the same version
// again changes its policy, and nothing when that is the same.
//
// It returns nodes.ErrBadName, ErrPolicy, ErrNobody, ErrNotConverged, kv.ErrNewer,
// consul.ErrOutcomeUnknown, or what Load and Observe return.
func (r *Rollouts) Trigger(ctx context.Context, q Request) (Triggered, error) {
	if err := nodes.CheckVersion(q.Version); err != nil {
		return Triggered{}, err
	}
	if q.Policy != nil { // what contradicts itself does so in any policy
		var p Policy
		if q.Policy(&p); p.Validate() != nil {
			return Triggered{}, p.Validate()
		}
	}
	for {
		s, err := r.Load(ctx)
		if err != nil {
			return Triggered{}, err
		}
		next, fresh, err := q.next(s, r.now())
		if err != nil {
			return Triggered{}, err
		}
		t := Triggered{Version: q.Version, Previous: s.Desired, Document: next, fresh: fresh}
		if d := s.Document; !fresh && q.Policy == nil && !d.Over() && !d.Policy.Plain() {
			t.Note = "the rollout of " + q.Version + " that is under way keeps its policy: flags such as --max-parallel change it"
		}
		bare := r.cluster.Name() == "" && q.Policy == nil && !s.doc.Exists
		t.Changed = s.Desired != q.Version || s.badDesired || !bare && (!s.Exists || !next.equal(s.Document))
		if t.Changed || q.RequireConverged || q.DryRun {
			if err := r.consider(ctx, s, q, &t); err != nil {
				return Triggered{}, err
			}
		}
		if !t.Changed || q.DryRun {
			return t, nil
		}
		if bare { // hosts without a cluster know no other key
			_, err = r.desired.CompareAndSwap(ctx, s.desired, q.Version)
		} else {
			err = r.write(ctx, s, t.Document)
		}
		if !errors.Is(err, kv.ErrConflict) {
			return t, err
		}
	}
}

// next is the document that the request makes of what is stored; fresh tells
// whether it is of a new rollout.
func (q Request) next(s State, now time.Time) (next Document, fresh bool, err error) {
	old := s.Document
	var p Policy
	if fresh = !s.Exists || old.Version != q.Version || s.Desired != q.Version || old.Phase == Aborted; !fresh {
		p = old.Policy
		p.Batches, p.Order, p.Windows = slices.Clone(p.Batches), slices.Clone(p.Order), slices.Clone(p.Windows)
	}
	if q.Policy != nil {
		if q.Policy(&p); p.Plain() { // no more than 0 may fail: that is a policy, too
			p.MaxParallel = defaultParallel
		}
	}
	if fresh {
		return begin(q.Version, p, q.By, "", now), true, p.Validate()
	}
	return old.repolicied(p, now), false, p.Validate()
}

// consider holds the request to the members that there are.
func (r *Rollouts) consider(ctx context.Context, s State, q Request, t *Triggered) error {
	now := r.now()
	v, err := r.Observe(ctx, s)
	if err != nil {
		return err
	}
	if err := t.Document.matches(v); err != nil {
		return err
	}
	behind := s.behind(v, now)
	if q.RequireConverged && behind != nil && behind.Count+len(behind.Failed) > 0 {
		return fmt.Errorf("%w: %s", ErrNotConverged, behind)
	}
	if t.fresh {
		t.Document.Previous = s.lastHealthy(behind)
		unfinished := s.Exists && !s.Document.Over() && s.Document.Version == s.Desired
		if unfinished && (behind.Count+len(behind.Failed) > 0 || !s.Document.Policy.Plain()) {
			t.Superseded = behind
		}
	}
	if q.DryRun {
		if t.Plan = Foresee(t.Document, v, now); len(t.Plan) == 0 {
			next, _, _ := Plan(t.Document, v, now)
			t.Waits = Describe(next, v, now).Waits
		}
	}
	return nil
}

// matches returns ErrNobody unless the members have every role that the policy
// names, and some of them are to be admitted.
func (d Document) matches(v View) error {
	if d.Policy.Plain() || d.RollbackOf != nil {
		return nil
	}
	for _, role := range d.Policy.Order {
		if !slices.ContainsFunc(v.Members, func(m Member) bool { return slices.Contains(m.Roles, role.Name) }) {
			return fmt.Errorf("%w: no member has role %q: 'jorc cluster members' lists theirs", ErrNobody, role.Name)
		}
	}
	if !slices.ContainsFunc(v.Members, func(m Member) bool { return m.part(d.Policy) }) {
		return fmt.Errorf("%w: of %d members none is left: managers, roles that are kept back and those outside the cluster's filter do not count; "+
			"'jorc cluster join' makes a host a member", ErrNobody, len(v.Members))
	}
	return nil
}

// behind tells who is not at the version that is desired, or failed on the way;
// nil: none is desired.
func (s State) behind(v View, now time.Time) *Superseded {
	if s.Desired == "" {
		return nil
	}
	d := s.Document
	if !s.Exists || d.Version != s.Desired {
		d = Document{Version: s.Desired, Phase: Waiting}
	}
	survey := newSurvey(d, v, now)
	behind := survey.with(func(m ranked) bool { return m.Version != d.Version })
	return &Superseded{
		Version: d.Version, State: d.State(), Behind: names(behind), Count: len(behind), Failed: names(survey.standing(failed)),
		healthy: len(behind) == 0 && survey.counts.Failed == 0 && survey.counts.Members > 0,
	}
}

func (b Superseded) String() string {
	text := fmt.Sprintf("%d are not at %s", b.Count, b.Version)
	if b.Count > 0 {
		text += ": " + strings.Join(b.Behind, ", ")
	}
	if b.Count > len(b.Behind) {
		text += ", …"
	}
	if len(b.Failed) > 0 {
		text += "; failed: " + strings.Join(b.Failed, ", ")
	}
	return text
}

// lastHealthy is the version to go back to: the one that was desired when all
// members run it without a failure.
func (s State) lastHealthy(b *Superseded) string {
	if b != nil && b.healthy {
		return s.Desired
	}
	if s.Exists {
		return s.Document.lastHealthy()
	}
	return ""
}
