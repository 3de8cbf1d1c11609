package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Key is a member's place in the order in which a version reaches the members.
type Key struct {
	Place int    `json:"place"`          // of its role in the policy's order
	Zone  string `json:"zone,omitempty"` // when the policy goes zone by zone
	Hash  string `json:"hash,omitempty"` // of the version and the node; empty is below all
}

// lastHash is above all hashes.
const lastHash = "~"

// KeyOf returns the key of a member in the rollout of version.
func (p Policy) KeyOf(version, node string, roles []string, zone string) Key {
	sum := sha256.Sum256([]byte(version + "\x00" + node))
	k := Key{Place: p.place(roles), Hash: hex.EncodeToString(sum[:8])}
	if p.ZoneByZone {
		k.Zone = zone
	}
	return k
}

// Compare orders keys: below zero when k comes before o.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Place, o.Place), cmp.Compare(k.Zone, o.Zone), cmp.Compare(k.Hash, o.Hash))
}

// sameGroup tells whether both have the same role's place and zone.
func (k Key) sameGroup(o Key) bool { return k.Place == o.Place && k.Zone == o.Zone }

// Members line up for slots so far apart, so that those who want one have it
// before hundreds of others ask.
const (
	lineUpEvery  = 4 * time.Millisecond
	lineUpWithin = 10 * time.Minute // all of them
)

// turn is how long a member waits before it lines up for a slot, in the order of
// hashes, which are spread evenly.
func (k Key) turn(members int) time.Duration {
	hash, err := strconv.ParseUint(k.Hash, 16, 64)
	if err != nil { // it is not one that KeyOf made
		return 0
	}
	return time.Duration(float64(hash) / (1 << 64) * float64(lineUp(members)))
}

// lineUp is the time within which so many members line up.
func lineUp(members int) time.Duration {
	return min(time.Duration(members)*lineUpEvery, lineUpWithin)
}

// Rule says who is admitted: a stretch of the order of keys, both ends within.
// The zero Rule admits nobody.
type Rule struct {
	All  bool `json:"all,omitempty"`
	From *Key `json:"from,omitempty"` // nil: from the first
	To   *Key `json:"to,omitempty"`   // nil: nobody
	// Full: as many members are out of service as may be, so that only those
	// may begin which are out of service themselves.
	Full bool `json:"full,omitempty"`
}

// Admits tells whether the stretch has k.
func (r Rule) Admits(k Key) bool {
	if r.All {
		return true
	}
	return r.To != nil && k.Compare(*r.To) <= 0 && (r.From == nil || k.Compare(*r.From) >= 0)
}

// equal tells whether both are stored alike.
func (r Rule) equal(o Rule) bool {
	same := func(a, b *Key) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return r.All == o.All && r.Full == o.Full && same(r.From, o.From) && same(r.To, o.To)
}
