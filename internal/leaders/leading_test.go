package leaders_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/profile"
)

// TestElect: at random among the eligible, stable, vacancies filled by those
// who join later.
func TestElect(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.New(t)
	if _, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 2, Manager: "boss"}); err != nil {
		t.Fatal(err)
	}
	lead := func() []string {
		t.Helper()
		l, err := c.Leaders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Leader
	}
	if got := lead(); len(got) != 0 {
		t.Errorf("leaders of a cluster with a manager alone: %q", got)
	}
	if _, err := c.Join(t.Context(), "never", func(r cluster.Record) (cluster.Record, error) {
		r.Params = profile.Params{cluster.ParamEligible: clustertest.Value(t, "false")}
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	clustertest.Join(t, c, "a")
	clustertest.Join(t, c, "b")
	clustertest.Join(t, c, "c")
	if got := lead(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("leaders are %q, want those who came first", got)
	}
	if l, err := c.Elect(t.Context()); err != nil || !slices.Equal(l.Leader, []string{"a", "b"}) {
		t.Errorf("Elect = %+v, %v; want no change", l, err)
	}
	if left, err := c.Leave(t.Context(), "a", false); !left || err != nil {
		t.Errorf("Leave = %v, %v", left, err)
	}
	if got := lead(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("leaders after one left: %q", got)
	}
	if left, err := c.Leave(t.Context(), "a", false); left || err != nil {
		t.Errorf("Leave again = %v, %v", left, err)
	}
	// One that may still believe keeps its place empty.
	clustertest.Join(t, c, "d")
	if _, err := c.Leave(t.Context(), "b", true); err != nil {
		t.Fatal(err)
	}
	l, err := c.Elect(t.Context())
	if err != nil || !slices.Equal(l.Leader, []string{"c"}) || len(l.Retired) != 1 {
		t.Errorf("after one left that may believe: %+v, %v", l, err)
	}
	// The cluster's own filter leaves members out.
	if err := clustertest.Set(t, c, cluster.ParamFilter, `"Node == \"d\""`, profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	l, err = c.Elect(t.Context())
	if err != nil || len(l.Leader) != 0 || len(l.Retired) != 2 {
		t.Errorf("with a filter that leaves all leaders out: %+v, %v", l, err)
	}
}

// TestElectAtRandom: everyone is chosen sooner or later.
func TestElectAtRandom(t *testing.T) {
	t.Parallel()
	s := clustertest.NewServer(t)
	chosen := map[string]bool{}
	for i := 0; len(chosen) < 3 && i < 100; i++ {
		c := fleet.New(s.Client(), "jorc", fmt.Sprintf("c%d", i))
		for _, node := range []string{"a", "b", "c"} {
			clustertest.Join(t, c, node)
		}
		if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
			t.Fatal(err)
		}
		l, err := c.Leaders(t.Context())
		if err != nil || len(l.Leader) != 1 {
			t.Fatalf("leaders are %+v, %v", l, err)
		}
		chosen[l.Leader[0]] = true
	}
	if len(chosen) != 3 {
		t.Errorf("100 elections chose only %v", chosen)
	}
}

// stage is where members of a test lead; it counts them.
type stage struct {
	mu    sync.Mutex
	on    map[string]bool
	most  int
	turns int
}

// lead is what a member does while it leads.
func (s *stage) lead(node string) func(context.Context) {
	return func(ctx context.Context) {
		s.enter(node)
		<-ctx.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.on, node)
	}
}

func (s *stage) enter(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on[node] = true
	s.most = max(s.most, len(s.on))
	s.turns++
}

func (s *stage) leading() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for node := range s.on {
		all = append(all, node)
	}
	slices.Sort(all)
	return all
}

// TestLeaderCutOff: a leader whose Consul agent hangs or dies stops leading by
// itself, another takes its place, and never do two lead.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3, consultest.WithConfig(map[string]any{
		"session_ttl_min": "500ms",
		"gossip_lan":      map[string]any{"probe_interval": "200ms", "probe_timeout": "100ms", "suspicion_mult": 2},
	}))
	s := &stage{on: map[string]bool{}}
	timing := cluster.Timing{StepDown: 2 * time.Second, Replace: 4 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	by := map[string]*consultest.Server{}
	first := fleet.New(servers[0].Client(), "jorc", "prod")
	if _, err := first.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		by[server.Node] = server
		c := fleet.New(server.Client(), "jorc", "prod")
		presence(t, server)
		clustertest.Join(t, c, server.Node)
		running.Go(func() { _ = leaders.Lead(ctx, c, server.Node, timing, s.lead(server.Node)) })
		e := leaders.NewElection(c, leaders.ElectionOptions{
			Node: server.Node, Timing: timing, Spread: 50 * time.Millisecond, Lock: kv.LeaseOptions{TTL: 2 * time.Second},
		})
		running.Go(func() { _ = e.Run(ctx) })
	}
	one := func(what string, not string) string {
		t.Helper()
		consultest.Eventually(t, what, func(context.Context) error {
			if now := s.leading(); len(now) != 1 || now[0] == not {
				return fmt.Errorf("%q lead", now)
			}
			return nil
		})
		return s.leading()[0]
	}
	leader := one("a leader", "")
	by[leader].Freeze()
	next := one("another leader while the first hangs", leader)
	by[leader].Thaw()
	by[leader].WaitLeader()
	by[next].Kill()
	third := one("another leader after the second died", next)
	by[next].RestartNoWait()
	by[next].WaitLeader()
	if got := one("one leader at the end", ""); got != third {
		t.Logf("%s led, and now %s does", third, got)
	}
	if s.most > 1 {
		t.Errorf("%d led at one time", s.most)
	}
}

// presence registers what the agent's registrar does for jorc itself.
func presence(t *testing.T, s *consultest.Server) {
	t.Helper()
	err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{
		ID: "jorc-prod", Name: "jorc",
		Check: &consul.ServiceCheck{TTL: "1h", Status: consul.HealthPassing},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFollow: a member learns that it became, or ceased to be, a leader, and
// stops leading by itself when Consul is gone.
func TestFollow(t *testing.T) {
	t.Parallel()
	c, server := clustertest.Initialized(t)
	news := make(chan leaders.Leadership, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := leaders.Follow(ctx, c, "a", cluster.Timing{StepDown: time.Second}, func(s leaders.Leadership) { news <- s })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	until := func(leading bool) {
		t.Helper()
		for s := range news {
			if s.Leading == leading {
				return
			}
		}
	}
	until(false)
	clustertest.Join(t, c, "a")
	until(true)
	if _, err := c.Leave(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	until(false)
	clustertest.Join(t, c, "a")
	until(true)
	server.Freeze()
	until(false)
	server.Thaw()
	until(true)
}

// TestEligible: cluster/leader-eligible counts on every level, and a running
// election follows it.
func TestEligible(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.New(t)
	if _, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 3, Manager: "boss"}); err != nil {
		t.Fatal(err)
	}
	for _, scope := range []struct {
		role  string
		value string
	}{{"", "false"}, {"db", "true"}, {"old", "false"}, {"leader", "false"}, {"worker", "true"}} {
		if _, err := c.Set(t.Context(), profile.Scope{Role: scope.role}, cluster.ParamEligible, clustertest.Value(t, scope.value), profile.Ref{}); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Join(t, c, "plain")
	clustertest.Join(t, c, "db", "db")
	clustertest.Join(t, c, "old-db", "db", "old")
	clustertest.Join(t, c, "own")
	if err := c.SetMemberParam(t.Context(), "own", cluster.ParamEligible, clustertest.Value(t, "true"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	lead := func(want ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := c.Leaders(ctx)
			slices.Sort(l.Leader)
			if err == nil && !slices.Equal(l.Leader, want) {
				err = fmt.Errorf("leaders are %v, want %v", l.Leader, want)
			}
			return err
		}
	}
	if _, err := c.Elect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lead("db", "own")(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		_ = leaders.NewElection(c, leaders.ElectionOptions{Node: "judge", Timing: cluster.Timing{StepDown: time.Second}}).Run(ctx)
	})
	if _, err := c.Set(t.Context(), profile.Scope{}, cluster.ParamEligible, clustertest.Value(t, "true"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the member without a role to lead, and the manager not to", lead("db", "own", "plain"))
	if _, err := c.Set(t.Context(), profile.Scope{Role: "db"}, cluster.ParamEligible, clustertest.Value(t, "false"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the member with the role to stop", lead("own", "plain"))
}
