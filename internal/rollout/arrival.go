package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// ErrAside: the members that are missing are held or drained, or an operator gave up
// on them, so no wait brings them to the version.
var ErrAside = errors.New("only members that an operator set aside are missing")

// Lack is why a member that takes part is not at a version.
type Lack string

// Values of Lack, in the order in which they count.
const (
	LackHeld    Lack = "held"
	LackDrained Lack = "drained" // in maintenance that jorc did not begin
	LackFailed  Lack = "failed"
	LackGivenUp Lack = "given up"
	LackDown    Lack = "down"
	LackPending Lack = "pending" // at work, or about to begin
)

// Missing is a member that takes part and has not arrived at a version.
type Missing struct {
	Node    string `json:"node"`
	Version string `json:"version"` // that it runs; empty: none is known
	Lack    Lack   `json:"lack"`
	Reason  string `json:"reason"`
}

// Arrival says which members are at a version. Managers, logical members, members
// outside the cluster's filter and roles that the policy keeps back take no part.
type Arrival struct {
	Version string
	Members int               // that take part
	Missing []Missing         // in order of their names
	Apart   map[string]string // why the others take no part, by name
}

// ArrivalAt returns which members are at version: those of the rollout if s is of one,
// and otherwise of all members. It is a pure function, and what every wait and check
// for a version is made of.
func ArrivalAt(version string, stored Stored, s State, now time.Time) Arrival {
	d := stored.Document
	if !stored.Current() || d.Version != version {
		d = Document{Spec: Spec{Version: version}, Progress: pace.Progress{Phase: pace.Batch, Batch: 1}}
	}
	return newPlanner(d, s, now).arrival()
}

// Arrival reads which members are at version. It returns what Load and Observe return.
func (r *Rollouts) Arrival(ctx context.Context, version string) (Arrival, error) {
	stored, err := r.Load(ctx)
	if err != nil {
		return Arrival{}, err
	}
	s, err := r.Observe(ctx, stored)
	if err != nil {
		return Arrival{}, err
	}
	return ArrivalAt(version, stored, s, r.now()), nil
}

// Unique reads whether version is the only one that runs; hosts that take no part do not
// count. Where the token may not read who takes part, all count. It returns what
// cluster.UniqueVersion, Load and StateOf return.
func (r *Rollouts) Unique(ctx context.Context, version string) (cluster.Uniqueness, error) {
	u, err := r.cluster.UniqueVersion(ctx, version)
	if err != nil || len(u.Others) == 0 {
		return u, err
	}
	stored, err := r.Load(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return u, nil
	}
	if err != nil {
		return u, err
	}
	state, err := r.cluster.Consistent().Load(ctx, cluster.NeedState)
	if errors.Is(err, consul.ErrDenied) {
		return u, nil
	}
	if err != nil {
		return u, err
	}
	s, err := StateOf(&state, stored)
	if err != nil {
		return u, err
	}
	return state.Uniqueness(version, ArrivalAt(version, stored, s, r.now()).Apart), nil
}

func (p *planner) arrival() Arrival {
	a := Arrival{Version: p.doc.Version, Members: len(p.members), Missing: []Missing{}, Apart: map[string]string{}}
	for i := range p.state.Members {
		if why := p.state.Members[i].apart(p.doc.Policy); why != "" {
			a.Apart[p.state.Members[i].Node] = why
		}
	}
	for _, m := range p.members {
		if m.in.State != pace.HasIt {
			a.Missing = append(a.Missing, p.missing(m))
		}
	}
	slices.SortFunc(a.Missing, func(x, y Missing) int { return cmp.Compare(x.Node, y.Node) })
	return a
}

// missing says why a member has not arrived.
func (p *planner) missing(m ranked) Missing {
	x := Missing{Node: m.Node, Version: m.Version}
	failure := shorten(p.failure(m))
	also := ""
	if failure != "" {
		also = "; " + failure
	}
	switch {
	case m.held() != "":
		x.Lack, x.Reason = LackHeld, m.held()+also
	case m.drained() != "": // its checks do not pass before that ends
		x.Lack, x.Reason = LackDrained, m.drained()+also
	case failure != "":
		x.Lack, x.Reason = LackFailed, failure
	case m.givenUp():
		x.Lack, x.Reason = LackGivenUp, p.grantText(m)
	case !m.Up():
		x.Lack, x.Reason = LackDown, "its host or its agent is down"
	default:
		x.Lack, x.Reason = LackPending, cmp.Or(m.unmet(p.doc), m.activity(), p.grantText(m), "it has not begun")
	}
	return x
}

// of returns the missing members of some kinds.
func (a Arrival) of(kinds ...Lack) (all []Missing) {
	for _, m := range a.Missing {
		if slices.Contains(kinds, m.Lack) {
			all = append(all, m)
		}
	}
	return all
}

// Outcome says how a wait for the version ends: over and nil when all members are
// there, ErrFailed when nothing is expected of them and some failed, ErrAside when only
// members are missing that an operator set aside. A member that is down is waited for.
func (a Arrival) Outcome() (over bool, err error) {
	failed, aside := a.of(LackFailed), a.of(LackHeld, LackDrained, LackGivenUp)
	switch {
	case len(a.Missing) == 0:
		return true, nil
	case len(a.of(LackPending)) > 0:
		return false, nil
	case len(failed) > 0:
		return true, fmt.Errorf("%w: %d of %d members failed: %s", ErrFailed, len(failed), a.Members, missingText(failed))
	case len(aside) == len(a.Missing):
		return true, fmt.Errorf("%w: %s: 'jorc cluster unhold' ends a hold, 'consul maint -disable' a maintenance", ErrAside, a)
	}
	return false, nil
}

// Kept are the missing members that are not about to arrive.
func (a Arrival) Kept() []Missing {
	return a.of(LackFailed, LackGivenUp, LackHeld, LackDrained, LackDown)
}

// String says how many members are there, and what keeps the others that are not about
// to begin.
func (a Arrival) String() string {
	text := fmt.Sprintf("%d of %d members run %s", a.Members-len(a.Missing), a.Members, a.Version)
	if kept := a.Kept(); len(kept) > 0 {
		text += "; missing: " + missingText(kept)
	}
	return text
}

// missingText names members and says why they are missing.
func missingText(all []Missing) string {
	var parts []string
	for _, m := range all[:min(len(all), pace.MostNames)] {
		parts = append(parts, m.Node+": "+m.Reason)
	}
	return text.FewOf("; ", parts, len(all))
}
