package orchestrator_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/metrics"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// deciding are quick options with which hosts are granted something, as by an agent.
func (s *site) deciding() orchestrator.Options {
	o := quick(s.client)
	o.Interval, o.Grants = 50*time.Millisecond, true
	return o
}

var moment = regexp.MustCompile(`(_timestamp_seconds(?:\{[^}]*\})?) [0-9.e+]+`)

// metrics are the series of an orchestrator, times as TIME.
func (s *site) metrics(o *orchestrator.Orchestrator) string {
	s.t.Helper()
	var lines strings.Builder
	for line := range strings.Lines(moment.ReplaceAllString(string(metrics.Collect(o.Collect).Bytes()), "$1 TIME")) {
		if !strings.HasPrefix(line, "#") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// wantMetrics waits until the metrics contain all lines.
func (s *site) wantMetrics(o *orchestrator.Orchestrator, lines ...string) {
	s.t.Helper()
	s.eventually("metrics", func() error {
		got := s.metrics(o)
		for _, want := range lines {
			if !strings.Contains(got, want+"\n") {
				return fmt.Errorf("%s is missing in\n%s", want, got)
			}
		}
		return nil
	})
}

// TestFleetMetrics: the metrics say what the cluster is like while the agent
// orchestrates, and none of them exists before and after.
func TestFleetMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for node, web := range map[string]string{"a": "passing", "b": "critical"} {
		s.host(node, "10.0.0.1", "passing", web)
		s.join(node, "web")
		s.must(s.ledger.ReportVersion(t.Context(), node, "v1"))
	}
	s.host("c", "127.0.0.9", "critical", "passing") // nothing listens there
	s.join("c")
	s.join("logical")
	o, stop := s.start(s.deciding())
	s.eventually("the first cycle", func() error {
		if s.metrics(o) == "" {
			return errors.New("no metrics")
		}
		return nil
	})
	s.wantMetrics(o,
		`jorc_cluster_last_observed_timestamp_seconds{cluster="prod"} TIME`,
		`jorc_cluster_paused{cluster="prod"} 0`, `jorc_cluster_observe_only{cluster="prod"} 0`,
		`jorc_cluster_leaders_wanted{cluster="prod"} 1`, `jorc_cluster_held_members{cluster="prod"} 0`,
		`jorc_cluster_damaged_documents{cluster="prod",kind="control"} 0`, `jorc_cluster_damaged_documents{cluster="prod",kind="host"} 0`,
		`jorc_hosts{cluster="prod",liveness="up"} 2`, `jorc_hosts{cluster="prod",liveness="down"} 1`, `jorc_hosts{cluster="prod",liveness="absent"} 1`,
		`jorc_members{cluster="prod",health="critical",role="web",version="v1"} 1`,
		`jorc_members{cluster="prod",health="passing",role="web",version="v1"} 1`,
		`jorc_members{cluster="prod",health="critical",role="worker",version="none"} 1`,
		`jorc_members{cluster="prod",health="none",role="worker",version="none"} 1`,
		`jorc_hosts_out_of_service{cluster="prod",reason="critical"} 1`, `jorc_hosts_out_of_service{cluster="prod",reason="down"} 1`,
		`jorc_hosts_out_of_service{cluster="prod",reason="grant"} 0`,
		`jorc_host_out_of_service_start_timestamp_seconds{cluster="prod",host="b",reason="critical"} TIME`,
		`jorc_host_out_of_service_start_timestamp_seconds{cluster="prod",host="c",reason="down"} TIME`,
		`jorc_runs{cluster="prod",state="running"} 0`,
	)
	if got := s.metrics(o); strings.Contains(got, `kind="version"`) || strings.Contains(got, `host="logical"`) || strings.Contains(got, "_wait_start_") {
		t.Errorf("a rollout, a waiting run or a logical member out of service:\n%s", got)
	}

	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v2", Policy: canaryFirst}))
	rules, err := profile.ParseValue(`[{"name": "nightly", "workflow": "w", "schedule": "0 3 1 1 *"}]`)
	s.must(nil, err)
	s.must(s.cluster.Set(t.Context(), profile.Scope{}, runs.ParamRules, rules, profile.Ref{}))
	s.wantMetrics(o, `jorc_rule_next_run_timestamp_seconds{cluster="prod",rule="nightly"} TIME`, `jorc_rule_missed_total{cluster="prod",rule="nightly"} 0`)
	s.wantMetrics(o,
		`jorc_desired_version_info{cluster="prod",version="v2"} 1`, `jorc_change_info{change="v2",cluster="prod",kind="version",state="canary"} 1`,
		`jorc_change_hosts{change="v2",cluster="prod",kind="version",state="waiting"} 2`, `jorc_change_hosts{change="v2",cluster="prod",kind="version",state="down"} 1`,
		`jorc_change_waiting{change="v2",cluster="prod",kind="version",reason="hosts"} 1`, `jorc_change_stopped{by="jorc",change="v2",cluster="prod",kind="version"} 0`,
		`jorc_change_start_timestamp_seconds{change="v2",cluster="prod",kind="version"} TIME`,
		`jorc_change_last_progress_timestamp_seconds{change="v2",cluster="prod",kind="version"} TIME`,
	)
	for _, node := range []string{"a", "b"} {
		s.must(s.ledger.SetState(t.Context(), node, "config", cluster.CategoryState{State: cluster.StateFailed, Version: "v2"}))
	}
	s.wantMetrics(o,
		`jorc_change_stopped{by="jorc",change="v2",cluster="prod",kind="version"} 1`, `jorc_change_stopped{by="operator",change="v2",cluster="prod",kind="version"} 0`,
		`jorc_change_info{change="v2",cluster="prod",kind="version",state="paused"} 1`,
		`jorc_change_waiting{change="v2",cluster="prod",kind="version",reason="pause"} 1`, `jorc_change_waiting{change="v2",cluster="prod",kind="version",reason="hosts"} 0`,
		`jorc_change_hosts{change="v2",cluster="prod",kind="version",state="failed"} 2`,
	)

	if got := s.metrics(o); strings.Contains(got, "jorc_budget_") {
		t.Errorf("a budget that was not set:\n%s", got)
	}
	s.must(s.cluster.SetBudget(t.Context(), &pace.Budget{MaxOut: pace.Amount{N: 3}, Roles: map[string]pace.Amount{"web": {N: 1}}}))
	s.wantMetrics(o,
		`jorc_budget_hosts_allowed{cluster="prod",limit="cluster",name=""} 3`, `jorc_budget_hosts_out{cluster="prod",limit="role",name="web"} 1`,
		`jorc_budget_used_by_failed{cluster="prod",limit="role",name="web"} 1`,
	)
	s.must(s.cluster.SetBudget(t.Context(), nil))
	s.must(s.cluster.Pause(t.Context(), cluster.Hold{Since: time.Unix(0, 0), Reason: "why", By: "ann"}))
	_, _, err = runs.New(s.store).Ask(t.Context(), "waits", runs.Request{Workflow: "backup"}, "ann")
	s.must(nil, err)
	s.wantMetrics(o, `jorc_cluster_paused{cluster="prod"} 1`, `jorc_runs{cluster="prod",state="pending"} 1`,
		`jorc_change_waiting{change="",cluster="prod",kind="run",reason="cluster"} 1`, `jorc_change_waiting{change="",cluster="prod",kind="run",reason="hosts"} 0`,
		`jorc_change_wait_start_timestamp_seconds{change="",cluster="prod",kind="run"} TIME`)
	s.put("nodes/a", "garbage")
	s.put("current/control", "garbage")
	s.put("audit/changes", "garbage")
	s.wantMetrics(o, `jorc_cluster_damaged_documents{cluster="prod",kind="host"} 1`, `jorc_cluster_damaged_documents{cluster="prod",kind="control"} 1`,
		`jorc_cluster_damaged_documents{cluster="prod",kind="changes"} 1`,
		`jorc_members{cluster="prod",health="passing",role="web",version="v1"} 1`)

	problems, err := promlint.New(bytes.NewReader(metrics.Collect(o.Collect).Bytes())).Lint()
	s.must(nil, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	stop()
	if got := s.metrics(o); got != "" {
		t.Errorf("after the orchestrator ended:\n%s", got)
	}
}

// TestFilesMetrics: the metrics of files say how many hosts are in which state, whether the
// change is stopped, and since when hosts wait; they end with the orchestrator.
func TestFilesMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	policy := cluster.StagePolicy{MaxParallel: "1"}
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	for node, report := range map[string]cluster.StageReport{
		"a": {Policy: policy, Taken: limit, State: cluster.StageRestored, Wants: "c1", Changed: limit},
		"b": {Policy: policy, Wants: "c1", WantsSince: time.Unix(1, 0), Changed: limit},
		"c": {Policy: policy, Rendered: true},
		"d": {Policy: policy},
	} {
		s.host(node, "10.0.0.1", "passing", "passing")
		s.join(node)
		s.must(s.cluster.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			if report.State != "" {
				r = r.WithAnswer(cluster.Answer{Change: cluster.FilesChange("edge"), ID: "1.1.s", Tag: "c1", State: cluster.GrantDone})
			}
			return r.WithStage("edge", report), nil
		}))
	}
	options := s.deciding()
	o, stop := s.start(options)
	s.wantMetrics(o,
		`jorc_change_info{change="edge",cluster="prod",kind="files",state="stopped"} 1`,
		`jorc_change_hosts{change="edge",cluster="prod",kind="files",state="failed"} 1`, `jorc_change_hosts{change="edge",cluster="prod",kind="files",state="waiting"} 2`,
		`jorc_change_hosts{change="edge",cluster="prod",kind="files",state="done"} 1`, `jorc_change_hosts{change="edge",cluster="prod",kind="files",state="working"} 0`,
		`jorc_change_stopped{by="jorc",change="edge",cluster="prod",kind="files"} 1`, `jorc_change_waiting{change="edge",cluster="prod",kind="files",reason="pause"} 1`,
		`jorc_change_last_progress_timestamp_seconds{change="edge",cluster="prod",kind="files"} TIME`,
		`jorc_change_wait_start_timestamp_seconds{change="edge",cluster="prod",kind="files"} TIME`,
		`jorc_change_hosts{change="",cluster="prod",kind="lease",state="waiting"} 0`,
	)
	problems, err := promlint.New(bytes.NewReader(metrics.Collect(o.Collect).Bytes())).Lint()
	s.must(nil, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	s.must(stage.New(s.store).Resume(t.Context(), "edge", "", cluster.Hold{By: "ann"}))
	s.wantMetrics(o, `jorc_change_stopped{by="jorc",change="edge",cluster="prod",kind="files"} 0`)
	stop()
	if got := s.metrics(o); got != "" {
		t.Errorf("after the orchestrator ended:\n%s", got)
	}
}

// TestFleetMetricsCost: scraping asks Consul nothing and writes nothing.
func TestFleetMetricsCost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a")
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canaryFirst}))
	options := s.deciding()
	options.Lock = kv.LeaseOptions{} // it outlasts Consul's silence here
	o, _ := s.start(options)
	s.wantMetrics(o, `jorc_change_info{change="v1",cluster="prod",kind="version",state="canary"} 1`)
	s.server.Freeze()
	defer s.server.Thaw()
	if got := s.metrics(o); !strings.Contains(got, `jorc_change_info{change="v1",cluster="prod",kind="version",state="canary"} 1`) {
		t.Errorf("while Consul does not answer:\n%s", got)
	}
}

// TestFleetMetricsBounded: whatever versions and roles hosts claim, the number of
// series has a bound, all members are counted, and what the cluster asks for has a
// name.
func TestFleetMetricsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const hosts = 150
	for i := range hosts {
		roles := make([]string, 0, 60)
		for j := range cap(roles) {
			roles = append(roles, fmt.Sprintf("role-%d-%d-%s", i, j, strings.Repeat("x", 100)))
		}
		node := fmt.Sprintf("n%d", i)
		s.join(node, roles...)
		s.must(s.ledger.ReportVersion(t.Context(), node, fmt.Sprintf("v%d", i)))
	}
	s.must(s.rollouts.Trigger(t.Context(), rollout.Request{Version: "v149", Policy: canaryFirst}))
	options := s.deciding()
	options.Lock = kv.LeaseOptions{} // a busy machine does not end it meanwhile
	o, _ := s.start(options)
	s.wantMetrics(o, `jorc_hosts_out_of_service{cluster="prod",reason="down"} 150`, `jorc_change_hosts{change="v149",cluster="prod",kind="version",state="done"} 1`,
		`jorc_members{cluster="prod",health="none",role="worker",version="v149"} 1`)
	got := s.metrics(o)
	if n := strings.Count(got, "\n"); n > 400 {
		t.Errorf("%d series", n)
	}
	members := 0
	for _, m := range regexp.MustCompile(`jorc_members\{.*role="(?:worker|leader|manager)".*\} (\d+)`).FindAllStringSubmatch(got, -1) {
		var n int
		s.must(fmt.Sscan(m[1], &n))
		members += n
	}
	if members != hosts {
		t.Errorf("%d members are counted, want %d", members, hosts)
	}
}
