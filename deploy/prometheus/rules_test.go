package prometheus_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/orchestrator"
)

const rulesFile, testsFile = "jorc.rules.yml", "jorc.test.yml"

// rule is an alert of rulesFile.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no alerts", rulesFile)
	}
	return all
}

// selector is a metric with its matchers in an expression.
var selector = regexp.MustCompile(`\b(?:(jorc_\w+)|up)\b(?:\{[^}]*\})?`)

// anchors are the anchors of a document's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(kept, " ", "-")] = true
	}
	return all
}

// TestAlerts: each alert has a severity, a summary, a description and a section of
// the runbook, each is tested for firing and for silence, and each asks for metrics that
// jorc has.
func TestAlerts(t *testing.T) {
	t.Parallel()
	sections, metrics := anchors(read(t, "../../docs/runbook.md")), metricNames(t)
	firing, silent := tested(t)
	seen := map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" || seen[r.Alert] {
			t.Errorf("alert %q is without a name, or there are two", r.Alert)
		}
		seen[r.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" {
			t.Errorf("%s has no summary, description or for", r.Alert)
		}
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if page != "https://github.com/jorc/jorc/blob/main/docs/runbook.md" || !sections[anchor] {
			t.Errorf("%s: docs/runbook.md has no section for %s", r.Alert, r.Annotations["runbook_url"])
		}
		if !firing[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: tested that it fires: %t, and that it does not: %t", r.Alert, firing[r.Alert], silent[r.Alert])
		}
		for _, m := range selector.FindAllStringSubmatch(r.Expr, -1) {
			if m[1] != "" && !metrics[m[1]] {
				t.Errorf("%s: jorc has no metric %s", r.Alert, m[1])
			}
		}
	}
}

// TestMetricsDocumented: docs/metrics.md has all metrics and no others.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs/metrics.md")
	documented := map[string]bool{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `jorc_") {
			for _, m := range regexp.MustCompile("`(jorc_\\w+)`").FindAllStringSubmatch(cells[1], -1) {
				documented[m[1]] = true
			}
		}
	}
	if want := metricNames(t); !maps.Equal(documented, want) {
		t.Errorf("documented are %v,\nwant %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(want)))
	}
}

// tested are the alerts that testsFile expects to fire, and not to fire.
func tested(t *testing.T) (firing, silent map[string]bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, testsFile)), &file); err != nil {
		t.Fatal(err)
	}
	firing, silent = map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				firing[a.Alertname] = true
			} else {
				silent[a.Alertname] = true
			}
		}
	}
	return firing, silent
}

// metricNames are the metrics of the orchestrator and those of each agent.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range orchestrator.MetricNames() {
		all[name] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(read(t, "../../internal/web/testdata/metrics.txt"), -1) {
		all[m[1]] = true
	}
	return all
}
