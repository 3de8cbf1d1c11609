package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// States of a Grant as they are stored. What the host answers is in its report.
const (
	Offered   = "offered"
	Withdrawn = "withdrawn" // the host did not answer
	GivenUp   = "given up"  // by an operator: the host no longer counts
)

// Grant is the permission for one host to begin with one version, at the key
// host/<node>/grant. Orchestrators and operators write it, the host reads it.
type Grant struct {
	ID      string    `json:"id,omitempty"`
	Version string    `json:"version,omitempty"`
	State   string    `json:"state,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of State
	// Session is that of the orchestrator's lock, and Rollout the index of the
	// rollout's document: the offer is void as soon as one of them is another.
	Session string `json:"session,omitempty"`
	Rollout uint64 `json:"rollout,omitempty"`
	// Until is the end of the window, or the beginning of a freeze; the host declines from
	// then on. Zero: none.
	Until time.Time `json:"until,omitzero"`
	// Tries is how many offers in a row the host did not answer.
	Tries  int    `json:"tries,omitempty"`
	By     string `json:"by,omitempty"` // who gave it up
	Reason string `json:"reason,omitempty"`
	// Retry is when the host was last asked to try again at once.
	Retry time.Time `json:"retry,omitzero"`
	// FromStart: with Retry, an interrupted attempt begins with its first task.
	FromStart bool `json:"from_start,omitempty"`

	index uint64 // of the key
}

// answered reports whether the host accepted or declined the grant.
func (g Grant) answered(a cluster.GrantAnswer) bool { return g.ID == a.ID || g.ID == a.Declined }

// Ledger is the document at orchestrate/grants. Every transaction that offers
// grants swaps it, so that of two plans made of the same state one is carried
// out.
type Ledger struct {
	Term uint64 `json:"term"` // counts holders of the lock
	Seq  uint64 `json:"seq"`  // counts transactions in a term
	// Quiet is until when nothing is granted, as Consul's KV was restored: hosts
	// report meanwhile what they are at.
	Quiet time.Time `json:"quiet,omitzero"`
}

func (l Ledger) next() Ledger {
	l.Seq++
	return l
}

// ID names a grant of the transaction that writes l. Sessions differ also where
// a restored ledger counts the same numbers again.
func (l Ledger) ID(session string) string {
	return fmt.Sprintf("%d.%d.%.8s", l.Term, l.Seq, session)
}

// Permit is what the rollout says to one node, and what the node last said, read
// at one moment. Its zero value says nothing.
type Permit struct {
	Stored
	Grant  Grant
	Report cluster.Report
	// Roles are those of the node, on which it depends whether it is frozen.
	Roles []string

	node    string
	control kv.Entry[cluster.Control]
	grant   uint64
}

// Permit reads what the rollout says to node, as no server that lost its
// leadership can answer. It returns what Load returns; a report or a grant that
// is damaged counts as none.
func (r *Rollouts) Permit(ctx context.Context, node string) (Permit, error) {
	store := r.store.Consistent()
	control, grant, report := kv.NewDoc[cluster.Control](store, cluster.KeyControl, 1), r.grant(node), r.cluster.Reports().At(node)
	read, err := store.Txn().Get(keyDesired).Get(keyRollout).Get(cluster.KeyControl).Get(grant.Key()).Get(report.Key()).Commit(ctx)
	if err != nil {
		return Permit{}, err
	}
	p := Permit{node: node}
	if p.Stored, err = r.stored(read); err != nil {
		return Permit{}, err
	}
	if p.control, err = control.From(read); err != nil {
		return Permit{}, err
	}
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

// Noticed is what a node's watches delivered of its Permit, each part at another moment.
type Noticed struct {
	Desired  kv.Entry[string]
	Document kv.Entry[Document]
	Control  kv.Entry[cluster.Control]
	Grant    kv.Entry[Grant]
}

// Noticed returns the permit of n and of the report as the node wrote it last. It serves
// to accept a grant only: that is fenced, so nothing follows from a part that is out of date.
func (r *Rollouts) Noticed(node string, n Noticed, last cluster.Report) (Permit, error) {
	s, err := r.assemble(n.Desired, n.Document, nil)
	if err != nil {
		return Permit{}, err
	}
	return Permit{
		Stored: s, Grant: n.Grant.Value, Report: last,
		node: node, control: n.Control, grant: n.Grant.Index,
	}, nil
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

// WatchControl does the same with what halts the cluster.
func (r *Rollouts) WatchControl(ctx context.Context, handle func(kv.Update[cluster.Control])) error {
	return kv.NewDoc[cluster.Control](r.store, cluster.KeyControl, 1).Watch(ctx, handle)
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
	t.CheckIndex(keyDesired, p.desired.Index).CheckIndex(keyRollout, p.doc.Index).CheckIndex(cluster.KeyControl, p.control.Index)
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
	case d.Phase == pace.Aborted:
		return false, "the rollout was aborted"
	case d.Stopped != nil && !d.Over():
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
	case g.Session == "" || g.answered(p.Report.Grant) || p.void(g) || p.halted(now) || isFrozen || g.Version != version || !p.Current():
		return false, ""
	case !g.Until.IsZero() && !now.Before(g.Until):
		return false, "the window is over since " + g.Until.UTC().Format(time.RFC3339) + " by this host's clock"
	}
	return true, ""
}

// GivenUp reports whether an operator gave up on the grant id.
func (p Permit) GivenUp(id string) bool { return p.Grant.State == GivenUp && p.Grant.ID == id }

// Replace returns what carries out a plan's document by itself, in the
// transaction of its events: it commits only if what s says of the rollout still
// is so. It is nil when nothing changes.
func (r *Rollouts) Replace(s Stored, next Document) func(*kv.Txn) {
	if s.Exists && next.equal(s.Document) {
		return nil
	}
	return func(t *kv.Txn) { r.write(t, s, next) }
}

// mostGrants is how many grants one transaction offers or withdraws: with the
// checks beside them it stays below Consul's 64 operations.
const mostGrants = 50

// Apply carries out the offers and withdrawals of a plan that was made of s and
// state: it swaps the ledger and, while all that s says is so, the grants, some
// fifty at a time. It returns the ledger as it is then.
//
// It returns kv.ErrConflict, consul.ErrOutcomeUnknown (Renew, load and plan again)
// or kv.ErrLockLost; what was written before stays.
func (r *Rollouts) Apply(ctx context.Context, s Stored, state State, p Planned) (kv.Entry[Ledger], error) {
	grants := make(map[string]Grant, len(state.Members))
	for _, m := range state.Members {
		grants[m.Node] = m.Grant
	}
	now := r.now().UTC().Truncate(time.Millisecond)
	type change struct {
		node string
		next Grant
	}
	var all []change
	for _, node := range p.Withdrawals {
		all = append(all, change{node, grants[node].withdrawn(now)})
	}
	for _, o := range p.Offers {
		all = append(all, change{o.Node, Grant{
			Version: p.Document.Version, State: Offered, Since: now, Session: r.session, Rollout: s.doc.Index,
			Until: o.Until, Tries: o.Tries, Retry: grants[o.Node].Retry, FromStart: grants[o.Node].FromStart,
		}})
	}
	for part := range slices.Chunk(all, mostGrants) {
		t := r.store.Txn()
		ledger := r.SwapLedger(t, s.ledger)
		s.fence(t)
		for _, c := range part {
			old := grants[c.node]
			if c.next.State == Offered {
				c.next.ID = ledger.ID(r.session)
			}
			r.grant(c.node).SwapIn(t, kv.Entry[Grant]{Index: old.index, Exists: old.index != 0}, c.next)
		}
		done, err := t.Commit(ctx)
		if err != nil {
			return s.ledger, err
		}
		s.Ledger, s.ledger = ledger, kv.Entry[Ledger]{Value: ledger, Index: done.Index(keyLedger), Exists: true}
	}
	return s.ledger, nil
}

// withdrawn is the grant as an orchestrator withdraws it. An offer that had its time was not
// answered; one that is withdrawn before, for a freeze or a hold, says nothing of the host.
func (g Grant) withdrawn(now time.Time) Grant {
	if now.Sub(g.Since) >= pace.AnswerWithin {
		g.Tries++
	}
	g.State, g.Since = Withdrawn, now
	return g
}

// SwapLedger adds to t the swap of the ledger, which every transaction needs that offers
// hosts something: of two plans made of the same state one is carried out. It returns
// the ledger as it is then.
func (r *Rollouts) SwapLedger(t *kv.Txn, ledger kv.Entry[Ledger]) Ledger {
	next := ledger.Value.next()
	r.ledgers.SwapIn(t, ledger, next)
	return next
}

// Renew swaps the ledger alone and returns it: no transaction that was sent before
// and swaps it, too, can be carried out from then on. With begin it counts a new
// term. It tries until that is certain and returns what Commit returns otherwise.
func (r *Rollouts) Renew(ctx context.Context, begin bool) (kv.Entry[Ledger], error) {
	return r.swapLedger(ctx, func(l Ledger) Ledger {
		if begin {
			l.Term, l.Seq = l.Term+1, 0
		}
		return l.next()
	})
}

// Quiet has orchestrators grant nothing for some time. It returns what Renew
// returns.
func (r *Rollouts) Quiet(ctx context.Context, long time.Duration) error {
	_, err := r.swapLedger(ctx, func(l Ledger) Ledger {
		l.Quiet = r.now().UTC().Truncate(time.Second).Add(long)
		return l.next()
	})
	return err
}

func (r *Rollouts) swapLedger(ctx context.Context, change func(Ledger) Ledger) (swapped kv.Entry[Ledger], err error) {
	err = kv.RetryConflicts(ctx, func() error {
		e, err := r.ledgers.In(r.store.Consistent()).Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return err
		}
		t := r.store.Txn()
		next := change(e.Value)
		r.ledgers.SwapIn(t, e, next)
		done, err := t.Commit(ctx)
		switch {
		case errors.Is(err, consul.ErrOutcomeUnknown):
			return fmt.Errorf("%w: %w", kv.ErrConflict, err) // swapping it again settles that
		case err != nil:
			return err
		}
		swapped = kv.Entry[Ledger]{Value: next, Index: done.Index(keyLedger), Exists: true}
		return nil
	})
	return swapped, err
}
