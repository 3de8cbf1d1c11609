package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/diagnostics"
	"github.com/jorc/jorc/internal/supervise"
)

func agentCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:    "agent",
		Aliases: []string{"daemon"},
		Usage:   "run the daemon: register this host's services, render its templates, converge to the desired version",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "register, converge, render everything once, run the processes to their ends, and exit"},
			&cli.DurationFlag{Name: "once-timeout", Value: 5 * time.Minute, Usage: "with --once: wait at most this long for missing data; 0: no limit"},
		},
		Description: "SIGHUP reads the configuration again; an invalid one is reported and the old one stays in force. SIGTERM stops cleanly. " +
			"A file 'hold' in the state directory stops convergence, and replacements and reloads of files, on this host. " +
			"With --once the exit code is 0 when the host has converged, 1 when it failed, 6 when it is held, 124 when something was still missing, and that of the process if a configured process failed.",
		Action: env.onLinux("jorc agent", env.runAgent),
	}
}

// linuxOnly is why this computer cannot do what, which needs a Linux host; empty: it can.
func (e *environment) linuxOnly(what string) string {
	os, _, _ := strings.Cut(e.build.Platform, "/")
	if os == "linux" || os == "" {
		return ""
	}
	return fmt.Sprintf("%s: Linux only: this jorc is for %s, where it is the operator's command line; run it on a host", what, e.build.Platform)
}

// onLinux is an action that fails on other systems than Linux.
func (e *environment) onLinux(what string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if why := e.linuxOnly(what); why != "" {
			return &exitError{code: exitUsage, err: errors.New(why)}
		}
		return action(c)
	}
}

func (e *environment) runAgent(c *cli.Context) error {
	load := func() (*config.Config, error) { return e.config(c) }
	a, log, err := e.buildAgent(c, load, !c.Bool("once"))
	if err != nil {
		return err
	}
	if percent := gcPercent(); percent != 0 {
		debug.SetGCPercent(percent)
	}
	if !c.Bool("once") {
		return a.Run(c.Context)
	}
	log.Info("one pass")
	err = a.Once(c.Context)
	if ended := new(supervise.ExitError); errors.As(err, &ended) {
		return &exitError{code: ended.Code, err: err}
	}
	return err
}

// agentGCPercent is by how much an agent's heap may grow until it is collected, without GOGC in
// the environment. An agent holds much more than a change allocates, so that half of Go's
// standard saves a fifth of its memory and costs less than half a millisecond of a change.
const agentGCPercent = 50

// gcPercent returns agentGCPercent, or 0 if the environment decides.
func gcPercent() int {
	if _, set := os.LookupEnv("GOGC"); set {
		return 0
	}
	return agentGCPercent
}

// buildAgent makes an agent of what load returns. With waitForToken it waits for a token
// file that does not exist yet.
func (e *environment) buildAgent(c *cli.Context, load func() (*config.Config, error), waitForToken bool) (*agent.Agent, hclog.Logger, error) {
	conf, err := load()
	if err != nil {
		return nil, nil, err
	}
	if !waitForToken {
		client, err := newClient(conf)
		if err != nil {
			return nil, nil, err
		}
		client.Close()
	}
	recent := &diagnostics.Log{}
	log := e.agentLogger(conf.LogLevel, conf.LogJSON, recent)
	bridgeStandardLog(log)
	for _, w := range append(conf.Warnings, agent.HiddenVariables(conf)...) {
		log.Warn(w.String())
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog interval cannot be read", "error", err)
	}
	a, err := agent.New(agent.Options{
		Config: conf, Load: load, Hangup: e.hangup(c.Context), Notify: notifier(log), Watchdog: watchdog,
		OnceTimeout: c.Duration("once-timeout"), Process: e.processOptions(c),
		LookupEnv: os.LookupEnv, Pages: uiPages(), GCPercent: gcPercent(), Version: e.build.Version, Commit: e.build.Commit, Log: log, Recent: recent,
	})
	if err != nil {
		return nil, nil, &exitError{code: exitUsage, err: err}
	}
	return a, log, nil
}

// processOptions lets processes write where this program writes.
func (e *environment) processOptions(c *cli.Context) agent.ProcessOptions {
	return agent.ProcessOptions{
		Guard: e.process, Environ: e.environ, Stdout: underlying(c.App.Writer), Stderr: underlying(c.App.ErrWriter),
	}
}

// notifier notifies systemd; without systemd it does nothing.
func notifier(log hclog.Logger) func(string) {
	return func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("cannot notify the service manager", "state", state, "error", err)
		}
	}
}

func renderCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "render the configured templates once, as the agent would",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "write the files (the default)"},
			&cli.BoolFlag{Name: "dry-run", Usage: "write nothing; list the files that would change"},
			&cli.BoolFlag{Name: "diff", Usage: "write nothing; print what would change, and exit 1 if anything would"},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "wait at most this long for missing data; 0: no limit"},
		},
		Description: "Checks, guards, reloads and the order of things are those of 'jorc agent'. " +
			"While an agent works with the same state directory only --dry-run and --diff are possible.",
		Action: env.render,
	}
}

func (e *environment) render(c *cli.Context) error {
	mode := agent.RenderOnce
	switch {
	case c.Bool("dry-run") && c.Bool("diff"), c.Bool("once") && (c.Bool("dry-run") || c.Bool("diff")):
		return usagef(c, "only one of --once, --dry-run and --diff")
	case c.Bool("dry-run"):
		mode = agent.DryRun
	case c.Bool("diff"):
		mode = agent.Diff
	}
	if why := e.linuxOnly("jorc render to files"); why != "" && mode == agent.RenderOnce {
		return &exitError{code: exitUsage, err: fmt.Errorf("%s, or see what would change here with --diff", why)}
	}
	if len(e.configPaths(c)) == 0 {
		return usagef(c, "no configuration: %s does not exist; name one with --config PATH", filepath.Join(e.etc, "jorc"))
	}
	a, _, err := e.buildAgent(c, func() (*config.Config, error) { return e.config(c) }, false)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	changes, err := a.Render(ctx, mode, rawData(c.App.Writer))
	if err == nil && changes && mode == agent.Diff {
		return errNo
	}
	return err
}
