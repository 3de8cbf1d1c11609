package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// guarded is a cluster in a Consul with default deny, and who may do what.
type guarded struct {
	server  *consultest.Server
	root    *cluster.Cluster
	tokens  map[string]string         // kind of policy → token
	clients map[string]*consul.Client // kind of policy → one for all that is tried
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s := consultest.Start(t, consultest.WithACL())
	g := &guarded{server: s, root: cluster.New(s.Client(), "jorc", "prod"), tokens: map[string]string{}, clients: map[string]*consul.Client{}}
	if _, err := g.root.Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.New(s.Client(), "jorc", "prod2").Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := append(g.root.Policies(s.Node), g.root.ElectorPolicy())
	for i, kind := range []string{cluster.PolicyAgent, cluster.PolicyOperator, cluster.PolicyOrchestrator, cluster.PolicyElector} {
		p := policies[i]
		for _, want := range []bool{true, false} {
			if changed, err := cluster.PutPolicy(t.Context(), s.Client(), p); err != nil || changed != want {
				t.Fatalf("PutPolicy(%s) = %v, %v; want %v", p.Name, changed, err, want)
			}
		}
		names := []string{p.Name}
		if kind == cluster.PolicyElector {
			names = append(names, policies[0].Name) // it goes beside that of an agent
		}
		token, err := s.Client().CreateToken(t.Context(), kind, 0, names...)
		if err != nil {
			t.Fatal(err)
		}
		g.tokens[kind] = token.SecretID
	}
	return g
}

func (g *guarded) as(kind, name string) *cluster.Cluster {
	if g.clients[kind] == nil {
		g.clients[kind] = g.server.ClientWithToken(g.tokens[kind])
	}
	return cluster.New(g.clients[kind], "jorc", name)
}

// try is one thing that a caller does.
type try struct {
	name string
	do   func(*cluster.Cluster) error
}

func (g *guarded) tries(t *testing.T) map[string]try {
	var count atomic.Int64 // of leaders: each try changes it
	ctx := t.Context()
	put := func(key string) func(*cluster.Cluster) error {
		return func(c *cluster.Cluster) error {
			_, err := c.Store().Txn().Set(key, []byte("x")).Commit(ctx)
			return err
		}
	}
	joinAs := func(node string) func(*cluster.Cluster) error {
		return func(c *cluster.Cluster) error {
			_, err := c.Join(ctx, node, func(r cluster.Record) (cluster.Record, error) {
				r.Zone = fmt.Sprint(time.Now().UnixNano())
				return r, nil
			})
			return err
		}
	}
	all := []try{
		{"read the profile", func(c *cluster.Cluster) error { _, err := c.Profile(ctx); return err }},
		{"set a param", func(c *cluster.Cluster) error {
			_, err := c.Set(ctx, profile.Scope{}, "k", value(t, fmt.Sprint(time.Now().UnixNano())), profile.Ref{})
			return err
		}},
		{"join itself", joinAs(g.server.Node)},
		{"join another", joinAs("other")},
		{"list members", func(c *cluster.Cluster) error {
			_, err := c.Members(ctx, cluster.MembersOptions{Need: cluster.NeedAll})
			return err
		}},
		{"elect", func(c *cluster.Cluster) error { return c.SetCount(ctx, 1+int(count.Add(1))) }},
		{"hold", func(c *cluster.Cluster) error {
			_, err := c.Hold(ctx, cluster.Scope{Node: fmt.Sprint(time.Now().UnixNano())}, cluster.Hold{})
			return err
		}},
		{"lock", func(c *cluster.Cluster) error {
			held, err := c.Store().TryLock(ctx, "elect/lock", kv.LeaseOptions{TTL: 10 * time.Second})
			if err != nil {
				return err
			}
			return held.Release(ctx)
		}},
		{"report itself", put("nodes/" + g.server.Node)},
		{"report another", put("nodes/other")},
		{"report a state", put("status/config/success/" + g.server.Node)},
		{"set the version", put("current_version")},
		{"write the rollout", put("current/version")},
		{"write events", put("events/1")},
		{"answer its queue", put("host/" + g.server.Node + "/queue")},
		{"answer another's queue", put("host/other/queue")},
		{"take a slot", put("slots/claim/" + g.server.Node + "/reload/1")},
		{"take another's slot", put("slots/claim/other/reload/1")},
		{"ask for a run", put("runs/r/spec")},
		{"ask for a cycle", put("orchestrate/next")},
		{"write the view", put("view/1")},
		{"invent a key", put("something")},
		{"mint a token", func(c *cluster.Cluster) error { _, err := c.ProfileToken(ctx, time.Minute); return err }},
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
	g := newGuarded(t)
	tries := g.tries(t)
	may := map[string]string{
		cluster.PolicyAgent:   "read the profile, join itself, list members, report itself, answer its queue, take a slot",
		cluster.PolicyElector: "read the profile, join itself, list members, elect, lock, report itself, answer its queue, take a slot",
		cluster.PolicyOperator: "read the profile, set a param, join itself, join another, list members, elect, hold, lock, " +
			"report itself, report another, report a state, set the version, write the rollout, write events, " +
			"answer its queue, answer another's queue, take a slot, take another's slot, ask for a run, ask for a cycle, write the view, invent a key",
		cluster.PolicyOrchestrator: "read the profile, join itself, join another, list members, hold, report itself, report a state, " +
			"set the version, write the rollout, write events, answer its queue, answer another's queue, take a slot, ask for a run, ask for a cycle, write the view",
	}
	for kind, list := range may {
		allowed := map[string]bool{}
		for name := range strings.SplitSeq(list, ", ") {
			allowed[name] = true
		}
		for name, one := range tries {
			err := one.do(g.as(kind, "prod"))
			switch {
			case allowed[name] && err != nil:
				t.Errorf("%s may not %s: %v", kind, name, err)
			case !allowed[name] && !errors.Is(err, consul.ErrDenied):
				t.Errorf("%s may %s: %v", kind, name, err)
			}
			if err := one.do(g.as(kind, "prod2")); !errors.Is(err, consul.ErrDenied) {
				t.Errorf("%s may %s in another cluster: %v", kind, name, err)
			}
		}
	}
	for kind, token := range g.tokens {
		for node, allowed := range map[string]bool{g.server.Node: kind != cluster.PolicyOperator, "other": false} {
			err := g.server.ClientWithToken(token).CatalogRegister(t.Context(), &consul.CatalogRegistration{
				Node: node, Address: "127.0.0.1", SkipNodeUpdate: true, Service: &consul.AgentService{Service: "web-" + kind},
			})
			if allowed && err != nil || !allowed && !errors.Is(err, consul.ErrDenied) {
				t.Errorf("%s registers a service of %s: %v", kind, node, err)
			}
		}
	}
	anonymous := cluster.New(g.server.ClientWithToken(""), "jorc", "prod")
	if _, err := anonymous.Members(t.Context(), cluster.MembersOptions{Need: cluster.NeedAll}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("anybody may list members: %v", err)
	}
}

// TestAgentAtWork: with its policy an agent keeps its record, elects and leads.
func TestAgentAtWork(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c := g.as(cluster.PolicyElector, "prod")
	node := g.server.Node
	presence(t, g.server)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	s := &stage{on: map[string]bool{}}
	running.Go(func() { _ = c.NewRecordSync(cluster.RecordSyncOptions{Node: node, LeaveOnStop: true}).Run(ctx) })
	running.Go(func() { _ = c.NewElection(cluster.ElectionOptions{Node: node}).Run(ctx) })
	running.Go(func() { _ = c.Lead(ctx, node, cluster.Timing{}, s.lead(node)) })
	consultest.Eventually(t, "the agent to lead", func(context.Context) error {
		if len(s.leading()) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	cancel()
	running.Wait()
	if _, err := g.root.Record(t.Context(), node); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("it is still a member: %v", err)
	}
}

// TestProfileToken: it writes this profile and nothing else, reads the members,
// and expires; an error for lack of rights says what to do.
func TestProfileToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	token, err := g.root.ProfileToken(t.Context(), 5*time.Minute)
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
	g.tokens["job"] = token.Secret
	for name, one := range g.tries(t) {
		err := one.do(g.as("job", "prod"))
		if allowed := name == "read the profile" || name == "set a param" || name == "list members"; allowed && err != nil {
			t.Errorf("a job may not %s: %v", name, err)
		} else if !allowed && !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a job may %s: %v", name, err)
		}
		if err := one.do(g.as("job", "prod2")); !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a job may %s in another cluster: %v", name, err)
		}
	}
	_, err = g.as(cluster.PolicyAgent, "prod").ProfileToken(t.Context(), 0)
	if !errors.Is(err, consul.ErrDenied) || !strings.Contains(err.Error(), "acl:write") {
		t.Errorf("an agent's attempt to make a token: %v", err)
	}
	for _, ttl := range []time.Duration{time.Second, 25 * time.Hour} {
		_, err := g.root.ProfileToken(t.Context(), ttl)
		wantIs(t, fmt.Sprintf("a token for %v", ttl), err, cluster.ErrInvalid)
	}
	open, _ := initialized(t)
	_, err = open.ProfileToken(t.Context(), 0)
	wantIs(t, "a token without ACLs", err, cluster.ErrNoACLs)
}
