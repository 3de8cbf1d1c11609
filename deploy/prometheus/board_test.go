package prometheus_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the Grafana dashboards")

// metric is a row of the tables in docs/metrics.md.
type metric struct {
	name   string
	labels []string
	is     string
}

// metricTable reads the tables; TestMetricsDocumented says that they are complete.
func metricTable(t *testing.T) []metric {
	t.Helper()
	var all []metric
	for line := range strings.Lines(read(t, "../../docs/metrics.md")) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `jorc_") || len(cells) != 5 {
			continue
		}
		var labels []string
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		is := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(cells[3]), "$1")
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[1], -1) {
			all = append(all, metric{name: m[1], labels: labels, is: strings.ReplaceAll(is, "`", "")})
		}
	}
	if len(all) == 0 {
		t.Fatal("docs/metrics.md has no metrics")
	}
	return all
}

// section is a row of a board: the metrics whose names begin with one of the prefixes, the longest of all sections, and panels beside
// them, by title.
type section struct {
	title    string
	prefixes []string
	more     map[string]query
}

// board is a dashboard. Its metrics are those of an agent, with the label instance, or of the orchestrator, which may
// be another agent with each scrape.
type board struct {
	file, title, about string
	perHost            bool
	sections           []section
}

var boards = []board{
	{"jorc-fleet.json", "jorc: fleet", "Clusters: members, who is out of service, orchestrators.", false, []section{
		{"Alerts", nil, map[string]query{"Alerts": {expr: `ALERTS{alertname=~"Jorc.*"}`, legend: "{{alertname}} {{instance}}", kind: "table"}}},
		{"Hosts", []string{"jorc_members", "jorc_hosts", "jorc_host_", "jorc_desired_"}, nil},
		{"Cluster", []string{"jorc_cluster_"}, nil},
		{"Orchestrator", []string{"jorc_orchestrat"}, nil},
	}},
	{"jorc-change.json", "jorc: changes", "What reaches the hosts of a cluster: changes, budget, runs, rules.", false, []section{
		{"Budget", []string{"jorc_budget_"}, nil},
		{"Changes", []string{"jorc_change_"}, nil},
		{"Runs", []string{"jorc_run"}, nil},
		{"Rules", []string{"jorc_rule_"}, nil},
	}},
	{"jorc-host.json", "jorc: host", "One agent: services, templates, processes, convergence, its connection to Consul.", true, []section{
		{"Agent", []string{"jorc_build_info", "jorc_healthy", "jorc_ready", "jorc_held", "jorc_config_", "jorc_errors_"}, map[string]query{
			"CPU":        {expr: `sum by (instance) (rate(process_cpu_seconds_total{job="jorc", instance=~"$instance"}[$__rate_interval]))`, legend: "{{instance}}", kind: "timeseries", unit: "percentunit"},
			"Memory":     {expr: `process_resident_memory_bytes{job="jorc", instance=~"$instance"}`, legend: "{{instance}}", kind: "timeseries", unit: "bytes"},
			"Goroutines": {expr: `go_goroutines{job="jorc", instance=~"$instance"}`, legend: "{{instance}}", kind: "timeseries", unit: "short"},
		}},
		{"Services", []string{"jorc_services", "jorc_check_"}, nil},
		{"Templates", []string{"jorc_template", "jorc_renders_", "jorc_files_", "jorc_reloads_", "jorc_data_to_file_"}, nil},
		{"Processes", []string{"jorc_process_"}, nil},
		{"Convergence", []string{"jorc_convergence", "jorc_drifted_"}, nil},
		{"Schedules", []string{"jorc_schedule_"}, nil},
		{"Consul", []string{"jorc_consul_", "jorc_expiry_"}, nil},
	}},
}

// query is what a panel shows.
type query struct{ expr, legend, kind, unit string }

// queryOf makes the query of a metric from its name and labels.
func (m metric) queryOf(perHost bool) query {
	by, only := []string{"cluster"}, `cluster=~"$cluster"`
	if perHost {
		by, only = []string{"instance"}, `job="jorc", instance=~"$instance"`
	}
	for _, label := range m.labels {
		if label != by[0] {
			by = append(by, label)
		}
	}
	group, series := strings.Join(by, ", "), m.name+"{"+only+"}"
	q := query{legend: "{{" + strings.Join(by, "}} {{") + "}}", kind: "timeseries", unit: "short"}
	over := "[$__rate_interval]"
	switch {
	case strings.HasPrefix(m.is, "histogram"):
		q.expr = fmt.Sprintf("histogram_quantile(0.99, sum by (%s, le) (rate(%s_bucket{%s}%s)))", group, m.name, only, over)
		q.unit = "s"
	case strings.HasSuffix(m.name, "_total"):
		q.expr, q.unit = fmt.Sprintf("sum by (%s) (rate(%s%s))", group, series, over), "ops"
	case strings.Contains(m.name, "_next_run_"):
		q.expr, q.kind, q.unit = fmt.Sprintf("min by (%s) (%s) - time()", group, series), "stat", "s"
	case strings.HasSuffix(m.name, "_timestamp_seconds"):
		q.expr, q.kind, q.unit = fmt.Sprintf("time() - max by (%s) (%s > 0)", group, series), "stat", "s"
	case strings.HasSuffix(m.name, "_info"):
		q.expr, q.kind = fmt.Sprintf("max by (%s) (%s)", group, series), "table"
	default:
		q.expr = fmt.Sprintf("max by (%s) (%s)", group, series)
		if len(by) == 1 {
			q.kind = "stat"
		}
		if strings.HasSuffix(m.name, "_seconds") {
			q.unit = "s"
		}
	}
	return q
}

// title is the metric's name as a heading: jorc_consul_up is "Consul up".
func (m metric) title() string {
	words := strings.TrimPrefix(m.name, "jorc_")
	for _, suffix := range []string{"_timestamp_seconds", "_total", "_info"} {
		words = strings.TrimSuffix(words, suffix)
	}
	words = strings.ReplaceAll(words, "_", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

type object = map[string]any

// place is the section of a metric: that with the longest matching prefix.
func place(t *testing.T, name string) *section {
	t.Helper()
	var found *section
	longest := 0
	for _, b := range boards {
		for i := range b.sections {
			for _, prefix := range b.sections[i].prefixes {
				if strings.HasPrefix(name, prefix) && len(prefix) > longest {
					found, longest = &b.sections[i], len(prefix)
				}
			}
		}
	}
	if found == nil {
		t.Fatalf("no board has a section for %s: add its prefix", name)
	}
	return found
}

// dashboard makes the JSON of a board.
func (b board) dashboard(t *testing.T, table []metric) []byte {
	t.Helper()
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	x, y, height := 0, 0, 0
	put := func(panel object, w, h int) {
		if x+w > 24 {
			x, y, height = 0, y+height, 0
		}
		panel["id"], panel["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, panel)
		x, height = x+w, max(height, h)
	}
	add := func(title, about string, q query) {
		panel := object{
			"title": title, "description": about, "type": q.kind, "datasource": source,
			"targets":     []object{{"refId": "A", "datasource": source, "expr": q.expr, "legendFormat": q.legend, "instant": q.kind != "timeseries", "range": q.kind == "timeseries"}},
			"fieldConfig": object{"defaults": object{"unit": q.unit}, "overrides": []object{}},
		}
		w, h := 8, 7
		switch q.kind {
		case "stat":
			w, h = 4, 4
			panel["options"] = object{"textMode": "value_and_name", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
		case "table":
			panel["targets"].([]object)[0]["format"] = "table"
		}
		put(panel, w, h)
	}
	for i := range b.sections {
		s := &b.sections[i]
		x, y, height = 0, y+height, 0
		put(object{"type": "row", "title": s.title, "collapsed": false, "panels": []object{}}, 24, 1)
		var here []metric
		for _, m := range table {
			if place(t, m.name) == s {
				here = append(here, m)
			}
		}
		for _, kind := range []string{"stat", "table", "timeseries"} { // panels of one size stand together
			for _, title := range slices.Sorted(maps.Keys(s.more)) {
				if s.more[title].kind == kind {
					add(title, "", s.more[title])
				}
			}
			for _, m := range here {
				if q := m.queryOf(b.perHost); q.kind == kind {
					add(m.title(), m.name+": "+m.is, q)
				}
			}
		}
	}
	variable, values := "cluster", "label_values(jorc_orchestrating, cluster)"
	if b.perHost {
		variable, values = "instance", `label_values(jorc_build_info{job="jorc"}, instance)`
	}
	var links []object
	for _, other := range boards {
		if other.file != b.file {
			links = append(links, object{"title": other.title, "type": "link", "url": "/d/" + strings.TrimSuffix(other.file, ".json"), "keepTime": true})
		}
	}
	text, err := json.MarshalIndent(object{
		"uid": strings.TrimSuffix(b.file, ".json"), "title": b.title, "description": b.about, "tags": []string{"jorc"},
		"schemaVersion": 39, "editable": true, "refresh": "30s", "time": object{"from": "now-6h", "to": "now"},
		"links": links, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			{
				"name": variable, "type": "query", "datasource": source, "query": object{"query": values, "refId": "A"}, "definition": values,
				"refresh": 2, "includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
			},
		}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// panel is a panel of a dashboard as Grafana reads it.
type panel struct {
	Title   string
	Type    string
	Targets []struct{ Expr string }
}

// panels reads the panels of a board's file that show something.
func (b board) panels(t *testing.T) []panel {
	t.Helper()
	var file struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, filepath.Join("grafana", b.file))), &file); err != nil {
		t.Fatalf("%s: %v", b.file, err)
	}
	return slices.DeleteFunc(file.Panels, func(p panel) bool { return p.Type == "row" })
}

// TestBoards: the dashboards are made from the table of metrics. Each metric has a panel, each panel a query, and no panel
// asks for a metric that jorc does not have. go test ./deploy/prometheus -update writes them.
func TestBoards(t *testing.T) {
	t.Parallel()
	table, known := metricTable(t), metricNames(t)
	shown := map[string]bool{}
	for _, b := range boards {
		file := filepath.Join("grafana", b.file)
		want := b.dashboard(t, table)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, file) != string(want) {
			t.Errorf("%s is not made from docs/metrics.md: make board", file)
		}
		for _, p := range b.panels(t) {
			if len(p.Targets) == 0 {
				t.Errorf("%s: panel %q has no query", b.file, p.Title)
			}
			for _, target := range p.Targets {
				for _, m := range regexp.MustCompile(`\bjorc_\w+`).FindAllString(target.Expr, -1) {
					m = strings.TrimSuffix(m, "_bucket")
					if !known[m] {
						t.Errorf("%s: panel %q asks for %s, which jorc does not have", b.file, p.Title, m)
					}
					shown[m] = true
				}
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
