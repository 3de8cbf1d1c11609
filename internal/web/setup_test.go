package web

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/event"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}

// board is a source whose status a test sets.
type board struct {
	mu     sync.Mutex
	status Status
}

func (b *board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// server is one that runs on a port of its own until the test ends.
type server struct {
	*Server
	t      *testing.T
	client *http.Client
	stop   func() error // ends Run and returns its error
}

// start runs a server on 127.0.0.1, or on what change makes of its options.
func start(t *testing.T, source Source, change ...func(*Server)) *server {
	t.Helper()
	s := New(Options{Addr: "127.0.0.1:0", Source: source, Log: hclog.NewNullLogger()})
	for _, c := range change {
		c(s)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	transport := &http.Transport{}
	stop := sync.OnceValue(func() error {
		cancel()
		transport.CloseIdleConnections()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return &server{Server: s, t: t, client: &http.Client{Transport: transport}, stop: stop}
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *server) get(path string) answer { return s.do(http.MethodGet, path, "") }

// do sends a request; an empty host is the server's address.
func (s *server) do(method, path, host string) answer {
	s.t.Helper()
	a, err := s.try(method, path, host)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *server) try(method, path, host string) (answer, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.Addr()+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Host = host
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, string(body)}, resp.Body.Close()
}

// at is a time of the example; its zone is not UTC, as that of many hosts.
func at(hour, minute int) time.Time {
	return time.Date(2025, 3, 1, hour, minute, 0, 0, time.FixedZone("CET", 3600))
}

// example has one of everything.
func example() Status {
	return Status{
		Node: "web-1", Cluster: "prod", Version: "1.2.3", Commit: "abc123", Started: at(9, 0),
		Consul: Consul{
			Address: "127.0.0.1:8500", LastAnswer: at(10, 0), UnreachableSince: at(10, 1),
			Connections: 12, MaxConnections: 64, Watches: 9, Failures: 3,
		},
		Services: []Service{
			{ID: "jorc", Name: "jorc", Registered: true, Presence: true, Since: at(9, 0)},
			{
				ID: "web-a", Name: "web", Registered: true, Since: at(9, 1),
				Checks: []Check{
					{
						ID: "web-a:1", Name: "answers", Kind: "script", State: CheckWarning, Since: at(9, 2), LastRun: at(9, 59),
						Took: 0.25, Output: "slow: 2 < 3 & rising\n",
					},
					{ID: "web-a:2", Name: "port", Kind: "tcp"},
				},
			},
			{ID: "db", Name: "db", Since: at(9, 3), Error: "register service \"db\": denied by ACLs"},
		},
		Templates: []Template{
			{
				Name: "upstreams", Destination: "/etc/nginx/conf.d/upstreams.conf", Together: "edge", State: TemplateRendered,
				Changed: at(9, 4), Checked: at(9, 5), Writes: 7, Executions: 11,
			},
			{Name: "hosts", Destination: "/etc/hosts", State: TemplateHeld, Held: []string{`service "web": 0 instances, believed at 10:30`}, Checked: at(9, 6), Executions: 1},
			{Name: "motd", Destination: "/etc/motd", State: TemplateWaiting, Waiting: []string{"key motd, which has not been read yet"}},
			{Name: "haproxy", Destination: "/etc/haproxy/haproxy.cfg", State: TemplateFailed, Error: "check: exit code 1", Checked: at(9, 7), Executions: 2},
		},
		Processes: []Process{
			{Name: "app", State: ProcessRunning, Since: at(9, 12), PID: 4711, Starts: 2},
			{Name: "worker", State: ProcessFailed, Since: at(9, 13), Starts: 5, Error: "it ended with exit code 3", Next: at(9, 14)},
		},
		Triggers: []Trigger{
			{Trigger: "nightly", Kind: "schedule", Workflow: "backup", Last: &LastJob{
				Job: "trigger-nightly-20261120T020000Z", State: "interrupted", Why: `task "dump": jorc was stopped while it ran; it is not idempotent and is not run again`, At: at(9, 19),
			}},
			{Trigger: "pool", Kind: "key", Workflow: "rebalance", Running: "trigger-pool-1-2"},
		},
		Schedules: []Schedule{
			{
				Trigger: "nightly", Schedule: "0 3 * * *", Zone: "Europe/Berlin", Workflow: "backup", LastRun: at(9, 15), NextRun: at(9, 16),
				Missed: Missed{Count: 2, Due: at(9, 17), Noticed: at(9, 18)},
			},
			{Trigger: "weekly", Schedule: "@weekly", Zone: "UTC", Workflow: "report", Error: "read the trigger's state: permission denied"},
		},
		Expiry: []Expiry{
			{Kind: "certificate", Name: "consul.client_cert", From: at(8, 1), Until: at(9, 40), Soon: true},
			{Kind: "certificate", Name: "vault.ca_file", Error: "open /etc/vault.pem: no such file or directory"},
			{Kind: "certificate", Name: "template.web", From: at(8, 0), Until: at(11, 0)},
			{Kind: "token", Name: "consul.token", From: at(9, 0), Until: at(10, 0)},
			{Kind: "token", Name: "vault.token", From: at(8, 0), Until: at(9, 30), Renewed: true, Soon: true},
		},
		Reload: Reload{At: at(9, 30), Error: "/etc/jorc/a.hcl:3: unknown key"},
		Convergence: &Convergence{
			Phase: "pending", Detail: "waiting for mysql: 0 of 1 functional", Since: at(9, 8), Desired: "v2", Version: "v1",
			Job: "converge-v2-1", Fails: 1, Why: "task \"apply\": exit code 4", Next: at(9, 9),
			Missing: []string{"mysql: 0 of 1 functional"}, Failing: []string{"web: answers is critical"},
			Drifted: []string{"/etc/app.conf"}, Suspect: "drifted: /etc/app.conf changed after convergence",
		},
		Orchestrators: []Orchestrator{{
			Cluster: "prod", Active: true, Since: at(9, 10), Cycles: 17, Last: at(9, 11), Took: 0.125, Outcome: "changed", Problems: 1, Event: 99,
			Synced: 3, Failed: 1, Decisions: []event.Decision{{Kind: "change_stopped", Node: "n1", Text: "the rollout pauses", Reason: "1 failed"}},
		}},
	}
}

// settled is a host on which all is well.
func settled() Status {
	s := example()
	s.Consul.UnreachableSince = time.Time{}
	s.Services, s.Templates, s.Processes, s.Reload = s.Services[:2], s.Templates[:2], s.Processes[:1], Reload{}
	return s
}
