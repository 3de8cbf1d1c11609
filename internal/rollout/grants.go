package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Permit is what the rollout says to one node, and what the node last said, read
// at one moment. Its zero value says nothing.
type Permit struct {
	Stored
	Grant  change.Grant
	Report cluster.Report
	// Roles are those of the node, on which it depends whether it is frozen.
	Roles []string

	control kv.Entry[cluster.Control]
}

// Permit reads what the rollout says to node, as no server that lost its
// leadership can answer. It returns what Load returns; a report or a grant that
// is damaged counts as none.
func (r *Rollouts) Permit(ctx context.Context, node string) (Permit, error) {
	store := r.store.Consistent()
	control, grants, report := kv.NewDoc[cluster.Control](store, cluster.KeyControl, 1), change.GrantsAt(store, node), r.cluster.Reports().At(node)
	read, err := store.Txn().Get(keyDesired).Get(keyVersion).Get(cluster.KeyControl).Get(grants.Key()).Get(report.Key()).Commit(ctx)
	if err != nil {
		return Permit{}, err
	}
	var p Permit
	if p.Stored, err = r.stored(read, kv.Entry[Book]{}); err != nil {
		return Permit{}, err
	}
	if p.control, err = control.From(read); err != nil {
		return Permit{}, err
	}
	g, err := grants.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Permit{}, err
	}
	p.Grant = g.Value.Of(cluster.VersionChange)
	d, err := report.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Permit{}, err
	}
	p.Report = d.Value
	return p, nil
}

// Noticed is what a node's watches delivered of what is desired, each part at another moment.
type Noticed struct {
	Desired kv.Entry[string]
	Spec    kv.Entry[Spec]
	Damaged error // why Spec cannot be read; nil: it can
}

// Noticed returns the permit of what a host sees. A grant is accepted by it, which is fenced, so nothing
// follows from a part that is out of date; who begins without one asks Permit first.
func (r *Rollouts) Noticed(n Noticed, s *change.Seen) (Permit, error) {
	stored, err := r.assemble(n.Desired, n.Spec, n.Damaged, kv.Entry[Book]{})
	if err != nil {
		return Permit{}, err
	}
	return Permit{Stored: stored, Grant: s.Granted(cluster.VersionChange), Report: s.Report, Roles: s.Roles, control: s.Control}, nil
}

// halted reports whether the cluster is paused, or only observed.
func (p Permit) halted(now time.Time) bool {
	c := p.control.Value.At(now)
	return c.Paused != nil || c.ObserveOnly != nil
}

// budgeted reports whether the cluster has a budget, so that no host begins without a grant.
func (p Permit) budgeted() bool { return p.control.Value.Budget != nil }

// Frozen returns the freeze that keeps the node from beginning.
func (p Permit) Frozen(now time.Time) (pace.Frozen, bool) {
	if p.Current() {
		return p.Document.frozen(p.control.Value, p.Roles, now)
	}
	return p.control.Value.Frozen(p.Roles, now)
}

// WatchDesired calls handle with the desired version, and whenever it changes, until ctx
// ends; then it returns ctx's error.
func (r *Rollouts) WatchDesired(ctx context.Context, handle func(kv.Update[string])) error {
	return r.desired.Watch(ctx, handle)
}

// Fence adds to t what the acceptance of p's grant depends on beside what all acceptances do: that what is desired
// has not changed.
func (p Permit) Fence(t *kv.Txn) {
	t.CheckIndex(keyDesired, p.desired.Index).CheckIndex(keyVersion, p.spec.Index)
}

// Free says whether the node may begin with version without a grant. When it may
// not, because it needs one or for the reason that is returned, ok is false.
func (p Permit) Free(version string, now time.Time) (ok bool, reason string) {
	d := p.Document
	frozen, isFrozen := p.Frozen(now)
	switch {
	case p.Damaged != nil:
		return false, "the rollout cannot be read: " + p.Damaged.Error()
	case p.Desired != version:
		return false, "version " + version + " is no longer desired"
	case !p.Current() && p.budgeted():
		return false, ""
	case !p.Current() && isFrozen:
		return false, frozen.String()
	case !p.Current(): // hosts without a cluster, or current_version was written past the rollout
		return true, ""
	case d.Aborted:
		return false, "the rollout was aborted"
	case d.Stopped != nil && d.Finished.IsZero():
		return false, d.Stopped.text()
	case d.Paced(), p.budgeted(): // without a policy the orchestrator writes one
		return false, ""
	case isFrozen: // here too, and the node waits for the end by its own clock until then
		return false, frozen.String()
	}
	return true, ""
}

// Offer reports whether the node can accept the grant for version, and says why
// it has to decline it, if it has to. An offer without a session was edited by hand:
// Consul's check of the lock would hold while no orchestrator has it.
func (p Permit) Offer(version string, now time.Time) (ok bool, decline string) {
	g := p.Grant
	_, isFrozen := p.Frozen(now)
	switch {
	case g.Session == "" || g.Answered(p.Report.Answered(cluster.VersionChange)) || p.void(g) || p.halted(now) || isFrozen || g.Tag != version || !p.Current():
		return false, ""
	case !g.Until.IsZero() && !now.Before(g.Until):
		return false, "the window is over since " + g.Until.UTC().Format(time.RFC3339) + " by this host's clock"
	}
	return true, ""
}

// GivenUp reports whether an operator gave up on the grant id.
func (p Permit) GivenUp(id string) bool { return p.Grant.State == pace.GivenUp && p.Grant.ID == id }

// Replace returns what carries out a plan's document by itself, in the
// transaction of its events: it commits only if what s says of the rollout still
// is so. It is nil when nothing changes.
func (r *Rollouts) Replace(s Stored, next Document) func(*kv.Txn) {
	if s.Exists && next.equal(s.Document) {
		return nil
	}
	return func(t *kv.Txn) {
		r.write(t, s, next)
		if book := next.Book(); !s.book.Exists || !text.SameJSON(book, s.book.Value) {
			r.book.SwapIn(t, s.book, book)
		}
	}
}

// Grants returns what is to be written for a plan that was made of s and state: its offers and withdrawals.
func (s Stored) Grants(state State, p Planned, now time.Time) []change.Next {
	now = now.UTC().Truncate(time.Millisecond)
	members := make(map[string]*Member, len(state.Members))
	for i := range state.Members {
		members[state.Members[i].Node] = &state.Members[i]
	}
	all := make([]change.Next, 0, len(p.Withdrawals)+len(p.Offers))
	for _, node := range p.Withdrawals {
		m := members[node]
		all = append(all, change.Next{Node: node, Old: m.Grants, Grants: []change.Grant{m.Grant.Withdrawn(now)}})
	}
	for _, o := range p.Offers {
		m := members[o.Node]
		all = append(all, change.Next{Node: o.Node, Old: m.Grants, Grants: []change.Grant{{
			Change: cluster.VersionChange, Tag: p.Document.Version, State: pace.Offered, Since: now, Spec: s.spec.Index,
			Until: o.Until, Tries: o.Tries, Retry: m.Grant.Retry, FromStart: m.Grant.FromStart,
		}}})
	}
	return all
}

// Fence adds to t what an offer depends on: all that s says of the whole cluster.
func (s Stored) Fence(t *kv.Txn) {
	t.CheckIndex(keyDesired, s.desired.Index).CheckIndex(keyVersion, s.spec.Index)
	change.Fence(t, s.others)
}
