// Package config loads jorc's configuration. It starts from the defaults,
// decodes HCL and JSON files strictly, applies the environment and the command
// line's flags, and validates the result. Targets, filters and templates are
// parsed by the packages that own them.
package config

import (
	"fmt"
	"io"
	"time"
)

// NodeFile, in the state directory, holds the name of the node that the state
// belongs to. It makes a host that was cloned from another's disk begin as new.
const NodeFile = "node"

// Config is the whole configuration of one agent. The tags name the arguments
// that decode sets; fields without a tag have a decoder of their own, such as
// durations, or are set by blocks, the environment or Load.
type Config struct {
	Cluster     string `hcl:"cluster,optional"`      // default "default"; empty: keys have no such segment
	Node        string `hcl:"node,optional"`         // default: the local agent's node name, asked for at start
	Prefix      string `hcl:"prefix,optional"`       // default "jorc"; empty: keys begin with the cluster
	StateDir    string `hcl:"state_dir,optional"`    // default /var/lib/jorc
	VersionFile string `hcl:"version_file,optional"` // default <StateDir>/version
	OnStop      string `hcl:"on_stop,optional"`      // "keep" (default), "deregister", "maintenance"
	LogLevel    string `hcl:"log_level,optional"`    // default "info"
	// RebootCommand reboots the host; default: systemctl reboot.
	RebootCommand []string `hcl:"reboot_command,optional"`
	LogJSON       bool     `hcl:"log_json,optional"`

	DefaultVersionFile bool // VersionFile is the default

	HTTP         HTTP
	Control      Control
	FleetLock    *FleetLock // nil: the protocol is not served
	Consul       Consul
	DNS          DNS
	Vault        Vault
	TemplateOpts TemplateOptions // block "template_options"

	Services     []Service
	Requires     []Requires // gate static configuration
	Static       *Static
	Templates    []Template
	Processes    []Process
	Workflows    []Workflow
	Triggers     []Trigger
	Member       *Member
	Orchestrator *Orchestrator
	UI           *UI // nil: the fleet is not shown
	LogStore     *LogStore

	Owners   *Owners   // of the destinations; nil: not known
	Warnings []Problem // problems that do not make the configuration invalid
}

// HTTP is the status API's address; an empty Addr disables the API.
type HTTP struct {
	Addr string `hcl:"address,optional"` // default 127.0.0.1:8520
}

// Control is the socket on which commands of this host ask its agent.
type Control struct {
	Socket string `hcl:"socket,optional"` // default <StateDir>/control.sock
	Group  string `hcl:"group,optional"`  // whose members may ask, too; empty: only the agent's user and root
}

// MostDrain is the longest drain.
const MostDrain = time.Hour

// FleetLock serves the FleetLock protocol to programs of this host.
type FleetLock struct {
	Users []string      `hcl:"users,optional"` // who may ask, besides root: names or numbers
	Drain time.Duration // how long the host is in maintenance before the answer is yes; at most MostDrain
	Pos   string        // file:line, for messages
}

// UI shows the clusters that this host orchestrates to a team.
type UI struct {
	Address string `hcl:"address,optional"`
	TLS     UITLS
}

// UITLS are the certificates of the listener of UI.
type UITLS struct {
	CertFile     string `hcl:"cert_file,optional"`
	KeyFile      string `hcl:"key_file,optional"`
	ClientCAFile string `hcl:"client_ca_file,optional"` // viewers need certificates that it signed; empty: they log in with a token
}

// Consul is how the local Consul agent is reached. Tokens come from a file or
// the environment, never from the configuration itself.
type Consul struct {
	Address        string `hcl:"address,optional"` // default 127.0.0.1:8500; http://, https:// and unix:// are understood
	TokenFile      string `hcl:"token_file,optional"`
	Token          Secret // from CONSUL_HTTP_TOKEN only
	AuthFile       string `hcl:"auth_file,optional"` // USER:PASSWORD of HTTP basic authentication
	Auth           Secret // from CONSUL_HTTP_AUTH only
	CAFile         string `hcl:"ca_file,optional"`
	CAPath         string `hcl:"ca_path,optional"`
	ClientCert     string `hcl:"client_cert,optional"`
	ClientKey      string `hcl:"client_key,optional"`
	TLSServerName  string `hcl:"tls_server_name,optional"`
	TLSSkipVerify  bool   // from CONSUL_HTTP_SSL_VERIFY=false only
	Namespace      string `hcl:"namespace,optional"`
	Partition      string `hcl:"partition,optional"`
	Datacenter     string `hcl:"datacenter,optional"`
	MaxConnections int    `hcl:"max_connections,optional"` // default 64, at least 8
}

// DNS is the address of Consul's DNS.
type DNS struct {
	Addr string `hcl:"address,optional"` // default 127.0.0.1:8600; "system" means the resolvers of /etc/resolv.conf
}

// Vault is the server of the template functions secret, secrets and pkiCert; an
// empty Address disables them.
type Vault struct {
	Address   string `hcl:"address,optional"`
	TokenFile string `hcl:"token_file,optional"`
	Token     Secret // from VAULT_TOKEN only; then TokenFile is empty
	Namespace string `hcl:"namespace,optional"`
	CAFile    string `hcl:"ca_file,optional"`
}

// TemplateOptions are the limits and rights of all templates.
type TemplateOptions struct {
	AllowFunctions []string      `hcl:"allow_functions,optional"` // of "plugin"
	AllowEnv       []string      `hcl:"allow_env,optional"`       // names or globs visible to env, mustEnv and envOrDefault
	RenderTimeout  time.Duration // default 10s: a longer execution fails
	StaleAfter     time.Duration // default 5m: a template whose data cannot be read for longer is stale
	MaxOutput      int           `hcl:"max_output,optional"` // bytes, default 64 MiB
	MaxData        int           `hcl:"max_data,optional"`   // bytes that one template reads together, default 64 MiB
}

// Service is one instance that this host publishes.
type Service struct {
	Name              string             // the block's label
	ID                string             `hcl:"id,optional"`      // default: Name
	Address           string             `hcl:"address,optional"` // default: the node's
	Port              int                `hcl:"port,optional"`
	Tags              []string           `hcl:"tags,optional"`
	Meta              map[string]string  `hcl:"meta,optional"`
	TaggedAddresses   map[string]Address // a string "host" or "host:port" in HCL, port default Port
	EnableTagOverride bool               `hcl:"enable_tag_override,optional"`
	Weights           *Weights
	OnStop            string `hcl:"on_stop,optional"` // overrides Config.OnStop when not empty
	Checks            []Check
}

// Address is a host and a port.
type Address struct {
	Host string `hcl:"address,optional"`
	Port int    `hcl:"port,optional"`
}

// Weights are Consul's DNS SRV weights.
type Weights struct {
	Passing int `hcl:"passing,optional"`
	Warning int `hcl:"warning,optional"`
}

// Check is one health check; exactly one of Script, HTTP, TCP, UDP, GRPC,
// H2Ping, TTL and AliasService is set.
type Check struct {
	ID       string   `hcl:"id,optional"` // default: "service:<service id>" or "service:<service id>:<n>" with more than one check
	Name     string   `hcl:"name,optional"`
	Notes    string   `hcl:"notes,optional"`
	Script   []string // run by jorc: 0 passing, 1 warning, all others critical
	Shell    string   // only from Consul service files: a string run by /bin/sh -c
	HTTP     string   `hcl:"http,optional"`
	Method   string   `hcl:"method,optional"`
	Header   map[string][]string
	Body     string `hcl:"body,optional"`
	TCP      string `hcl:"tcp,optional"`
	UDP      string `hcl:"udp,optional"`
	GRPC     string `hcl:"grpc,optional"`
	GRPCTLS  bool   `hcl:"grpc_use_tls,optional"`
	H2Ping   string `hcl:"h2ping,optional"`
	TTL      time.Duration
	Alias    string `hcl:"alias_service,optional"` // service id
	Interval time.Duration
	Timeout  time.Duration // default: 30s for Script and Shell, 10s for checks that Consul runs

	TLSServerName                  string `hcl:"tls_server_name,optional"`
	TLSSkipVerify                  bool   `hcl:"tls_skip_verify,optional"`
	Status                         string `hcl:"status,optional"` // initial state
	SuccessBeforePassing           int    `hcl:"success_before_passing,optional"`
	FailuresBeforeWarning          int    `hcl:"failures_before_warning,optional"`
	FailuresBeforeCritical         int    `hcl:"failures_before_critical,optional"`
	DeregisterCriticalServiceAfter time.Duration
}

// Requires is one block `requires "TARGET"`; TARGET and For are parsed by
// package blocker.
type Requires struct {
	Target string
	Count  int    `hcl:"count,optional"` // default 1
	For    string `hcl:"for,optional"`   // "functional" (default), "addressable", "reachable"
	Pos    string // file:line, for messages
}

// Static is the consistent configuration, applied once per version.
type Static struct {
	Workflow           string        `hcl:"workflow,optional"`
	Validation         string        `hcl:"validation,optional"`
	ValidationInterval time.Duration // default 5m
	Paths              []string      `hcl:"paths,optional"` // absolute; doublestar globs
}

// Template is one rendered file.
type Template struct {
	Name        string // the block's label
	Source      string `hcl:"source,optional"` // or Contents
	Contents    string `hcl:"contents,optional"`
	Destination string `hcl:"destination,optional"`
	Perms       string `hcl:"perms,optional"` // octal; default: the existing file's, else 0644
	User        string `hcl:"user,optional"`  // default: the existing file's, else the agent's
	Group       string `hcl:"group,optional"`
	CreateDirs  bool   `hcl:"create_dirs,optional"` // create missing parent directories (0755)
	Backup      bool   `hcl:"backup,optional"`      // keep the previous file beside it, named .bak
	LeftDelim   string `hcl:"left_delim,optional"`
	RightDelim  string `hcl:"right_delim,optional"`

	ErrorOnMissingKey bool     `hcl:"error_on_missing_key,optional"`
	FunctionDenylist  []string `hcl:"function_denylist,optional"`
	SandboxPath       string   `hcl:"sandbox_path,optional"`

	Check         []string // {{.Staged}} and {{.Destination}} are replaced
	CheckTimeout  time.Duration
	Reload        []string
	ReloadTimeout time.Duration // default 30s, as CheckTimeout

	MinInstances map[string]int `hcl:"min_instances,optional"` // service → minimum number of instances
	MaxShrink    string         // "50%" or a count: maximum loss of one service at once
	ShrinkAfter  time.Duration  // default 5m: a greater loss is accepted after this time
	EmptyAfter   time.Duration  // default 30s
	AllowEmpty   bool           `hcl:"allow_empty,optional"`
	Wait         Wait
	OnEdit       string `hcl:"on_edit,optional"` // OnEditRestore, the default, or OnEditReport
	Together     string `hcl:"together,optional"`
	Slot         string `hcl:"slot,optional"`
	MaxParallel  int    `hcl:"max_parallel,optional"` // holders of Slot in the cluster; 0: no limit, -1: the slot's present limit
	Report       bool   `hcl:"report,optional"`       // the content of the file, as a digest, is in the host's report
	Stage        *Stage // nil: hosts do not wait for grants
	Requires     []Requires
	Pos          string
}

// What happens to a rendered file that another program changes.
const (
	OnEditRestore = "restore" // it is restored at once
	OnEditReport  = "report"  // it is reported and left until its data changes
)

// Wait is a quiescence window: a change is applied when nothing else changed
// for Min, after Max at the latest. Zero means immediately.
type Wait struct {
	Min, Max time.Duration
}

// Process is a program that the agent starts when its templates are rendered, and
// supervises.
type Process struct {
	Name         string // the block's label
	Command      []string
	Templates    []string      `hcl:"templates,optional"` // default: all
	User         string        `hcl:"user,optional"`
	Dir          string        `hcl:"dir,optional"`
	KillSignal   string        `hcl:"kill_signal,optional"` // default SIGTERM
	KillTimeout  time.Duration // default 30s, then SIGKILL
	ReloadSignal string        `hcl:"reload_signal,optional"` // of changed files; empty: they restart the process
	Splay        time.Duration // a random pause up to this before a restart or reload
	Wait         Wait
	// MinHealthyTime is how long the process must run to count as started: then its
	// slot is released, and the pauses between restarts begin again. Default 10s.
	MinHealthyTime time.Duration
	Slot           string `hcl:"slot,optional"`
	MaxParallel    int    `hcl:"max_parallel,optional"` // as for templates
	Env            ProcessEnv
	Pos            string
}

// ProcessEnv is the environment of a process: jorc's own without secrets, then
// Prefixes, Secrets and Custom; later variables win.
type ProcessEnv struct {
	Pristine  bool     `hcl:"pristine,optional"`  // inherit nothing
	Custom    []string `hcl:"custom,optional"`    // NAME=value
	Allowlist []string `hcl:"allowlist,optional"` // names or globs of inherited variables; empty: all
	Denylist  []string `hcl:"denylist,optional"`
	Upcase    bool     `hcl:"upcase,optional"`   // names from Prefixes and Secrets in upper case
	Sanitize  bool     `hcl:"sanitize,optional"` // other characters than letters, digits and _ become _
	Prefixes  []EnvSource
	Secrets   []EnvSource
}

// EnvSource is a prefix of KV or a secret of Vault whose values become variables.
type EnvSource struct {
	Path   string
	Format string `hcl:"format,optional"` // of the names; {{ key }} is the key below Path
}

// Member is this host's own record in its cluster.
type Member struct {
	Roles       []string       `hcl:"roles,optional"`
	Zone        string         `hcl:"zone,optional"`
	Params      map[string]any // string, bool, int64, float64, []any, map[string]any
	Meta        map[string]any
	LeaveOnStop bool     `hcl:"leave_on_stop,optional"`
	Provides    []string `hcl:"provides,optional"`
	OnLead      string   `hcl:"on_lead,optional"`      // workflow to run when this member becomes a leader
	OnStepDown  string   `hcl:"on_step_down,optional"` // workflow to run when this member stops leading
}

// Orchestrator makes this agent a candidate for the orchestrator's election.
type Orchestrator struct {
	Enabled  bool          `hcl:"enabled,optional"` // default true where there is an orchestrator block
	Interval time.Duration // default 10s
	Clusters []string      `hcl:"clusters,optional"` // default: its own
	// StageGates are the workflows that may be gates of stages: a host names the gate,
	// and it runs on a manager.
	StageGates []string    `hcl:"stage_gates,optional"`
	Sinks      []EventSink // receivers of events besides the journal
}

// Kinds of event sinks.
const (
	SinkLog     = "log"
	SinkFile    = "file"
	SinkWebhook = "webhook"
)

// EventSink receives the events of an orchestrator's clusters.
type EventSink struct {
	Kind       string // "log", "file", "webhook"
	Path       string // of the file
	URL        string // of the webhook; it may hold a secret
	SecretFile string // key that signs the webhook's requests
}

// LogStore stores complete task logs; one of Dir and S3 is set.
type LogStore struct {
	Dir string `hcl:"dir,optional"`
	S3  *S3
}

// S3 is an S3-compatible store.
type S3 struct {
	Endpoint        string `hcl:"endpoint,optional"`
	Bucket          string `hcl:"bucket,optional"`
	Region          string `hcl:"region,optional"`
	Prefix          string `hcl:"prefix,optional"`
	CredentialsFile string `hcl:"credentials_file,optional"`
	Insecure        bool   `hcl:"insecure,optional"`
}

// Workflow is a named list of tasks.
type Workflow struct {
	Name        string
	Tasks       []Task
	AllowParams []string `hcl:"allow_params,optional"` // params that a run may pass; default: none
	// Disturbs: a run of it takes the host out of service.
	Disturbs bool `hcl:"disturbs,optional"`
	// Reboots: its tasks may have the host rebooted. Then it disturbs, too.
	Reboots bool `hcl:"reboots,optional"`
}

// Limits of a task's Timeout.
const (
	DefaultTaskTimeout = 2 * time.Hour // longer than installations of hosts take
	NoTimeout          = time.Duration(-1)
)

// Task is one command or script of a workflow.
type Task struct {
	Name        string
	Command     []string          // or Script
	Script      string            `hcl:"script,optional"` // a template, rendered when the job is created
	User        string            `hcl:"user,optional"`
	Dir         string            `hcl:"dir,optional"`
	Env         map[string]string `hcl:"env,optional"`
	TokenFile   string            `hcl:"token_file,optional"`
	Timeout     time.Duration     // default DefaultTaskTimeout; NoTimeout for "0"
	KillGrace   time.Duration     // between SIGTERM and SIGKILL; 0: that of package command
	Retries     int               `hcl:"retries,optional"`
	RetryDelay  time.Duration
	OkExitCodes []int    `hcl:"ok_exit_codes,optional"` // default 0
	Idempotent  bool     `hcl:"idempotent,optional"`
	OnlyIf      []string // a string in HCL is the path of a program
	Requires    []Requires
}

// Trigger runs a workflow once per change, or at set times.
type Trigger struct {
	Name     string
	Service  string `hcl:"service,optional"`
	Key      string `hcl:"key,optional"`
	Prefix   string `hcl:"prefix,optional"`
	Event    string `hcl:"event,optional"` // a kind of event; package orchestrator knows the kinds
	Workflow string `hcl:"workflow,optional"`
	Schedule string `hcl:"schedule,optional"` // as schedule.Parse reads it
	Zone     string `hcl:"zone,optional"`     // of the schedule; default: UTC
	Splay    time.Duration
	Missed   string `hcl:"missed,optional"` // schedule.Skip or schedule.RunOnce; default: Skip
	Pos      string // file:line, for messages
}

// Secret is a value that no log, error, listing or document may show: every
// way of formatting or marshalling it gives a placeholder. string(s) is the
// value itself.
type Secret string

const redacted = "<redacted>"

// String returns a placeholder, or nothing when the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes the placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns the placeholder, also for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
