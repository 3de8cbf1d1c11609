package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Sentinels of this package; those of packages nodes, kv and consul pass
// through it.
var (
	// ErrNobody: no member has a role of the policy, or takes part at all.
	ErrNobody = errors.New("no eligible members")
	// ErrNotConverged: members are behind, failed or out of service.
	ErrNotConverged = errors.New("the members have not converged")
	// ErrNone: there is no rollout to change.
	ErrNone = errors.New("no rollout under way")
	// ErrNoGrant: the host has no grant to give up.
	ErrNoGrant = errors.New("no open grant")
)

// Keys below the cluster's prefix.
const (
	keyRollout = cluster.KeyRollout
	keyDesired = cluster.KeyDesired
	keyLedger  = cluster.KeyGrantLedger
)

// Formats of the documents.
const (
	format       = 2
	grantFormat  = 1
	ledgerFormat = 1
)

// Rollouts is the rollout of one cluster in Consul's KV. It is safe for
// concurrent use.
type Rollouts struct {
	store   *kv.Store
	session string // of the lock in whose store this is
	cluster *cluster.Cluster
	ledger  *cluster.Cluster
	desired kv.Doc[string]
	doc     kv.Doc[Document]
	ledgers kv.Doc[Ledger]
	now     func() time.Time
}

// New returns the rollout of the cluster below prefix. It does no I/O.
func New(client *consul.Client, prefix, name string) *Rollouts {
	c := cluster.New(client, prefix, name)
	r := &Rollouts{cluster: c, ledger: cluster.New(client, prefix, name), now: time.Now}
	return r.in(c.Store(), "")
}

// Held returns the same rollout in the store of a held lock.
func (r *Rollouts) Held(h *kv.Lease) *Rollouts { return r.in(h.Store(), h.Session()) }

// In returns the same rollout in another store of the same cluster.
func (r *Rollouts) In(s *kv.Store) *Rollouts { return r.in(s, "") }

func (r *Rollouts) in(s *kv.Store, session string) *Rollouts {
	other := *r
	other.store, other.session = s, session
	other.desired = kv.NewText(s, keyDesired)
	other.doc = kv.NewDoc[Document](s, keyRollout, format)
	other.ledgers = kv.NewDoc[Ledger](s, keyLedger, ledgerFormat)
	return &other
}

// Watch calls handle with the document, and whenever it changes, until ctx
// ends; then it returns ctx's error.
func (r *Rollouts) Watch(ctx context.Context, handle func(kv.Update[Document])) error {
	return r.doc.Watch(ctx, handle)
}

// Orchestrated reports whether the orchestrator's lock is held: without an
// orchestrator no host is offered a grant. It returns what cluster.Orchestrated
// returns.
func (r *Rollouts) Orchestrated(ctx context.Context) (bool, error) {
	return cluster.Orchestrated(ctx, r.store)
}

// Pause stops the rollout: no further host begins, and those at work continue.
// It reports whether that changed anything. It returns ErrNone also for a rollout
// that is over, or what Load and kv.Txn.Commit return.
func (r *Rollouts) Pause(ctx context.Context, s Stop) (Document, bool, error) {
	return r.operate(ctx, "pause", func(d Document, now time.Time) Document { return d.paused(s, now) })
}

// Resume ends a pause; what failed until now is accepted. Its errors are those
// of Pause.
func (r *Rollouts) Resume(ctx context.Context) (Document, bool, error) {
	return r.operate(ctx, "resume", func(d Document, now time.Time) Document { return d.resumed(now) })
}

// Promote lets the rollout continue after its canary as soon as that is done. Its
// errors are those of Pause.
func (r *Rollouts) Promote(ctx context.Context) (Document, bool, error) {
	return r.operate(ctx, "promote", func(d Document, _ time.Time) Document { return d.promoted() })
}

// Abort ends the rollout: no further host begins, the desired version stays.
// Its errors are those of Pause, but aborting again is not an error.
func (r *Rollouts) Abort(ctx context.Context, s Stop) (Document, bool, error) {
	return r.operate(ctx, "abort", func(d Document, now time.Time) Document { return d.aborted(s, now) })
}

// operate replaces the document by what change makes of it.
func (r *Rollouts) operate(ctx context.Context, verb string, change func(Document, time.Time) Document) (Document, bool, error) {
	for {
		s, err := r.Load(ctx)
		if err == nil {
			err = s.usable(r)
		}
		if err != nil {
			return Document{}, false, err
		}
		d := s.Document
		if d.Over() && (d.Phase != Aborted || verb != "abort") {
			return d, false, fmt.Errorf("%w: that of %s is %s, there is nothing to %s", ErrNone, d.Version, d.Phase, verb)
		}
		next := change(d, r.now())
		if next.equal(d) {
			return d, false, nil
		}
		t := r.store.Txn()
		r.write(t, s, next)
		if _, err = t.Commit(ctx); !errors.Is(err, kv.ErrConflict) {
			return next, err == nil, err
		}
	}
}

// GiveUp gives up on the grant of a host: it does not count as out of service any
// more and its place is free; the host stays in maintenance until it has
// converged. It returns the grant's version, ErrNoGrant, or what Update returns.
func (r *Rollouts) GiveUp(ctx context.Context, node, by, reason string) (version string, err error) {
	report, _, err := r.ledger.Report(ctx, node)
	if err != nil {
		return "", err
	}
	_, err = r.grant(node).Update(ctx, func(old kv.Entry[Grant]) (Grant, bool, error) {
		g, a := old.Value, report.Grant
		switch {
		case a.Open() && g.State == GivenUp && g.ID == a.ID:
			version = a.Version
			return g, false, nil
		case a.Open():
			g.ID, g.Version = a.ID, a.Version
		case g.State == Offered && !g.answered(a):
		default:
			return g, false, fmt.Errorf("host %q: %w: 'jorc update show' lists those that have one", node, ErrNoGrant)
		}
		version = g.Version
		g.State, g.Since, g.By, g.Reason, g.Tries = GivenUp, r.now().UTC().Truncate(time.Second), by, reason, 1
		return g, true, nil
	})
	return version, err
}

// Retry asks a host to try again now instead of after its pause.
func (r *Rollouts) Retry(ctx context.Context, node string) error {
	_, err := r.grant(node).Update(ctx, func(old kv.Entry[Grant]) (Grant, bool, error) {
		g := old.Value
		g.Retry = r.now().UTC()
		return g, true, nil
	})
	return err
}

func (r *Rollouts) grant(node string) kv.Doc[Grant] {
	return kv.NewDoc[Grant](r.store, cluster.GrantKey(node), grantFormat)
}
