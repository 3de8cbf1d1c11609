package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// gatekeeper stands between clients and Consul: it counts requests and writes,
// and does to them what a test says.
type gatekeeper struct {
	mu               sync.Mutex
	requests, writes int
	// fault may answer a request by itself, and returns true then.
	fault func(w http.ResponseWriter, r *http.Request, body []byte) bool
}

func (g *gatekeeper) do(fault func(http.ResponseWriter, *http.Request, []byte) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = fault
}

func (g *gatekeeper) take() (requests, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	requests, writes = g.requests, g.writes
	g.requests, g.writes = 0, 0
	return requests, writes
}

// besideRollouts reports whether a request belongs to the start of an agent or to
// the election of leaders, which may still be running when a test counts.
func besideRollouts(path string, body []byte) bool {
	for _, part := range []string{"/v1/internal/", "/v1/catalog/", "/v1/health/", "/v1/session/", "/elect/", "/leaders", "/profile"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return strings.HasSuffix(path, "/default/host/") || bytes.Contains(body, []byte("/elect/lock")) || bytes.Contains(body, []byte("/member"))
}

func writing(body []byte) bool {
	for _, verb := range []string{`"Verb":"cas"`, `"Verb":"set"`, `"Verb":"delete"`, `"Verb":"delete-cas"`} {
		if bytes.Contains(body, []byte(verb)) {
			return true
		}
	}
	return false
}

// client returns a client that passes the gatekeeper.
func (g *gatekeeper) client(f *grantFleet) *consul.Client {
	f.t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: f.server.HTTPAddr})
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.mu.Lock()
		fault := g.fault
		if !besideRollouts(r.URL.Path, body) {
			g.requests++
		}
		if writing(body) {
			g.writes++
		}
		g.mu.Unlock()
		if fault == nil || !fault(w, r, body) {
			proxy.ServeHTTP(w, r)
		}
	}))
	f.t.Cleanup(front.Close)
	f.t.Cleanup(front.CloseClientConnections)
	conf := f.server.Config()
	conf.Address = strings.TrimPrefix(front.URL, "http://")
	c, err := consul.New(conf)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// grantFleet is a Consul, simulated hosts and an orchestrator, all in this process.
type grantFleet struct {
	t       *testing.T
	server  *consultest.Server
	client  *consul.Client
	hosts   map[string]*grantHost
	toHosts *gatekeeper

	mu   sync.Mutex
	out  map[string]bool // hosts in maintenance
	most int             // of them at the same time
}

type grantHost struct {
	fleet *grantFleet
	name  string
	role  string
	dir   string
	stop  func()
	// orchestrator makes the host a candidate; begins, if not nil, is called as it enters maintenance.
	orchestrator *config.Orchestrator
	begins       func()
	boot         string // of its kernel
	booted       time.Time
	simulated    *agent.Simulated
}

// Begin implements converge.Maintenance.
func (h *grantHost) Begin(context.Context, string) error {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	if h.begins != nil && !h.fleet.out[h.name] {
		h.begins()
	}
	h.fleet.out[h.name] = true
	h.fleet.most = max(h.fleet.most, len(h.fleet.out))
	return nil
}

// Lift implements converge.Maintenance.
func (h *grantHost) Lift(context.Context) error {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	delete(h.fleet.out, h.name)
	return nil
}

// newGrantFleet starts n hosts that run v1; they converge to another version
// when there is a file with its name in their directory.
func newGrantFleet(t *testing.T, n int, requires ...config.Requires) *grantFleet {
	t.Helper()
	f := &grantFleet{
		t: t, server: consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"})),
		hosts: map[string]*grantHost{}, out: map[string]bool{}, toHosts: &gatekeeper{},
	}
	f.client = f.server.Client()
	if _, err := fleet.New(f.client, "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.rollouts().Trigger(t.Context(), rollout.Request{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	through := f.toHosts.client(f)
	for i := range n {
		h := &grantHost{fleet: f, name: fmt.Sprint("h", i), role: []string{"db", "web"}[min(i, 1)], dir: t.TempDir(), boot: "b", booted: time.Now()}
		f.hosts[h.name] = h
		id := catalog.PresenceID("default")
		err := f.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: h.name, Address: "10.0.0.1", Service: &consul.AgentService{ID: id, Service: "jorc"},
			Checks: consul.HealthChecks{
				{Node: h.name, CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: "passing"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.open("v1")
		h.start(through, requires)
	}
	f.eventually("all to run v1", func() error { return f.at("v1") })
	return f
}

// open lets the host converge to a version.
func (h *grantHost) open(version string) {
	h.fleet.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, version), nil, 0o600); err != nil {
		h.fleet.t.Fatal(err)
	}
}

// clock is what the host's clocks say.
func (h *grantHost) clock() durable.Reading {
	return durable.Reading{Wall: time.Now().UTC(), Boot: h.boot, Uptime: time.Since(h.booted)}
}

func (h *grantHost) start(client *consul.Client, requires []config.Requires) {
	h.fleet.t.Helper()
	state := filepath.Join(h.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		h.fleet.t.Fatal(err)
	}
	script := "echo $JORC_VERSION >>" + h.dir + "/begun; until [ -e " + h.dir + "/$JORC_VERSION ]; do sleep 0.02; done"
	s, err := agent.Simulate(agent.SimulatedOptions{Client: client, Maintenance: h, LeastHealthy: 100 * time.Millisecond, Clock: h.clock, Log: testLog(h.name), Config: &config.Config{
		Cluster: "default", Prefix: "jorc", Node: h.name, StateDir: state, VersionFile: filepath.Join(state, "version"),
		DNS: config.DNS{Addr: h.fleet.server.DNSAddr}, Member: &config.Member{Roles: []string{h.role}}, Static: &config.Static{Workflow: "converge"}, Requires: requires,
		Orchestrator: h.orchestrator,
		Workflows: []config.Workflow{
			{Name: "converge", Tasks: []config.Task{{Name: "wait", Command: []string{"sh", "-c", script}, Idempotent: true}}},
			{Name: "patch", Disturbs: true, Tasks: []config.Task{{Name: "wait", Command: []string{"sh", "-c", "until [ -e " + h.dir + "/patch ]; do sleep 0.02; done"}, Idempotent: true}}},
			{Name: "look", Tasks: []config.Task{{Name: "look", Command: []string{"true"}}}},
		},
	}})
	if err != nil {
		h.fleet.t.Fatal(err)
	}
	h.simulated = s
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			h.fleet.t.Error(err)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	h.fleet.t.Cleanup(h.stop)
}

// testLog logs to stderr when GRANTS_TEST_LOG is set.
func testLog(name string) hclog.Logger {
	if os.Getenv("GRANTS_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Output: os.Stderr, Level: hclog.Debug})
}

// begun are the versions with which the host began.
func (h *grantHost) begun() []string {
	data, _ := os.ReadFile(filepath.Join(h.dir, "begun")) // it may not be there yet
	return strings.Fields(string(data))
}

// orchestrate starts an orchestrator whose requests pass the gatekeeper, which may
// be nil.
func (f *grantFleet) orchestrate(name string, g *gatekeeper) (stop func()) {
	f.t.Helper()
	client := f.client
	if g != nil {
		client = g.client(f)
	}
	o := orchestrator.New(orchestrator.Options{
		Client: client, Prefix: "jorc", Cluster: "default", Node: name, Interval: time.Second, Grants: true, Quiet: time.Second, Log: testLog(name),
		Lock: kv.LeaseOptions{TTL: time.Second, LockDelay: -1},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := o.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.t.Cleanup(stop)
	return stop
}

func (f *grantFleet) rollouts() *rollout.Rollouts { return rollout.New(f.client, "jorc", "default") }

func (f *grantFleet) eventually(what string, check func() error) {
	f.t.Helper()
	consultest.Eventually(f.t, what, func(context.Context) error { return check() })
}

// at returns an error unless all hosts report a version.
func (f *grantFleet) at(version string) error {
	for name := range f.hosts {
		if d := f.report(name); d.Version != version {
			return fmt.Errorf("%s is at %q: %+v", name, d.Version, d.Answered(cluster.VersionChange))
		}
	}
	return nil
}

func (f *grantFleet) report(name string) cluster.Report {
	f.t.Helper()
	d, _, err := fleet.New(f.client, "jorc", "default").Report(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// accepted are the hosts that are out of service for a grant.
func (f *grantFleet) accepted() (names []string) {
	for name := range f.hosts {
		if f.report(name).Answered(cluster.VersionChange).Open() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// atWork waits until exactly n hosts are at work on a version, and returns them.
func (f *grantFleet) atWork(version string, n int) (names []string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%d hosts to be at work on %s", n, version), func() error {
		names = nil
		for _, name := range f.accepted() {
			if slices.Contains(f.hosts[name].begun(), version) {
				names = append(names, name)
			}
		}
		if len(names) != n {
			return fmt.Errorf("%v are; the rollout: %s", names, f.show())
		}
		return nil
	})
	return names
}

func (f *grantFleet) show() string {
	s, err := f.rollouts().Show(f.t.Context())
	return fmt.Sprintf("%s, %+v, grants %+v, failed %+v, waits for %v, %v", s.StateText(), s.Now, s.Grants, s.Failed, s.Waits, err)
}

func (f *grantFleet) trigger(version string, policy func(*pace.Policy)) {
	f.t.Helper()
	if _, err := f.rollouts().Trigger(f.t.Context(), rollout.Request{Version: version, Policy: policy}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *grantFleet) openAll(version string) {
	for _, h := range f.hosts {
		h.open(version)
	}
}

// done waits until the rollout of a version is done, and all hosts run it.
func (f *grantFleet) done(version string) {
	f.t.Helper()
	f.eventually("the rollout to be done", func() error {
		s, err := f.rollouts().Show(f.t.Context())
		if err == nil && (s.Phase != pace.Done || s.Version != version || len(s.Grants) > 0) {
			err = errors.New(f.show())
		}
		return err
	})
	if err := f.at(version); err != nil {
		f.t.Error(err)
	}
}

// neverMore fails the test if more than most hosts were in maintenance at the same
// time.
func (f *grantFleet) neverMore(most int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > most {
		f.t.Errorf("%d hosts were out of service at the same time, want at most %d", f.most, most)
	}
}

func atOnce(n int) func(*pace.Policy) {
	return func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: n} }
}

// TestGrantsPace: as many hosts as the policy allows work at the same time, and the
// cost of a version, a run and a lease for each of them does not grow with their number.
func TestGrantsPace(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 6)
	f.orchestrate("boss", nil)
	f.toHosts.take()
	cost := func(kind string, mostWrites int) {
		t.Helper()
		requests, writes := f.toHosts.take()
		t.Logf("%s: for each of %d hosts %.1f requests, %.1f of them writes", kind, len(f.hosts), float64(requests)/6, float64(writes)/6)
		if requests > 12*6 || writes > mostWrites {
			t.Errorf("%s: 6 hosts made %d requests, %d of them writes; want at most 72 and %d", kind, requests, writes, mostWrites)
		}
	}
	f.trigger("v2", atOnce(2))
	f.atWork("v2", 2)
	f.openAll("v2")
	f.done("v2")
	f.neverMore(2)
	cost("a version", 2*6+3) // a host whose checks are not known to pass yet writes its report apart

	for _, h := range f.hosts {
		h.open("patch")
	}
	f.ask("p1", runs.Request{Workflow: "patch"})
	f.wantRun("p1", "to be done", ended(runs.Done))
	cost("a run", 2*6)

	for _, h := range f.hosts {
		h.asks(lease.Request{ID: "a"}).ready()
		h.endLease("a")
	}
	f.eventually("reports without leases", func() error {
		for name := range f.hosts {
			if d := f.report(name); d.Lease != nil {
				return fmt.Errorf("%s: %+v", name, d.Lease)
			}
		}
		return nil
	})
	cost("a lease", 4*6) // it is asked for and ended, too
}

// grants reports whether a transaction is about what is granted to a host.
func grants(body []byte) bool {
	return bytes.Contains(body, []byte("/host/")) && bytes.Contains(body, []byte("/grants\""))
}

// TestGrantsDelayed: an offering transaction that is carried out only after the
// one that replaced it offers nothing.
func TestGrantsDelayed(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	g := &gatekeeper{}
	var mu sync.Mutex
	var late []byte
	g.do(func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if late == nil && strings.HasPrefix(r.URL.Path, "/v1/txn") && grants(body) && writing(body) {
			late = body
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		return false
	})
	f.orchestrate("boss", g)
	f.trigger("v2", atOnce(1))
	first := f.atWork("v2", 1)
	mu.Lock()
	body := late
	mu.Unlock()
	f.arriveLate(body)
	if got := f.atWork("v2", 1); !slices.Equal(got, first) {
		t.Errorf("%v are at work beside %v", got, first)
	}
	f.openAll("v2")
	f.done("v2")
	f.neverMore(1)
}

// arriveLate sends a transaction that was held up to Consul, which must not carry it out.
func (f *grantFleet) arriveLate(body []byte) {
	f.t.Helper()
	f.arrives(body, http.StatusConflict)
}

// arrives sends a transaction that was held up, and expects Consul to answer with a status.
func (f *grantFleet) arrives(body []byte, want int) {
	f.t.Helper()
	if body == nil {
		f.t.Fatal("no transaction was held up")
	}
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut, "http://"+f.server.HTTPAddr+"/v1/txn", bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body) // it is for the message only
	_ = response.Body.Close()
	if response.StatusCode != want {
		f.t.Errorf("the late transaction: %s: %s", response.Status, text)
	}
}

// TestGrantsAcceptedLate: an acceptance without an answer, which arrives in Consul when the
// host has accepted again, or may no longer accept, changes nothing. The host begins once.
func TestGrantsAcceptedLate(t *testing.T) {
	t.Parallel()
	for name, voided := range map[string]bool{"accepted again": false, "the offer is void": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGrantFleet(t, 2)
			var mu sync.Mutex
			var late []byte
			f.toHosts.do(func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				if late != nil || !writing(body) || !bytes.Contains(body, []byte("check-session")) || besideRollouts(r.URL.Path, body) {
					return false
				}
				late = body
				if voided {
					if _, err := fleet.New(f.client, "jorc", "default").Pause(t.Context(), cluster.Hold{By: "ann"}); err != nil {
						t.Error(err)
					}
				}
				http.Error(w, "a fault of the test", http.StatusInternalServerError)
				return true
			})
			f.orchestrate("boss", nil)
			f.trigger("v2", atOnce(1))
			if voided {
				f.eventually("the acceptance", func() error {
					mu.Lock()
					defer mu.Unlock()
					if late == nil {
						return errors.New("none")
					}
					return nil
				})
				f.arriveLate(late)
				if got := f.accepted(); len(got) > 0 {
					t.Errorf("%v accepted while the cluster is paused", got)
				}
				if _, err := fleet.New(f.client, "jorc", "default").Resume(t.Context()); err != nil {
					t.Error(err)
				}
			}
			first := f.atWork("v2", 1)
			if !voided {
				f.arriveLate(late)
			}
			f.openAll("v2")
			f.done("v2")
			f.neverMore(1)
			for _, h := range f.hosts {
				if got := h.begun(); !slices.Equal(got, []string{"v1", "v2"}) {
					t.Errorf("%s began with %v; first at work: %v", h.name, got, first)
				}
			}
		})
	}
}

// TestGrantsTakeOver: orchestrators that die in each phase of a grant: another
// one continues, and never are more hosts out of service than the policy allows.
func TestGrantsTakeOver(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	dead := func(http.ResponseWriter, *http.Request, []byte) bool { panic(http.ErrAbortHandler) }
	run := 0
	// dies starts an orchestrator that can no longer reach Consul after the request
	// that at matches.
	dies := func(at func(r *http.Request, body []byte) bool) *gatekeeper {
		run++
		g := &gatekeeper{}
		g.do(func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if at(r, body) {
				g.do(dead)
				return dead(w, r, body)
			}
			return false
		})
		f.orchestrate(fmt.Sprint("boss", run), g)
		return g
	}
	isTxn := func(r *http.Request, body []byte, what string) bool {
		return strings.HasPrefix(r.URL.Path, "/v1/txn") && writing(body) && bytes.Contains(body, []byte(what))
	}
	f.trigger("v2", func(p *pace.Policy) {
		p.Canary, p.MaxParallel, p.MinHealthy = 1, pace.Amount{N: 2}, pace.Duration(50*time.Millisecond)
	})
	// before the first phase; before the first offer
	dies(func(r *http.Request, body []byte) bool {
		return isTxn(r, body, "/changes/version/state") && isTxn(r, body, "/orchestrate/decided/")
	})
	dies(func(r *http.Request, body []byte) bool { return isTxn(r, body, "") && grants(body) })
	// while a host is at work
	g := dies(func(*http.Request, []byte) bool { return false })
	canary := f.atWork("v2", 1)
	g.do(dead)
	f.hosts[canary[0]].open("v2")
	f.eventually("the canary to end its grant without an orchestrator", func() error {
		if d := f.report(canary[0]); d.Version != "v2" || d.Answered(cluster.VersionChange).State != cluster.GrantDone {
			return fmt.Errorf("it is at %s: %+v", d.Version, d.Answered(cluster.VersionChange))
		}
		return nil
	})
	// after the canary; while two are at work
	dies(func(r *http.Request, body []byte) bool { return isTxn(r, body, "") && grants(body) })
	g = dies(func(*http.Request, []byte) bool { return false })
	f.atWork("v2", 2)
	g.do(dead)
	f.orchestrate("last", nil)
	f.openAll("v2")
	f.done("v2")
	f.neverMore(2)
}

// TestGrantsSuperseded: a host that is at work when another version is triggered
// does not begin with that unless the policy in force lets it, and takes the place
// that it has until an operator gives up on it.
func TestGrantsSuperseded(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.orchestrate("boss", nil)
	f.trigger("v2", atOnce(1))
	first := f.hosts[f.atWork("v2", 1)[0]]
	f.trigger("v3", func(p *pace.Policy) {
		p.MaxParallel, p.Order = pace.Amount{N: 1}, []pace.Role{{Name: first.role, Kept: true}}
		if first.role == "web" {
			p.Order = append(p.Order, pace.Role{Name: "db"})
		} else {
			p.Order = append(p.Order, pace.Role{Name: "web"})
		}
	})
	first.open("v2")
	f.openAll("v3")
	f.eventually("the host to be stranded, or done with what it began", func() error {
		d := f.report(first.name)
		if d.Answered(cluster.VersionChange).State != cluster.GrantStranded && d.Answered(cluster.VersionChange).State != cluster.GrantDone {
			return fmt.Errorf("it says %+v", d.Answered(cluster.VersionChange))
		}
		return nil
	})
	if f.report(first.name).Answered(cluster.VersionChange).State == cluster.GrantStranded {
		if _, err := f.rollouts().GiveUp(t.Context(), first.name, "ann", "test"); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the others to run v3", func() error {
		for name, h := range f.hosts {
			if d := f.report(name); h.role != first.role && d.Version != "v3" {
				return fmt.Errorf("%s is at %s: %s", name, d.Version, f.show())
			}
		}
		return nil
	})
	if got := first.begun(); slices.Contains(got, "v3") {
		t.Errorf("%s began with %v, and the policy keeps its role back", first.name, got)
	}
}

// TestGrantsWiped: a host that loses its disk while it has a grant says so: that
// is a failure, and the host tries again by itself.
func TestGrantsWiped(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.orchestrate("boss", nil)
	f.trigger("v2", atOnce(1))
	h := f.hosts[f.atWork("v2", 1)[0]]
	h.stop()
	if err := os.RemoveAll(filepath.Join(h.dir, "state")); err != nil {
		t.Fatal(err)
	}
	h.start(f.client, nil)
	f.eventually("the rollout to be paused", func() error {
		s, err := f.rollouts().Show(t.Context())
		if err == nil && (s.Stopped == nil || !strings.Contains(s.Stopped.Reason, h.name+": the host lost its record of the grant")) {
			err = errors.New(f.show())
		}
		return err
	})
	if got := f.accepted(); !slices.Equal(got, []string{h.name}) {
		t.Errorf("%v have grants, want %s only", got, h.name)
	}
	f.openAll("v2")
	if _, _, err := f.rollouts().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.done("v2")
	f.neverMore(1)
}

// TestGrantsCannotBegin: hosts that cannot begin decline with the reason and take
// no place; once they can they say so and are offered another grant.
func TestGrantsCannotBegin(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	hold := func(h *grantHost) string { return filepath.Join(h.dir, "state", "hold") }
	held := []*grantHost{f.hosts["h0"], f.hosts["h1"]}
	for _, h := range held {
		if err := os.WriteFile(hold(h), []byte("disks are replaced"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the hosts to notice the file", func() error {
		for _, h := range held {
			if d := f.report(h.name); d.HeldByFile() == "" {
				return fmt.Errorf("%s reports %+v", h.name, d)
			}
		}
		return nil
	})
	f.orchestrate("boss", nil)
	f.openAll("v2")
	f.trigger("v2", atOnce(1))
	f.eventually("the others to run v2, and those that cannot to say why", func() error {
		if v := f.report("h2").Version; v != "v2" {
			return fmt.Errorf("h2 is at %s: %s", v, f.show())
		}
		for _, h := range held {
			why, err := f.rollouts().Why(t.Context(), h.name)
			if err != nil || len(why) == 0 || !strings.Contains(why[0].Detail, "it cannot begin: held by the file") || !strings.Contains(why[0].Detail, "disks are replaced") {
				return fmt.Errorf("%s waits for %+v, %v", h.name, why, err)
			}
		}
		return nil
	})
	for _, h := range held {
		if got := h.begun(); slices.Contains(got, "v2") {
			t.Errorf("%s began with %v", h.name, got)
		}
		if err := os.Remove(hold(h)); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the held hosts to follow", func() error { return f.at("v2") })
	f.done("v2")
	f.neverMore(1)
}

// TestGrantsRestored: Consul's KV is restored from a snapshot of before hosts
// accepted their grants. They say what they are at, and count, before others begin.
func TestGrantsRestored(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	f.orchestrate("boss", nil)
	f.trigger("v2", atOnce(2))
	before := filepath.Join(t.TempDir(), "snapshot")
	f.server.Run("snapshot", "save", before)
	working := f.atWork("v2", 2)
	f.server.Run("snapshot", "restore", before)
	if got := f.atWork("v2", 2); !slices.Equal(got, working) {
		t.Errorf("%v are at work, want %v", got, working)
	}
	f.openAll("v2")
	f.done("v2")
	f.neverMore(2)
}

// TestGrantsImported: what hosts report, and their grants, are overwritten with
// what they were before, as an import does.
func TestGrantsImported(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	export := func(prefix string) consul.KVPairs {
		pairs, _, err := f.client.KVList(t.Context(), "jorc/default/"+prefix, consul.Query{Consistent: true})
		if err != nil {
			t.Fatal(err)
		}
		return pairs
	}
	before := append(export("nodes/"), export("host/")...)
	f.orchestrate("boss", nil)
	f.trigger("v2", atOnce(2))
	working := f.atWork("v2", 2)
	for _, p := range before {
		if err := f.client.KVPut(t.Context(), &consul.KVPair{Key: p.Key, Value: p.Value}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range working { // a grant that is not in the import is deleted by an import with --replace
		if err := f.client.KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/host/" + name + "/grants", Value: []byte(`{"format":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the hosts at work to say so again", func() error {
		for _, name := range working {
			if d := f.report(name); !d.Answered(cluster.VersionChange).Open() {
				return fmt.Errorf("%s says %+v", name, d.Answered(cluster.VersionChange))
			}
		}
		return nil
	})
	f.openAll("v2")
	f.done("v2")
}
