package web

import "time"

// Source is where the server learns how the agent stands. Status is asked for
// every request, by several at a time; it must not wait for Consul.
type Source interface {
	Status() Status
}

// Status is the answer of /v1/status. Its JSON is stable: names and meanings
// stay, fields are added. Times are RFC 3339 in UTC; one that has not come yet
// is left out. Lists are never null.
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
	// Unhealthy says which of jorc's own loops has stopped or is stuck; empty:
	// none. It decides /healthz.
	Unhealthy string `json:"unhealthy"`
	// Held says why nothing is converged and reloaded on this host now; empty: it is.
	Held string `json:"held"`
	// Rival says that another agent was given this node's name; empty: none was noticed.
	Rival     string     `json:"rival"`
	Consul    Consul     `json:"consul"`
	Services  []Service  `json:"services"`
	Templates []Template `json:"templates"`
	Reload    Reload     `json:"reload"`
	// Convergence is left out on a host without static configuration.
	Convergence *Convergence `json:"convergence,omitempty"`
	// Orchestrators are the clusters that this agent orchestrates, or would.
	Orchestrators []Orchestrator `json:"orchestrators"`
}

// Orchestrator is how this agent stands with the orchestration of a cluster.
type Orchestrator struct {
	Cluster  string    `json:"cluster"`
	Active   bool      `json:"active"` // it holds the cluster's lock
	Since    time.Time `json:"since,omitzero"`
	Cycles   uint64    `json:"cycles"`
	Fails    uint64    `json:"fails"`         // cycles in a row that failed, up to the last
	Last     time.Time `json:"last,omitzero"` // when the last cycle began
	Took     float64   `json:"took_seconds"`
	Outcome  string    `json:"outcome"` // of the last cycle
	Idle     string    `json:"idle"`    // why it decided nothing; empty: it was asked to decide
	Error    string    `json:"error"`   // why it failed
	Synced   int       `json:"synced"`  // nodes of which everything could be read
	Failed   int       `json:"failed"`  // nodes of which something could not
	Problems int       `json:"problems"`
	Event    uint64    `json:"event"` // number of the last event
	// Decisions of the last cycle, the first of them.
	Decisions []Decision `json:"decisions"`
}

// Decision is what an orchestrator decided, and why.
type Decision struct {
	Kind   string `json:"kind"` // that of its event
	Node   string `json:"node,omitempty"`
	Text   string `json:"text"`
	Reason string `json:"reason,omitempty"`
}

// Convergence is how this host comes to the desired version.
type Convergence struct {
	Phase   string    `json:"phase"` // starting, idle, held, paused, pending, admission, static, reboot, validation, recording, failed, converged
	Detail  string    `json:"detail"`
	Since   time.Time `json:"since,omitzero"`
	Desired string    `json:"desired"` // empty: none, or not known
	Version string    `json:"version"` // that this host runs
	Job     string    `json:"job"`     // of the static workflow
	Fails   int       `json:"fails"`   // attempts in a row that came to nothing
	Why     string    `json:"why"`     // the last of them did
	Next    time.Time `json:"next,omitzero"`
	Missing []string  `json:"missing"` // what is required and not there
	Failing []string  `json:"failing"` // health checks
	Drifted []string  `json:"drifted"` // paths of static configuration that somebody changed
	Suspect string    `json:"suspect"`
	Trouble []string  `json:"trouble"` // what cannot be done at present
	// Unorchestrated: this host waits for a grant, and no orchestrator runs.
	Unorchestrated bool `json:"unorchestrated,omitempty"`
}

// Consul is how jorc gets on with it.
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

// The states of a check; unknown is whatever is none of the others.
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
	State       string    `json:"state"`            // waiting, rendered, held or failed
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
	TemplateWaiting  = "waiting"  // some of its data has not come yet
	TemplateRendered = "rendered" // its file is as its data says
	TemplateHeld     = "held"     // as rendered, but a guard keeps part of the file as it was
	TemplateFailed   = "failed"
)

// Reload is the last time the configuration was read again.
type Reload struct {
	At    time.Time `json:"at,omitzero"` // left out: never since the start
	OK    bool      `json:"ok"`          // true before the first as well
	Error string    `json:"error"`       // the old configuration goes on
}

// completed returns s as it is sent: with what the server decides, without
// null, in UTC. The source's lists stay as they are.
func (s Status) completed() Status {
	utc(&s.Started, &s.Consul.LastAnswer, &s.Consul.UnreachableSince, &s.Reload.At)
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
		utc(&t.Changed, &t.Checked)
		t.Waiting, t.Held = append([]string{}, t.Waiting...), append([]string{}, t.Held...)
		t.Stale = append([]string{}, t.Stale...)
	}
	s.Orchestrators = append([]Orchestrator{}, s.Orchestrators...)
	for i := range s.Orchestrators {
		o := &s.Orchestrators[i]
		utc(&o.Since, &o.Last)
		o.Decisions = append([]Decision{}, o.Decisions...)
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
