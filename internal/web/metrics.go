package web

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Kind is the kind of a failure. The set is fixed because each kind is a series.
type Kind string

// The kinds of failures.
const (
	KindRender   Kind = "render"   // a template could not be executed
	KindCheck    Kind = "check"    // the check command refused a staged file
	KindReplace  Kind = "replace"  // a file could not be written
	KindReload   Kind = "reload"   // a reload command failed
	KindRegister Kind = "register" // a service could not be registered
	KindConfig   Kind = "config"   // a new configuration was refused
	KindOther    Kind = "other"    // any other failure
)

// kinds returns all kinds, so that each has a series from the start.
func kinds() []string {
	return []string{
		string(KindRender), string(KindCheck), string(KindReplace), string(KindReload),
		string(KindRegister), string(KindConfig), string(KindOther),
	}
}

// buckets returns the buckets of jorc_change_to_file_seconds: the minimum is about
// half a millisecond, and commands run for up to a minute.
func buckets() []float64 {
	return []float64{.0005, .001, .0015, .002, .003, .004, .006, .01, .015, .03, .06, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// Metrics counts what the agent does. It belongs to the process and outlives a
// server. Its methods are safe for concurrent use and never block.
type Metrics struct {
	toFile   prometheus.Histogram
	jobs     *prometheus.CounterVec
	replaced prometheus.Counter
	reloads  prometheus.Counter
	configs  *prometheus.CounterVec
	errors   *prometheus.CounterVec
}

// NewMetrics returns metrics whose counters are zero.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: name, Help: help}
	}
	m := &Metrics{
		toFile: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "jorc_change_to_file_seconds", Buckets: buckets(),
			Help: "Time from a change's arrival at this host until its files were replaced.",
		}),
		jobs:     prometheus.NewCounterVec(counter("jorc_renders_total", "Jobs that replaced files (changed) or could not (failed)."), []string{"result"}),
		replaced: prometheus.NewCounter(counter("jorc_files_replaced_total", "Files that were replaced.")),
		reloads:  prometheus.NewCounter(counter("jorc_reloads_total", "Successful reload commands; failed ones are errors of kind reload.")),
		configs:  prometheus.NewCounterVec(counter("jorc_config_reloads_total", "Attempts to read the configuration again."), []string{"result"}),
		errors:   prometheus.NewCounterVec(counter("jorc_errors_total", "Failures, by what failed."), []string{"kind"}),
	}
	for _, result := range []string{"changed", "failed"} {
		m.jobs.WithLabelValues(result)
	}
	for _, result := range []string{"ok", "failed"} {
		m.configs.WithLabelValues(result)
	}
	for _, kind := range kinds() {
		m.errors.WithLabelValues(kind)
	}
	return m
}

// Job is the end of a job that replaced files, or failed to.
type Job struct {
	Took     time.Duration // from the change's arrival until the files were replaced
	Changed  int           // files replaced
	Reloaded int           // reload commands that succeeded
	Failed   Kind          // empty: it succeeded
}

// Observe counts a job.
func (m *Metrics) Observe(j Job) {
	m.replaced.Add(float64(max(j.Changed, 0)))
	m.reloads.Add(float64(max(j.Reloaded, 0)))
	switch {
	case j.Failed != "":
		m.jobs.WithLabelValues("failed").Inc()
		m.Failed(j.Failed)
	case j.Changed > 0:
		m.jobs.WithLabelValues("changed").Inc()
		m.toFile.Observe(j.Took.Seconds())
	}
}

// Failed counts a failure outside of jobs.
func (m *Metrics) Failed(k Kind) {
	m.errors.WithLabelValues(known(string(k), string(KindOther), kinds()...)).Inc()
}

// ConfigReloaded counts an attempt to read the configuration again.
func (m *Metrics) ConfigReloaded(ok bool) {
	if ok {
		m.configs.WithLabelValues("ok").Inc()
		return
	}
	m.configs.WithLabelValues("failed").Inc()
	m.Failed(KindConfig)
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.toFile, m.jobs, m.replaced, m.reloads, m.configs, m.errors}
}

// registry returns a registry of this server's metrics, without what libraries
// register in the default one.
func (s *Server) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s.o.Metrics.collectors()...)
	r.MustRegister(
		newStateCollector(s.status),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

func (s *Server) metricsHandler() http.Handler {
	r := s.registry()
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		Registry:      r,
		ErrorHandling: promhttp.ContinueOnError, // the other metrics are still valid
		ErrorLog:      s.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}),
	})
}
