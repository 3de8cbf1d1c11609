package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/profile"
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
func ParseRole(text string) (Role, error) {
	name, limit, limited := strings.Cut(strings.TrimSpace(text), "=")
	r := Role{Name: name}
	if err := profile.CheckName(name); err != nil {
		return Role{}, fmt.Errorf("%w: order has the role %q: %w", ErrPolicy, name, err)
	}
	if !limited {
		return r, nil
	}
	if r.Kept = limit == "0"; r.Kept {
		return r, nil
	}
	var err error
	if r.Limit, err = ParseAmount(limit); err != nil {
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
