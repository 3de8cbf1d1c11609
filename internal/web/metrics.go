package web

import (
	"net/http"
	"runtime"
	"strings"
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
	if s.o.Fleet != nil {
		r.MustRegister(s.o.Fleet)
	}
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

// stateCollector converts the status into metrics when they are collected.
// Templates are counted by state. Only templates whose file does not match their
// data have their own series, so that ten thousand templates cost as little as one.
type stateCollector struct {
	status func() Status
	descs  map[string]*prometheus.Desc
}

func newStateCollector(status func() Status) *stateCollector {
	c := &stateCollector{status: status, descs: map[string]*prometheus.Desc{}}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{"jorc_build_info", "Always 1; the labels are the version of jorc.", []string{"version", "commit", "goversion"}},
		{"jorc_healthy", "Whether jorc's own loops work (/healthz).", nil},
		{"jorc_ready", "Whether services are registered, files rendered and cycles finished (/healthz?ready).", nil},
		{"jorc_held", "Whether this host is held: nothing is converged or reloaded.", nil},
		{"jorc_consul_up", "Whether Consul answers.", nil},
		{"jorc_consul_last_contact_timestamp_seconds", "When Consul last answered; 0: never. While nothing changes an answer comes every few minutes.", nil},
		{"jorc_consul_connections", "Open connections to Consul.", nil},
		{"jorc_consul_connections_max", "The budget of connections to Consul.", nil},
		{"jorc_consul_blocking_queries", "Open blocking queries.", nil},
		{"jorc_consul_failures_total", "Requests to Consul that got no answer.", nil},
		{"jorc_config_last_reload_successful", "Whether the last attempt to read the configuration again succeeded; 1 before the first.", nil},
		{"jorc_config_last_reload_timestamp_seconds", "When the configuration was last read again; 0: never since the start.", nil},
		{"jorc_services", "Services of this host.", []string{"registered"}},
		{"jorc_check_state", "1 for the state that a check of a service is in.", []string{"service", "check", "state"}},
		{"jorc_templates", "Templates by state.", []string{"state"}},
		{"jorc_template_unsettled", "1 for each template that is not in state rendered.", []string{"template", "state"}},
		{"jorc_template_executions_total", "Executions of templates.", nil},
		{"jorc_process_state", "1 for the state that a process is in.", []string{"process", "state"}},
		{"jorc_process_starts_total", "Starts of a process by this agent.", []string{"process"}},
		{"jorc_convergence", "1 for the phase that this host's convergence is in.", []string{"phase"}},
		{"jorc_convergence_pending", "Whether another version is desired than this host runs.", nil},
		{"jorc_convergence_unorchestrated", "Whether this host waits for a grant of a rollout and no orchestrator runs.", nil},
		{"jorc_convergence_failures", "Attempts in a row that came to nothing.", nil},
		{"jorc_drifted_paths", "Paths of static configuration that were changed locally.", nil},
		{"jorc_orchestrating", "Whether this agent holds the lock of a cluster that it may orchestrate.", []string{"cluster"}},
		{"jorc_orchestrator_cycles_total", "Cycles of this agent since it started.", []string{"cluster"}},
		{"jorc_orchestrator_failed_cycles", "Cycles in a row that failed, up to the last; from 3 on /healthz?ready is 503.", []string{"cluster"}},
		{"jorc_orchestrator_cycle_seconds", "How long the last cycle took.", []string{"cluster"}},
		{"jorc_orchestrator_problems", "Nodes, documents and deciders that failed in the last cycle.", []string{"cluster"}},
	} {
		c.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	s := c.status()
	b := batch{descs: c.descs, out: out, seen: map[string]bool{}}
	b.gauge("jorc_build_info", 1, s.Version, s.Commit, runtime.Version())
	b.gauge("jorc_healthy", truth(s.Unhealthy == ""))
	b.gauge("jorc_ready", truth(s.Ready))
	b.gauge("jorc_held", truth(s.Held != ""))
	b.gauge("jorc_consul_up", truth(s.Consul.Connected))
	b.gauge("jorc_consul_last_contact_timestamp_seconds", seconds(s.Consul.LastAnswer))
	b.gauge("jorc_consul_connections", float64(s.Consul.Connections))
	b.gauge("jorc_consul_connections_max", float64(s.Consul.MaxConnections))
	b.gauge("jorc_consul_blocking_queries", float64(s.Consul.Watches))
	b.counter("jorc_consul_failures_total", float64(s.Consul.Failures))
	b.gauge("jorc_config_last_reload_successful", truth(s.Reload.OK))
	b.gauge("jorc_config_last_reload_timestamp_seconds", seconds(s.Reload.At))
	b.services(s.Services)
	b.templates(s.Templates)
	for i := range s.Processes {
		b.gauge("jorc_process_state", 1, s.Processes[i].Name, s.Processes[i].State)
		b.send("jorc_process_starts_total", prometheus.CounterValue, float64(s.Processes[i].Starts), []string{s.Processes[i].Name})
	}
	b.convergence(s.Convergence)
	for _, o := range s.Orchestrators {
		b.gauge("jorc_orchestrating", truth(o.Active), o.Cluster)
		b.send("jorc_orchestrator_cycles_total", prometheus.CounterValue, float64(o.Cycles), []string{o.Cluster})
		b.gauge("jorc_orchestrator_failed_cycles", float64(o.Fails), o.Cluster)
		b.gauge("jorc_orchestrator_cycle_seconds", o.Took, o.Cluster)
		b.gauge("jorc_orchestrator_problems", float64(o.Problems), o.Cluster)
	}
}

// convergence sends nothing for a host without static configuration.
func (b *batch) convergence(c *Convergence) {
	if c == nil {
		return
	}
	b.gauge("jorc_convergence", 1, c.Phase)
	b.gauge("jorc_convergence_pending", truth(c.Desired != "" && c.Desired != c.Version))
	b.gauge("jorc_convergence_unorchestrated", truth(c.Unorchestrated))
	b.gauge("jorc_convergence_failures", float64(c.Fails))
	b.gauge("jorc_drifted_paths", float64(len(c.Drifted)))
}

// batch sends the metrics of one collection, each at most once: a duplicate would
// make the whole collection fail.
type batch struct {
	descs map[string]*prometheus.Desc
	out   chan<- prometheus.Metric
	seen  map[string]bool
}

func (b *batch) gauge(name string, v float64, labels ...string) {
	b.send(name, prometheus.GaugeValue, v, labels)
}

func (b *batch) counter(name string, v float64) {
	b.send(name, prometheus.CounterValue, v, nil)
}

func (b *batch) send(name string, t prometheus.ValueType, v float64, labels []string) {
	clean := make([]string, len(labels))
	for i, l := range labels {
		clean[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	id := name + "\x00" + strings.Join(clean, "\x00")
	if b.seen[id] {
		return
	}
	b.seen[id] = true
	m, err := prometheus.NewConstMetric(b.descs[name], t, v, clean...)
	if err != nil {
		m = prometheus.NewInvalidMetric(b.descs[name], err)
	}
	b.out <- m
}

func (b *batch) services(list []Service) {
	registered := 0
	for i := range list {
		s := &list[i]
		if s.Registered {
			registered++
		}
		for j := range s.Checks {
			for _, state := range []string{CheckPassing, CheckWarning, CheckCritical, CheckUnknown} {
				b.gauge("jorc_check_state", truth(s.Checks[j].State == state), s.ID, s.Checks[j].ID, state)
			}
		}
	}
	b.gauge("jorc_services", float64(registered), "true")
	b.gauge("jorc_services", float64(len(list)-registered), "false")
}

func (b *batch) templates(list []Template) {
	states := map[string]int{TemplateWaiting: 0, TemplateRendered: 0, TemplateHeld: 0, TemplateFailed: 0}
	var executions uint64
	for i := range list {
		t := &list[i]
		states[t.State]++
		executions += t.Executions
		if t.State != TemplateRendered {
			b.gauge("jorc_template_unsettled", 1, t.Name, t.State)
		}
	}
	for state, n := range states {
		b.gauge("jorc_templates", float64(n), state)
	}
	b.counter("jorc_template_executions_total", float64(executions))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds returns t in seconds since 1970; 0 if t is zero.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}
