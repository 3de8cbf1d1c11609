package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/workflow"
)

// TestMain lets the test binary be its own child, a worker that dies at a step.
func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		os.Exit(crashMain())
	}
	os.Exit(consultest.Main(m))
}

func options(o ...consultest.Option) []consultest.Option {
	return append(o, consultest.WithConfig(map[string]any{
		"session_ttl_min": "500ms", "disable_coordinates": true, "limits": map[string]any{"http_max_conns_per_client": 8192},
	}))
}

func newServer(t testing.TB, o ...consultest.Option) *consultest.Server {
	t.Helper()
	return consultest.Start(t, options(o...)...)
}

// site is a cluster with workers and orchestrators, each as a process of its
// own would be.
type site struct {
	t       *testing.T
	server  *consultest.Server
	name    string // of the cluster
	cluster *fleet.Cluster
	runs    *Runs
	dir     string

	mu   sync.Mutex
	away map[string]bool // members whose agent is down
	told []event.Decision
	errs []error
	bell chan struct{}
}

// newSite returns a cluster of the test's own in the Consul of all tests.
func newSite(t *testing.T, members ...string) *site {
	t.Helper()
	s, name := consultest.Shared(t, options()...)
	return newSiteIn(t, s, name, members...)
}

// newSiteOn returns the cluster "default" in a Consul of its own.
func newSiteOn(t *testing.T, s *consultest.Server, members ...string) *site {
	t.Helper()
	return newSiteIn(t, s, "default", members...)
}

func newSiteIn(t *testing.T, s *consultest.Server, name string, members ...string) *site {
	t.Helper()
	x := &site{
		t: t, server: s, name: name, cluster: fleet.New(s.Client(), "jorc", name), dir: t.TempDir(),
		away: map[string]bool{}, bell: make(chan struct{}, 1),
	}
	x.runs = New(x.cluster.Store())
	if _, err := x.cluster.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		x.join(m)
	}
	return x
}

// join makes "node/role" a member.
func (x *site) join(member string) {
	x.t.Helper()
	node, role, _ := strings.Cut(member, "/")
	_, err := x.cluster.Join(x.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		if role != "" {
			r.Roles = []string{role}
		}
		return r, nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// background runs f until the test ends, or until stop is called.
func (x *site) background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	stop = func() { cancel(); <-done }
	x.t.Cleanup(stop)
	return stop
}

// orchestrate holds the lock and decides whenever there is something to decide.
func (x *site) orchestrate(node string, d *Decider) (stop func()) {
	return x.background(func(ctx context.Context) {
		client := x.server.Client()
		store := kv.New(client, "jorc/"+x.name)
		for ctx.Err() == nil {
			held, err := store.Lock(ctx, "orchestrate/lock", kv.LeaseOptions{TTL: time.Second, LockDelay: -1, Holder: kv.Holder{Node: node}})
			if err != nil {
				continue
			}
			x.term(held, client, node, d)
			_ = held.Release(context.WithoutCancel(ctx))
		}
	})
}

func (x *site) term(held *kv.Lease, client *consul.Client, node string, d *Decider) {
	ctx := held.Context()
	var running sync.WaitGroup
	news := make(chan struct{}, 1)
	running.Go(func() {
		_ = watchPaths(ctx, client, x.runs.store, []string{strings.TrimSuffix(keyActive, "/"), strings.TrimSuffix(cluster.PrefixHosts, "/")}, func() {
			select {
			case news <- struct{}{}:
			default:
			}
		})
	})
	defer running.Wait()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-tick.C:
		}
		decisions, err := x.decide(ctx, held.Store(), client, node, d)
		x.mu.Lock()
		x.told = append(x.told, decisions...)
		if err != nil {
			x.errs = append(x.errs, err)
		}
		x.mu.Unlock()
	}
}

// decide is one cycle.
func (x *site) decide(ctx context.Context, store *kv.Store, client *consul.Client, node string, d *Decider) ([]event.Decision, error) {
	o, err := x.observe(ctx, client, node)
	if err != nil {
		return nil, err
	}
	return d.Decide(ctx, store, o)
}

func (x *site) observe(ctx context.Context, client *consul.Client, node string) (o Observed, err error) {
	watcher := fleet.New(client, "jorc", x.name).Consistent().NewWatcher(cluster.PrefixRuns)
	o = Observed{Node: node, Now: time.Now()}
	o.Refresh = func(ctx context.Context) (cluster.State, []cluster.Member, error) {
		s, err := watcher.State(ctx)
		return s, x.members(&s), err
	}
	o.State, o.Members, err = o.Refresh(ctx)
	return o, err
}

func (x *site) members(s *cluster.State) []cluster.Member {
	all := s.Members(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range all {
		all[i].Agent, all[i].Condition = cluster.AgentUp, cluster.Condition{} // no host is in the catalog
		if x.away[all[i].Node] {
			all[i].Agent = cluster.AgentDown
		}
	}
	return all
}

func (x *site) agent(node string, up bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.away[node] = !up
}

// work runs a worker on node with one workflow, "w", of these tasks.
func (x *site) work(node string, tasks ...config.Task) (stop func()) {
	w := x.worker(x.server.Client(), node, tasks...)
	return x.background(func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			x.t.Errorf("the worker on %s: %v", node, err)
		}
	})
}

func (x *site) worker(client *consul.Client, node string, tasks ...config.Task) *Worker {
	return makeWorker(kv.New(client, "jorc/"+x.name), filepath.Join(x.dir, node), node, tasks...)
}

// makeWorker is a worker whose tasks find the directory $DIR.
func makeWorker(store *kv.Store, dir, node string, tasks ...config.Task) *Worker {
	for _, d := range []string{"state", "manager", "traces"} {
		_ = os.MkdirAll(filepath.Join(dir, d), 0o755)
	}
	o := workflow.Options{
		StateDir: filepath.Join(dir, "state"), Workflows: []config.Workflow{{Name: "w", Tasks: tasks, AllowParams: []string{"k", "n", "rev"}}}, Node: node,
		Environ: []string{"DIR=" + filepath.Join(dir, "traces")}, Log: hclog.NewNullLogger(),
	}
	m := o
	m.StateDir = filepath.Join(dir, "manager")
	w := NewWorker(WorkerOptions{Store: store, Node: node, Runner: workflow.New(o), Manager: workflow.New(m)})
	w.retry = 20 * time.Millisecond
	return w
}

// traces are what the tasks on node left in a file.
func (x *site) traces(node, name string) string {
	data, err := os.ReadFile(filepath.Join(x.dir, node, "traces", name))
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	return string(data)
}

// sh is a task that leaves its name in the file ran and then runs a script.
func sh(name, script string) config.Task {
	return config.Task{Name: name, Command: []string{"sh", "-c", "echo " + name + " >>$DIR/ran; " + script}}
}

func (x *site) ask(id string, q Request) {
	x.t.Helper()
	if q.Workflow == "" {
		q.Workflow = "w"
	}
	if _, created, err := x.runs.Ask(x.t.Context(), id, q, "ann"); err != nil || !created {
		x.t.Fatalf("Ask(%s) = %v, %v", id, created, err)
	}
}

// becomes waits until a run is so: "done: a=done b=failed".
func (x *site) becomes(id, want string) Detail {
	x.t.Helper()
	var d Detail
	consultest.Eventually(x.t, "run "+id+" to be "+want, func(ctx context.Context) (err error) {
		if d, err = x.runs.Show(ctx, id); err != nil {
			return err
		}
		got := string(d.State) + ":"
		for _, m := range d.Members {
			got += " " + m.Node + "=" + string(m.State)
		}
		if got != want {
			x.mu.Lock()
			defer x.mu.Unlock()
			return fmt.Errorf("it is %s; errors %v", got, errors.Join(x.errs...))
		}
		return nil
	})
	return d
}

func (x *site) set(key, text string) {
	x.t.Helper()
	v, err := profile.ParseValue(text)
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := x.cluster.Set(x.t.Context(), profile.Scope{}, key, v, profile.Ref{}); err != nil {
		x.t.Fatal(err)
	}
}

// wasTold waits for a decision of that kind about node, or about no node.
func (x *site) wasTold(kind, node string) event.Decision {
	x.t.Helper()
	var found event.Decision
	consultest.Eventually(x.t, kind+" about "+node, func(context.Context) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, d := range x.told {
			if d.Kind == kind && d.Node == node {
				found = d
				return nil
			}
		}
		return fmt.Errorf("told: %+v", x.told)
	})
	return found
}

func quickDecider() *Decider { return NewDecider(500*time.Millisecond, nil) }

// index is the number of Consul's last write below prefix.
func index(t testing.TB, s *consultest.Server, prefix string) uint64 {
	t.Helper()
	_, meta, err := s.Client().KVList(t.Context(), prefix, consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return meta.Index
}

func write(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
