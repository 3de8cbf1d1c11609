package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
)

// environment is what the commands share: the host they run on, and the settings of
// global flags and variables. Nothing in it does I/O before a command asks for it.
type environment struct {
	host
	settings []*setting
	client   *consul.Client // that of consul; closed when the command has ended
	loaded   *config.Config
	answers  string // the cluster that the command asks; empty: none
	by       string // the author of the command's changes; empty: not read yet

	ownVersion string // the version file where nothing names one; empty: that of package config
}

func newEnvironment(h host) *environment {
	return &environment{host: h, settings: settings()}
}

// value is a global flag's value: from the command line, or from the first of
// its variables that is not empty. given is false when it is from neither.
func (e *environment) value(c *cli.Context, name string) (value string, given bool) {
	if c.IsSet(name) {
		return c.String(name), true
	}
	i := slices.IndexFunc(e.settings, func(s *setting) bool { return s.Name == name })
	for _, variable := range e.settings[i].variables {
		if v := e.getenv(variable); v != "" {
			return v, true
		}
	}
	return "", false
}

// config loads the configuration of this host's agent, the environment and the
// global flags, which take precedence in this order. Its errors are
// *config.Error and usage errors.
func (e *environment) config(c *cli.Context) (*config.Config, error) {
	return e.load(c, e.configPaths(c))
}

// configPaths are the files and directories of this host's configuration: those
// of --config or JORC_CONFIG, else /etc/jorc where that exists. JORC_CONFIG=/dev/null
// means a host without a configuration.
func (e *environment) configPaths(c *cli.Context) []string {
	if paths := c.StringSlice("config"); len(paths) > 0 {
		return paths
	}
	if paths := filepath.SplitList(e.getenv("JORC_CONFIG")); len(paths) > 0 {
		return slices.DeleteFunc(paths, func(path string) bool { return path == os.DevNull })
	}
	dir := filepath.Join(e.etc, "jorc")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []string{dir} // Load reports a directory that cannot be read
}

// load loads a configuration from paths (none: the defaults), the environment
// and the global flags.
func (e *environment) load(c *cli.Context, paths []string) (*config.Config, error) {
	overrides, err := e.overrides(c)
	if err != nil {
		return nil, err
	}
	return config.Load(paths, config.Options{Getenv: e.getenv, Overrides: overrides})
}

// overrides are the global flags that were given. The variables of package
// config are left to it; those of the log are jorc's command line's.
func (e *environment) overrides(c *cli.Context) (config.Overrides, error) {
	var o config.Overrides
	for _, s := range e.settings {
		if s.override == nil || !globalSet(c, s.Name) {
			continue
		}
		v := c.String(s.Name)
		*s.override(&o) = &v
	}
	level, json, err := e.logging(c)
	if err != nil {
		return o, err
	}
	if level != "" {
		o.LogLevel = &level
	}
	if json != nil {
		o.LogJSON = json
	}
	return o, nil
}

// globalSet reports whether a global flag was given; a flag of the command with the same
// name means something else.
func globalSet(c *cli.Context, name string) bool {
	if !c.IsSet(name) || c.Command == nil {
		return c.IsSet(name)
	}
	own := flagNamed(c.Command.Flags, name)
	return own == nil || own == flagNamed(c.App.Flags, name)
}

// consul is a client for the Consul agent of this host's configuration, and the
// configuration. It reads that and certificates, and does no other I/O. The client
// is closed when the command has ended.
func (e *environment) consul(c *cli.Context) (*consul.Client, *config.Config, error) {
	if e.client == nil {
		settings, err := e.config(c)
		if err != nil {
			return nil, nil, err
		}
		if e.client, err = newClient(settings); err != nil {
			return nil, nil, err
		}
		e.loaded = settings
	}
	return e.client, e.loaded, nil
}

// target is the cluster that a command acts on.
type target struct {
	*fleet.Cluster
	client   *consul.Client
	settings *config.Config
}

func (t *target) rollouts() *rollout.Rollouts {
	return rollout.New(t.client, t.settings.Prefix, t.Name()).Counting(budget.OfMembers(readLife))
}

func (t *target) runs() *runs.Runs { return runs.New(t.Store()) }

func (t *target) slots() *slots.Slots { return slots.New(t.Store(), slots.Options{}) }

// cluster is the cluster that flags and environment name, or name when that is
// not empty. With --verbose it is named on stderr.
func (e *environment) cluster(c *cli.Context, name string) (*target, error) {
	client, settings, err := e.consul(c)
	if err != nil {
		return nil, err
	}
	name = cmp.Or(name, settings.Cluster)
	e.answers = name
	ownFlag := c.Command != nil && flagNamed(c.Command.Flags, "verbose") != nil
	if c.Bool("verbose") && !ownFlag {
		note(c, "cluster %q below prefix %q of Consul at %s", name, settings.Prefix, settings.Consul.Address)
	}
	cl := fleet.New(client, settings.Prefix, name).WithValidators(map[string]profile.Validator{runs.ParamRules: runs.CheckRules})
	return &target{cl, client, settings}, nil
}

// existing is cluster for a cluster that must exist.
func (e *environment) existing(c *cli.Context, name string) (*target, error) {
	t, err := e.cluster(c, name)
	if err != nil {
		return nil, err
	}
	return t, t.CheckExists(c.Context)
}

// onCluster is an action on the existing cluster that flags and environment name.
func (e *environment) onCluster(action func(*cli.Context, *target) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		t, err := e.existing(c, "")
		if err != nil {
			return err
		}
		return action(c, t)
	}
}

// onNamed is onCluster for a command whose argument may name the cluster.
func (e *environment) onNamed(action func(*cli.Context, *target) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		t, err := e.existing(c, argument(c, 0))
		if err != nil {
			return err
		}
		return action(c, t)
	}
}

// ownNode is this host's node: --node, JORC_NODE or node of the configuration,
// or else the local agent's.
func (e *environment) ownNode(c *cli.Context) (string, error) {
	client, settings, err := e.consul(c)
	switch {
	case err != nil:
		return "", err
	case settings.Node != "" || globalSet(c, "node"):
		return settings.Node, nil
	}
	self, err := client.AgentSelf(c.Context)
	if err != nil {
		return "", fmt.Errorf("find this host's node name (--node or JORC_NODE sets it): %w", err)
	}
	return self.Config.NodeName, nil
}

// hostNamed is the host that a command is about: the one that was named, or this
// one. It fails for the name of a host that does not exist.
func (e *environment) hostNamed(c *cli.Context, t *target, name string) (string, error) {
	if name != "" && name != t.settings.Node {
		return name, t.CheckHost(c.Context, name)
	}
	return e.ownNode(c)
}

// versionFile is the file with the version of this host.
func (e *environment) versionFile(c *cli.Context) (string, error) {
	settings, err := e.config(c)
	if err != nil {
		return "", err
	}
	if e.ownVersion != "" && settings.DefaultVersionFile {
		return e.ownVersion, nil
	}
	return settings.VersionFile, nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// newClient is a client whose token can be read.
func newClient(settings *config.Config) (*consul.Client, error) {
	client, err := consul.New(settings.Consul)
	if err != nil {
		return nil, err
	}
	if err := client.CheckToken(); err != nil {
		client.Close()
		return nil, &exitError{code: exitUsage, err: fmt.Errorf("Consul's token cannot be read: %w: see consul { token_file } and --token-file", err)}
	}
	return client, nil
}

// author is the author of a change, as the changed document records it: the ACL
// token, where Consul has ACLs, by its accessor ID and description, and as a hint
// the OS user and the host of the command. The secret of a token appears nowhere.
func (e *environment) author(c *cli.Context) (by string, err error) {
	if e.by != "" {
		return e.by, nil
	}
	defer func() { e.by = by }()
	client, _, err := e.consul(c)
	if err != nil {
		return "", err
	}
	token, err := client.OwnToken(c.Context)
	switch {
	case consul.ACLsDisabled(err), errors.Is(err, consul.ErrDenied): // the change itself will be refused
		return e.osUser(), nil
	case err != nil:
		return "", err
	}
	text := "token " + token.AccessorID
	if token.Description != "" {
		text += fmt.Sprintf(" (%s)", brief(token.Description))
	}
	if name := e.osUser(); name != "" {
		text += ", " + name
	}
	return text, nil
}

// osUser is the OS user and the host of the command; empty: neither is known.
func (e *environment) osUser() string {
	if e.host.author == nil {
		return e.getenv("USER")
	}
	return e.host.author()
}

// brief is the beginning of a token's description.
func brief(text string) string {
	const most = 80
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return printable(text)
}

// osUser names the OS user and the host of this process.
func osUser(getenv func(string) string) string {
	name := getenv("USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}
