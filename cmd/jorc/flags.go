package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/text"
)

// oneOf checks that the value of a flag is one of those allowed.
func oneOf(c *cli.Context, flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usagef(c, "--%s is %q, but must be one of %s", flag, value, joinOr(allowed))
}

// notNegative checks flags whose value is a duration or a number.
func notNegative(c *cli.Context, flags ...string) error {
	for _, flag := range flags {
		if c.IsSet(flag) && (c.Duration(flag) < 0 || c.Int(flag) < 0) {
			return usagef(c, "--%s is %v, but must be 0 or more", flag, c.Value(flag))
		}
	}
	return nil
}

// setting is a global flag. Its environment variables are documented here, but
// read through host.getenv: the library would ask the process itself.
type setting struct {
	*cli.StringFlag
	variables []string
	override  func(*config.Overrides) **string // nil: not part of the configuration
}

// Names is asked for often; the library searches the names for commas each time.
func (s *setting) Names() []string { return append([]string{s.Name}, s.Aliases...) }

// GetEnvVars makes the help name the variables.
func (s *setting) GetEnvVars() []string { return s.variables }

// String is the flag's line in the help.
func (s *setting) String() string { return cli.FlagStringer(s) }

// The categories in which the help lists global flags.
const (
	aboutConsul = "Consul"
	aboutJorc   = "jorc"
	aboutOutput = "Output"
)

// settings are the global flags that take a value. Those of the configuration
// become config.Overrides when they are on the command line; package config
// applies their variables and defaults.
func settings() []*setting {
	return []*setting{
		newSetting(aboutConsul, "http-addr", "`ADDRESS` of the local Consul agent's HTTP API", "127.0.0.1:8500",
			func(o *config.Overrides) **string { return &o.HTTPAddr }, "CONSUL_HTTP_ADDR"),
		newSetting(aboutConsul, "token-file", "`FILE` that holds Consul's token", "",
			func(o *config.Overrides) **string { return &o.TokenFile }, "CONSUL_HTTP_TOKEN_FILE"),
		newSetting(aboutConsul, "ca-file", "`FILE` with the CAs that Consul's certificate may come from", "",
			func(o *config.Overrides) **string { return &o.CAFile }, "CONSUL_CACERT"),
		newSetting(aboutConsul, "client-cert", "`FILE` with the client certificate", "",
			func(o *config.Overrides) **string { return &o.ClientCert }, "CONSUL_CLIENT_CERT"),
		newSetting(aboutConsul, "client-key", "`FILE` with the client certificate's key", "",
			func(o *config.Overrides) **string { return &o.ClientKey }, "CONSUL_CLIENT_KEY"),
		newSetting(aboutConsul, "namespace", "Consul Enterprise `NAMESPACE`", "",
			func(o *config.Overrides) **string { return &o.Namespace }, "CONSUL_NAMESPACE"),
		newSetting(aboutConsul, "partition", "Consul Enterprise admin `PARTITION`", "",
			func(o *config.Overrides) **string { return &o.Partition }, "CONSUL_PARTITION"),
		newSetting(aboutConsul, "datacenter", "`DC` to ask; default: the agent's own", "",
			func(o *config.Overrides) **string { return &o.Datacenter }),
		newSetting(aboutConsul, "dns-addr", "`ADDRESS` where Consul's DNS answers; \"system\": the resolvers of /etc/resolv.conf", "127.0.0.1:8600",
			func(o *config.Overrides) **string { return &o.DNSAddr }, "JORC_DNS_ADDR"),

		newSetting(aboutJorc, "prefix", "`PREFIX` of jorc's keys in Consul's KV", "jorc",
			func(o *config.Overrides) **string { return &o.Prefix }, "JORC_PREFIX"),
		newSetting(aboutJorc, "cluster", "`NAME` of the cluster", "default",
			func(o *config.Overrides) **string { return &o.Cluster }, "JORC_CLUSTER"),
		newSetting(aboutJorc, "node", "`NAME` of the node", "the local agent's",
			func(o *config.Overrides) **string { return &o.Node }, "JORC_NODE"),
		newSetting(aboutJorc, "version-file", "`FILE` with the version that this host runs", "/var/lib/jorc/version",
			func(o *config.Overrides) **string { return &o.VersionFile }, "JORC_VERSION_FILE"),
		newSetting(aboutJorc, "state-dir", "`DIR` for what must survive a restart", "/var/lib/jorc",
			func(o *config.Overrides) **string { return &o.StateDir }, "JORC_STATE_DIR"),

		newSetting(aboutOutput, "output", "`FORMAT` of the answer: table, json or plain", "table", nil, "JORC_OUTPUT").short("o"),
		newSetting(aboutOutput, "log-level", "minimum log `LEVEL`: trace, debug, info, warn, error or off", "",
			func(o *config.Overrides) **string { return &o.LogLevel }, "JORC_LOG_LEVEL"),
	}
}

func newSetting(category, name, usage, standard string, override func(*config.Overrides) **string, variables ...string) *setting {
	return &setting{
		StringFlag: &cli.StringFlag{Name: name, Usage: usage, DefaultText: standard, Category: category},
		variables:  variables,
		override:   override,
	}
}

func (s *setting) short(letter string) *setting {
	s.Aliases = []string{letter}
	return s
}

// globalFlags are accepted by every command, before and after its name.
func globalFlags(settings []*setting) []cli.Flag {
	flags := make([]cli.Flag, 0, len(settings)+5)
	for _, s := range settings {
		flags = append(flags, s)
	}
	return append(flags, &cli.StringSliceFlag{
		Name: "config", KeepSpace: true, Category: aboutJorc, DefaultText: "/etc/jorc, where it exists",
		Usage: "`PATH` of this host's configuration: a file, or a directory of *.hcl and *.json; may be repeated [$JORC_CONFIG, separated by colons]",
	}, &cli.BoolFlag{
		Name: "verbose", Usage: "report on stderr which cluster, prefix and Consul a command uses", Category: aboutOutput, DisableDefaultText: true,
	}, &cli.BoolFlag{
		Name: "log-json", Usage: "log JSON lines [$JORC_LOG_JSON]", Category: aboutOutput, DisableDefaultText: true,
	})
}

// given are those of the flags that an arranged command line has. The library takes its
// time for each flag.
func given(flags []cli.Flag, normal []string) []cli.Flag {
	return slices.DeleteFunc(flags, func(f cli.Flag) bool {
		name := "--" + f.Names()[0]
		return !slices.ContainsFunc(normal, func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") })
	})
}

// logLevels are those of --log-level.
var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

// logging are the settings of flags and variables for the log; an empty level and a
// nil json are not given.
func (e *environment) logging(c *cli.Context) (level string, json *bool, err error) {
	level, given := e.value(c, "log-level")
	if given {
		if err := oneOf(c, "log-level", level, logLevels...); err != nil {
			return "", nil, err
		}
	}
	if c.IsSet("log-json") {
		v := c.Bool("log-json")
		return level, &v, nil
	}
	if text := e.getenv("JORC_LOG_JSON"); text != "" {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return "", nil, usagef(c, "JORC_LOG_JSON must be true or false, not %q", text)
		}
		return level, &v, nil
	}
	return level, nil, nil
}

// commandLogger logs to stderr at the level asked for, else at standard: messages of
// a command beside its answer.
func (e *environment) commandLogger(c *cli.Context, standard string) (hclog.Logger, error) {
	level, json, err := e.logging(c)
	if err != nil {
		return nil, err
	}
	if level == "" {
		level = standard
	}
	return e.logger(level, json != nil && *json), nil
}

// logger logs to stderr. A daemon calls it with its configuration's LogLevel
// and LogJSON, which flags and variables are part of already.
func (e *environment) logger(level string, json bool) hclog.Logger {
	return hclog.New(e.logOptions(level, json))
}

// logOptions are those of all loggers. Lines for the journal have their priority, and
// no time stamp beside the journal's, unless they are JSON, which programs read.
func (e *environment) logOptions(level string, json bool) *hclog.LoggerOptions {
	o := &hclog.LoggerOptions{Name: "jorc", Level: hclog.LevelFromString(level), Output: e.stderr, JSONFormat: json}
	if e.journal != nil && e.journal() {
		o.Output, o.DisableTime = journalWriter{e.stderr}, !json
	}
	return o
}

// agentLogger is logger for an agent, whose last lines recent keeps.
func (e *environment) agentLogger(level string, json bool, recent *diagnostics.Log) hclog.Logger {
	log := hclog.NewInterceptLogger(e.logOptions(level, json))
	log.RegisterSink(recent)
	return log
}

// bridgeStandardLog sends warnings and errors that libraries write to package
// log to logger. It changes the process: for commands that run template code, once.
func bridgeStandardLog(logger hclog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraryLog{logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true})})
}

// libraryLog drops what consul-template logs about single requests: it quotes
// names, addresses and answers, which may hold values.
type libraryLog struct{ to io.Writer }

// aboutRequest is the beginning of a line about one request: "[WARN] vault.read(secret/app): …".
var aboutRequest = text.Pattern(`^\[\w+\] ([\w.]+)\(`)

func (l libraryLog) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("[TRACE]")) || bytes.HasPrefix(line, []byte("[DEBUG]")) {
		return len(line), nil
	}
	text := line
	if m := aboutRequest().FindSubmatch(line); m != nil {
		text = fmt.Appendf(nil, "[WARN] %s: a request had a problem; the message is withheld because it may quote a value", m[1])
	}
	if _, err := l.to.Write(text); err != nil {
		return 0, err
	}
	return len(line), nil
}
