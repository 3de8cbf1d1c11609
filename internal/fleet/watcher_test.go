package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// TestWatcherReadsReportsLast: a state with another control has what hosts reported before that.
func TestWatcherReadsReportsLast(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	put := func(key, value string) {
		t.Helper()
		if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: c.Store().Path(key), Value: []byte(value)}); err != nil {
			t.Error(err)
		}
	}
	put("host/a/member", `{"format":1}`)
	put("nodes/a", `{"format":1,"version":"v1"}`)
	var first atomic.Bool // everything was read once
	var once sync.Once
	written := make(chan struct{})
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.HTTPAddr})
	between := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if first.Load() && strings.HasSuffix(r.URL.Path, "/txn") { // the documents
			<-written
		}
		forward.ServeHTTP(rw, r)
		if first.Load() && strings.HasPrefix(r.URL.Path, "/v1/kv/") && strings.Contains(r.URL.Path, "/nodes") {
			once.Do(func() { // the reports are read, and then both change
				put("nodes/a", `{"format":1,"version":"v2"}`)
				put(cluster.KeyControl, `{"format":1,"paused":{"by":"ann"}}`)
				close(written)
			})
		}
	}))
	t.Cleanup(between.Close)
	client, err := consul.New(config.Consul{Address: strings.TrimPrefix(between.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	w := fleet.New(client, "jorc", c.Name()).NewWatcher()
	if _, err := w.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Store(true)
	got, err := w.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Control.Paused == nil || got.Hosts["a"].Report.Version != "v2" {
		t.Errorf("paused %v, and %s runs %q", got.Control.Paused, "a", got.Hosts["a"].Report.Version)
	}
}

// TestWatcher: after any sequence of changes the state that a watcher keeps
// current is the one that a complete read finds.
func TestWatcher(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	client := s.Client()
	put := func(key, value string) {
		t.Helper()
		if err := client.KVPut(t.Context(), &consul.KVPair{Key: c.Store().Path(key), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(key string) {
		t.Helper()
		if err := client.KVDeleteTree(t.Context(), c.Store().Path(key)); err != nil {
			t.Fatal(err)
		}
	}
	name := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	const nodes = 300
	for i := range nodes {
		put("host/"+name(i)+"/member", `{"format":1,"zone":"a"}`)
		put("nodes/"+name(i), `{"format":1,"version":"v1"}`)
	}
	w := c.NewWatcher(cluster.PrefixRuns, cluster.PrefixStages)
	marks := kv.NewTextTree(c.Store().Consistent(), cluster.PrefixActiveRuns)
	same := func(what string) {
		t.Helper()
		got, err := w.State(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		runs, err := marks.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for id, leaf := range runs {
			if !reflect.DeepEqual(got.ActiveRuns[id], leaf.Entry) {
				t.Errorf("%s: run %s is %+v, want %+v", what, id, got.ActiveRuns[id], leaf.Entry)
			}
		}
		stages, err := c.Consistent().StageDocuments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.ActiveRuns) != len(runs) || !reflect.DeepEqual(got.Stages, stages) {
			t.Errorf("%s: %d runs, stages %v, want %d, %v", what, len(got.ActiveRuns), got.Stages, len(runs), stages)
		}
		want, err := c.Consistent().Load(t.Context(), cluster.NeedState)
		if err != nil {
			t.Fatal(err)
		}
		for node, h := range want.Hosts {
			if !reflect.DeepEqual(got.Hosts[node], h) {
				t.Errorf("%s: %s is %+v, want %+v", what, node, got.Hosts[node], h)
			}
		}
		if len(got.Hosts) != len(want.Hosts) || fmt.Sprint(got.Damaged) != fmt.Sprint(want.Damaged) ||
			!reflect.DeepEqual(got.Leaders, want.Leaders) || !reflect.DeepEqual(got.Control, want.Control) ||
			got.Desired != want.Desired || got.Rollout.Value != want.Rollout.Value || !reflect.DeepEqual(got.Indexes, want.Indexes) {
			t.Errorf("%s: %d hosts, damaged %v, indexes %v; want %d, %v, %v", what,
				len(got.Hosts), got.Damaged, got.Indexes, len(want.Hosts), want.Damaged, want.Indexes)
		}
	}
	same("first")
	same("nothing changed")
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		node := name(random.IntN(nodes + 5))
		var what string
		switch random.IntN(12) {
		case 0:
			what = "another version of " + node
			put("nodes/"+node, fmt.Sprintf(`{"format":1,"version":"v%d"}`, i))
		case 1:
			what = "damage of " + node
			put("nodes/"+node, "garbage")
		case 2:
			what = "hold of " + node
			put("host/"+node+"/hold", `{"format":1,"reason":"x"}`)
		case 3:
			what = "end of a hold of " + node
			drop("host/" + node + "/hold")
		case 4:
			what = node + " is gone"
			drop("host/" + node + "/")
			drop("nodes/" + node)
		case 5:
			what = "a name that no branch covers, and another change"
			put(fmt.Sprintf("nodes/x%d", i), `{"format":1,"version":"v1"}`)
			put("nodes/"+node, `{"format":1,"version":"v9"}`)
		case 6:
			what = "the desired version"
			put("current_version", fmt.Sprintf("v%d\n", i))
		case 7:
			what = "a run in progress"
			put(fmt.Sprintf("runs/.active/r%d", i%4), fmt.Sprint(i))
		case 8:
			what = "the end of a run, and documents of a run"
			drop(fmt.Sprintf("runs/.active/r%d", random.IntN(4)))
			put(fmt.Sprintf("runs/r%d/spec", i%4), fmt.Sprint(i))
		case 9:
			what = "documents of a stage"
			put([]string{"stages/edge/turns", "stages/edge/stops", "stages/web/turns"}[i%3], fmt.Sprint(i))
		case 10:
			what = "the catalog"
			clustertest.AddNode(t, s, node, []string{"passing", "critical"}[i%2], "passing")
		default:
			what = "grant of " + node
			put("host/"+node+"/grants", fmt.Sprintf(`{"format":1,"n":%d}`, i))
		}
		same(fmt.Sprintf("change %d: %s", i, what))
	}
	put("runs/.active/r1", "1")
	put("runs/.active/r2", "2")
	drop("runs/.active/r2")
	same("a mark, and one that was deleted")
	drop("nodes/")
	drop("runs/")
	drop("stages/")
	same("no reports, runs and stages at all")
}

// TestWatcherSeesChecksReturn: a state that was read while a check failed for a moment is
// corrected: the watcher reports a change although its own queries saw none.
func TestWatcherSeesChecksReturn(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	record := &consul.KVPair{Key: c.Store().Path("host/web-1/member"), Value: []byte(`{"format":1}`)}
	if err := s.Client().KVPut(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	w := c.NewWatcher()
	changes := w.Changes()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = w.Run(ctx) }) // ends with ctx
	status := func() string {
		t.Helper()
		state, err := w.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(state.Hosts["web-1"].Condition)
	}
	clustertest.AddNode(t, s, "web-1", "passing", "passing")
	passing := status()
	for range 40 {
		clustertest.AddNode(t, s, "web-1", "passing", "critical")
		critical := status()
		if critical == passing {
			t.Fatalf("a critical check is read as %s", critical)
		}
		clustertest.AddNode(t, s, "web-1", "passing", "passing")
		for got := critical; got != passing; got = status() {
			if err := changes.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWatcherRequests: a change of one node among many reads few keys, and
// nothing changed reads no host at all.
func TestWatcherRequests(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	const nodes = 1000
	for i := 0; i < nodes; i += 50 {
		txn := c.Store().Txn()
		for j := i; j < i+50; j++ {
			txn.Set(fmt.Sprintf("nodes/node-%04d", j), []byte(`{"format":1,"version":"v1"}`))
		}
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g := &clustertest.Gateway{}
	w := fleet.New(g.Client(t, s), "jorc", "prod").NewWatcher()
	read := func() (cluster.State, int64) {
		t.Helper()
		before := g.Requests.Load()
		state, err := w.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state, g.Requests.Load() - before
	}
	read()
	consultest.Eventually(t, "Consul has registered itself, and nothing changes", func(context.Context) error {
		if _, n := read(); n > 5 {
			return fmt.Errorf("nothing changed takes %d requests, want at most 5", n)
		}
		return nil
	})
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: c.Store().Path("nodes/node-0777"), Value: []byte(`{"format":1,"version":"v2"}`)}); err != nil {
		t.Fatal(err)
	}
	state, n := read()
	if got := state.Hosts["node-0777"].Report.Version; got != "v2" {
		t.Errorf("version %q, want v2", got)
	}
	if n > 60 {
		t.Errorf("one changed node takes %d requests", n)
	}
	t.Logf("one changed node of %d: %d requests", nodes, n)
}

// TestWatcherAfterLoss: a Consul that lost its data and began again is read
// completely.
func TestWatcherAfterLoss(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	for i := range 20 {
		clustertest.Join(t, c, fmt.Sprint("n", i))
	}
	w := c.NewWatcher()
	if state, err := w.State(t.Context()); err != nil || len(state.Nodes()) != 20 {
		t.Fatalf("%d members, %v", len(state.Nodes()), err)
	}
	s.Stop()
	s.Wipe()
	s.Restart()
	consultest.Eventually(t, "the cluster to exist again", func(ctx context.Context) error {
		_, err := c.Init(ctx, fleet.InitOptions{})
		return err
	})
	clustertest.Join(t, c, "new")
	consultest.Eventually(t, "the new state", func(ctx context.Context) error {
		state, err := w.State(ctx)
		if err == nil && (len(state.Nodes()) != 1 || state.Nodes()[0] != "new" || !state.Exists) {
			err = fmt.Errorf("members %q", state.Nodes())
		}
		return err
	})
}

// TestWatcherWakes: Run reports each kind of change that the State can show, and
// a State that is asked for then has it.
func TestWatcherWakes(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.AddNode(t, s, "n1", "passing", "passing")
	clustertest.Join(t, c, "n1")
	w := c.Consistent().NewWatcher("runs/")
	changes, others := w.Changes(), w.Changes()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	wait := func(what string, ok func(cluster.State) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			state, err := w.State(ctx)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if ok(state) {
				return
			}
			if err := changes.Wait(ctx); err != nil {
				t.Fatalf("%s: no wake-up: %v", what, err)
			}
		}
	}
	wait("a version", func(state cluster.State) bool { return state.Exists })
	for _, test := range []struct {
		what   string
		change func() error
		shows  func(cluster.State) bool
	}{
		{"a report", func() error { _, err := c.ReportVersion(t.Context(), "n1", "v1"); return err }, func(s cluster.State) bool { return s.Hosts["n1"].Report.Version == "v1" }},
		{"the desired version", func() error {
			return s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/current_version", Value: []byte("v2")})
		}, func(s cluster.State) bool { return s.Desired == "v2" }},
		{"a pause", func() error { _, err := c.Pause(t.Context(), cluster.Hold{Reason: "x"}); return err }, func(s cluster.State) bool { return s.Control.Paused != nil }},
		{"a member", func() error { clustertest.Join(t, c, "n2"); return nil }, func(s cluster.State) bool { return s.Hosts["n2"] != nil }},
		{"a param", func() error { return clustertest.Set(t, c, "x", "1", profile.Ref{}) }, func(s cluster.State) bool { return len(s.Profile.Params) > 1 }},
		{"a critical check", func() error { clustertest.AddNode(t, s, "n1", "critical", "passing"); return nil }, func(s cluster.State) bool { return s.Hosts["n1"].Condition.Liveness == cluster.LivenessDown }},
	} {
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		wait(test.what, test.shows)
	}
	if err := others.Wait(t.Context()); err != nil {
		t.Errorf("the second caller was not woken: %v", err)
	}
}

// TestWatcherRestored: Run ends when Consul's data was restored, and a deletion
// is not mistaken for that.
func TestWatcherRestored(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.Join(t, c, "n1")
	w := c.NewWatcher()
	changes := w.Changes()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ended <- w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := changes.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup.snap")
	s.Run("snapshot", "save", backup)
	clustertest.Join(t, c, "n2")
	if _, err := c.Leave(t.Context(), "n2", false); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the watcher to see the last change", func(ctx context.Context) error {
		state, err := w.State(ctx)
		if err == nil && len(state.Nodes()) != 1 {
			err = fmt.Errorf("members %q", state.Nodes())
		}
		return err
	})
	select {
	case err := <-ended:
		t.Fatalf("Run ended before the restore: %v", err)
	default:
	}
	s.Run("snapshot", "restore", backup)
	if err := <-ended; !errors.Is(err, fleet.ErrRestored) {
		t.Errorf("Run = %v, want ErrRestored", err)
	}
}

// TestWatcherCatalog: while a watcher runs its state becomes the one that a complete
// read finds, after each kind of change in the catalog, and a check that changes
// makes no list of all services be read.
func TestWatcherCatalog(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	const nodes = 30
	name := func(i int) string { return fmt.Sprintf("node-%02d", i) }
	for i := range nodes {
		clustertest.Join(t, c, name(i))
		clustertest.AddNode(t, s, name(i), "passing", "passing")
	}
	proxy := s.Proxy()
	w := fleet.New(proxy.Client(), "jorc", "prod").NewWatcher()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // ends with ctx
	defer running.Wait()
	defer cancel()
	same := func(what string) {
		t.Helper()
		consultest.Eventually(t, what, func(ctx context.Context) error {
			got, err := w.State(ctx)
			if err != nil {
				return err
			}
			want, err := c.Consistent().Load(ctx, cluster.NeedState)
			if err != nil {
				return err
			}
			for node, h := range want.Hosts {
				if !reflect.DeepEqual(got.Hosts[node], h) {
					return fmt.Errorf("%s is %+v, want %+v", node, got.Hosts[node], h)
				}
			}
			return nil
		})
	}
	same("first")
	register := func(node string, checks ...*consul.HealthCheck) {
		t.Helper()
		for _, check := range checks {
			check.Node = node
		}
		if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: node, Address: "10.0.0.1", SkipNodeUpdate: true, Checks: checks}); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(node, check string) {
		t.Helper()
		if err := s.Client().CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: node, CheckID: check}); err != nil {
			t.Fatal(err)
		}
	}
	asked := func() int { return proxy.Asked("/v1/internal/ui/nodes") }
	consultest.Eventually(t, "a state that does not read the catalog", func(ctx context.Context) error {
		before := asked()
		if _, err := w.State(ctx); err != nil {
			return err
		}
		if asked() != before {
			return errors.New("it did")
		}
		return nil
	})
	before := asked()
	register("node-03", &consul.HealthCheck{CheckID: "serfHealth", Status: "critical"})
	same("a host that is down")
	register("node-04", &consul.HealthCheck{CheckID: "_node_maintenance", Status: "critical", Notes: consul.JorcNote + " update"})
	same("a host in jorc's maintenance")
	register("node-05", &consul.HealthCheck{CheckID: "_node_maintenance", Status: "critical", Notes: "disk"})
	same("a host in maintenance by hand")
	register("node-06", &consul.HealthCheck{CheckID: "service:jorc-prod", ServiceID: "jorc-prod", ServiceName: "jorc", Status: "critical"})
	same("a host whose jorc does not answer")
	register("node-07", &consul.HealthCheck{CheckID: "disk", Status: "warning", Name: "disk"})
	same("a new check in warning")
	register("node-07", &consul.HealthCheck{CheckID: "disk", Status: "critical", Name: "disk"})
	same("the check is critical")
	register("node-07", &consul.HealthCheck{CheckID: "disk", Status: "passing", Name: "disk"})
	same("the check passes")
	register("node-03", &consul.HealthCheck{CheckID: "serfHealth", Status: "passing"})
	same("the host is back")
	drop("node-04", "_node_maintenance")
	drop("node-05", "_node_maintenance")
	same("no maintenance")
	// Consul itself may register its node once more shortly after its start.
	if more := asked() - before; more > 1 {
		t.Errorf("nine checks that changed made all services be read %d times", more)
	}
	clustertest.AddNode(t, s, "node-99", "passing", "passing")
	clustertest.Join(t, c, "node-99")
	same("a new host")
	if err := s.Client().CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: "node-03"}); err != nil {
		t.Fatal(err)
	}
	same("a host without a node in the catalog")
	s.Stop()
	s.Restart()
	same("after Consul's restart")
	register("node-08", &consul.HealthCheck{CheckID: "serfHealth", Status: "critical"})
	same("a host that is down afterwards")
}
