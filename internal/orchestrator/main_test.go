package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
)

// orchestrateOn, set to the address of a Consul, makes the test's program an
// orchestrator until it is ended; sinkTo and secretIn give it a webhook.
const (
	orchestrateOn = "ORCHESTRATOR_TEST_ON"
	sinkTo        = "ORCHESTRATOR_TEST_SINK"
	secretIn      = "ORCHESTRATOR_TEST_SECRET"
	grantOn       = "ORCHESTRATOR_TEST_GRANTS" // not empty: it grants hosts something
)

// sendTo, set to a path, makes the test's program send one event to a file there
// which may have sendLimit bytes at most, and print what came of it.
const (
	sendTo    = "ORCHESTRATOR_TEST_FILE"
	sendLimit = "ORCHESTRATOR_TEST_FILE_LIMIT"
)

func sendLimited(path string) {
	limit, err := strconv.ParseUint(os.Getenv(sendLimit), 10, 64)
	if err == nil {
		signal.Ignore(consultest.FileSizeSignal)
		err = consultest.LimitFiles(limit)
	}
	if err == nil {
		err = orchestrator.FileSink{Path: path}.Send(context.Background(), "prod", events(2))
	}
	fmt.Println(err)
}

func TestMain(m *testing.M) {
	if path := os.Getenv(sendTo); path != "" {
		sendLimited(path)
		return
	}
	if address := os.Getenv(orchestrateOn); address != "" {
		client, err := consul.New(config.Consul{Address: address})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		o := quick(client)
		o.Node, o.Log = fmt.Sprintf("process-%d", os.Getpid()), hclog.Default()
		o.Lock.TTL = time.Second // others take over soon
		if hook := os.Getenv(sinkTo); hook != "" {
			o.Sinks = []orchestrator.Sink{orchestrator.NewWebhookSink(hook, os.Getenv(secretIn))}
		}
		o.Grants = os.Getenv(grantOn) != ""
		_ = orchestrator.New(o).Run(context.Background()) // it is killed
		return
	}
	os.Exit(consultest.Main(m))
}

// quick are options with which a cycle follows soon. The lock is kept also when Consul does not answer for a while.
func quick(c *consul.Client) orchestrator.Options {
	return orchestrator.Options{
		Client: c, Prefix: "jorc", Cluster: "prod", Node: "boss", Interval: time.Second,
		Lock: kv.LeaseOptions{TTL: time.Minute, LockDelay: -1},
	}
}

// site is a Consul with one cluster.
type site struct {
	t        testing.TB
	server   *consultest.Server
	client   *consul.Client
	cluster  *fleet.Cluster
	store    *kv.Store
	ledger   *fleet.Cluster
	rollouts *rollout.Rollouts
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, server: consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"}))}
	s.client = s.server.Client()
	s.cluster, s.store, s.ledger = fleet.New(s.client, "jorc", "prod"), kv.New(s.client, "jorc/prod"), fleet.New(s.client, "jorc", "prod")
	s.rollouts = rollout.New(s.client, "jorc", "prod")
	s.must(s.cluster.Init(t.Context(), fleet.InitOptions{}))
	return s
}

func (s *site) must(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) join(node string, roles ...string) {
	s.t.Helper()
	s.must(s.cluster.Join(s.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles = roles
		return r, nil
	}))
}

// host puts a node into the catalog as if agents of Consul and jorc ran there,
// with a service "web".
func (s *site) host(node, address, gossip, web string) {
	s.t.Helper()
	s.server.Bystanders(node)
	s.must(nil, s.client.CatalogRegister(s.t.Context(), &consul.CatalogRegistration{
		Node: node, Address: address, Service: &consul.AgentService{ID: "jorc-prod", Service: "jorc"},
		Checks: consul.HealthChecks{
			{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: gossip},
			{Node: node, CheckID: "service:jorc-prod", ServiceID: "jorc-prod", ServiceName: "jorc", Status: "passing"},
		},
	}))
	s.must(nil, s.client.CatalogRegister(s.t.Context(), &consul.CatalogRegistration{
		Node: node, SkipNodeUpdate: true, Service: &consul.AgentService{ID: "web", Service: "web"},
		Checks: consul.HealthChecks{{Node: node, CheckID: "web", ServiceID: "web", ServiceName: "web", Status: web}},
	}))
}

func (s *site) put(key, value string) {
	s.t.Helper()
	s.must(nil, s.client.KVPut(s.t.Context(), &consul.KVPair{Key: s.store.Path(key), Value: []byte(value)}))
}

// start runs an orchestrator until the returned function is called.
func (s *site) start(o orchestrator.Options) (*orchestrator.Orchestrator, func()) {
	s.t.Helper()
	orch := orchestrator.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := orch.Run(ctx); err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return orch, stop
}

func (s *site) eventually(what string, check func() error) {
	s.t.Helper()
	consultest.Eventually(s.t, what, func(context.Context) error { return check() })
}

func (s *site) events() []orchestrator.Event {
	s.t.Helper()
	events, _, err := orchestrator.ReadEvents(s.t.Context(), s.store, 0, 0)
	s.must(nil, err)
	return events
}

// wantEvents waits for events, each "kind" or "kind node", in any order, that
// were not told before, and no others; it returns them.
func (s *site) wantEvents(after int, want ...string) []orchestrator.Event {
	s.t.Helper()
	slices.Sort(want)
	var found []orchestrator.Event
	s.eventually(fmt.Sprintf("events %v", want), func() error {
		events := s.events()
		found = events[min(after, len(events)):]
		var got []string
		for _, e := range found {
			name := e.Kind
			switch {
			case e.Node != "":
				name += " " + e.Node
			case e.Service != "":
				name += " " + e.Service
			}
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	return found
}

func (s *site) view() orchestrator.View {
	s.t.Helper()
	saved, err := orchestrator.ReadView(s.t.Context(), s.store)
	s.must(nil, err)
	return saved.View
}

// index is the number of Consul's last write anywhere in the KV.
func (s *site) index() uint64 {
	s.t.Helper()
	_, meta, err := s.client.KVList(s.t.Context(), "", consul.Query{Consistent: true})
	s.must(nil, err)
	return meta.Index
}

func (s *site) reports() []orchestrator.Report {
	s.t.Helper()
	all, err := orchestrator.ReadReports(s.t.Context(), s.store)
	s.must(nil, err)
	return all
}

// cyclesPass waits until n more cycles are over.
func (s *site) cyclesPass(o *orchestrator.Orchestrator, n uint64) {
	s.t.Helper()
	begin := o.Status().Cycles
	s.eventually(fmt.Sprintf("%d cycles", n), func() error {
		if now := o.Status().Cycles; now < begin+n {
			return fmt.Errorf("%d are over", now-begin)
		}
		return nil
	})
}

var errEventsPending = errors.New("not yet")
