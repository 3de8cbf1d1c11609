package web

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/jorc/jorc/internal/metrics"
)

// TestMetricsText holds names, types and labels: dashboards and alerts are
// built on them.
func TestMetricsText(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: example()})
	m := s.o.Metrics
	m.Observe(Job{Took: 1200 * time.Microsecond, Changed: 2, Reloaded: 1})
	m.Observe(Job{Took: 40 * time.Second, Changed: 1})
	m.Observe(Job{Took: time.Second, Failed: KindCheck})
	m.Observe(Job{Took: time.Second}) // no file changed
	m.Failed(KindRegister)
	m.Failed("something new")
	m.ConfigReloaded(true)
	m.ConfigReloaded(false)
	var got strings.Builder
	for line := range strings.Lines(s.get("/metrics").body) {
		if strings.HasPrefix(strings.TrimLeft(line, "# HELPTY"), "jorc_") {
			got.WriteString(strings.ReplaceAll(line, runtime.Version(), "go"))
		}
	}
	golden(t, "metrics.txt", got.String())
}

func TestMetricsLint(t *testing.T) {
	t.Parallel()
	s := New(Options{Source: &board{status: example()}, Log: hclog.NewNullLogger()})
	problems, err := promlint.New(bytes.NewReader(metrics.Collect(s.collectors()...).Bytes())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestProcessMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: settled()})
	got := s.get("/metrics").body
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "process_open_fds "} {
		if !strings.Contains(got, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestMetricsOutliveTheServer: the address may change, what was counted stays.
func TestMetricsOutliveTheServer(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	m.Failed(KindRender)
	for range 2 {
		s := start(t, &board{status: settled()}, func(s *Server) { s.o.Metrics = m })
		if got := s.get("/metrics").body; !strings.Contains(got, `jorc_errors_total{kind="render"} 1`) {
			t.Errorf("the failure is not counted:\n%s", got)
		}
	}
}

// TestTwins: two checks of one id must not spoil all other metrics.
func TestTwins(t *testing.T) {
	t.Parallel()
	status := example()
	status.Services = append(status.Services, status.Services...)
	status.Templates = append(status.Templates, status.Templates...)
	s := New(Options{Source: &board{status: status}, Log: hclog.NewNullLogger()})
	lines := map[string]bool{}
	for line := range strings.Lines(string(metrics.Collect(s.collectors()...).Bytes())) {
		series, _, _ := strings.Cut(line, "} ")
		if lines[series] {
			t.Errorf("twice: %s", line)
		}
		lines[series] = true
	}
}

// TestManyTemplates: ten thousand templates cost no more series than one.
func TestManyTemplates(t *testing.T) {
	t.Parallel()
	status := settled()
	few := New(Options{Source: &board{status: status}, Log: hclog.NewNullLogger()})
	for range 10_000 {
		status.Templates = append(status.Templates, Template{State: TemplateRendered})
	}
	many := New(Options{Source: &board{status: status}, Log: hclog.NewNullLogger()})
	series := func(s *Server) int {
		return bytes.Count(metrics.Collect(stateCollector(s.status)).Bytes(), []byte("\n"))
	}
	if got, want := series(many), series(few); got != want {
		t.Errorf("got %d series; want %d", got, want)
	}
}
