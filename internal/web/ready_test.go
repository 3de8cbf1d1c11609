package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change      func(*Status)
		live, ready int
		reason      string // a line of /healthz?ready
	}{
		"all is well":       {func(*Status) {}, 200, 200, "ok"},
		"consul away":       {func(s *Status) { s.Consul.UnreachableSince = at(10, 5) }, 200, 200, "ok"},
		"a check fails":     {func(s *Status) { s.Services[1].Checks[0].State = CheckCritical }, 200, 200, "ok"},
		"consul never came": {func(s *Status) { s.Consul.LastAnswer = time.Time{} }, 200, 503, "Consul at 127.0.0.1:8500 has not answered yet"},
		"not registered": {
			func(s *Status) { s.Services[1].Registered, s.Services[1].Error = false, "register\n service: denied" }, 200, 503,
			`service "web-a" is not registered: register service: denied`,
		},
		"waiting": {
			func(s *Status) {
				s.Templates[0].State, s.Templates[0].Waiting = TemplateWaiting, []string{"key a", "key b"}
			}, 200, 503,
			`template "upstreams" has not been rendered: key a; key b`,
		},
		"failed": {
			func(s *Status) { s.Templates[0].State, s.Templates[0].Error = TemplateFailed, "no such function" }, 200, 503,
			`template "upstreams" failed: no such function`,
		},
		"a process failed": {
			func(s *Status) {
				s.Processes[0].State, s.Processes[0].Error = ProcessFailed, "it ended with exit code 3"
			}, 200, 503,
			`process "app" failed: it ended with exit code 3`,
		},
		"a process has just started": {
			func(s *Status) { s.Processes[0].State = ProcessStarting }, 200, 503, `process "app" is starting`,
		},
		"a reason of the agent": {func(s *Status) { s.NotReady = []string{"starting"} }, 200, 503, "starting"},
		"a loop is stuck":       {func(s *Status) { s.Unhealthy = "the engine is stuck" }, 503, 503, "the engine is stuck"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := settled()
			test.change(&status)
			s := start(t, &board{status: status})
			live, ready := s.get("/healthz"), s.get("/healthz?ready")
			if live.status != test.live || ready.status != test.ready || strings.TrimSpace(ready.body) != test.reason {
				t.Errorf("got %d and %d %q; want %d and %d %q", live.status, ready.status, ready.body, test.live, test.ready, test.reason)
			}
			if (live.body == "ok\n") != (test.live == http.StatusOK) {
				t.Errorf("/healthz: %q", live.body)
			}
		})
	}
}

func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	status := settled()
	for i := range 10_000 {
		status.Templates = append(status.Templates, Template{Name: fmt.Sprint(i), State: TemplateWaiting})
	}
	got := notReady(status)
	if last := got[len(got)-1]; len(got) != maxReasons+1 || last != "and 9980 more" {
		t.Errorf("got %d reasons, the last %q", len(got), last)
	}
}
