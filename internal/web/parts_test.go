package web

import (
	"cmp"
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	healthy := func() Status {
		return Status{
			Consul:      Consul{LastAnswer: at(10, 0)},
			Services:    []Service{{ID: "web", Registered: true}},
			Templates:   []Template{{Name: "a", State: TemplateRendered}, {Name: "b", State: TemplateRendered}},
			Processes:   []Process{{Name: "app", State: ProcessRunning}},
			Convergence: &Convergence{Phase: "converged", Desired: "v5", Version: "v5"},
		}
	}
	for name, test := range map[string]struct {
		change func(*Status)
		want   string
		ready  bool
	}{
		"all is well": {func(*Status) {}, "ready; v5 converged; 1 service, 2 templates, 1 process", true},
		"nothing is configured": {
			func(s *Status) { *s = Status{Consul: s.Consul, Convergence: &Convergence{Phase: "idle"}} }, "ready; idle", true,
		},
		"held": {func(s *Status) { s.Held = "a reason" }, "held; v5 converged; 1 service, 2 templates, 1 process", true},
		"Consul is away": {
			func(s *Status) { s.Consul.Address, s.Consul.UnreachableSince = "127.0.0.1:8500", at(10, 5) },
			"ready; v5 converged; 1 service, 2 templates, 1 process; consul 127.0.0.1:8500 unreachable", true,
		},
		"a failed template, without its error": {
			func(s *Status) { s.Templates[1].State, s.Templates[1].Error = TemplateFailed, "secret" },
			"not ready; v5 converged; 1 service, 2 templates, 1 process; template b failed", false,
		},
		"a failed reload": {
			func(s *Status) { s.Reload = Reload{At: at(10, 6), Error: "secret"} },
			"ready; v5 converged; 1 service, 2 templates, 1 process; reload failed", true,
		},
		"many troubles": {
			func(s *Status) {
				s.Convergence, s.Processes, s.Templates, s.Services = nil, nil, nil, nil
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					s.Templates = append(s.Templates, Template{Name: name, State: TemplateStale})
				}
			},
			"ready; 5 templates; template a stale; template b stale; template c stale; and 2 more", true,
		},
	} {
		s := healthy()
		test.change(&s)
		if got, ready := Summary(s); got != test.want || ready != test.ready {
			t.Errorf("%s: %q, %t; want %q, %t", name, got, ready, test.want, test.ready)
		}
	}
	long := healthy()
	long.Templates[0] = Template{Name: strings.Repeat("x\n", 1000), State: TemplateFailed, Since: time.Now()}
	if got, _ := Summary(long); len(got) > maxSummary+len("…") || strings.Contains(got, "\n") {
		t.Errorf("a long name: %d bytes %q, want one line of at most %d", len(got), got, maxSummary)
	}
}

// TestParts: what waits, is running or went wrong is a line of its own, and only what needs
// an operator is trouble.
func TestParts(t *testing.T) {
	t.Parallel()
	last := &LastJob{Job: "j", State: "failed", Why: "task t: exit code 1", At: at(9, 0)}
	for _, test := range []struct {
		change  func(*Status)
		want    string // the line, its cells separated by bars
		trouble bool
	}{
		{func(s *Status) { s.Held = "held since 10:00 until 12:00 (1h0m0s left)" }, "agent|n1|held|-|held since 10:00 until 12:00 (1h0m0s left)", false},
		{func(s *Status) {
			s.Convergence = &Convergence{Phase: "admission", Desired: "v2", Detail: "waits for a grant"}
		}, "convergence|v2|admission|-|waits for a grant", false},
		{
			func(s *Status) {
				s.Convergence = &Convergence{Phase: "admission", Desired: "v2", Trouble: []string{"no orchestrator runs"}, Unorchestrated: true}
			}, "convergence|v2|admission|-|no orchestrator runs", true,
		},
		{func(s *Status) { s.Grant = &Grant{Version: "v2", State: "accepted", Since: at(10, 0)} }, "grant|v2|accepted|2025-03-01T09:00:00Z|-", false},
		{func(s *Status) {
			s.Lease = &Lease{ID: "jorc maintenance", State: "asked", Since: at(10, 0), Reason: "a disk", Waits: "the budget"}
		}, "lease|jorc maintenance|asked|2025-03-01T09:00:00Z|a disk; the budget", false},
		{func(s *Status) { s.Lease = &Lease{ID: "zincati", State: "ready", Trouble: "a check fails"} }, "lease|zincati|ready|-|a check fails", true},
		{func(s *Status) {
			s.Stages = []Stage{{Stage: "edge", State: "waiting", Changed: []string{"key a", "key b"}}}
		}, "stage|edge|waiting|-|changed: key a, key b", false},
		{func(s *Status) { s.Stages = []Stage{{Stage: "edge", State: "waiting", Unorchestrated: true}} }, "stage|edge|waiting|-|no orchestrator runs: no host is offered a grant", true},
		{func(s *Status) {
			s.Stages = []Stage{{Stage: "edge", State: "restored", Reason: "checks fail", Failed: true}}
		}, "stage|edge|restored|-|checks fail", true},
		{func(s *Status) { s.Triggers = []Trigger{{Trigger: "t", Running: "j1"}} }, "trigger|t|running|-|job j1", false},
		{func(s *Status) { s.Triggers = []Trigger{{Trigger: "t", Last: last}} }, "trigger|t|failed|2025-03-01T08:00:00Z|task t: exit code 1", true},
		{func(s *Status) { s.Triggers = []Trigger{{Trigger: "t", Error: "its record is damaged"}} }, "trigger|t|unknown|-|its record is damaged", true},
		{func(s *Status) { s.Schedules = []Schedule{{Trigger: "t", Error: "its record is damaged"}} }, "trigger|t|unknown|-|its record is damaged", true},
		{func(s *Status) {
			s.Expiry = []Expiry{{Kind: "token", Name: "consul.token", Until: at(11, 0), Soon: true}}
		}, "token|consul.token|ends soon|-|valid until 2025-03-01T10:00:00Z", true},
		{func(s *Status) { s.Expiry = []Expiry{{Kind: "certificate", Name: "c", Error: "no such file"}} }, "certificate|c|unreadable|-|no such file", true},
		{func(s *Status) { s.Orchestrators = []Orchestrator{{Cluster: "prod", Active: true}} }, "orchestrator|prod|active|-|-", false},
		{
			func(s *Status) {
				s.Orchestrators = []Orchestrator{{Cluster: "prod", Active: true, Fails: 3, Error: "denied"}}
			},
			"orchestrator|prod|failed|-|the last 3 cycles failed; denied", true,
		},
		{func(s *Status) { s.Orchestrators = []Orchestrator{{Cluster: "prod", Fails: 3}} }, "", false},
	} {
		s := Status{Node: "n1", Ready: true, Consul: Consul{Connected: true}, Reload: Reload{OK: true}}
		test.change(&s)
		var lines []string
		trouble := false
		for _, p := range Parts(s) {
			lines = append(lines, strings.Join(p.Row(), "|"))
			trouble = trouble || p.Trouble
		}
		want := []string{"agent|n1|ready|-|-", test.want}
		if strings.HasPrefix(test.want, "agent") || test.want == "" {
			want = append(want[:0], cmp.Or(test.want, want[0]))
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") || trouble != test.trouble {
			t.Errorf("got %q, trouble %t; want %q, %t", lines, trouble, want, test.trouble)
		}
	}
}
