package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// Permit is what the rollout says to one node, and what the node last said, read
// at one moment. Its zero value says nothing.
type Permit struct {
	Stored
	Grant  Grant
	Report cluster.Report
	// Halted: the cluster is paused, or only observed.
	Halted bool

	node    string
	control uint64
	grant   uint64
}

// Permit reads what the rollout says to node, as no server that lost its
// leadership can answer. It returns what Load returns; a report or a grant that
// is damaged counts as none.
func (r *Rollouts) Permit(ctx context.Context, node string) (Permit, error) {
	store := r.store.Consistent()
	control, grant, report := kv.NewDoc[cluster.Control](store, cluster.KeyControl, 1), r.grant(node), r.ledger.Reports().At(node)
	read, err := store.Txn().Get(keyDesired).Get(keyRollout).Get(cluster.KeyControl).Get(grant.Key()).Get(report.Key()).Commit(ctx)
	if err != nil {
		return Permit{}, err
	}
	p := Permit{node: node}
	if p.Stored, err = r.stored(read); err != nil {
		return Permit{}, err
	}
	c, err := control.From(read)
	if err != nil {
		return Permit{}, err
	}
	p.Halted, p.control = c.Value.Paused != nil || c.Value.ObserveOnly != nil, c.Index
	g, err := grant.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Permit{}, err
	}
	p.Grant, p.grant = g.Value, g.Index
	d, err := report.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Permit{}, err
	}
	p.Report = d.Value
	return p, nil
}

// WatchGrant calls handle with the grant of node, and whenever it changes, until
// ctx ends; then it returns ctx's error.
func (r *Rollouts) WatchGrant(ctx context.Context, node string, handle func(kv.Update[Grant])) error {
	return r.grant(node).Watch(ctx, handle)
}

// WithRollout returns the permit with a newer document of the rollout, as a watch
// delivers it. The desired version stays as it was read.
func (p Permit) WithRollout(e kv.Entry[Document]) Permit {
	if e.Exists && p.Exists && e.Index > p.doc.Index {
		p.doc, p.Document = e, e.Value
	}
	return p
}

// Fence adds to t what the acceptance of p's grant depends on: the lock of the
// orchestrator that offered it, and that nothing of p has changed.
func (p Permit) Fence(t *kv.Txn) {
	t.CheckSession(cluster.OrchestratorLock, p.Grant.Session).CheckIndex(cluster.GrantKey(p.node), p.grant)
	t.CheckIndex(keyDesired, p.desired.Index).CheckIndex(keyRollout, p.doc.Index).CheckIndex(cluster.KeyControl, p.control)
}

// Free says whether the node may begin with version without a grant. When it may
// not, because it needs one or for the reason that is returned, ok is false.
func (p Permit) Free(version string) (ok bool, reason string) {
	d := p.Document
	switch {
	case p.Damaged != nil:
		return false, "the rollout cannot be read: " + p.Damaged.Error()
	case p.Desired != version:
		return false, "version " + version + " is no longer desired"
	case !p.Current(): // hosts without a cluster, or current_version was written past the rollout
		return true, ""
	case d.Phase == Aborted:
		return false, "the rollout was aborted"
	case d.Stopped != nil && !d.Over():
		return false, d.Stopped.text()
	case d.Paced():
		return false, ""
	}
	return true, ""
}

// Offer reports whether the node can accept the grant for version, and says why
// it has to decline it, if it has to.
func (p Permit) Offer(version string, now time.Time) (ok bool, decline string) {
	g := p.Grant
	switch {
	case g.answered(p.Report.Grant) || p.void(g) || p.Halted || g.Version != version || !p.Current():
		return false, ""
	case !g.Until.IsZero() && !now.Before(g.Until):
		return false, "the window is over since " + g.Until.UTC().Format(time.RFC3339) + " by this host's clock"
	}
	return true, ""
}

// GivenUp reports whether an operator gave up on the grant id.
func (p Permit) GivenUp(id string) bool { return p.Grant.State == GivenUp && p.Grant.ID == id }
