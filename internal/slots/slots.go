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
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// record is what a key below slots/ holds: the number of a group, or a claim.
type record struct {
	Max    *int      `json:"max,omitempty"`  // of a group; 0: any number
	Since  time.Time `json:"since,omitzero"` // since when the claim waits, or holds its slot
	Reason string    `json:"reason,omitempty"`
	Holds  bool      `json:"holds,omitempty"`
}

// now is the time as records have it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// claim is a key that a session locks.
type claim struct {
	key      string // below slots/
	node, id string
	created  uint64 // the index of the key's creation
	record
}

// group is a group of slots at one moment.
type group struct {
	exists bool
	max    int     // 0: any number
	claims []claim // in the order of their creation; the first ones hold slots
	newer  error   // kv.ErrNewer: a newer jorc wrote the number
}

// groupIn returns the group called name; kv.ErrNewer for a number that a newer jorc
// wrote.
func groupIn(leaves map[string]kv.Leaf[record], name string) (group, error) {
	g := groupsIn(leaves, func(other string) bool { return other == name })[name]
	if g == nil {
		return group{max: 1}, nil
	}
	return *g, g.newer
}

// groupsIn returns the groups that wanted selects, all in one pass. A number that is
// missing or damaged is 1. A key that no session locks is not a claim: it is of a
// backup, or stray.
func groupsIn(leaves map[string]kv.Leaf[record], wanted func(name string) bool) map[string]*group {
	all := map[string]*group{}
	at := func(name string) *group {
		if all[name] == nil {
			all[name] = &group{max: 1}
		}
		return all[name]
	}
	for key, leaf := range leaves {
		if name, ok := strings.CutPrefix(key, prefixGroup); ok && wanted(name) {
			g := at(name)
			g.exists = true
			switch limit := leaf.Value.Max; {
			case errors.Is(leaf.Err, kv.ErrNewer):
				g.newer = leaf.Err
			case limit != nil && *limit >= 0:
				g.max = *limit
			}
		}
		if c, name, ok := parseClaim(key); ok && wanted(name) {
			g := at(name)
			if leaf.Session != "" {
				c.created, c.record = leaf.Created, leaf.Value
				g.claims = append(g.claims, c)
			}
		}
	}
	for _, g := range all {
		slices.SortFunc(g.claims, func(a, b claim) int { return cmp.Compare(a.created, b.created) })
		if len(g.claims) > 0 {
			g.exists = true
			g.claims[0].Holds = true // it may have had no reason to write that
		}
	}
	return all
}

func claimKey(node, group, id string) string {
	return fmt.Sprintf("%s%s/%s/%s", prefixClaim, node, group, id)
}

// parseClaim is the inverse of claimKey.
func parseClaim(key string) (c claim, group string, ok bool) {
	rest, claims := strings.CutPrefix(key, prefixClaim)
	node, rest, named := strings.Cut(rest, "/")
	group, id, whole := strings.Cut(rest, "/")
	if !claims || !named || !whole || strings.Contains(id, "/") {
		return claim{}, "", false
	}
	return claim{key: key, node: node, id: id}, group, true
}

// turn is whether a claim may have its slot.
type turn int

const (
	absent  turn = iota // the claim has no key
	follows             // a claim ahead of it waits
	full                // it is the first that waits, and there is no free slot
	admitted
)

// turn returns whether the claim at key may have its slot, and the nearest
// claim ahead of it that waits.
func (g group) turn(key string) (t turn, ahead claim) {
	place := slices.IndexFunc(g.claims, func(c claim) bool { return c.key == key })
	if place < 0 {
		return absent, claim{}
	}
	for _, c := range slices.Backward(g.claims[:place]) {
		if !c.Holds {
			return follows, c
		}
	}
	if g.max > 0 && place >= g.max {
		return full, claim{}
	}
	return admitted, claim{}
}

// alone reports whether the claim at key is the first and the last one. All that
// come later see that it is the first, and need no record that it holds a slot.
func (g group) alone(key string) bool { return len(g.claims) == 1 && g.claims[0].key == key }
