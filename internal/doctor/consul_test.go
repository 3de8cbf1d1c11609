package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// patience is long enough for a busy machine; impatience bounds questions that
// have no answer.
const (
	patience   = 30 * time.Second
	impatience = 100 * time.Millisecond
)

func optionsFor(t *testing.T, s *consultest.Server) doctor.Options {
	t.Helper()
	c, err := config.Load(nil, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Consul = s.Config()
	c.DNS.Addr = s.DNSAddr
	c.StateDir = t.TempDir()
	return doctor.Options{Config: c, Timeout: patience}
}

// wantStatus checks the outcomes of some checks; the others count only as far
// as they must not be there twice.
func wantStatus(t *testing.T, r doctor.Report, want map[string]doctor.Status) {
	t.Helper()
	for check, status := range want {
		found := false
		for _, f := range r.Findings {
			if f.Check != check {
				continue
			}
			found = true
			if f.Status != status {
				t.Errorf("%+v, want %s", f, status)
			}
			if status == doctor.Fail && f.Remedy == "" {
				t.Errorf("%+v: no remedy", f)
			}
		}
		if !found {
			t.Errorf("no finding for %s", check)
		}
	}
}

// TestExamineSlow: servers that answer late are slow, not unreachable.
func TestExamineSlow(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	p := s.Proxy()
	p.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Slow: 3 * time.Second} })
	o := optionsFor(t, s)
	o.Config.Consul = p.Config()
	r := doctor.Examine(t.Context(), p.Client(), o)
	if !r.Reachable {
		t.Error("Consul counts as unreachable")
	}
	wantStatus(t, r, map[string]doctor.Status{"consul_http": doctor.OK, "consul_leader": doctor.Warn, "node": doctor.OK})
	for _, f := range r.Findings {
		if f.Check == "consul_leader" && (!strings.Contains(f.Detail, "the servers are slow: the answer took ") || f.Remedy == "") {
			t.Errorf("got %+v", f)
		}
	}
}

func TestExamineHealthy(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := optionsFor(t, s)
	lock, err := durable.TryLock(filepath.Join(o.Config.StateDir, catalog.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	var status atomic.Int64
	status.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		fmt.Fprintln(w, "how it is")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	o.Config.HTTP.Addr = l.Addr().String()

	r := doctor.Examine(t.Context(), s.Client(), o)
	if !r.Reachable || r.Failed() {
		t.Errorf("got %+v", r)
	}
	wantStatus(t, r, map[string]doctor.Status{
		"consul_http": "ok", "consul_version": "ok", "consul_leader": "ok", "node": "ok",
		"dns_udp": "ok", "dns_tcp": "ok", "dns_agrees": "ok", "acl": "ok", "connections": "ok",
		"consul_settings": "warn", "clock": "ok", "token": "skip", "agent": "ok", "configuration": "skip",
	})
	status.Store(http.StatusServiceUnavailable)
	r = doctor.Examine(t.Context(), s.Client(), o)
	wantStatus(t, r, map[string]doctor.Status{"agent": "warn"})
	for _, f := range r.Findings {
		if f.Check == "agent" && !strings.Contains(f.Detail, "how it is") {
			t.Errorf("got %+v", f)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, doctor.Examine(t.Context(), s.Client(), o), map[string]doctor.Status{"agent": "warn"})

	o.Config.Node = "somebody-else"
	o.Config.DNS.Addr = "127.0.0.1:1"
	o.Config.Consul.MaxConnections = 500
	o.Problem = errors.New("jorc.hcl:1,2: wrong\n  more")
	o.Paths = []string{"jorc.hcl"}
	r = doctor.Examine(t.Context(), s.Client(), o)
	wantStatus(t, r, map[string]doctor.Status{
		"node": "fail", "dns_udp": "fail", "dns_tcp": "fail", "dns_agrees": "skip", "connections": "fail", "configuration": "fail",
	})
	if !r.Reachable || !r.Failed() {
		t.Errorf("got %+v", r)
	}
}

func TestExamineRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	o := optionsFor(t, s)
	o.Paths = []string{"jorc.hcl"}
	for i := range 70 { // more than Consul answers for at once
		o.Config.Services = append(o.Config.Services, config.Service{Name: fmt.Sprintf("svc-%d", i)})
	}
	o.Config.Services = append(o.Config.Services, config.Service{Name: "web"})
	o.Config.Templates = []config.Template{{Name: "t", Contents: `{{ ls "conf/a" }}{{ services }}{{ nodes }}`}}
	acl := func(rules string) (missing []string) {
		t.Helper()
		for _, f := range doctor.Examine(t.Context(), s.ClientWithToken(s.NewToken(rules)), o).Findings {
			if f.Check == "acl" && f.Status != doctor.OK {
				missing = append(missing, string(f.Status)+": "+f.Remedy)
			}
		}
		return missing
	}
	all := `agent_prefix "" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }
		service_prefix "svc-" { policy = "write" } service "jorc" { policy = "write" } service "web" { policy = "write" } key_prefix "conf/" { policy = "read" }`
	if got := acl(all); len(got) != 0 {
		t.Errorf("all rights: %v", got)
	}
	got := acl(strings.Replace(strings.Replace(all, `service "web" { policy = "write" }`, "", 1), "agent_prefix", "key_prefix", 1))
	want := []string{`fail: grant service "web" { policy = "write" }`, `warn: grant agent_prefix "" { policy = "read" }`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}

	// Rights that are missing altogether: nothing is called unreachable.
	r := doctor.Examine(t.Context(), s.ClientWithToken(""), o)
	wantStatus(t, r, map[string]doctor.Status{
		"consul_http": "ok", "consul_version": "skip", "consul_leader": "ok", "node": "skip", "dns_agrees": "skip",
		"connections": "skip", "clock": "ok", "dns_udp": "ok", "dns_tcp": "ok",
	})
	if !r.Reachable || !r.Failed() {
		t.Errorf("without a token: %+v", r)
	}
	const unknown = "99999999-0000-0000-0000-000000000000"
	r = doctor.Examine(t.Context(), s.ClientWithToken(unknown), o)
	wantStatus(t, r, map[string]doctor.Status{"consul_http": "fail", "acl": "skip", "node": "skip", "consul_leader": "ok"})
	if !r.Reachable || strings.Contains(fmt.Sprint(r), unknown) {
		t.Errorf("with a token that is not known: %+v", r)
	}
}

// away runs the questions against a Consul that does not answer.
func away(t *testing.T, s *consultest.Server) {
	t.Helper()
	o := optionsFor(t, s)
	o.Timeout = impatience
	r := doctor.Examine(t.Context(), s.Client(), o)
	if r.Reachable || !r.Failed() {
		t.Errorf("got %+v", r)
	}
	wantStatus(t, r, map[string]doctor.Status{
		"consul_http": "fail", "consul_leader": "skip", "dns_udp": "fail", "dns_tcp": "fail", "acl": "skip", "clock": "skip", "agent": "warn",
	})
	if _, err := doctor.Ping(t.Context(), s.Client(), s.HTTPAddr, impatience); !errors.Is(err, consul.ErrUnreachable) || !strings.Contains(err.Error(), s.HTTPAddr) {
		t.Errorf("ping: %v", err)
	}
	if _, err := doctor.Health(t.Context(), s.Client(), doctor.HealthOptions{Timeout: impatience}); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("health: %v", err)
	}
}

func TestConsulAway(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	s.Freeze()
	away(t, s)
	s.Thaw()
	s.Stop()
	away(t, s)
}

// TestNoLeader: the findings distinguish an agent whose servers have no leader from
// one that does not answer, and compare a follower's clock with the leader's.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	c := servers[0].Client()
	o := optionsFor(t, servers[0])
	var r doctor.Report
	consultest.Eventually(t, "all servers in the catalog", func(ctx context.Context) error {
		r = doctor.Examine(ctx, c, o)
		for _, f := range r.Findings {
			if f.Check == "dns_agrees" && f.Status != "ok" { // a server that has just joined
				return errors.New(f.Detail)
			}
		}
		return nil
	})
	wantStatus(t, r, map[string]doctor.Status{"consul_leader": "ok", "clock": "ok", "dns_agrees": "ok", "consul_settings": "ok"})
	servers[1].Kill()
	servers[2].Kill()
	consultest.Eventually(t, "the leader to be missed", func(ctx context.Context) error {
		p, err := doctor.Ping(ctx, c, servers[0].HTTPAddr, patience)
		if errors.Is(err, consul.ErrUnreachable) && p.Node == servers[0].Node && p.Leader == "" && strings.Contains(err.Error(), "knows no leader") {
			return nil
		}
		return fmt.Errorf("%+v, %w", p, err)
	})
	r = doctor.Examine(t.Context(), c, o)
	wantStatus(t, r, map[string]doctor.Status{"consul_http": "ok", "consul_leader": "fail"})
	if !r.Reachable {
		t.Errorf("the agent answers: %+v", r)
	}
}

func TestPingRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	p, err := doctor.Ping(t.Context(), s.Client(), s.HTTPAddr, patience)
	if err != nil || p.Node != s.Node || p.Datacenter != "dc1" || p.Version == "" || p.Leader != s.IP+":8300" {
		t.Errorf("all rights: %+v, %v", p, err)
	}
	p, err = doctor.Ping(t.Context(), s.ClientWithToken(""), s.HTTPAddr, patience)
	if err != nil || p.Node != "" || p.Leader == "" {
		t.Errorf("no rights: %+v, %v", p, err)
	}
	if _, err := doctor.Ping(t.Context(), s.ClientWithToken("99999999-0000-0000-0000-000000000000"), s.HTTPAddr, patience); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("unknown token: %v", err)
	}
	conf := s.Config()
	conf.TokenFile, conf.Token = filepath.Join(t.TempDir(), "none"), ""
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := doctor.Ping(t.Context(), c, s.HTTPAddr, patience); !errors.Is(err, consul.ErrDenied) || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("no token file: %v", err)
	}
}

func TestHealthRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{
		ID: "web", Name: "web", Checks: []*consul.ServiceCheck{{CheckID: "web", TTL: "1h", Status: consul.HealthPassing}},
	})
	if err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the check in the catalog", func(ctx context.Context) error {
		h, err := doctor.Health(ctx, s.Client(), doctor.HealthOptions{Timeout: patience})
		if err == nil && h.Total != 2 {
			err = fmt.Errorf("%+v", h)
		}
		return err
	})
	node := `node_prefix "" { policy = "read" }`
	for _, test := range []struct {
		name, rules string
		o           doctor.HealthOptions
		hidden      bool
		err         error
	}{
		{"all", node + `agent_prefix "" { policy = "read" } service "web" { policy = "read" }`, doctor.HealthOptions{}, false, nil},
		{"no agent:read", node, doctor.HealthOptions{}, false, consul.ErrDenied},
		{"named", node + `service "web" { policy = "read" }`, doctor.HealthOptions{Node: s.Node}, false, nil},
		{"no service:read", node, doctor.HealthOptions{Node: s.Node}, true, nil},
		{"no such node", node, doctor.HealthOptions{Node: "none"}, false, consul.ErrNotFound},
		{"no token", "", doctor.HealthOptions{Node: s.Node, Anonymous: true}, true, nil},
	} {
		c := s.ClientWithToken("")
		if !test.o.Anonymous {
			c = s.ClientWithToken(s.NewToken(test.rules))
		}
		test.o.Timeout = patience
		h, err := doctor.Health(t.Context(), c, test.o)
		if !errors.Is(err, test.err) || h.Hidden != test.hidden || test.err == nil && !h.Healthy {
			t.Errorf("%s: %+v, %v", test.name, h, err)
		}
	}
}

// TestExamineRollout: a rollout that waits for an orchestrator is reported, and
// one that needs none is not.
func TestExamineRollout(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := optionsFor(t, s)
	o.Config.Prefix, o.Config.Cluster = "jorc", "default"
	found := func(doing string, want doctor.Status) {
		t.Helper()
		got := doctor.Status("")
		for _, f := range doctor.Examine(t.Context(), s.Client(), o).Findings {
			if f.Check == "orchestrator" {
				got = f.Status
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", doing, got, want)
		}
	}
	c := fleet.New(s.Client(), "jorc", "default")
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Join(t.Context(), s.Node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	rollouts := rollout.New(s.Client(), "jorc", "default")
	trigger := func(version string, policy func(*pace.Policy)) {
		t.Helper()
		if _, err := rollouts.Trigger(t.Context(), rollout.Request{Version: version, Policy: policy}); err != nil {
			t.Fatal(err)
		}
	}
	found("no rollout", "")
	trigger("v1", nil)
	found("a rollout without a policy", "")
	trigger("v2", func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} })
	found("a rollout with a policy", doctor.Warn)
	lock, err := c.Store().Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release(t.Context()) }()
	found("with an orchestrator", doctor.OK)
}

// TestAdvice: a cluster of five members without a budget is advised to have one, and that is not a failure.
func TestAdvice(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := optionsFor(t, s)
	o.Config.Prefix, o.Config.Cluster = "jorc", "default"
	advised := func() (is bool) {
		t.Helper()
		for _, f := range doctor.Examine(t.Context(), s.Client(), o).Findings {
			is = is || f.Status == doctor.Advise && f.Check == "budget" && f.Remedy != ""
		}
		return is
	}
	c := fleet.New(s.Client(), "jorc", "default")
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "b", "c", "d"} {
		if _, err := c.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if advised() {
		t.Error("four members are advised to have a budget")
	}
	if _, err := c.Join(t.Context(), "e", func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	if !advised() {
		t.Error("five members without a budget are not advised to have one")
	}
	if (doctor.Report{Findings: []doctor.Finding{{Status: doctor.Advise}}}).Failed() {
		t.Error("advice is a failure")
	}
	if _, err := c.SetBudget(t.Context(), &pace.Budget{MaxOut: pace.Amount{N: 1}}); err != nil {
		t.Fatal(err)
	}
	if advised() {
		t.Error("a cluster with a budget is advised to have one")
	}
}
