package pace

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/text"
)

// Role is one role in the order of a policy.
type Role struct {
	Name string
	// Limit is how many members at this place may be out of service at one
	// time, shares are of those; none: what the policy says for all.
	Limit Amount
	// Kept: members with this role are not admitted.
	Kept bool
}

// ParseRole reads "role", "role=2", "role=10%" or, for one that is kept back,
// "role=0". It returns ErrPolicy.
func ParseRole(s string) (Role, error) {
	name, limit, limited := strings.Cut(strings.TrimSpace(s), "=")
	r := Role{Name: name}
	if err := text.CheckName(name); err != nil {
		return Role{}, fmt.Errorf("%w: order: role %w", ErrPolicy, err)
	}
	if !limited {
		return r, nil
	}
	if r.Kept = limit == "0"; r.Kept {
		return r, nil
	}
	var err error
	if r.Limit, err = PolicyAmount(limit); err != nil {
		return Role{}, fmt.Errorf("%w (limit of role %q; 0 without %% keeps the role back)", err, name)
	}
	return r, nil
}

// ParseOrder reads roles separated by commas.
func ParseOrder(text string) ([]Role, error) {
	var all []Role
	for part := range strings.SplitSeq(text, ",") {
		r, err := ParseRole(part)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (r Role) String() string {
	switch {
	case r.Kept:
		return r.Name + "=0"
	case r.Limit != Amount{}:
		return r.Name + "=" + r.Limit.String()
	}
	return r.Name
}

// MarshalText writes what ParseRole reads.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRole.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}

// place is where members with roles stand in the order: at the first role that
// they have; those without any come last.
func (p Policy) place(roles []string) int {
	i := slices.IndexFunc(p.Order, func(r Role) bool { return !r.Kept && slices.Contains(roles, r.Name) })
	if i < 0 {
		return len(p.Order)
	}
	return i
}

// KeepsBack returns the role for which members with roles are not admitted;
// empty: they may be.
func (p Policy) KeepsBack(roles []string) string {
	for _, r := range p.Order {
		if r.Kept && slices.Contains(roles, r.Name) {
			return r.Name
		}
	}
	return ""
}

func (p Policy) validateOrder() error {
	if len(p.Order) > mostRoles {
		return fmt.Errorf("%w: %d roles in the order are more than %d", ErrPolicy, len(p.Order), mostRoles)
	}
	seen := map[string]bool{}
	for _, r := range p.Order {
		switch {
		case seen[r.Name]:
			return fmt.Errorf("%w: the order names role %q twice", ErrPolicy, r.Name)
		case r.Name == "manager" && !r.Kept:
			return fmt.Errorf("%w: the order names managers, which are no part of a rollout: leave them out", ErrPolicy)
		}
		seen[r.Name] = true
	}
	return nil
}

// Group is one place in the order of roles and one zone.
type Group struct {
	Place int    `json:"place"`
	Zone  string `json:"zone,omitempty"`
}

// Key is a member's place in the order in which a version reaches the members.
type Key struct {
	Group
	Hash uint64 // of what reaches the members, and the node; with Change.InOrder the number of the want
}

// keyText is how long a version and the name of a node mostly are, in bytes.
const keyText = 128

// KeyOf returns the key of a member in the rollout of version.
func (p Policy) KeyOf(version, node string, roles []string, zone string) Key {
	var text [keyText]byte // on the stack: one key is made for each host and change
	sum := sha256.Sum256(append(append(append(text[:0], version...), 0), node...))
	return Key{Group: p.group(roles, zone), Hash: binary.BigEndian.Uint64(sum[:])}
}

// group is the group of a member.
func (p Policy) group(roles []string, zone string) Group {
	if !p.ZoneByZone {
		zone = ""
	}
	return Group{Place: p.place(roles), Zone: zone}
}

// Compare orders keys: below zero when k comes before o.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Place, o.Place), cmp.Compare(k.Zone, o.Zone), cmp.Compare(k.Hash, o.Hash))
}
