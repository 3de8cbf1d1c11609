package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// try is one thing that a caller does.
type try struct {
	name string
	do   func(*fleet.Cluster) error
}

func tries(g *clustertest.Guarded, t *testing.T) map[string]try {
	var count atomic.Int64 // of leaders: each try changes it
	ctx := t.Context()
	put := func(key string) func(*fleet.Cluster) error {
		return func(c *fleet.Cluster) error {
			_, err := c.Store().Txn().Set(key, []byte("x")).Commit(ctx)
			return err
		}
	}
	joinAs := func(node string) func(*fleet.Cluster) error {
		return func(c *fleet.Cluster) error {
			_, err := c.Join(ctx, node, func(r cluster.Record) (cluster.Record, error) {
				r.Zone = fmt.Sprint(time.Now().UnixNano())
				return r, nil
			})
			return err
		}
	}
	all := []try{
		{"read the profile", func(c *fleet.Cluster) error { _, err := c.Profile(ctx); return err }},
		{"set a param", func(c *fleet.Cluster) error {
			_, err := c.Set(ctx, profile.Scope{}, "k", clustertest.Value(t, fmt.Sprint(time.Now().UnixNano())), profile.Ref{})
			return err
		}},
		{"join itself", joinAs(g.Server.Node)},
		{"join another", joinAs("other")},
		{"list members", func(c *fleet.Cluster) error {
			_, err := c.Members(ctx, fleet.MembersOptions{Need: cluster.NeedAll})
			return err
		}},
		{"elect", func(c *fleet.Cluster) error { return c.SetCount(ctx, 1+int(count.Add(1))) }},
		{"hold", func(c *fleet.Cluster) error {
			_, err := c.Hold(ctx, cluster.Scope{Node: fmt.Sprint(time.Now().UnixNano())}, cluster.Hold{})
			return err
		}},
		{"lock", func(c *fleet.Cluster) error {
			held, err := c.Store().TryLock(ctx, "elect/lock", kv.LeaseOptions{TTL: 10 * time.Second})
			if err != nil {
				return err
			}
			return held.Release(ctx)
		}},
		{"report itself", put("nodes/" + g.Server.Node)},
		{"report another", put("nodes/other")},
		{"report a state", put("status/config/success/" + g.Server.Node)},
		{"set the version", put("current_version")},
		{"write the rollout", put("current/version")},
		{"write events", put("events/1")},
		{"say what became of its jobs", put("host/" + g.Server.Node + "/results")},
		{"say what became of another's jobs", put("host/other/results")},
		{"take a slot", put("slots/claim/" + g.Server.Node + "/reload/1")},
		{"take another's slot", put("slots/claim/other/reload/1")},
		{"ask for a run", put("runs/r/spec")},
		{"ask for a cycle", put("orchestrate/next")},
		{"write the view", put("view/1")},
		{"invent a key", put("something")},
		{"mint a token", func(c *fleet.Cluster) error { _, err := c.ProfileToken(ctx, time.Minute); return err }},
	}
	by := map[string]try{}
	for _, one := range all {
		by[one.name] = one
	}
	return by
}

// TestPolicies: each caller can do its work, and nothing beyond, and nothing in
// a cluster whose name begins alike.
func TestPolicies(t *testing.T) {
	t.Parallel()
	g := clustertest.NewGuarded(t)
	tries := tries(g, t)
	may := map[string]string{
		fleet.PolicyAgent:   "read the profile, join itself, list members, report itself, say what became of its jobs, take a slot",
		fleet.PolicyElector: "read the profile, join itself, list members, elect, lock, report itself, say what became of its jobs, take a slot",
		fleet.PolicyOperator: "read the profile, set a param, join itself, join another, list members, elect, hold, lock, " +
			"report itself, report another, report a state, set the version, write the rollout, write events, " +
			"say what became of its jobs, say what became of another's jobs, take a slot, take another's slot, ask for a run, ask for a cycle, write the view, invent a key",
		fleet.PolicyOrchestrator: "read the profile, join itself, join another, list members, hold, report itself, report a state, " +
			"set the version, write the rollout, write events, say what became of its jobs, say what became of another's jobs, take a slot, ask for a run, ask for a cycle, write the view",
	}
	for kind, list := range may {
		allowed := map[string]bool{}
		for name := range strings.SplitSeq(list, ", ") {
			allowed[name] = true
		}
		for name, one := range tries {
			err := one.do(g.As(kind, "prod"))
			switch {
			case allowed[name] && err != nil:
				t.Errorf("%s may not %s: %v", kind, name, err)
			case !allowed[name] && !errors.Is(err, consul.ErrDenied):
				t.Errorf("%s may %s: %v", kind, name, err)
			}
			if err := one.do(g.As(kind, "prod2")); !errors.Is(err, consul.ErrDenied) {
				t.Errorf("%s may %s in another cluster: %v", kind, name, err)
			}
		}
	}
	for kind, token := range g.Tokens {
		for node, allowed := range map[string]bool{g.Server.Node: kind != fleet.PolicyOperator, "other": false} {
			err := g.Server.ClientWithToken(token).CatalogRegister(t.Context(), &consul.CatalogRegistration{
				Node: node, Address: "127.0.0.1", SkipNodeUpdate: true, Service: &consul.AgentService{Service: "web-" + kind},
			})
			if allowed && err != nil || !allowed && !errors.Is(err, consul.ErrDenied) {
				t.Errorf("%s registers a service of %s: %v", kind, node, err)
			}
		}
	}
	anonymous := fleet.New(g.Server.ClientWithToken(""), "jorc", "prod")
	if _, err := anonymous.Members(t.Context(), fleet.MembersOptions{Need: cluster.NeedAll}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("anybody may list members: %v", err)
	}
}

// TestProfileToken: it writes this profile and nothing else, reads the members,
// and expires; an error for lack of rights says what to do.
func TestProfileToken(t *testing.T) {
	t.Parallel()
	g := clustertest.NewGuarded(t)
	token, err := g.Root.ProfileToken(t.Context(), 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(token.Expires); left <= 0 || left > 5*time.Minute {
		t.Errorf("it expires in %v", left)
	}
	for _, text := range []string{fmt.Sprint(token), fmt.Sprintf("%v %+v %#v %s", token, token, token, token)} {
		if strings.Contains(text, token.Secret) {
			t.Errorf("the secret is in %q", text)
		}
	}
	g.Tokens["job"] = token.Secret
	for name, one := range tries(g, t) {
		err := one.do(g.As("job", "prod"))
		if allowed := name == "read the profile" || name == "set a param" || name == "list members"; allowed && err != nil {
			t.Errorf("a job may not %s: %v", name, err)
		} else if !allowed && !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a job may %s: %v", name, err)
		}
		if err := one.do(g.As("job", "prod2")); !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a job may %s in another cluster: %v", name, err)
		}
	}
	_, err = g.As(fleet.PolicyAgent, "prod").ProfileToken(t.Context(), 0)
	if !errors.Is(err, consul.ErrDenied) || !strings.Contains(err.Error(), "acl:write") {
		t.Errorf("an agent's attempt to make a token: %v", err)
	}
	for _, ttl := range []time.Duration{time.Second, 25 * time.Hour} {
		_, err := g.Root.ProfileToken(t.Context(), ttl)
		clustertest.WantIs(t, fmt.Sprintf("a token for %v", ttl), err, cluster.ErrInvalid)
	}
	open, _ := clustertest.Initialized(t)
	_, err = open.ProfileToken(t.Context(), 0)
	clustertest.WantIs(t, "a token without ACLs", err, cluster.ErrNoACLs)
}
