package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

func lockCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "lock",
		Usage:     "run a command while holding a slot of a group",
		ArgsUsage: "GROUP -- COMMAND ARG…",
		Description: "Waits for a slot, first come, first served, and holds it while COMMAND runs. Exits with COMMAND's code, or 128 plus the " +
			"number of the signal that ended it; 124 if no slot was free before the timeout (3 if Consul never answered); 6 if the slot was lost: COMMAND and its " +
			"children are then stopped before another process gets the slot, unless it was unlocked by hand. They are also stopped if jorc is killed. 126 or 127 if COMMAND cannot be run or is not found.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "max", DefaultText: "as it is; 1 for a new group", Usage: "set the group's number of slots to `N`; 0: no limit", Value: slots.Keep},
			&cli.DurationFlag{Name: "timeout", DefaultText: "none", Usage: "give up if no slot was free after `D`"},
			&cli.StringFlag{Name: "reason", DefaultText: "COMMAND", Usage: "`WHY`, shown to others"},
			&cli.BoolFlag{Name: "pass-token", Usage: "leave tokens in COMMAND's environment", DisableDefaultText: true},
		},
		Action: env.lock,
	}
}

func (e *environment) lock(c *cli.Context) error {
	args, program, _ := splitDash(c)
	switch {
	case len(args) != 1:
		return usagef(c, "missing argument GROUP")
	case strings.TrimSpace(args[0]) == "":
		return usagef(c, "GROUP must not be blank")
	case len(program) == 0:
		return usagef(c, "missing COMMAND after --")
	case c.IsSet("max") && c.Int("max") < 0:
		return usagef(c, "--max is %d, but must be 0 or more", c.Int("max"))
	case c.Duration("timeout") < 0:
		return usagef(c, "--timeout is %v, but must be 0 or more", c.Duration("timeout"))
	}
	s, client, err := e.slots(c)
	if err != nil {
		return err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	h := slots.Holder{Node: node, Reason: c.String("reason")}
	if h.Reason == "" {
		h.Reason = printable(program[0])
	}
	ctx, cancel := context.WithCancelCause(c.Context)
	defer cancel(nil)
	lease, err := acquire(ctx, cancel, c, s, client, args[0], h)
	if err != nil {
		return err
	}
	err = e.runHolding(c, lease, program)
	if released := lease.Release(c.Context); released != nil && lease.Err() == nil {
		fmt.Fprintf(c.App.ErrWriter, "jorc: cannot release slot; it ends with its session: %v\n", released)
	}
	return err
}

// acquire waits for a slot for --timeout. The lease lives in ctx, so ctx is
// canceled at the timeout and has no deadline.
func acquire(ctx context.Context, cancel context.CancelCauseFunc, c *cli.Context, s *slots.Slots, client *consul.Client,
	group string, h slots.Holder,
) (*kv.Lease, error) {
	limit := c.Duration("timeout")
	late := &exitError{code: exitTimeout, err: fmt.Errorf("slot group %q: no slot was free in %v; 'jorc cluster slots %s' shows the holders", group, limit, group)}
	inTime := func() bool { return true }
	if limit > 0 {
		inTime = time.AfterFunc(limit, func() { cancel(late) }).Stop
	}
	lease, err := s.Acquire(ctx, group, c.Int("max"), h)
	switch {
	case err == nil && inTime():
		return lease, nil
	case err == nil:
		_ = lease.Release(c.Context) // at worst its session ends it
		return nil, late
	}
	if !errors.Is(context.Cause(ctx), late) {
		inTime()
		return nil, err
	}
	if client.Stats().LastAnswer.IsZero() {
		late.code = exitUnreachable
	}
	return nil, late
}

// runHolding runs the program until it ends, the slot is lost or jorc is asked to
// stop.
func (e *environment) runHolding(c *cli.Context, lease *kv.Lease, program []string) error {
	environ := e.environ()
	if !c.Bool("pass-token") {
		environ = withoutTokens(environ)
	}
	result, err := command.Run(lease.Context(), command.Command{
		Args: program, Env: withoutSockets(environ), Stdout: underlying(c.App.Writer), Stderr: underlying(c.App.ErrWriter), Guard: e.guard,
	})
	switch {
	case lease.Err() != nil:
		return fmt.Errorf("%w: %s was stopped", lease.Err(), program[0])
	case err != nil && c.Context.Err() != nil:
		return context.Cause(c.Context)
	case err != nil:
		return &exitError{code: result.ExitCode, err: err}
	case result.ExitCode != 0:
		return &exitError{code: result.ExitCode}
	}
	return nil
}

// withoutSockets removes the variables by which a child would act as jorc towards systemd.
func withoutSockets(environ []string) []string {
	out := make([]string, 0, len(environ))
	for _, kv := range environ {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC":
		default:
			out = append(out, kv)
		}
	}
	return out
}
