package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

// CheckMembers fails for a new run that no member matches. It returns
// cluster.ErrNoCluster or a class of package consul.
func (r *Runs) CheckMembers(ctx context.Context, c *cluster.Cluster, id string, q Request) error {
	filter, err := cluster.ParseFilter(q.Filter)
	if err != nil {
		return err
	}
	all, exists, err := Candidates(ctx, c, filter)
	if err != nil {
		return err
	}
	if !exists {
		_, err := c.Profile(ctx) // its error names what to do
		return err
	}
	q.Filter = "" // the candidates match it
	if q.OnManager || len(Matching(q, all, nil)) > 0 {
		return nil
	}
	if _, err := r.Show(ctx, id); !errors.Is(err, ErrNoRun) {
		return err // its members are decided already
	}
	if q.Role != "" {
		return withoutRole(ctx, c, q.Role)
	}
	return fmt.Errorf("no member of cluster %q matches: nothing was written; 'jorc cluster members' lists them, managers take no part", c.Name())
}

// withoutRole is the error that no member with a role matches, or that no member
// has the role, and which roles exist.
func withoutRole(ctx context.Context, c *cluster.Cluster, role string) error {
	all, err := c.Members(ctx, cluster.MembersOptions{Unreadable: func(string, error) {}})
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range all {
		for _, r := range all[i].Roles {
			known[r] = true
		}
	}
	if known[role] {
		return fmt.Errorf("no member of cluster %q with role %q matches: nothing was written; 'jorc cluster members' lists them", c.Name(), role)
	}
	return fmt.Errorf("no member of cluster %q has role %q%s", c.Name(), role, text.Unknown(role, "roles", slices.Collect(maps.Keys(known))))
}

// Explain adds why runs do not continue. It reads the cluster's control only if one
// has not ended, and it is not an error if the token may not read it.
func Explain(ctx context.Context, c *cluster.Cluster, all ...*Run) error {
	if !slices.ContainsFunc(all, func(r *Run) bool { return !r.State.Ended() }) {
		return nil
	}
	control, err := c.Control(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return nil
	}
	for _, r := range all {
		r.Explain(control)
	}
	return err
}

// Audience describes the members that a run is for.
func (r Run) Audience() string {
	q := r.Request
	text := "all"
	switch {
	case q.OnManager:
		return "a manager"
	case q.Role != "" && q.Filter != "":
		text = "role " + q.Role + ", " + q.Filter
	case q.Role != "":
		text = "role " + q.Role
	case q.Filter != "":
		text = q.Filter
	}
	if q.RetryOf != "" {
		text = fmt.Sprintf("%d of run %s", len(q.Nodes), q.RetryOf)
	}
	if r.Rule != nil {
		text += " (rule " + r.Rule.Name + ")"
	}
	return text
}
