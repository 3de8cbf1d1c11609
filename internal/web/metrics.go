package web

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/metrics"
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

// buckets returns the buckets of jorc_data_to_file_seconds: the minimum is about
// half a millisecond, and commands run for up to a minute.
func buckets() []float64 {
	return []float64{.0005, .001, .0015, .002, .003, .004, .006, .01, .015, .03, .06, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// The metrics that the agent counts.
var (
	toFileDesc = metrics.Desc{
		Name: "jorc_data_to_file_seconds", Type: metrics.Histogram,
		Help: "Time from a change's arrival at this host until its files were replaced.",
	}
	jobsDesc     = counterDesc("jorc_renders_total", "Jobs that replaced files (changed) or could not (failed).", "result")
	replacedDesc = counterDesc("jorc_files_replaced_total", "Files that were replaced.")
	reloadsDesc  = counterDesc("jorc_reloads_total", "Successful reload commands; failed ones are errors of kind reload.")
	configsDesc  = counterDesc("jorc_config_reloads_total", "Attempts to read the configuration again.", "result")
	errorsDesc   = counterDesc("jorc_errors_total", "Failures, by what failed.", "kind")
)

func counterDesc(name, help string, labels ...string) metrics.Desc {
	return metrics.Desc{Name: name, Help: help, Type: metrics.Counter, Labels: labels}
}

// Metrics counts what the agent does. It belongs to the process and outlives a
// server. Its methods are safe for concurrent use and never block.
type Metrics struct {
	mu       sync.Mutex
	toFile   []uint64 // per bucket, and last beyond all
	seconds  float64  // the sum of toFile's times
	jobs     map[string]int
	replaced int
	reloads  int
	configs  map[string]int
	errors   map[string]int
}

// NewMetrics returns metrics whose counters are zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		toFile: make([]uint64, len(buckets())+1), jobs: map[string]int{"changed": 0, "failed": 0},
		configs: map[string]int{"ok": 0, "failed": 0}, errors: map[string]int{},
	}
	for _, kind := range kinds() {
		m.errors[kind] = 0
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaced += max(j.Changed, 0)
	m.reloads += max(j.Reloaded, 0)
	switch {
	case j.Failed != "":
		m.jobs["failed"]++
		m.failed(j.Failed)
	case j.Changed > 0:
		m.jobs["changed"]++
		m.seconds += j.Took.Seconds()
		bucket, _ := slices.BinarySearch(buckets(), j.Took.Seconds())
		m.toFile[bucket]++
	}
}

// Failed counts a failure outside of jobs.
func (m *Metrics) Failed(k Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed(k)
}

func (m *Metrics) failed(k Kind) { m.errors[known(string(k), string(KindOther), kinds()...)]++ }

// ConfigReloaded counts an attempt to read the configuration again.
func (m *Metrics) ConfigReloaded(ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok {
		m.configs["ok"]++
		return
	}
	m.configs["failed"]++
	m.failed(KindConfig)
}

// collect is a metrics.Collector.
func (m *Metrics) collect(e *metrics.Exposition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.AddHistogram(toFileDesc, buckets(), m.toFile, m.seconds)
	e.Add(replacedDesc, float64(m.replaced))
	e.Add(reloadsDesc, float64(m.reloads))
	for _, counted := range []struct {
		desc   metrics.Desc
		counts map[string]int
	}{{jobsDesc, m.jobs}, {configsDesc, m.configs}, {errorsDesc, m.errors}} {
		for label, n := range counted.counts {
			e.Add(counted.desc, float64(n), label)
		}
	}
}

// collectors are those of all metrics of this server.
func (s *Server) collectors() []metrics.Collector {
	all := []metrics.Collector{s.o.Metrics.collect, stateCollector(s.status), metrics.Runtime(s.o.GCPercent), metrics.Process}
	if s.o.Fleet != nil {
		all = append(all, s.o.Fleet)
	}
	return all
}

// stateDescs are the metrics that are made of the status.
func stateDescs() map[string]metrics.Desc {
	descs := map[string]metrics.Desc{}
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
		{"jorc_expiry_timestamp_seconds", "When a certificate or token on which this host relies ends; 0: it cannot be read.", []string{"kind", "name"}},
		{"jorc_expiry_lifetime_seconds", "For how long it is valid in all.", []string{"kind", "name"}},
		{"jorc_expiry_soon", "1 when less than a third of its life is left, or than a quarter if it is renewed by itself.", []string{"kind", "name"}},
		{"jorc_services", "Services of this host.", []string{"registered"}},
		{"jorc_check_state", "1 for the state that a check of a service is in.", []string{"service", "check", "state"}},
		{"jorc_templates", "Templates by state.", []string{"state"}},
		{"jorc_template_unsettled", "1 for each template that is not in state rendered.", []string{"template", "state"}},
		{"jorc_template_executions_total", "Executions of templates.", nil},
		{"jorc_process_state", "1 for the state that a process is in.", []string{"process", "state"}},
		{"jorc_process_starts_total", "Starts of a process by this agent.", []string{"process"}},
		{"jorc_schedule_last_run_timestamp_seconds", "When the workflow of a trigger with a schedule was last started at a due time; missing: never.", []string{"trigger"}},
		{"jorc_schedule_next_run_timestamp_seconds", "When the workflow is to start next; in the past: it is overdue.", []string{"trigger"}},
		{"jorc_schedule_last_missed_timestamp_seconds", "When a due time of the trigger was last found to be missed; missing: never.", []string{"trigger"}},
		{"jorc_schedule_missed_total", "How often due times of the trigger were missed; several in a row count once.", []string{"trigger"}},
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
		t := metrics.Gauge
		if strings.HasSuffix(d.name, "_total") {
			t = metrics.Counter
		}
		descs[d.name] = metrics.Desc{Name: d.name, Help: d.help, Type: t, Labels: d.labels}
	}
	return descs
}

// stateCollector converts the status into metrics when they are collected.
// Templates are counted by state. Only templates whose file does not match their
// data have their own series, so that ten thousand templates cost as little as one.
func stateCollector(status func() Status) metrics.Collector {
	return func(e *metrics.Exposition) { collectState(e, status()) }
}

func collectState(e *metrics.Exposition, s Status) {
	b := batch{descs: stateDescs(), out: e}
	b.add("jorc_build_info", 1, s.Version, s.Commit, runtime.Version())
	b.add("jorc_healthy", truth(s.Unhealthy == ""))
	b.add("jorc_ready", truth(s.Ready))
	b.add("jorc_held", truth(s.Held != ""))
	b.add("jorc_consul_up", truth(s.Consul.Connected))
	b.add("jorc_consul_last_contact_timestamp_seconds", seconds(s.Consul.LastAnswer))
	b.add("jorc_consul_connections", float64(s.Consul.Connections))
	b.add("jorc_consul_connections_max", float64(s.Consul.MaxConnections))
	b.add("jorc_consul_blocking_queries", float64(s.Consul.Watches))
	b.add("jorc_consul_failures_total", float64(s.Consul.Failures))
	b.add("jorc_config_last_reload_successful", truth(s.Reload.OK))
	b.add("jorc_config_last_reload_timestamp_seconds", seconds(s.Reload.At))
	for _, x := range s.Expiry {
		b.add("jorc_expiry_timestamp_seconds", seconds(x.Until), x.Kind, x.Name)
		b.add("jorc_expiry_lifetime_seconds", x.Until.Sub(x.From).Seconds(), x.Kind, x.Name)
		b.add("jorc_expiry_soon", truth(x.Soon), x.Kind, x.Name)
	}
	b.services(s.Services)
	b.templates(s.Templates)
	for i := range s.Processes {
		b.add("jorc_process_state", 1, s.Processes[i].Name, s.Processes[i].State)
		b.add("jorc_process_starts_total", float64(s.Processes[i].Starts), s.Processes[i].Name)
	}
	for _, v := range s.Schedules {
		b.moment("jorc_schedule_last_run_timestamp_seconds", v.LastRun, v.Trigger)
		b.moment("jorc_schedule_next_run_timestamp_seconds", v.NextRun, v.Trigger)
		b.moment("jorc_schedule_last_missed_timestamp_seconds", v.Missed.Noticed, v.Trigger)
		if v.Error == "" {
			b.add("jorc_schedule_missed_total", float64(v.Missed.Count), v.Trigger)
		}
	}
	b.convergence(s.Convergence)
	for _, o := range s.Orchestrators {
		b.add("jorc_orchestrating", truth(o.Active), o.Cluster)
		b.add("jorc_orchestrator_cycles_total", float64(o.Cycles), o.Cluster)
		b.add("jorc_orchestrator_failed_cycles", float64(o.Fails), o.Cluster)
		b.add("jorc_orchestrator_cycle_seconds", o.Took, o.Cluster)
		b.add("jorc_orchestrator_problems", float64(o.Problems), o.Cluster)
	}
}

// convergence sends nothing for a host without static configuration.
func (b *batch) convergence(c *Convergence) {
	if c == nil {
		return
	}
	b.add("jorc_convergence", 1, c.Phase)
	b.add("jorc_convergence_pending", truth(c.Desired != "" && c.Desired != c.Version))
	b.add("jorc_convergence_unorchestrated", truth(c.Unorchestrated))
	b.add("jorc_convergence_failures", float64(c.Fails))
	b.add("jorc_drifted_paths", float64(len(c.Drifted)))
}

// batch adds the metrics of one collection.
type batch struct {
	descs map[string]metrics.Desc
	out   *metrics.Exposition
}

func (b *batch) add(name string, v float64, labels ...string) { b.out.Add(b.descs[name], v, labels...) }

// moment adds a time; one that is not known is left out.
func (b *batch) moment(name string, t time.Time, labels ...string) {
	if !t.IsZero() {
		b.add(name, seconds(t), labels...)
	}
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
				b.add("jorc_check_state", truth(s.Checks[j].State == state), s.ID, s.Checks[j].ID, state)
			}
		}
	}
	b.add("jorc_services", float64(registered), "true")
	b.add("jorc_services", float64(len(list)-registered), "false")
}

func (b *batch) templates(list []Template) {
	states := map[string]int{TemplateWaiting: 0, TemplateRendered: 0, TemplateHeld: 0, TemplateStale: 0, TemplateFailed: 0}
	var executions uint64
	for i := range list {
		t := &list[i]
		states[t.State]++
		executions += t.Executions
		if t.State != TemplateRendered {
			b.add("jorc_template_unsettled", 1, t.Name, t.State)
		}
	}
	for state, n := range states {
		b.add("jorc_templates", float64(n), state)
	}
	b.add("jorc_template_executions_total", float64(executions))
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
