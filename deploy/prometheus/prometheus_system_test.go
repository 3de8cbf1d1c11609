//go:build system

package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestRulesFireAndStaySilent runs the cases of jorc.test.yml.
func TestRulesFireAndStaySilent(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", testsFile}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// site is a fleet of three hosts with a Prometheus that is configured as
// docs/metrics.md says.
type site struct {
	t       *testing.T
	dir     string
	jorc    string
	servers []*consultest.Server
	api     string // of Prometheus
}

// TestRulesOnRealFleet: Prometheus finds the agents of a fleet, evaluates all rules, and has
// every series that an alert asks for; only a missed due time makes some of them.
func TestRulesOnRealFleet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("jorc", "cluster", "init", "prod")
	s.run("jorc", "cluster", "profile", "set", "cluster/rules", `[{"name": "weekly", "workflow": "static", "schedule": "@weekly"}]`)
	s.agent(0, "orchestrator { interval = \"1s\" }\n"+s.here(documented(t, "template"))+fmt.Sprintf(`
template "staged" {
  contents    = "x"
  destination = %q
  stage "edge" {}
}
trigger "nightly" {
  schedule = "0 3 * * *"
  workflow = "static"
}
`, filepath.Join(s.dir, "staged.txt")))
	other := s.agent(1, `process "app" { command = ["sleep", "infinity"] }
service "web" {
  port = 80
  check {
    script   = ["sh", "-c", "exit 2"]
    interval = "1s"
  }
}`)
	lost := s.agent(2, fmt.Sprintf(`template "waiting" {
  contents    = "{{ key \"missing\" }}"
  destination = %q
}`, filepath.Join(s.dir, "waiting.txt")))
	s.eventually("three members", func(context.Context) error {
		if out := s.run("jorc", "cluster", "members", "--filter", `Agent == "up"`, "--count"); out != "3" {
			return errors.New(out)
		}
		return nil
	})
	s.run("jorc", "cluster", "budget", "set", "--max-out", "3")
	s.run("jorc", "update", "trigger", "v1", "--max-parallel", "1")
	s.run("jorc", "cluster", "run", "static", "--needs-approval")
	s.startPrometheus()
	s.eventually("three agents in Prometheus", func(ctx context.Context) error { return s.has(ctx, `count(up{job="jorc"} == 1) == 3`) })
	if err := other.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.eventually("every panel of the boards to have an answer", s.answersPanels)
	s.servers[2].Kill()
	s.end(lost, syscall.SIGKILL)

	for _, r := range rules(t) {
		for _, found := range selector.FindAllString(r.Expr, -1) {
			if afterEvents.MatchString(found) {
				continue
			}
			s.eventually(r.Alert+": "+found, func(ctx context.Context) error { return s.has(ctx, found) })
		}
		if _, err := s.query(t.Context(), r.Expr); err != nil {
			t.Errorf("%s: %v", r.Alert, err)
		}
	}
	s.eventually("the rules to be evaluated, and the lost host to be noticed", func(ctx context.Context) error {
		var answer struct{ Groups []struct{ Rules []ruleState } }
		if err := s.get(ctx, "/api/v1/rules", &answer); err != nil {
			return err
		}
		states := map[string]ruleState{}
		for _, g := range answer.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return fmt.Errorf("%s: health %s: %s", r.Name, r.Health, r.LastError)
				}
				states[r.Name] = r
			}
		}
		if down := states["JorcAgentDown"]; len(states) != len(rules(t)) || down.State != "pending" || !down.alerts(s.servers[2].Node) {
			return fmt.Errorf("%d rules, %+v", len(states), down)
		}
		for _, name := range []string{"JorcNoOrchestrator", "JorcTwoOrchestrators", "JorcDamagedDocument", "JorcChangeStopped", "JorcConsulUnreachable"} {
			if r := states[name]; r.State != "inactive" {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
}

// afterEvents matches metrics that have no series, or are 0, until something happens that does not in a
// test: a due time, a missed one, a host that waits for its turn, a certificate or a token that ends.
var afterEvents = regexp.MustCompile(`jorc_\w+_last_(missed|run)_|jorc_change_wait_start_|jorc_expiry_`)

// answersPanels returns an error if Prometheus has no series for a panel.
func (s *site) answersPanels(ctx context.Context) error {
	var missing []string
	for _, b := range boards {
		for _, p := range b.panels(s.t) {
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$cluster", ".*", "$instance", ".*", "$__rate_interval", "10s").Replace(target.Expr)
				result, err := s.query(ctx, expr)
				if err != nil {
					return fmt.Errorf("%s, panel %q: %w", b.file, p.Title, err)
				}
				if len(result) == 0 && !afterEvents.MatchString(expr) {
					missing = append(missing, expr)
				}
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no series for %s", strings.Join(missing, "\n"))
	}
	return nil
}

// TestTargetsFromExport: the file that docs/metrics.md makes for a Prometheus without
// Consul has the agents as targets.
func TestTargetsFromExport(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("jorc", "cluster", "init", "prod")
	s.agent(0, `service "jorc-metrics" { port = 8520 }`)
	s.eventually("the agent's target in the file", func(ctx context.Context) error {
		cmd := s.command(ctx, "sh", "-c", documented(s.t, "export"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if got, want := read(t, filepath.Join(s.dir, "targets.json")), `"`+s.servers[0].IP+`:8520"`; !strings.Contains(got, want) {
			return fmt.Errorf("no %s in %s", want, got)
		}
		return nil
	})
	s.write("prometheus.yml", "scrape_configs: [{job_name: jorc, file_sd_configs: [{files: [targets.json]}]}]\n")
	s.run("promtool", "check", "config", filepath.Join(s.dir, "prometheus.yml"))
}

// ruleState is a rule as Prometheus evaluates it.
type ruleState struct {
	Name, State, Health, LastError string
	Alerts                         []struct{ Labels map[string]string }
}

func (r ruleState) alerts(instance string) bool {
	for _, a := range r.Alerts {
		if a.Labels["instance"] == instance {
			return true
		}
	}
	return false
}

func newSite(t *testing.T) *site {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("no program %s: apt-get install --no-install-recommends prometheus", program)
		}
	}
	s := &site{t: t, dir: t.TempDir(), servers: consultest.StartCluster(t, 3)}
	s.jorc = filepath.Join(s.dir, "bin", "jorc")
	consultest.Build(t, filepath.Dir(s.jorc), "cmd/jorc")
	return s
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if args[0] == "jorc" {
		cmd.Path, cmd.Err = s.jorc, nil
	}
	cmd.Dir = s.dir
	cmd.Env = []string{
		"PATH=" + filepath.Dir(s.jorc) + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "JORC_CLUSTER=prod",
		"CONSUL_HTTP_ADDR=" + s.servers[0].HTTPAddr, consultest.NoConfig,
	}
	return cmd
}

func (s *site) run(args ...string) string {
	s.t.Helper()
	out, err := s.command(s.t.Context(), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *site) eventually(what string, check func(context.Context) error) {
	s.t.Helper()
	consultest.Eventually(s.t, what, check)
}

// background starts a program that ends with the test at the latest.
func (s *site) background(cmd *exec.Cmd) *exec.Cmd {
	s.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			s.end(cmd, syscall.SIGTERM)
		}
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", cmd, out.String())
		}
	})
	return cmd
}

// end ends a program and waits for it; how it ended does not matter.
func (s *site) end(cmd *exec.Cmd, sig syscall.Signal) {
	s.t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	_ = cmd.Wait() // by the signal
}

// agent starts jorc on a host. It serves its metrics where docs/metrics.md looks for them.
func (s *site) agent(host int, more string) *exec.Cmd {
	s.t.Helper()
	server := s.servers[host]
	state := filepath.Join(s.dir, server.Node)
	config := fmt.Sprintf(`
cluster   = "prod"
state_dir = %q
http { addr = "%s:8520" }
member { roles = ["web"] }
workflow "static" {
  task "sleep" { command = ["sleep", "1"] }
}
static { workflow = "static" }
template "x" {
  contents    = "x"
  destination = %q
}
%s
`, state, server.IP, state+".txt", more)
	file := s.write(server.Node+".hcl", config)
	cmd := s.command(context.WithoutCancel(s.t.Context()), "jorc", "agent", "--config", file)
	cmd.Env = append(cmd.Env, "CONSUL_HTTP_ADDR="+server.HTTPAddr)
	return s.background(cmd)
}

// documented returns the block of docs/metrics.md that says how it is tested.
func documented(t *testing.T, kind string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)<!-- tested: " + kind + " -->\n```\\w*\n(.*?)```\n").FindStringSubmatch(read(t, "../../docs/metrics.md"))
	if m == nil {
		t.Fatalf("docs/metrics.md has no block of kind %s", kind)
	}
	return m[1]
}

// here puts the paths of docs/metrics.md below the site's directory.
func (s *site) here(text string) string {
	return strings.NewReplacer("/etc/prometheus", s.dir, "/usr/share/jorc/prometheus", s.dir).Replace(text)
}

// startPrometheus starts Prometheus with the configuration of docs/metrics.md.
func (s *site) startPrometheus() {
	s.t.Helper()
	addr := s.servers[0].IP + ":9090"
	s.write(rulesFile, read(s.t, rulesFile))
	config := s.write("prometheus.yml", "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+s.here(documented(s.t, "prometheus")))
	s.api = "http://" + addr
	s.background(s.command(context.WithoutCancel(s.t.Context()), "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(s.dir, "prometheus"), "--web.listen-address="+addr, "--log.level=warn"))
}

// get reads an answer of Prometheus.
func (s *site) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, body)
	}
	return json.Unmarshal(body, &struct{ Data any }{data})
}

// query returns the series of an expression.
func (s *site) query(ctx context.Context, expr string) ([]any, error) {
	var answer struct{ Result []any }
	err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return answer.Result, err
}

// has returns an error if an expression has no series.
func (s *site) has(ctx context.Context, expr string) error {
	result, err := s.query(ctx, expr)
	if err == nil && len(result) == 0 {
		err = fmt.Errorf("%s has no series", expr)
	}
	return err
}
