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
	"github.com/jorc/jorc/internal/slots"
)

func lockCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "lock",
		Usage:     "run a command while a slot of a group is held",
		ArgsUsage: "GROUP -- COMMAND ARG…",
		Description: "Waits for a slot, first come first served, holds it while COMMAND runs and hands it on. Exits with COMMAND's code, or 128 plus the " +
			"number of the signal that ended it; 124 when no slot was to be had by the timeout (3 when Consul never answered); 6 when the slot was lost: COMMAND is " +
			"then stopped with its children before others can have the slot, unless it was unlocked by hand. It is stopped so, too, when jorc itself is killed. 126 or 127 when COMMAND cannot be run or is not found.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "max", DefaultText: "as it is; 1 for a new group", Usage: "the group has `N` slots from now on; 0: any number", Value: slots.Keep},
			&cli.DurationFlag{Name: "timeout", DefaultText: "none", Usage: "give up when no slot was to be had after `D`"},
			&cli.StringFlag{Name: "reason", DefaultText: "COMMAND", Usage: "`WHY`, for others to read"},
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
	defer s.Close(c.Context)
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
	claim, err := acquire(ctx, cancel, c, s, client, args[0], h)
	if err != nil {
		return err
	}
	err = e.runHolding(c, claim, program)
	if released := claim.Release(c.Context); released != nil && claim.Err() == nil {
		fmt.Fprintf(c.App.ErrWriter, "jorc: the slot was not given back as it should be: %v\n", released)
	}
	return err
}

// acquire waits for a slot for as long as --timeout says. The claim lives in
// ctx, so it is canceled at the timeout and has no deadline.
func acquire(ctx context.Context, cancel context.CancelCauseFunc, c *cli.Context, s *slots.Slots, client *consul.Client,
	group string, h slots.Holder,
) (*slots.Claim, error) {
	limit := c.Duration("timeout")
	late := &exitError{code: exitTimeout, err: fmt.Errorf("slot group %q: no slot was to be had in %v: 'jorc cluster slots %s' says who holds them", group, limit, group)}
	inTime := func() bool { return true }
	if limit > 0 {
		inTime = time.AfterFunc(limit, func() { cancel(late) }).Stop
	}
	claim, err := s.Acquire(ctx, group, c.Int("max"), h)
	switch {
	case err == nil && inTime():
		return claim, nil
	case err == nil:
		_ = claim.Release(c.Context) // at worst its session ends it
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

// runHolding runs the program until it ends, the claim is lost or jorc is told
// to stop.
func (e *environment) runHolding(c *cli.Context, claim *slots.Claim, program []string) error {
	environ := e.environ()
	if !c.Bool("pass-token") {
		environ = withoutTokens(environ)
	}
	result, err := command.Run(claim.Context(), command.Command{
		Args: program, Env: withoutSockets(environ), Stdout: underlying(c.App.Writer), Stderr: underlying(c.App.ErrWriter), Guard: e.guard,
	})
	switch {
	case claim.Err() != nil:
		return fmt.Errorf("%w: %s was stopped", claim.Err(), program[0])
	case err != nil && c.Context.Err() != nil:
		return context.Cause(c.Context)
	case err != nil:
		return &exitError{code: result.ExitCode, err: err}
	case result.ExitCode != 0:
		return &exitError{code: result.ExitCode}
	}
	return nil
}

// withoutSockets drops what would let a child speak to systemd in jorc's name.
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
