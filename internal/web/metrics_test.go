package web

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	problems, err := testutil.GatherAndLint(s.registry())
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
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "process_open_fds ", "promhttp_metric_handler_errors_total"} {
		if !strings.Contains(got, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestDefaultRegistry: nothing of jorc's is in the registry that libraries share.
func TestDefaultRegistry(t *testing.T) {
	t.Parallel()
	start(t, &board{status: settled()})
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "jorc_") {
			t.Errorf("%s is in the default registry", f.GetName())
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
	if _, err := s.registry().Gather(); err != nil {
		t.Error(err)
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
	series := func(s *Server) int { return testutil.CollectAndCount(newStateCollector(s.status)) }
	if got, want := series(many), series(few); got != want {
		t.Errorf("got %d series; want %d", got, want)
	}
}
