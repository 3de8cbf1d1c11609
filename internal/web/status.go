package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/text"
)

// Source provides the agent's status. Status is called for every request,
// concurrently, and must not wait for Consul.
type Source interface {
	Status() Status
}

// Status is the answer of /v1/status. Its JSON is stable: fields are added, but
// never renamed or given another meaning. Times are RFC 3339 in UTC; unset times are
// left out. Lists are never null.
type Status struct {
	Node    string    `json:"node"`
	Cluster string    `json:"cluster"`
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Started time.Time `json:"started,omitzero"`
	// Ready and NotReady are completed by the server: see /healthz?ready. What
	// the source puts in NotReady is kept as a reason.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready"`
	// Unhealthy names the loop of jorc that has stopped or is stuck; empty: none. It
	// decides /healthz.
	Unhealthy string `json:"unhealthy"`
	// Held is why this host does not converge or reload now; empty: it is not held.
	Held string `json:"held"`
	// HeldUntil is when the hold ends by itself; left out: it does not.
	HeldUntil time.Time `json:"held_until,omitzero"`
	// Grant is the permission for a version that the host has accepted and that is open.
	Grant *Grant `json:"grant,omitempty"`
	// Lease is what the host asked for by itself: to be out of service, with 'jorc maintenance' or FleetLock.
	Lease *Lease `json:"lease,omitempty"`
	// Stages are the ones in which this host waits for a grant, is at work on one, or failed.
	Stages []Stage `json:"stages,omitempty"`
	// Rival reports that another agent uses this node's name; empty: none was noticed.
	Rival string `json:"rival"`
	// Resting is why no template is rendered now: the agent was killed for want of memory
	// while it loaded their data; empty: they are rendered.
	Resting   string     `json:"resting,omitempty"`
	Consul    Consul     `json:"consul"`
	Services  []Service  `json:"services"`
	Templates []Template `json:"templates"`
	Processes []Process  `json:"processes"`
	Triggers  []Trigger  `json:"triggers"`
	// Schedules are the triggers with a schedule.
	Schedules []Schedule `json:"schedules"`
	Reload    Reload     `json:"reload"`
	// Expiry has the certificates and tokens that end.
	Expiry []Expiry `json:"expiry,omitempty"`
	// Convergence is left out on a host without static configuration.
	Convergence *Convergence `json:"convergence,omitempty"`
	// Orchestrators are the clusters for whose orchestrator lock this agent campaigns.
	Orchestrators []Orchestrator `json:"orchestrators"`
}

// Expiry is until when a certificate or a token on which this host relies is valid.
type Expiry struct {
	Kind  string    `json:"kind"` // certificate or token
	Name  string    `json:"name"` // the setting that names it, or the template that renders it
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Renewed: another program renews it when two thirds of its life are over, or soon after.
	Renewed bool   `json:"renewed,omitempty"`
	Soon    bool   `json:"soon"` // less than a third of its life is left, or than a quarter if it is renewed
	Error   string `json:"error,omitempty"`
}

// Grant is the permission of a host for one version.
type Grant struct {
	Version string    `json:"version"`
	State   string    `json:"state"` // accepted, failed (the host tries again by itself), stranded (another version is desired)
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

// Lease is the lease of a host.
type Lease struct {
	ID      string    `json:"id"`    // of the caller
	State   string    `json:"state"` // asked, placed, draining, ready, ending
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`    // when its time is over
	Waits   string    `json:"waits,omitempty"`   // why it is not further
	Trouble string    `json:"trouble,omitempty"` // its time is over, and the host is not healthy
}

// Stage is how far a host is with new content of a stage.
type Stage struct {
	Stage   string    `json:"stage"`
	State   string    `json:"state"` // waiting, changing, settling, restoring, failed or restored
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`  // why it failed
	Changed []string  `json:"changed,omitempty"` // what differs in the content
	Failed  bool      `json:"failed,omitempty"`  // its checks did not pass: the stage stands still for that content
	// Unorchestrated: it waits, and no orchestrator runs.
	Unorchestrated bool `json:"unorchestrated,omitempty"`
}

// Orchestrator is the state of this agent's orchestrator of one cluster.
type Orchestrator struct {
	Cluster  string    `json:"cluster"`
	Active   bool      `json:"active"` // it holds the cluster's lock
	Since    time.Time `json:"since,omitzero"`
	Cycles   uint64    `json:"cycles"`
	Fails    uint64    `json:"fails"`         // cycles in a row that failed, up to the last
	Last     time.Time `json:"last,omitzero"` // when the last cycle began
	Took     float64   `json:"took_seconds"`
	Outcome  string    `json:"outcome"` // of the last cycle
	Idle     string    `json:"idle"`    // why it made no decisions; empty: the deciders ran
	Error    string    `json:"error"`   // why it failed
	Synced   int       `json:"synced"`  // nodes that could be read completely
	Failed   int       `json:"failed"`  // nodes that could not
	Problems int       `json:"problems"`
	Event    uint64    `json:"event"` // number of the last event
	// Decisions of the last cycle, the first of them.
	Decisions []event.Decision `json:"decisions"`
}

// Convergence is the state of this host's convergence.
type Convergence struct {
	Phase   string    `json:"phase"` // starting, idle, held, paused, pending, admission, static, reboot, validation, recording, failed, converged
	Detail  string    `json:"detail"`
	Since   time.Time `json:"since,omitzero"`
	Desired string    `json:"desired"` // empty: none, or not known
	Version string    `json:"version"` // that this host runs
	Job     string    `json:"job"`     // of the static workflow
	Fails   int       `json:"fails"`   // consecutive failed attempts
	Why     string    `json:"why"`     // of the last failure
	Next    time.Time `json:"next,omitzero"`
	Missing []string  `json:"missing"` // requirements that are not met
	Failing []string  `json:"failing"` // health checks
	Drifted []string  `json:"drifted"` // paths of static configuration that were changed locally
	Suspect string    `json:"suspect"`
	Trouble []string  `json:"trouble"` // current problems
	// Unorchestrated: this host waits for a grant, and no orchestrator runs.
	Unorchestrated bool `json:"unorchestrated,omitempty"`
}

// Consul is the state of jorc's connection to Consul.
type Consul struct {
	Address          string    `json:"address"`
	Connected        bool      `json:"connected"` // filled in by the server: it has answered, and not failed to since
	LastAnswer       time.Time `json:"last_answer,omitzero"`
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	Connections      int       `json:"connections"`     // open now
	MaxConnections   int       `json:"max_connections"` // the budget
	Watches          int       `json:"watches"`         // blocking queries
	Failures         uint64    `json:"failures"`        // requests without an answer
}

// Service is one service that this host publishes.
type Service struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Registered bool      `json:"registered"`
	Stored     bool      `json:"stored"`         // by `jorc service register`
	Presence   bool      `json:"presence"`       // jorc's own
	Since      time.Time `json:"since,omitzero"` // of registered or, while it is false, of error
	Error      string    `json:"error"`          // why it is not registered
	Checks     []Check   `json:"checks"`
}

// Check is one health check of a service.
type Check struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`
	State   string    `json:"state"` // passing, warning, critical or unknown
	Since   time.Time `json:"since,omitzero"`
	LastRun time.Time `json:"last_run,omitzero"` // of a script
	Took    float64   `json:"took_seconds"`
	Output  string    `json:"output"` // of the last run
	Error   string    `json:"error"`  // of the last heartbeat
}

// The states of a check; unknown is any other state.
const (
	CheckPassing  = "passing"
	CheckWarning  = "warning"
	CheckCritical = "critical"
	CheckUnknown  = "unknown"
)

// Template is one template and its file.
type Template struct {
	Name        string    `json:"name"`
	Destination string    `json:"destination"`
	Together    string    `json:"together"`
	State       string    `json:"state"`            // waiting, rendered, held, stale or failed
	Since       time.Time `json:"since,omitzero"`   // of State; stale: since when data cannot be read
	Waiting     []string  `json:"waiting"`          // for what, why, since when
	Held        []string  `json:"held"`             // what guards hold back
	Stale       []string  `json:"stale"`            // which data is not up to date, why, since when
	Lost        []string  `json:"lost,omitempty"`   // of the ACL and extended attributes, when the file was last replaced
	Edited      string    `json:"edited,omitempty"` // that another program changed the file, and what became of it
	Error       string    `json:"error"`            // of the last job
	Changed     time.Time `json:"changed,omitzero"` // when the file was last replaced by this process
	Checked     time.Time `json:"checked,omitzero"` // when the last job ended
	Writes      uint64    `json:"writes"`
	Executions  uint64    `json:"executions"`
}

// The states of a template.
const (
	TemplateWaiting  = "waiting"  // some of its data is missing
	TemplateRendered = "rendered" // its file matches its data
	TemplateHeld     = "held"     // as rendered, but a guard keeps part of the file unchanged
	TemplateStale    = "stale"    // as rendered or held, but data it uses can no longer be read
	TemplateFailed   = "failed"
)

// Process is one supervised program.
type Process struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // waiting, starting, running, stopping or failed
	Since   time.Time `json:"since,omitzero"`
	PID     int       `json:"pid,omitempty"` // of its process group
	Waiting []string  `json:"waiting"`       // templates and data that its start waits for
	Stale   []string  `json:"stale"`         // which data of its environment is not up to date, why, since when
	Pending string    `json:"pending,omitempty"`
	Starts  uint64    `json:"starts"` // by this agent
	Error   string    `json:"error"`  // how it ended, or why it cannot be started
	Next    time.Time `json:"next,omitzero"`
}

// The states of a process.
const (
	ProcessStarting = "starting" // it has not run for min_healthy_time yet
	ProcessRunning  = "running"
	ProcessFailed   = "failed"
)

// Trigger is one trigger of the host.
type Trigger struct {
	Trigger  string   `json:"trigger"`
	Kind     string   `json:"kind"` // service, key, prefix, event or schedule
	Workflow string   `json:"workflow"`
	Running  string   `json:"running"` // the job that has not ended
	Last     *LastJob `json:"last"`    // null: none has ended
	Error    string   `json:"error"`   // why the state is not known
}

// LastJob is how the last job of a trigger ended.
type LastJob struct {
	Job   string    `json:"job"`
	State string    `json:"state"` // success, failed, stopped or interrupted
	Why   string    `json:"why"`   // empty for success
	At    time.Time `json:"at"`
}

// Schedule is one trigger with a schedule.
type Schedule struct {
	Trigger  string    `json:"trigger"`
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone"`
	Workflow string    `json:"workflow"`
	LastRun  time.Time `json:"last_run,omitzero"` // when the workflow was last started at a due time
	NextRun  time.Time `json:"next_run,omitzero"` // of the first due time that is not handled; in the past: it is overdue
	Missed   Missed    `json:"missed"`
	Error    string    `json:"error"` // why the state is not known
}

// Missed are the due times of a schedule that passed while nothing could start.
type Missed struct {
	Count   int       `json:"count"`            // one for several due times that passed together
	Due     time.Time `json:"due,omitzero"`     // the last one
	Noticed time.Time `json:"noticed,omitzero"` // when it was found to be missed
}

// Reload is the result of the last reload.
type Reload struct {
	At    time.Time `json:"at,omitzero"` // left out: no reload since the start
	OK    bool      `json:"ok"`          // also true before the first reload
	Error string    `json:"error"`       // the agent keeps the previous configuration
}

// completed returns s as it is sent: with the server's own fields, without null
// lists, in UTC. It does not modify the source's lists.
func (s Status) completed() Status {
	utc(&s.Started, &s.HeldUntil, &s.Consul.LastAnswer, &s.Consul.UnreachableSince, &s.Reload.At)
	s.Consul.Connected = !s.Consul.LastAnswer.IsZero() && s.Consul.UnreachableSince.IsZero()
	s.Reload.OK = s.Reload.OK || s.Reload.At.IsZero()
	s.Services = append([]Service{}, s.Services...)
	for i := range s.Services {
		service := &s.Services[i]
		utc(&service.Since)
		service.Checks = append([]Check{}, service.Checks...)
		for j := range service.Checks {
			check := &service.Checks[j]
			utc(&check.Since, &check.LastRun)
			check.State = known(check.State, CheckUnknown, CheckPassing, CheckWarning, CheckCritical)
		}
	}
	s.Templates = append([]Template{}, s.Templates...)
	for i := range s.Templates {
		t := &s.Templates[i]
		utc(&t.Since, &t.Changed, &t.Checked)
		t.Waiting, t.Held = append([]string{}, t.Waiting...), append([]string{}, t.Held...)
		t.Stale = append([]string{}, t.Stale...)
	}
	s.Processes = append([]Process{}, s.Processes...)
	for i := range s.Processes {
		p := &s.Processes[i]
		utc(&p.Since, &p.Next)
		p.Waiting, p.Stale = append([]string{}, p.Waiting...), append([]string{}, p.Stale...)
	}
	s.Triggers = append([]Trigger{}, s.Triggers...)
	s.Schedules = append([]Schedule{}, s.Schedules...)
	for i := range s.Schedules {
		v := &s.Schedules[i]
		utc(&v.LastRun, &v.NextRun, &v.Missed.Due, &v.Missed.Noticed)
	}
	s.Orchestrators = append([]Orchestrator{}, s.Orchestrators...)
	for i := range s.Orchestrators {
		o := &s.Orchestrators[i]
		utc(&o.Since, &o.Last)
		o.Decisions = append([]event.Decision{}, o.Decisions...)
	}
	s.Stages = slices.Clone(s.Stages)
	for i := range s.Stages {
		utc(&s.Stages[i].Since)
	}
	if s.Grant != nil {
		g := *s.Grant
		utc(&g.Since)
		s.Grant = &g
	}
	if s.Convergence != nil {
		c := *s.Convergence
		utc(&c.Since, &c.Next)
		c.Missing, c.Failing = append([]string{}, c.Missing...), append([]string{}, c.Failing...)
		c.Drifted, c.Trouble = append([]string{}, c.Drifted...), append([]string{}, c.Trouble...)
		s.Convergence = &c
	}
	s.NotReady = append(append([]string{}, s.NotReady...), notReady(s)...)
	s.Ready = len(s.NotReady) == 0
	return s
}

func utc(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
	}
}

// known returns word if it is one of words, else other.
func known(word, other string, words ...string) string {
	for _, w := range words {
		if w == word {
			return w
		}
	}
	return other
}

// maxReasons bounds how many reasons are listed; the status lists the state of every
// service and template.
const maxReasons = 20

// tooManyFails is how many consecutive failed cycles make an orchestrator not ready.
const tooManyFails = 3

// notReady lists why this host does not match its configuration: Consul has never
// answered, a service is not registered, a template failed or has not been rendered, a
// process does not run, or the host orchestrates a cluster and its cycles fail.
//
// A host stays ready while Consul is unreachable or data can no longer be read (services
// and files stay unchanged), while a service's check fails (that is the service's state, not
// jorc's), and while a guard holds back part of a file (that is its purpose).
func notReady(s Status) []string {
	var reasons []string
	if s.Consul.LastAnswer.IsZero() {
		reasons = append(reasons, fmt.Sprintf("Consul at %s has not answered yet", s.Consul.Address))
	}
	for i := range s.Services {
		if service := &s.Services[i]; !service.Registered {
			reasons = append(reasons, because(fmt.Sprintf("service %q is not registered", service.ID), service.Error))
		}
	}
	for i := range s.Templates {
		switch t := &s.Templates[i]; t.State {
		case TemplateRendered, TemplateHeld, TemplateStale:
		case TemplateFailed:
			reasons = append(reasons, because(fmt.Sprintf("template %q failed", t.Name), t.Error))
		default:
			reasons = append(reasons, because(fmt.Sprintf("template %q has not been rendered", t.Name), strings.Join(t.Waiting, "; ")))
		}
	}
	for i := range s.Processes {
		switch p := &s.Processes[i]; p.State {
		case ProcessRunning:
		case ProcessFailed:
			reasons = append(reasons, because(fmt.Sprintf("process %q failed", p.Name), p.Error))
		default:
			reasons = append(reasons, because(fmt.Sprintf("process %q is %s", p.Name, p.State), strings.Join(append(slices.Clone(p.Waiting), p.Error), " ")))
		}
	}
	for i := range s.Orchestrators {
		if o := &s.Orchestrators[i]; o.Active && o.Fails >= tooManyFails {
			reasons = append(reasons, because(fmt.Sprintf("the orchestrator of cluster %q: the last %d cycles failed", o.Cluster, o.Fails), o.Error))
		}
	}
	return text.Lines(reasons, maxReasons)
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + strings.Join(strings.Fields(why), " ")
}
