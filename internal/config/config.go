// Package config holds jorc's configuration: HCL and JSON files decoded
// strictly into plain structs. What targets, policies and filters mean is
// parsed by the packages that own them.
package config

import "time"

// Config is the whole configuration of one agent.
type Config struct {
	Cluster     string // default "default"; empty: keys have no such segment
	Node        string // default: the local agent's node name, asked for at start
	Prefix      string // default "jorc"; empty: keys begin with the cluster
	StateDir    string // default /var/lib/jorc
	VersionFile string // default <StateDir>/version
	OnStop      string // "keep" (default), "deregister", "maintenance"
	LogLevel    string // default "info"
	LogJSON     bool

	HTTP         HTTP
	Consul       Consul
	DNS          DNS
	Vault        Vault
	TemplateOpts TemplateOptions // block "template_options"

	Services     []Service
	Requires     []Requires // gate static configuration
	Static       *Static
	Templates    []Template
	Workflows    []Workflow
	Triggers     []Trigger
	Member       *Member
	Orchestrator *Orchestrator
	LogStore     *LogStore

	Warnings []Problem // what Load found odd but possible
}

// HTTP is the status API's address; empty Addr switches it off.
type HTTP struct {
	Addr string // default 127.0.0.1:8520
}

// Consul says how to reach the local Consul agent. Tokens come from a file or
// the environment, never from the configuration itself.
type Consul struct {
	Address        string // default 127.0.0.1:8500; http://, https:// and unix:// are understood
	TokenFile      string
	Token          Secret // from CONSUL_HTTP_TOKEN only
	CAFile         string
	CAPath         string
	ClientCert     string
	ClientKey      string
	TLSServerName  string
	TLSSkipVerify  bool // from CONSUL_HTTP_SSL_VERIFY=false only
	Namespace      string
	Partition      string
	Datacenter     string
	MaxConnections int // default 64, at least 8
}

// DNS is where Consul's DNS answers.
type DNS struct {
	Addr string // default 127.0.0.1:8600; "system" means the resolvers of /etc/resolv.conf
}

// Vault is where the template functions secret, secrets and pkiCert ask;
// an empty Address switches them off.
type Vault struct {
	Address   string
	TokenFile string
	Token     Secret // from VAULT_TOKEN only; then TokenFile is empty
	Namespace string
	CAFile    string
}

// TemplateOptions say what all templates may do.
type TemplateOptions struct {
	AllowFunctions []string      // of "plugin", "writeToFile"
	AllowEnv       []string      // names, or globs, that the functions env, mustEnv and envOrDefault see
	RenderTimeout  time.Duration // default 10s: longer executions are ended and reported
	MaxOutput      int           // bytes, default 64 MiB
}

// Service is one instance that this host publishes.
type Service struct {
	Name              string // the block's label
	ID                string // default: Name
	Address           string // default: the node's
	Port              int
	Tags              []string
	Meta              map[string]string
	TaggedAddresses   map[string]Address // a string "host" or "host:port" in HCL, port default Port
	EnableTagOverride bool
	Weights           *Weights
	OnStop            string // overrides Config.OnStop when not empty
	Checks            []Check
}

// Address is a host and a port.
type Address struct {
	Host string
	Port int
}

// Weights are Consul's DNS SRV weights.
type Weights struct {
	Passing, Warning int
}

// Check is one health check; exactly one of Script, HTTP, TCP, UDP, GRPC,
// H2Ping, TTL and AliasService is set.
type Check struct {
	ID       string // default: "service:<service id>" or "service:<service id>:<n>" with more than one check
	Name     string
	Notes    string
	Script   []string // run by jorc: 0 passing, 1 warning, all others critical
	Shell    string   // only from Consul service files: a string run by /bin/sh -c
	HTTP     string
	Method   string
	Header   map[string][]string
	Body     string
	TCP      string
	UDP      string
	GRPC     string
	GRPCTLS  bool
	H2Ping   string
	TTL      time.Duration
	Alias    string // service id
	Interval time.Duration
	Timeout  time.Duration // default: 30s for Script and Shell, 10s for what Consul asks itself

	TLSServerName                  string
	TLSSkipVerify                  bool
	Status                         string // initial state
	SuccessBeforePassing           int
	FailuresBeforeWarning          int
	FailuresBeforeCritical         int
	DeregisterCriticalServiceAfter time.Duration
}

// Requires is one block `requires "TARGET"`; TARGET and For are parsed by
// package blocker.
type Requires struct {
	Target string
	Count  int    // default 1
	For    string // "functional" (default), "addressable", "reachable"
	Pos    string // file:line, for messages
}

// Static is the consistent configuration, applied once per version.
type Static struct {
	Workflow           string
	Validation         string
	ValidationInterval time.Duration // default 5m
	Paths              []string      // absolute; doublestar globs
}

// Template is one rendered file.
type Template struct {
	Name        string // the block's label
	Source      string // or Contents
	Contents    string
	Destination string
	Perms       string // octal; default: the existing file's, else 0644
	User        string // default: the existing file's, else the agent's
	Group       string
	CreateDirs  bool // make the destination's missing parents (0755)
	LeftDelim   string
	RightDelim  string

	ErrorOnMissingKey bool
	FunctionDenylist  []string
	SandboxPath       string

	Check         []string // {{.Staged}} and {{.Destination}} are replaced
	CheckTimeout  time.Duration
	Reload        []string
	ReloadTimeout time.Duration // default 30s, as CheckTimeout

	MinInstances map[string]int // service → least number of instances
	MaxShrink    string         // "50%" or a count: the most that one service may lose at once
	ShrinkAfter  time.Duration  // default 5m: a greater loss that lasted this long is believed
	EmptyAfter   time.Duration  // default 30s
	AllowEmpty   bool
	Wait         Wait
	Together     string
	Slot         string
	MaxParallel  int // holders of Slot in the cluster; 0: any number, -1: as many as there are
	Requires     []Requires
	Pos          string
}

// Wait is a quiescence window: a change is acted upon when nothing else
// changed for Min, at the latest after Max. Zero means at once.
type Wait struct {
	Min, Max time.Duration
}

// Member is this host's own record in its cluster.
type Member struct {
	Roles       []string
	Zone        string
	Params      map[string]any // string, bool, int64, float64, []any, map[string]any
	Meta        map[string]any
	LeaveOnStop bool
	Provides    []string
	OnLead      string // workflow to run when this member begins to lead
	OnStepDown  string // workflow to run when it ceases to
}

// Orchestrator says whether this agent stands for election.
type Orchestrator struct {
	Enabled  bool          // default true where there is an orchestrator block
	Interval time.Duration // default 10s
	Clusters []string      // default: its own
	Sinks    []EventSink   // where events go besides the journal
}

// EventSink is where an orchestrator brings the events of its clusters.
type EventSink struct {
	Kind       string // "log", "file", "webhook"
	Path       string // of the file
	URL        string // of the webhook; it may hold a secret
	SecretFile string // what signs the webhook's requests
}

// LogStore is where full logs go; one of Dir and S3 is set.
type LogStore struct {
	Dir string
	S3  *S3
}

// S3 is an S3-compatible store.
type S3 struct {
	Endpoint, Bucket, Region, Prefix string
	CredentialsFile                  string
	Insecure                         bool
}
