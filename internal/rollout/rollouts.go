// Package rollout decides how a new version reaches the members of a cluster.
//
// The document at the key current/version holds what is asked for, the version and its policy, and
// the one at changes/version/state how far the orchestrator is with it. Where there is a policy the holder of the orchestrator's lock paces the
// members by grants: one for each host that may begin, at the key
// host/<node>/grants. The host accepts or declines it in its own report.
// docs/rollouts.md has the protocol, and docs/adr/0013 says why.
//
// Plan decides what becomes of a rollout and who is offered a grant; Describe and
// Explain say the same to people. They are pure functions.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Sentinels of this package; the ones of packages cluster, kv and consul pass
// through it.
var (
	// ErrNoMembers: no member has a role of the policy, or takes part at all.
	ErrNoMembers = errors.New("no eligible members")
	// ErrNotConverged: members are behind, failed or out of service.
	ErrNotConverged = errors.New("the members have not converged")
	// ErrNoPrevious: there is no version to go back to.
	ErrNoPrevious = errors.New("no version to go back to")
	// ErrNone: there is no rollout to change.
	ErrNone = errors.New("no rollout under way")
)

// Keys below the cluster's prefix.
const (
	keyVersion = cluster.KeyVersion
	keyDesired = cluster.KeyDesired
)

// Formats of the documents.
const (
	specFormat = 1
	bookFormat = 1
)

// Rollouts is the rollout of one cluster in Consul's KV. It is safe for
// concurrent use.
type Rollouts struct {
	store   *kv.Store
	session string // of the lock in whose store this is
	cluster *fleet.Cluster
	desired kv.Doc[string]
	spec    kv.Doc[Spec]
	book    kv.Doc[Book]
	ledgers change.Ledgers
	knowns  kv.Doc[Known]
	now     func() time.Time
	count   Count // nil: the budget is not known
}

// Count counts who is out of service, for whatever reason, in a state of a cluster.
type Count func(ctx context.Context, c *fleet.Cluster, s *cluster.State, members State) (*pace.Account, error)

// Counting returns the same rollout, which knows what the budget of the cluster leaves when
// it shows and explains.
func (r *Rollouts) Counting(count Count) *Rollouts {
	other := *r
	other.count = count
	return &other
}

// New returns the rollout of the cluster below prefix. It does no I/O.
func New(client *consul.Client, prefix, name string) *Rollouts {
	c := fleet.New(client, prefix, name)
	r := &Rollouts{cluster: c, now: time.Now}
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
	other.spec = kv.NewDoc[Spec](s, keyVersion, specFormat)
	other.book = kv.NewDoc[Book](s, cluster.KeyVersionState, bookFormat)
	other.ledgers = change.NewLedgers(s)
	other.knowns = kv.NewDoc[Known](s, keyKnown, historyFormat)
	return &other
}

// Watch calls handle with what the rollout is asked for, and whenever it changes, until ctx
// ends; then it returns ctx's error.
func (r *Rollouts) Watch(ctx context.Context, handle func(kv.Update[Spec])) error {
	return r.spec.Watch(ctx, handle)
}

// Orchestrated reports whether the orchestrator's lock is held: without an
// orchestrator no host is offered a grant. It returns what fleet.Orchestrated
// returns.
func (r *Rollouts) Orchestrated(ctx context.Context) (bool, error) {
	return fleet.Orchestrated(ctx, r.store)
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

// Promote lets the rollout continue after its canary, or after its present step, as
// soon as that is done; by is who asks. Its errors are those of Pause.
func (r *Rollouts) Promote(ctx context.Context, by string) (Document, bool, error) {
	return r.operate(ctx, "promote", func(d Document, now time.Time) Document { return d.promoted(by, now) })
}

// Abort ends the rollout: no further host begins, the desired version stays.
// Its errors are those of Pause, but aborting again is not an error.
func (r *Rollouts) Abort(ctx context.Context, s Stop) (Document, bool, error) {
	return r.operate(ctx, "abort", func(d Document, now time.Time) Document { return d.aborted(s, now) })
}

// operate replaces the document by what change makes of it.
func (r *Rollouts) operate(ctx context.Context, verb string, change func(Document, time.Time) Document) (next Document, changed bool, err error) {
	err = kv.RetryConflicts(ctx, func() error {
		s, err := r.Load(ctx)
		if err == nil {
			err = s.usable(r)
		}
		if err != nil {
			return err
		}
		d := s.Document
		if next = d; d.Over() && (d.Phase != pace.Aborted || verb != "abort") {
			return fmt.Errorf("%w: that of %s is %s, there is nothing to %s", ErrNone, d.Version, d.Phase, verb)
		}
		next = change(d, r.now())
		if changed = !next.equal(d); !changed {
			return nil
		}
		t := r.store.Txn()
		r.write(t, s, next)
		_, err = t.Commit(ctx)
		return err
	})
	return next, changed && err == nil, err
}

// GiveUp gives up on the grant of a host: it no longer counts as out of service and
// its place is free; the host stays in maintenance until it has converged. It returns the grant's version, or what change.GiveUp returns.
func (r *Rollouts) GiveUp(ctx context.Context, node, by, reason string) (version string, err error) {
	report, _, err := r.cluster.Report(ctx, node)
	if err != nil {
		return "", err
	}
	given, err := change.GiveUp(ctx, r.store, node, report.Answered(cluster.VersionChange), by, reason, r.now())
	if errors.Is(err, change.ErrNoGrant) {
		err = fmt.Errorf("host %q: %w: 'jorc update show' lists the hosts with a grant", node, err)
	}
	return given.Tag, err
}

// Retry asks a host to try again now instead of after its pause. A host on which a task was
// interrupted continues with that task, or with fromStart runs its whole workflow.
func (r *Rollouts) Retry(ctx context.Context, node string, fromStart bool) error {
	_, err := change.GrantsAt(r.store, node).Update(ctx, func(old kv.Entry[change.Grants]) (change.Grants, bool, error) {
		g := old.Value.Of(cluster.VersionChange)
		g.Change, g.Retry, g.FromStart = cluster.VersionChange, r.now().UTC(), fromStart
		return old.Value.With(g), true, nil
	})
	return err
}

// Stored is what is stored of a rollout, read at one moment.
type Stored struct {
	Desired  string // empty: nothing
	Document Document
	Exists   bool // the rollout
	Ledger   change.Ledger
	Control  cluster.Control // with the cluster's budget and freezes
	// Session is that of the lock in whose store this was read; empty: none.
	Session string
	// Damaged is why what the rollout is asked for, or the desired version, cannot be
	// read. Where it is the latter, Desired is what the document says.
	Damaged error

	desired    kv.Entry[string]
	spec       kv.Entry[Spec]
	book       kv.Entry[Book]
	known      kv.Entry[Known]
	others     map[string]uint64 // the indexes of change.FencingKeys
	badDesired bool              // the stored desired version has an invalid name
}

// Current reports whether there is a rollout of the desired version.
func (s Stored) Current() bool {
	return s.Exists && s.Damaged == nil && s.Document.Version == s.Desired
}

// Load reads what is stored, at one moment. What is damaged is not an error:
// Stored says so, and of a document that is, Exists is false. It returns
// kv.ErrNewer, consul.ErrDenied or consul.ErrUnreachable.
func (r *Rollouts) Load(ctx context.Context) (Stored, error) {
	t := r.store.Consistent().Txn().Get(keyDesired).Get(keyVersion).Get(cluster.KeyVersionState).Get(cluster.KeyGrantLedger).Get(keyKnown)
	for _, key := range change.FencingKeys {
		t.Get(key)
	}
	read, err := t.Commit(ctx)
	if err != nil {
		return Stored{}, err
	}
	book, err := r.book.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Stored{}, err
	}
	s, err := r.stored(read, book)
	if err != nil {
		return Stored{}, err
	}
	ledger, err := r.ledgers.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Stored{}, err
	}
	s.known, err = r.knowns.From(read)
	if errors.Is(err, kv.ErrDamaged) {
		s.known.Value, err = Known{Recorded: true}, nil // what it held is lost
	}
	if err != nil {
		return Stored{}, err
	}
	s.Ledger, s.others, s.Session = ledger.Value, map[string]uint64{}, r.session
	for _, key := range change.FencingKeys {
		e, err := kv.NewText(r.store, key).From(read)
		if err != nil {
			return Stored{}, err
		}
		s.others[key] = e.Index
	}
	control, err := kv.NewDoc[cluster.Control](r.store, cluster.KeyControl, 1).From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Stored{}, err
	}
	s.Control = control.Value
	return s, nil
}

// StoredIn is Load of what a state of the cluster says, without a request. The
// ledger is the one of the last transaction of the lock's holder. It returns
// kv.ErrNewer.
func (r *Rollouts) StoredIn(state *cluster.State, ledger change.Ledger) (Stored, error) {
	index := state.Indexes[keyDesired]
	desired := kv.Entry[string]{Value: state.Desired, Index: index, Exists: index != 0}
	book, err := r.book.Parse(state.RolloutState)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Stored{}, err
	}
	spec, err := r.spec.Parse(state.Rollout)
	s, err := r.assemble(desired, spec, err, book)
	if err != nil {
		return Stored{}, err
	}
	if damaged := state.Damaged[keyDesired]; damaged != nil {
		s.Desired, s.badDesired, s.Damaged = s.Document.Version, true, cmp.Or(s.Damaged, damaged)
	}
	s.Ledger, s.Session, s.others = ledger, r.session, state.Indexes
	s.Control = state.Control
	return s, nil
}

// stored is what a transaction read of the desired version and of what the rollout is asked for.
func (r *Rollouts) stored(read *kv.Result, book kv.Entry[Book]) (Stored, error) {
	desired, err := r.desired.From(read)
	if err != nil {
		return Stored{}, err
	}
	spec, err := r.spec.From(read)
	return r.assemble(desired, spec, err, book)
}

// assemble puts together the desired version and what its rollout is asked for, of which the
// decoding returned specErr. book is how far the rollout is: the zero value where that is not known, as one that is
// damaged.
func (r *Rollouts) assemble(desired kv.Entry[string], spec kv.Entry[Spec], specErr error, book kv.Entry[Book]) (Stored, error) {
	s := Stored{Desired: strings.TrimSpace(desired.Value), desired: desired, spec: spec, book: book}
	if errors.Is(specErr, kv.ErrDamaged) {
		s.Damaged = specErr
	} else if specErr != nil {
		return Stored{}, specErr
	}
	s.Document, s.Exists = join(spec.Value, book.Value), spec.Exists && s.Damaged == nil
	if err := r.checkDesired(s.Desired); err != nil {
		s.Desired, s.badDesired = s.Document.Version, true
		if s.Damaged == nil {
			s.Damaged = err
		}
	}
	return s, nil
}

// checkDesired returns kv.ErrDamaged for a desired version with an invalid name.
func (r *Rollouts) checkDesired(version string) error {
	if version == "" || cluster.CheckVersion(version) == nil {
		return nil
	}
	return fmt.Errorf("key %q: %w: not a version", r.store.Path(keyDesired), kv.ErrDamaged)
}

// GateRunIn returns the run that the gate of the rollout in a state of a cluster
// waits for; empty: it waits for none. It returns kv.ErrDamaged or kv.ErrNewer.
func GateRunIn(store *kv.Store, s *cluster.State) (id string, err error) {
	spec, specErr := kv.NewDoc[Spec](store, keyVersion, specFormat).Parse(s.Rollout)
	book, bookErr := kv.NewDoc[Book](store, cluster.KeyVersionState, bookFormat).Parse(s.RolloutState)
	if err := cmp.Or(specErr, bookErr); err != nil {
		return "", err
	}
	// The book may be of a rollout before, or of before an operator aborted or resumed this one.
	if gate := join(spec.Value, book.Value).Gate; gate != nil {
		return gate.Run, nil
	}
	return "", nil
}

// CheckSpec returns kv.ErrDamaged or kv.ErrNewer for a Spec that cannot be read.
func (r *Rollouts) CheckSpec(e kv.Entry[string]) error {
	_, err := r.spec.Parse(e)
	return err
}

// CheckState returns kv.ErrDamaged or kv.ErrNewer for a Book that cannot be read.
func (r *Rollouts) CheckState(e kv.Entry[string]) error {
	_, err := r.book.Parse(e)
	return err
}

// Usable returns why s holds no rollout to show: ErrNone, or kv.ErrDamaged.
func (r *Rollouts) Usable(s Stored) error { return s.usable(r) }

// usable returns why there is no rollout to show or to change.
func (s Stored) usable(r *Rollouts) error {
	switch {
	case s.Damaged != nil && s.Exists:
		return fmt.Errorf("%w: 'jorc update trigger %s' continues the last one, and another version begins a new rollout", s.Damaged, s.Document.Version)
	case s.Damaged != nil:
		return fmt.Errorf("%w: 'jorc update trigger VERSION' writes a new one", s.Damaged)
	case !s.Exists:
		return fmt.Errorf("%w: 'jorc update trigger VERSION' begins one", ErrNone)
	case s.Document.Version != s.Desired:
		return fmt.Errorf("%w: the last one was of %s, but key %q says %q: 'jorc update trigger VERSION' begins one",
			ErrNone, s.Document.Version, r.store.Path(keyDesired), s.Desired)
	}
	return nil
}

// write adds to t the rollout next in place of that of s, and makes its version the desired
// one. How far it is only the orchestrator writes, see Replace.
func (r *Rollouts) write(t *kv.Txn, s Stored, next Document) {
	if s.Desired == next.Version && !s.badDesired {
		t.CheckIndex(keyDesired, s.desired.Index)
	} else {
		r.desired.SwapIn(t, s.desired, next.Version)
	}
	if s.Exists && text.SameJSON(next.Spec, s.Document.Spec) {
		t.CheckIndex(keyVersion, s.spec.Index)
	} else {
		r.spec.SwapIn(t, s.spec, next.Spec)
	}
}
