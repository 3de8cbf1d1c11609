// Package slots hands out permissions to be disruptive: a group of slots is a
// counting semaphore in Consul's KV with a queue, first come, first served.
//
//	slots/group/<group>              {max}: how many slots the group has
//	slots/claim/<node>/<group>/<id>  {since, reason, holds}: one claim, locked by its session
//
// A claim is a key of its own, which only its process changes, so ACLs can bind
// it to its node, and no two processes compete for a document. Consul deletes the
// key when the session ends. The indexes at which Consul created the keys are the
// order of the claims. A claim has its slot when all claims ahead of it hold one
// and they are fewer than the group's max. It follows that the holders
// are always the first claims of the order, and that a holder needs no write to
// keep its slot.
//
// The first claim that waits watches all claims; each other waiting claim watches
// the one ahead of it. So a release, which deletes a key, wakes one process. That
// process writes into its own claim that it holds a slot, which wakes the next.
//
// See docs/adr/0010-a-slot-is-a-key-of-its-holder.md.
package slots

import (
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Reserved is the name of a group that cannot be used: rollouts are paced by
// grants.
const Reserved = "rollout"

// Keep, as a limit, leaves the number of a group's slots as it is; a new group has one.
const Keep = -1

const (
	format      = 1 // of the values of keys
	prefix      = "slots/"
	prefixGroup = "group/"
	prefixClaim = "claim/"
)

// Options configure the sessions of claims. The zero value is good.
type Options struct {
	// TTL is that of kv.LeaseOptions.
	TTL time.Duration
}

// Slots is the groups of one cluster. It is safe for concurrent use.
type Slots struct {
	store *kv.Store
	keys  kv.Tree[record]
	ttl   time.Duration
}

// New returns the groups below slots/ of the store. It does no I/O.
func New(store *kv.Store, o Options) *Slots {
	store = store.Consistent()
	return &Slots{store: store, keys: kv.NewTree[record](store, prefix, format), ttl: o.TTL}
}

// Holder is the host that asks for a slot, and the reason, which is shown to others.
type Holder struct {
	Node   string
	Reason string
}

// checkGroup returns text.ErrName for what cannot be the name of a group.
func checkGroup(name string) error {
	err := text.CheckSegment(name)
	if name == Reserved {
		err = fmt.Errorf("%q %w: it is reserved; 'jorc update show' shows rollouts", name, text.ErrName)
	}
	if err != nil {
		return fmt.Errorf("slot group %w", err)
	}
	return nil
}

// wrap adds the group's name to err.
func wrap(group string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slot group %q: %w", group, err)
}
