package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// environment is what the commands share: the host they run on, and what global
// flags and variables say. Nothing in it does I/O before a command asks for it.
type environment struct {
	host
	settings map[string]*setting
	clients  []*consul.Client // closed when the command has ended
	answers  string           // the cluster that the command asks; empty: none
}

func newEnvironment(h host) *environment {
	e := &environment{host: h, settings: map[string]*setting{}}
	for _, s := range settings() {
		e.settings[s.Name] = s
	}
	return e
}

// value is a global flag's value: from the command line, or from the first of
// its variables that is not empty. given is false when it is from neither.
func (e *environment) value(c *cli.Context, name string) (value string, given bool) {
	if c.IsSet(name) {
		return c.String(name), true
	}
	for _, variable := range e.settings[name].variables {
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
	for name, s := range e.settings {
		if s.override == nil || !c.IsSet(name) {
			continue
		}
		v := c.String(name)
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

// consul is a client for the Consul agent of this host's configuration, and the
// configuration. It reads that and certificates, and does no other I/O.
func (e *environment) consul(c *cli.Context) (*consul.Client, *config.Config, error) {
	settings, err := e.config(c)
	if err != nil {
		return nil, nil, err
	}
	client, err := newClient(settings)
	if err == nil {
		e.clients = append(e.clients, client)
	}
	return client, settings, err
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

// oneOf checks that the value of a flag is one of those allowed.
func oneOf(c *cli.Context, flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usagef(c, "--%s is %q, but must be one of %s", flag, value, joinOr(allowed))
}
