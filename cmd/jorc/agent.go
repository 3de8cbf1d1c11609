package main

import (
	"context"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
)

func agentCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:    "agent",
		Aliases: []string{"daemon"},
		Usage:   "run the daemon: register this host's services, render its templates, converge to the desired version",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "register, converge, render everything once, and exit"},
			&cli.DurationFlag{Name: "once-timeout", Value: 5 * time.Minute, Usage: "with --once: wait at most this long for missing data; 0: no limit"},
		},
		Description: "SIGHUP reads the configuration again; an invalid one is reported and the old one stays in force. SIGTERM stops cleanly. " +
			"A file 'hold' in the state directory stops convergence, and replacements and reloads of files, on this host. " +
			"With --once the exit code is 0 when the host has converged, 1 when it failed, 6 when it is held, and 124 when something was still missing.",
		Action: env.runAgent,
	}
}

func (e *environment) runAgent(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	load := func() (*config.Config, error) { return e.config(c) }
	a, log, err := e.buildAgent(c, load, !c.Bool("once"))
	if err != nil {
		return err
	}
	ctx := c.Context
	if !c.Bool("once") {
		return a.Run(ctx)
	}
	log.Info("one pass")
	ctx, cancel := withTimeout(ctx, c.Duration("once-timeout"))
	defer cancel()
	return a.Once(ctx)
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
	log := e.logger(conf.LogLevel, conf.LogJSON)
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
		LookupEnv: os.LookupEnv, Version: e.build.Version, Commit: e.build.Commit, Log: log,
	})
	if err != nil {
		return nil, nil, &exitError{code: exitUsage, err: err}
	}
	return a, log, nil
}

// notifier tells systemd; without systemd it does nothing.
func notifier(log hclog.Logger) func(string) {
	return func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("cannot notify the service manager", "state", state, "error", err)
		}
	}
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// noArguments refuses arguments of commands that take none.
func noArguments(c *cli.Context) error {
	if args := arguments(c); len(args) > 0 {
		return usagef(c, "unexpected argument %q", args[0])
	}
	return nil
}
