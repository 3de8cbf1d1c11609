package pace

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// ErrPolicy: the policy is invalid.
var ErrPolicy = errors.New("not a policy")

// PolicyAmount is ParseAmount for a policy. It returns ErrPolicy.
func PolicyAmount(text string) (Amount, error) {
	a, err := ParseAmount(text)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return a, err
}

// PolicyWindows is ParseWindows for a policy. It returns ErrPolicy.
func PolicyWindows(text string) ([]Window, error) {
	all, err := ParseWindows(text)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return all, err
}

// Actions when more members failed than the policy allows.
const (
	OnFailurePause    = "pause"
	OnFailureRollback = "rollback"
)

// DefaultParallel is MaxParallel of a policy that says something, but not that.
func DefaultParallel() Amount { return Amount{N: 25, Percent: true} }

// Policy is how a version reaches the members. The zero Policy is the plain
// one: all members at once, without grants.
type Policy struct {
	// Canary is how many members come first, on their own.
	Canary int `json:"canary,omitempty"`
	// Batches are how many members in all are admitted, step by step; the last
	// is 100 %.
	Batches []Amount `json:"batches,omitempty"`
	// MaxParallel is how many members may be out of service at the same time.
	MaxParallel Amount `json:"max_parallel,omitzero"`
	// MaxFailures is how many members may fail before OnFailure happens.
	MaxFailures int `json:"max_failures,omitempty"`
	// MinHealthy is how long all checks of a node must have passed before
	// its grant ends. With it a canary is promoted without being asked.
	MinHealthy Duration `json:"min_healthy,omitempty"`
	// NodeDeadline is how long a node may hold its grant before it counts as failed.
	NodeDeadline Duration `json:"node_deadline,omitempty"`
	// ProgressDeadline is how long no member may arrive before the rollout is paused.
	ProgressDeadline Duration `json:"progress_deadline,omitempty"`
	// Bake is how long a step that is done must stay without a new failure, before
	// the next begins.
	Bake Duration `json:"bake,omitempty"`
	// Gate is the workflow that each step must pass after that.
	Gate Gate `json:"gate,omitzero"`
	// ApproveEach: each step but the last waits for an operator's consent.
	ApproveEach bool `json:"approve_each,omitempty"`
	// ZoneByZone finishes one zone before the next begins.
	ZoneByZone bool `json:"zone_by_zone,omitempty"`
	// Order finishes one role before the next begins.
	Order     []Role   `json:"order,omitempty"`
	OnFailure string   `json:"on_failure,omitempty"` // OnFailurePause, the default, or OnFailureRollback
	Windows   []Window `json:"windows,omitempty"`    // none: always
}

// Plain reports whether the policy lets all members begin at once, without grants.
func (p Policy) Plain() bool {
	if len(p.Batches)+len(p.Order)+len(p.Windows) > 0 {
		return false
	}
	p.Batches, p.Order, p.Windows = nil, nil, nil // empty lists say nothing
	return reflect.ValueOf(p).IsZero()
}

// String is the policy as the flags of 'jorc update trigger' set it.
func (p Policy) String() string {
	if p.Plain() {
		return "all at once"
	}
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(p.Canary > 0, "canary %d", p.Canary)
	add(len(p.Batches) > 0, "batches %s", joined(p.Batches))
	add(p.MaxParallel.N > 0, "max-parallel %s", p.MaxParallel)
	add(true, "max-failures %d", p.MaxFailures)
	add(p.MinHealthy > 0, "min-healthy %s", p.MinHealthy)
	add(p.NodeDeadline > 0, "node-deadline %s", p.NodeDeadline)
	add(p.ProgressDeadline > 0, "progress-deadline %s", p.ProgressDeadline)
	add(p.Gated(), "%s", p.GatesString())
	add(p.ZoneByZone, "zone-by-zone")
	add(len(p.Order) > 0, "order %s", joined(p.Order))
	add(p.OnFailure != "", "on-failure %s", p.OnFailure)
	for _, w := range p.Windows {
		add(true, "window %q", w)
	}
	return strings.Join(parts, ", ")
}

// GatesString is what comes between two steps, as the flags set it.
func (p Policy) GatesString() string {
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(p.Bake > 0, "bake %s", p.Bake)
	add(p.Gate.Workflow != "", "gate %s", p.Gate.Workflow)
	add(p.Gate.Samples > 1, "gate-samples %d", p.Gate.Samples)
	add(p.Gate.Interval > 0, "gate-interval %s", p.Gate.Interval)
	add(p.Gate.Timeout > 0, "gate-timeout %s", p.Gate.Timeout)
	add(p.ApproveEach, "approve-each")
	return strings.Join(parts, ", ")
}

func joined[T fmt.Stringer](all []T) string {
	var texts []string
	for _, v := range all {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ",")
}

// Equal reports whether both have the same stored form.
func (p Policy) Equal(o Policy) bool { return text.SameJSON(p, o) }

// SameWalk reports whether both admit the same members in the same steps.
func (p Policy) SameWalk(o Policy) bool {
	steps := func(p Policy) Policy {
		s := Policy{Canary: p.Canary, Batches: p.Batches, ZoneByZone: p.ZoneByZone}
		for _, r := range p.Order {
			s.Order = append(s.Order, Role{Name: r.Name, Kept: r.Kept})
		}
		return s
	}
	return p.Plain() == o.Plain() && steps(p).Equal(steps(o))
}

// Complete returns the policy with the defaults filled in; a plain one
// stays plain.
func (p Policy) Complete() Policy {
	if p.Plain() {
		return p
	}
	if p.MaxParallel == (Amount{}) {
		p.MaxParallel = DefaultParallel()
	}
	if p.OnFailure == "" {
		p.OnFailure = OnFailurePause
	}
	return p.WithGateDefaults()
}

// most of what a policy can list: the document stays small.
const (
	mostBatches = 32
	mostRoles   = 32
	mostWindows = 16
)

// Validate returns ErrPolicy, with what to write instead, for a policy that
// contradicts itself.
func (p Policy) Validate() error {
	switch {
	case p.Canary < 0 || p.Canary > MostMembers:
		return fmt.Errorf("%w: a canary of %d members: give a number from 1 on, or leave it out", ErrPolicy, p.Canary)
	case p.MaxFailures < 0 || p.MaxFailures > MostMembers:
		return fmt.Errorf("%w: max failures is %d: give 0, which stops at the first, or more", ErrPolicy, p.MaxFailures)
	case p.OnFailure != "" && p.OnFailure != OnFailurePause && p.OnFailure != OnFailureRollback:
		return fmt.Errorf("%w: on failure is %q, but must be %s or %s", ErrPolicy, p.OnFailure, OnFailurePause, OnFailureRollback)
	case p.MinHealthy < 0 || p.NodeDeadline < 0 || p.ProgressDeadline < 0 || p.Bake < 0:
		return fmt.Errorf("%w: a duration below zero: leave it out for none", ErrPolicy)
	case p.NodeDeadline > 0 && p.MinHealthy >= p.NodeDeadline:
		return fmt.Errorf("%w: every node would miss its deadline of %v, as it must be healthy for %v: give it longer", ErrPolicy, p.NodeDeadline, p.MinHealthy)
	case p.ProgressDeadline > 0 && p.MinHealthy >= p.ProgressDeadline:
		return fmt.Errorf("%w: no node would be in time for the progress deadline of %v, as it must be healthy for %v: give it longer",
			ErrPolicy, p.ProgressDeadline, p.MinHealthy)
	case len(p.Windows) > mostWindows:
		return fmt.Errorf("%w: %d windows are more than %d", ErrPolicy, len(p.Windows), mostWindows)
	}
	if err := p.Gate.validate(); err != nil {
		return err
	}
	if err := p.validateBatches(); err != nil {
		return err
	}
	return p.validateOrder()
}

func (p Policy) validateBatches() error {
	if len(p.Batches) == 0 {
		return nil
	}
	if len(p.Batches) > mostBatches {
		return fmt.Errorf("%w: %d batches are more than %d", ErrPolicy, len(p.Batches), mostBatches)
	}
	last := map[bool]Amount{}
	for _, b := range p.Batches {
		if before := last[b.Percent]; b.N <= before.N {
			return fmt.Errorf("%w: batch %v comes after %v: batches say how many are admitted in all, so each is more than the one before",
				ErrPolicy, b, before)
		}
		last[b.Percent] = b
		if !b.Percent && b.N <= p.Canary {
			return fmt.Errorf("%w: a batch of %v in all is no more than the canary of %d: leave one of them out", ErrPolicy, b, p.Canary)
		}
	}
	if end := p.Batches[len(p.Batches)-1]; end != (Amount{N: 100, Percent: true}) {
		return fmt.Errorf("%w: the batches end with %v, so the others would never be admitted: end with 100%%", ErrPolicy, end)
	}
	return nil
}

// UpTo returns how many of n members the policy admits in all up to a batch, from 1;
// without batches, and after the last one, all of them.
func (p Policy) UpTo(batch, n int) int {
	if len(p.Batches) == 0 {
		return n
	}
	return min(max(1, p.Batches[min(max(1, batch), len(p.Batches))-1].Of(n)), n)
}

// ParseBatches reads amounts separated by commas. It returns ErrPolicy.
func ParseBatches(text string) ([]Amount, error) {
	var all []Amount
	for part := range strings.SplitSeq(text, ",") {
		a, err := PolicyAmount(part)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// Duration is a time.Duration that is written as people write it.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "90s".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
