package cluster

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/profile"
)

// roleParam is the param by which a role shows: true for those who have it.
func roleParam(role string) string { return "cluster/" + role }

// derive returns a member's own params with those that its roles show as. Who
// leads and manages is said by one document alone: a param that says otherwise
// does not count.
func derive(own profile.Params, roles []string) profile.Params {
	all := make(profile.Params, len(own)+len(roles))
	maps.Copy(all, own)
	for _, key := range underived(roles) {
		delete(all, key)
	}
	for _, role := range roles {
		all[roleParam(role)] = profile.Bool(true)
	}
	return all
}

// underived returns the params of the derived roles that are not among roles.
func underived(roles []string) (keys []string) {
	for _, role := range []string{RoleManager, RoleLeader, RoleWorker} {
		if !slices.Contains(roles, role) {
			keys = append(keys, roleParam(role))
		}
	}
	return keys
}

// checkRole returns ErrInvalid for what no member can give itself as a role.
func checkRole(role string) error {
	if err := profile.CheckName(role); err != nil {
		return fmt.Errorf("role: %w", err)
	}
	switch {
	case role == RoleLeader, role == RoleWorker:
		return fmt.Errorf("role %q is derived: %w: 'jorc cluster leader' says who leads", role, ErrInvalid)
	case slices.Contains([]string{profile.SelfKey, ParamFilter, ParamEligible}, roleParam(role)):
		return fmt.Errorf("role %q would show as the param %q, which means something else: %w: choose another name", role, roleParam(role), ErrInvalid)
	}
	return nil
}
