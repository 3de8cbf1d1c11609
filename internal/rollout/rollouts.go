package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	keyRollout = cluster.KeyRollout
	keyDesired = cluster.KeyDesired
	keyGroup   = cluster.PrefixSlots + Slots
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

// Watch calls handle with the document, and whenever it changes, until ctx
// ends; then it returns ctx's error. What a node goes by is Read.
func (r *Rollouts) Watch(ctx context.Context, handle func(kv.Update[Document])) error {
	return r.doc.Watch(ctx, handle)
}

// Observe reads what is known of all members, with requests whose number does
// not grow with theirs. It returns what cluster.Load returns, and a
// *cluster.FilterError.
func (r *Rollouts) Observe(ctx context.Context, s State) (View, error) {
	state, err := r.cluster.Load(ctx, cluster.NeedState)
	if err != nil {
		return View{}, err
	}
	// Without who leads, or a member's record, the others are as they are.
	if err := state.Damaged[cluster.KeyProfile]; err != nil {
		return View{}, err
	}
	return ViewOf(&state, s.Held())
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
