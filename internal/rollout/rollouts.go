package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/slots"
)

// Sentinels of this package; those of packages nodes, kv and consul pass
// through it.
var (
	// ErrNobody: the policy is about roles that no member has, or about no member.
	ErrNobody = errors.New("no member that it is about")
	// ErrNotConverged: members are behind, or failed.
	ErrNotConverged = errors.New("the members have not converged")
	// ErrNone: there is no rollout to change.
	ErrNone = errors.New("no rollout under way")
)

// Keys below the cluster's prefix.
const (
	keyRollout = "rollout"
	keyDesired = "current_version"
	keyGroup   = "slots/" + Slots
)

const (
	format      = 1 // of the document
	groupFormat = 1 // of package slots
)

// Rollouts is the rollout of one cluster in Consul's KV. It is safe for
// concurrent use.
type Rollouts struct {
	store   *kv.Store
	cluster *cluster.Cluster
	ledger  *nodes.Ledger
	desired kv.Doc[string]
	doc     kv.Doc[Document]
	group   kv.Doc[slots.Group]
	now     func() time.Time
}

// New returns the rollout of the cluster below prefix. It does no I/O.
func New(client *consul.Client, prefix, name string) *Rollouts {
	c := cluster.New(client, prefix, name)
	r := &Rollouts{cluster: c, ledger: nodes.New(client, prefix, name), now: time.Now}
	return r.In(c.Store())
}

// In returns the same rollout in another store of the same cluster, such as
// that of a held lock.
func (r *Rollouts) In(s *kv.Store) *Rollouts {
	other := *r
	other.store = s
	other.desired = kv.NewText(s, keyDesired)
	other.doc = kv.NewDoc[Document](s, keyRollout, format)
	other.group = kv.NewDoc[slots.Group](s, keyGroup, groupFormat)
	return &other
}

// State is what is stored of a rollout, read at one moment.
type State struct {
	Snapshot
	// Group is the slot group as its document says. Of its holders Gone have no
	// key any more: they gave their slots back, and left it to those who wait to
	// write so.
	Group slots.Group
	Gone  []string
	// Outside wait for a slot, and nobody is in the queue who would take them in.
	Outside []string
	// Damaged is why the document of the rollout, or the desired version, cannot be
	// read. Where it is the latter, Desired is what the document says.
	Damaged error

	desired kv.Entry[string]
	doc     kv.Entry[Document]
	group   kv.Entry[slots.Group]
	// badGroup: the group is damaged, for package slots to repair.
	badGroup bool
	// badDesired: what is stored as the desired version is none.
	badDesired bool
}

// Load reads what is stored, at one moment. What is damaged is no error: State
// says so, and of a document that is, Exists is false. It returns kv.ErrNewer,
// consul.ErrDenied or consul.ErrUnreachable.
func (r *Rollouts) Load(ctx context.Context) (State, error) {
	read, err := r.store.Consistent().Txn().Get(keyDesired).Get(keyRollout).Get(keyGroup).Commit(ctx)
	if err != nil {
		return State{}, err
	}
	s, err := r.snapshot(read)
	if err != nil {
		return State{}, err
	}
	s.group, err = r.group.From(read)
	if s.badGroup = errors.Is(err, kv.ErrDamaged); err != nil && !s.badGroup {
		return State{}, err
	}
	s.Group = s.group.Value
	if len(s.Group.Holders) > 0 {
		// Read after the document: who has no key now has given its slot back, or
		// came back since, which changed the document.
		keys, err := kv.NewTextTree(r.store.Consistent(), keyGroup+"/held/").Names(ctx)
		if err != nil {
			return State{}, err
		}
		s.Gone = s.Group.Without(keys)
	}
	if s.group.Exists && len(s.Group.Queue) == 0 {
		if s.Outside, err = kv.NewTextTree(r.store.Consistent(), keyGroup+"/wait/").Names(ctx); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// snapshot is the state but for the slot group.
func (r *Rollouts) snapshot(read *kv.Result) (s State, err error) {
	if s.desired, err = r.desired.From(read); err != nil {
		return State{}, err
	}
	s.Desired = strings.TrimSpace(s.desired.Value)
	if s.doc, err = r.doc.From(read); errors.Is(err, kv.ErrDamaged) {
		s.Damaged = err
	} else if err != nil {
		return State{}, err
	}
	s.Document, s.Exists = s.doc.Value, s.doc.Exists && s.Damaged == nil
	if err := r.checkDesired(s.Desired); err != nil {
		s.Desired, s.badDesired = s.Document.Version, true
		if s.Damaged == nil {
			s.Damaged = err
		}
	}
	return s, nil
}

// checkDesired returns kv.ErrDamaged for a desired version that is none.
func (r *Rollouts) checkDesired(version string) error {
	if version == "" || nodes.CheckVersion(version) == nil {
		return nil
	}
	return fmt.Errorf("key %q: %w: not a version", r.store.Path(keyDesired), kv.ErrDamaged)
}

// Read reads what a node needs to know, at one moment; not the slot group, which
// grows with the number of those who wait. It returns kv.ErrDamaged also for a
// document that is damaged, and otherwise what Load returns.
func (r *Rollouts) Read(ctx context.Context) (Snapshot, error) {
	return r.read(ctx, func(t *kv.Txn) {}, func(*kv.Result) error { return nil })
}

// ReadFor is Read that also tells whether node holds a slot, at the same moment;
// it does so also with kv.ErrDamaged and kv.ErrNewer.
func (r *Rollouts) ReadFor(ctx context.Context, node string) (s Snapshot, holds bool, err error) {
	key := kv.NewText(r.store, slots.HeldKey(Slots, node, ClaimID))
	s, err = r.read(ctx, func(t *kv.Txn) { t.Get(key.Key()) }, func(read *kv.Result) error {
		e, err := key.From(read)
		holds = e.Exists
		return err
	})
	return s, holds, err
}

// read reads a snapshot together with what more adds and seen looks at.
func (r *Rollouts) read(ctx context.Context, more func(*kv.Txn), seen func(*kv.Result) error) (Snapshot, error) {
	t := r.store.Consistent().Txn().Get(keyDesired).Get(keyRollout)
	more(t)
	read, err := t.Commit(ctx)
	if err == nil {
		err = seen(read)
	}
	if err != nil {
		return Snapshot{}, err
	}
	s, err := r.snapshot(read)
	if err == nil && s.Damaged != nil {
		err = s.Damaged
	}
	return s.Snapshot, err
}

// Readable reads the desired version and tells what of it and of the rollout
// cannot be read, by key, with kv.ErrDamaged or kv.ErrNewer; it takes one request.
// It returns a class of package consul.
func (r *Rollouts) Readable(ctx context.Context) (desired string, unreadable map[string]error, err error) {
	read, err := r.store.Txn().Get(keyDesired).Get(keyRollout).Commit(ctx)
	if err != nil {
		return "", nil, err
	}
	unreadable = map[string]error{}
	text, badText := r.desired.From(read)
	desired = strings.TrimSpace(text.Value)
	if badText == nil {
		badText = r.checkDesired(desired)
	}
	_, badRollout := r.doc.From(read)
	for key, err := range map[string]error{keyDesired: badText, keyRollout: badRollout} {
		switch {
		case err == nil:
		case errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			unreadable[key] = err
		default:
			return "", nil, err
		}
	}
	return desired, unreadable, nil
}

// Watch calls handle with the document, and whenever it changes, until ctx
// ends; then it returns ctx's error. What a node goes by is Read.
func (r *Rollouts) Watch(ctx context.Context, handle func(kv.Update[Document])) error {
	return r.doc.Watch(ctx, handle)
}

// Observe reads what is known of all members, with requests whose number does
// not grow with theirs. It returns what cluster.Observe returns, and a
// *cluster.FilterError.
func (r *Rollouts) Observe(ctx context.Context, s State) (View, error) {
	var o cluster.Observation
	var documents map[string]kv.Leaf[nodes.Document]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { o, err = r.cluster.Observe(ctx); return err })
	g.Go(func() (err error) { documents, err = r.ledger.Documents().List(ctx); return err })
	if err := g.Wait(); err != nil {
		return View{}, err
	}
	for _, key := range []string{"profile", "leaders"} { // without a member's record the others are as they are
		if err := o.Unreadable[key]; err != nil {
			return View{}, err
		}
	}
	return ViewOf(o, documents, s.Group.Leave(s.Gone...))
}

// Orchestrated tells whether somebody holds the orchestrator's lock: without
// one no policy goes on. It returns what cluster.Orchestrated returns.
func (r *Rollouts) Orchestrated(ctx context.Context) (bool, error) {
	return cluster.Orchestrated(ctx, r.store)
}

// Show describes the rollout as it is. It returns ErrNone when there never was
// one, the document's kv.ErrDamaged, or what Load and Observe return.
func (r *Rollouts) Show(ctx context.Context) (Status, error) {
	s, err := r.Load(ctx)
	if err == nil {
		err = s.usable(r)
	}
	if err != nil {
		return Status{}, err
	}
	v, err := r.Observe(ctx, s)
	if err != nil {
		return Status{}, err
	}
	return Describe(s.Document, v, r.now()), nil
}

// usable returns why there is no rollout to show or to change.
func (s State) usable(r *Rollouts) error {
	switch {
	case s.Damaged != nil && s.Exists:
		return fmt.Errorf("%w: 'jorc update trigger %s' goes on with the last one, and another version begins a new rollout", s.Damaged, s.Document.Version)
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
