package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/slots"
)

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

// Held is the slot group without those who gave their slots back.
func (s State) Held() slots.Group { return s.Group.Leave(s.Gone...) }

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

// Check returns kv.ErrDamaged or kv.ErrNewer for a document that cannot be read.
func (r *Rollouts) Check(e kv.Entry[string]) error {
	_, err := r.doc.Parse(e)
	return err
}
