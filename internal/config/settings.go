package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/text"
)

// source is the origin of a setting: a position in a file, or the name of a flag
// or environment variable.
type source struct {
	rng  hcl.Range
	name string
}

// root decodes all files, merged, into c.
func (d *decoder) root(body hcl.Body, c *Config) {
	var fleetLock hcl.Range
	args := d.decode(body, hcl.Range{}, c, nil, nested{
		"http":   d.settingsBlock("http", &c.HTTP, custom{"addr": d.shortAddress(&c.HTTP.Addr)}, func(a *arguments) { a.notBoth("address", "addr") }),
		"consul": d.consulBlock(&c.Consul),
		"dns": d.settingsBlock("dns", &c.DNS, custom{"addr": d.shortAddress(&c.DNS.Addr)}, func(a *arguments) {
			a.notBoth("address", "addr")
			a.notEmpty("address", "addr")
		}),
		"control":          {once: true, read: func(b *hcl.Block) { d.control(b, &c.Control) }},
		"fleetlock":        {once: true, read: func(b *hcl.Block) { c.FleetLock, fleetLock = d.fleetLock(b), b.TypeRange }},
		"vault":            d.vaultBlock(&c.Vault),
		"template_options": d.templateOptions(&c.TemplateOpts),

		"service":      {label: "name", read: func(b *hcl.Block) { c.Services = append(c.Services, d.service(b)) }},
		"requires":     d.requires(&c.Requires),
		"static":       {once: true, read: func(b *hcl.Block) { c.Static = d.static(b) }},
		"template":     {label: "name", read: func(b *hcl.Block) { c.Templates = append(c.Templates, d.template(b)) }},
		"process":      {label: "name", read: func(b *hcl.Block) { c.Processes = append(c.Processes, d.process(b)) }},
		"workflow":     {label: "name", read: func(b *hcl.Block) { c.Workflows = append(c.Workflows, d.workflow(b)) }},
		"trigger":      {label: "name", read: func(b *hcl.Block) { c.Triggers = append(c.Triggers, d.trigger(b)) }},
		"member":       {once: true, read: func(b *hcl.Block) { c.Member = d.member(b) }},
		"orchestrator": {once: true, read: func(b *hcl.Block) { c.Orchestrator = d.orchestrator(b) }},
		"ui":           {once: true, read: func(b *hcl.Block) { c.UI = d.ui(b) }},
		"log_store":    {once: true, read: func(b *hcl.Block) { c.LogStore = d.logStore(b) }},
	})
	if c.UI != nil && (c.Orchestrator == nil || !c.Orchestrator.Enabled) {
		d.errorf(body.MissingItemRange(), "Missing block", "The ui block shows the clusters that this host orchestrates: it needs an orchestrator block.")
	}
	if c.FleetLock != nil && !OnLoopback(c.HTTP.Addr) {
		d.errorf(fleetLock, "Wrong address", "FleetLock is for programs of this host: it needs an address in the http block that only this host can reach, such as %q.", defaultHTTPAddr)
	}
	args.path("state_dir", &c.StateDir)
	args.path("version_file", &c.VersionFile)
	d.remember("", args)
}

// settingsBlock is a block that exists once and whose arguments the environment
// or flags may override.
func (d *decoder) settingsBlock(name string, into any, special custom, check func(*arguments)) blockType {
	return blockType{once: true, read: func(b *hcl.Block) {
		args := d.decode(b.Body, b.TypeRange, into, special, nil)
		check(args)
		d.remember(name+".", args)
	}}
}

// remember keeps the positions of settings.
func (d *decoder) remember(prefix string, args *arguments) {
	for name := range args.attrs {
		at := args.at(name)
		if name == "addr" {
			name = "address"
		}
		d.settings[prefix+name] = source{rng: at}
	}
}

func (d *decoder) consulBlock(c *Consul) blockType {
	return d.settingsBlock("consul", c, custom{"token": d.forbidden("token_file")}, func(a *arguments) {
		a.notEmpty("address", "tls_server_name", "namespace", "partition", "datacenter")
		a.between(minConnections, math.MaxInt32, "max_connections")
		a.path("token_file", &c.TokenFile)
		a.path("auth_file", &c.AuthFile)
		a.path("ca_file", &c.CAFile)
		a.path("ca_path", &c.CAPath)
		a.path("client_cert", &c.ClientCert)
		a.path("client_key", &c.ClientKey)
	})
}

func (d *decoder) vaultBlock(v *Vault) blockType {
	return d.settingsBlock("vault", v, custom{"token": d.forbidden("token_file")}, func(a *arguments) {
		a.notEmpty("address", "namespace")
		a.path("token_file", &v.TokenFile)
		a.path("ca_file", &v.CAFile)
	})
}

func (d *decoder) templateOptions(o *TemplateOptions) blockType {
	return d.settingsBlock("template_options", o, custom{"render_timeout": d.interval(&o.RenderTimeout), "stale_after": d.interval(&o.StaleAfter)}, func(a *arguments) {
		a.between(1, math.MaxInt32, "max_output")
		a.between(1, math.MaxInt32, "max_data")
		for _, f := range o.AllowFunctions {
			switch f {
			case "plugin":
			case "writeToFile":
				d.errorf(a.at("allow_functions"), "Invalid value", "The function writeToFile is not supported, because it would write at every execution: give each file a template of its own.")
			default:
				d.errorf(a.at("allow_functions"), "Invalid value", "%q can have plugin, not %q.%s", "allow_functions", f, didYouMean(f, []string{"plugin"}))
			}
		}
	})
}

// shortAddress decodes "addr", which older configurations have for "address".
func (d *decoder) shortAddress(p *string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if s, ok := d.str(a.Expr, a.Name); ok {
			*p = s
		}
	}
}

// forbidden refuses a secret in the configuration.
func (d *decoder) forbidden(instead string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		d.errorf(a.NameRange, "Secret in the configuration", "A configuration file must not contain a %s: name a file that holds it with %q, or set it in the environment.", a.Name, instead)
	}
}

// Overrides are the global flags of the command line; nil means not given. An
// empty prefix or cluster removes that segment from the keys; any other empty
// value restores the default.
type Overrides struct {
	HTTPAddr    *string // --http-addr, of Consul
	TokenFile   *string
	CAFile      *string
	ClientCert  *string
	ClientKey   *string
	Namespace   *string
	Partition   *string
	Datacenter  *string
	DNSAddr     *string
	Prefix      *string
	Cluster     *string
	Node        *string
	VersionFile *string
	StateDir    *string
	LogLevel    *string
	LogJSON     *bool
}

// apply applies the environment, then the flags. An empty variable counts as not
// set.
func (d *decoder) apply(c *Config, o Options) {
	getenv, flags, standard := o.Getenv, o.Overrides, base()
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	for _, s := range []struct {
		setting        string
		to             *string
		variable, flag string
		given          *string
		standard       string // for an empty flag
	}{
		{"consul.address", &c.Consul.Address, "CONSUL_HTTP_ADDR", "--http-addr", flags.HTTPAddr, standard.Consul.Address},
		{"consul.token_file", &c.Consul.TokenFile, "CONSUL_HTTP_TOKEN_FILE", "--token-file", flags.TokenFile, ""},
		{"consul.ca_file", &c.Consul.CAFile, "CONSUL_CACERT", "--ca-file", flags.CAFile, ""},
		{"consul.ca_path", &c.Consul.CAPath, "CONSUL_CAPATH", "", nil, ""},
		{"consul.client_cert", &c.Consul.ClientCert, "CONSUL_CLIENT_CERT", "--client-cert", flags.ClientCert, ""},
		{"consul.client_key", &c.Consul.ClientKey, "CONSUL_CLIENT_KEY", "--client-key", flags.ClientKey, ""},
		{"consul.tls_server_name", &c.Consul.TLSServerName, "CONSUL_TLS_SERVER_NAME", "", nil, ""},
		{"consul.namespace", &c.Consul.Namespace, "CONSUL_NAMESPACE", "--namespace", flags.Namespace, ""},
		{"consul.partition", &c.Consul.Partition, "CONSUL_PARTITION", "--partition", flags.Partition, ""},
		{"consul.datacenter", &c.Consul.Datacenter, "", "--datacenter", flags.Datacenter, ""},
		{"vault.address", &c.Vault.Address, "VAULT_ADDR", "", nil, ""},
		{"vault.namespace", &c.Vault.Namespace, "VAULT_NAMESPACE", "", nil, ""},
		{"vault.ca_file", &c.Vault.CAFile, "VAULT_CACERT", "", nil, ""},
		{"dns.address", &c.DNS.Addr, "JORC_DNS_ADDR", "--dns-addr", flags.DNSAddr, standard.DNS.Addr},
		{"prefix", &c.Prefix, "JORC_PREFIX", "--prefix", flags.Prefix, ""},
		{"cluster", &c.Cluster, "JORC_CLUSTER", "--cluster", flags.Cluster, ""},
		{"node", &c.Node, "JORC_NODE", "--node", flags.Node, ""},
		{"version_file", &c.VersionFile, "JORC_VERSION_FILE", "--version-file", flags.VersionFile, ""},
		{"state_dir", &c.StateDir, "JORC_STATE_DIR", "--state-dir", flags.StateDir, standard.StateDir},
		{"log_level", &c.LogLevel, "", "--log-level", flags.LogLevel, standard.LogLevel},
	} {
		if v := getenv(s.variable); v != "" {
			*s.to, d.settings[s.setting] = v, source{name: s.variable}
		}
		if s.given != nil {
			*s.to, d.settings[s.setting] = *s.given, source{name: s.flag}
			if *s.given == "" {
				*s.to = s.standard
			}
		}
	}
	if flags.LogJSON != nil {
		c.LogJSON = *flags.LogJSON
	}
	d.applyTokens(c, getenv, flags)
	d.applyTLS(c, getenv, flags)
	// Paths of flags and the environment are relative to the working directory.
	for _, p := range []*string{&c.StateDir, &c.VersionFile} {
		if *p == "" || filepath.IsAbs(*p) {
			continue
		}
		if abs, err := filepath.Abs(*p); err == nil {
			*p = abs
		}
	}
}

// applyTokens applies the tokens of the environment. A flag takes precedence over
// them, and a file of the environment over a value of the environment.
func (d *decoder) applyTokens(c *Config, getenv func(string) string, flags Overrides) {
	token, file := getenv("CONSUL_HTTP_TOKEN"), getenv("CONSUL_HTTP_TOKEN_FILE")
	if token != "" && file == "" && (flags.TokenFile == nil || *flags.TokenFile == "") {
		c.Consul.Token, c.Consul.TokenFile = Secret(token), ""
	}
	if auth := getenv("CONSUL_HTTP_AUTH"); auth != "" {
		c.Consul.Auth, c.Consul.AuthFile = Secret(auth), ""
	}
	if token := getenv("VAULT_TOKEN"); token != "" {
		c.Vault.Token, c.Vault.TokenFile = Secret(token), ""
	}
}

// applyTLS applies the variables that turn TLS on, and the check of certificates
// off. They do not concern the address of a flag.
func (d *decoder) applyTLS(c *Config, getenv func(string) string, flags Overrides) {
	ssl := d.boolVariable(getenv, "CONSUL_HTTP_SSL", false)
	if ssl && flags.HTTPAddr == nil {
		c.Consul.Address = withTLS(c.Consul.Address)
	}
	c.Consul.TLSSkipVerify = !d.boolVariable(getenv, "CONSUL_HTTP_SSL_VERIFY", true)
}

func (d *decoder) boolVariable(getenv func(string) string, name string, standard bool) bool {
	s := getenv(name)
	if s == "" {
		return standard
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		d.errorf(hcl.Range{}, "Invalid environment variable", "%s must be true or false, not %q.", name, s)
		return standard
	}
	return v
}

// withTLS adds TLS to an address as Consul's own client does: https is never
// replaced, and a socket stays a socket.
func withTLS(address string) string {
	rest, plain := strings.CutPrefix(address, "http://")
	if !plain && strings.Contains(address, "://") {
		return address
	}
	return "https://" + rest
}

var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

// checkSettings checks the settings that files, environment and flags can set.
func (d *decoder) checkSettings(c *Config) {
	d.setting("prefix", checkPrefix(c.Prefix))
	if c.Cluster != "" {
		d.setting("cluster", text.CheckSegment(c.Cluster))
	}
	if c.Node != "" {
		d.setting("node", text.CheckSegment(c.Node))
	}
	d.setting("on_stop", checkWord(c.OnStop, onStopWords))
	d.setting("log_level", checkWord(c.LogLevel, logLevels))
	if c.HTTP.Addr != "" {
		d.setting("http.address", checkListenAddr(c.HTTP.Addr))
	}
	if c.DNS.Addr != "system" {
		addr, err := parseAddress(c.DNS.Addr)
		d.setting("dns.address", err)
		if addr.Port == 0 {
			addr.Port = defaultDNSPort
		}
		if err == nil {
			c.DNS.Addr = net.JoinHostPort(addr.Host, strconv.Itoa(addr.Port))
		}
	}
	d.setting("consul.address", checkConsulAddr(c.Consul.Address))
	if (c.Consul.ClientCert == "") != (c.Consul.ClientKey == "") {
		name := "consul.client_cert"
		if c.Consul.ClientCert == "" {
			name = "consul.client_key"
		}
		d.setting(name, errors.New("a client certificate and its key belong together: set both client_cert and client_key"))
	}
	if c.Vault.Address != "" {
		d.setting("vault.address", checkVaultAddr(c.Vault.Address))
	}
}

// setting reports a problem of a setting at its origin.
func (d *decoder) setting(name string, err error) {
	if err == nil {
		return
	}
	from := d.settings[name]
	where := strconv.Quote(name)
	if from.name != "" {
		where = from.name
	} else if i := strings.LastIndexByte(name, '.'); i >= 0 && from.rng != (hcl.Range{}) {
		where = strconv.Quote(name[i+1:])
	}
	d.errorf(from.rng, "Invalid setting", "%s: %v.", where, err)
}

func checkWord(s string, words []string) error {
	switch best := text.Closest(s, words); {
	case slices.Contains(words, s):
		return nil
	case best != "":
		return fmt.Errorf("must be %s, not %q (did you mean %q?)", list(words, "or"), s, best)
	}
	return fmt.Errorf("must be %s, not %q", list(words, "or"), s)
}
