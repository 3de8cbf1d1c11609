package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/text"
)

const (
	// commandLease is the ID of the leases that commands ask for, unless they name another.
	commandLease = "jorc maintenance"
	// backWithin is how long 'jorc maintenance run' waits for the host's health after COMMAND.
	backWithin = 5 * time.Minute
	// leaseVariable names the lease of 'jorc maintenance run' to its COMMAND: the commands in that mean the same one.
	leaseVariable = "JORC_LEASE"
)

func maintenanceCommand(env *environment) *cli.Command {
	codes := "Exits 6 at once when no wait can help: no orchestrator, a pause, observe-only mode, a host that is not a member, a freeze that lasts longer than --timeout; " +
		"124 when there was no place before --timeout. Both name the reason; while it waits, stderr says why."
	action := func(action func(*cli.Context) error) cli.ActionFunc { return env.onLinux("jorc maintenance", action) }
	return &cli.Command{
		Name:  "maintenance",
		Usage: "take this host out of service for a reboot, a patch or a command",
		Description: "The agent of this host asks the orchestrator for a place within the budget of the cluster. What it is given, a lease, outlives reboots of the host and restarts of the agent. " +
			"A host that was rebooted is back in service when its checks have passed.",
		Subcommands: []*cli.Command{{
			Name: "begin", Usage: "wait for a place, and take this host out of service",
			Description: "Exits 0 when the host is in maintenance, and has been for --drain. 'jorc maintenance end' ends it. " + codes,
			Flags:       askingFlags(idFlag(), nodeFlag()), Action: env.onNode(action(env.beginMaintenance), env.beginOn),
		}, {
			Name: "end", Usage: "put this host back in service",
			Description: "Exits 0 when the host is back in service and its checks have passed for the time that was asked for at its begin, or when it was not out of service; " +
				"124 if they have not before --timeout, with the checks. It ends later, when they do.",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "id", DefaultText: "any", Usage: "end only the lease of `ID`"},
				&cli.DurationFlag{Name: "timeout", DefaultText: "none", Usage: "wait for the health of this host at most `D`"},
				&cli.StringFlag{Name: "reason", Usage: "with --node: `WHY`, shown to others"},
				nodeFlag(),
			},
			Action: env.onNode(action(env.endMaintenance), env.endOn),
		}, {
			Name: "run", Usage: "run a command while this host is out of service", ArgsUsage: "-- COMMAND ARG…",
			Description: "Begins, runs COMMAND, and ends, however this program ends. Waits up to 5 minutes for the host's health after COMMAND. Exits with COMMAND's code, or 128 plus the number of the signal that ended it; " +
				"126 or 127 if COMMAND cannot be run or is not found. " + codes,
			Flags:  askingFlags(&cli.BoolFlag{Name: "pass-token", Usage: "leave tokens in COMMAND's environment", DisableDefaultText: true}),
			Action: action(env.runInMaintenance),
		}, {
			Name: "reboot", Usage: "wait for a place, and reboot this host",
			Description: "Exits 0 when the host is being rebooted, by the reboot_command of its configuration. The host is back in service when its checks have passed after the reboot. " + codes,
			Flags:       askingFlags(idFlag()), Action: action(env.rebootInMaintenance),
		}, {
			Name: "show", Usage: "show whether this host is out of service by 'jorc maintenance' or FleetLock",
			Description: "Exits 1 when the lease needs an operator: its time is over, and the host is not healthy.",
			Flags:       []cli.Flag{nodeFlag()},
			Action:      env.onNode(action(env.showMaintenance), env.showOn),
		}},
	}
}

// askingFlags are those of all commands that take the host out of service, and own.
func askingFlags(own ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "`WHY`, shown to others"},
		&cli.DurationFlag{Name: "for", Value: lease.DefaultFor, Usage: "how long it may take; after `D` it ends by itself on a healthy host, and needs an operator on another"},
		&cli.DurationFlag{Name: "drain", DefaultText: "0s", Usage: "stay in maintenance for `D` before the command continues"},
		&cli.DurationFlag{Name: "min-healthy", Value: lease.DefaultMinHealthy, Usage: "all checks of the host must have passed for `D` before it is back in service"},
		&cli.DurationFlag{Name: "timeout", DefaultText: "none", Usage: "give up if there was no place for this host after `D`; 0: ask once, and wait only for the answer (at most 20s)"},
	}, own...)
}

func idFlag() cli.Flag {
	return &cli.StringFlag{Name: "id", Value: commandLease, Usage: "`ID` of the lease; the command that has it gets it again, others wait"}
}

// leaseAsked is the request that the flags describe.
func (e *environment) leaseAsked(c *cli.Context, id, reason string) (control.Ask, error) {
	if err := notNegative(c, "for", "drain", "min-healthy", "timeout"); err != nil {
		return control.Ask{}, err
	}
	a := control.Ask{
		Request: lease.Request{
			ID: id, Reason: cmp.Or(c.String("reason"), reason), For: c.Duration("for"), Drain: c.Duration("drain"), MinHealthy: c.Duration("min-healthy"),
			Job: e.getenv("JORC_JOB"),
		},
		Timeout: c.Duration("timeout"), Once: c.IsSet("timeout") && c.Duration("timeout") == 0,
	}
	if err := a.Check(); err != nil {
		return control.Ask{}, usagef(c, "the request for maintenance: %v", err)
	}
	return a, nil
}

// controlClient asks the agent of this host's configuration.
func (e *environment) controlClient(c *cli.Context) (*control.Client, error) {
	settings, err := e.config(c)
	if err != nil {
		return nil, err
	}
	last := ""
	return control.NewClient(settings.Control.Socket, func(err error) {
		if text := printable(err.Error()); text != last {
			last = text
			note(c, "waiting for the agent: %s", text)
		}
	}), nil
}

// around returns the ID of the lease of the 'jorc maintenance run' that this command is part of; empty: it is part of none,
// or that lease is over, or --id names another one.
func (e *environment) around(c *cli.Context, client *control.Client) (string, error) {
	id := e.getenv(leaseVariable)
	if id == "" || c.IsSet("id") {
		return "", nil
	}
	s, err := client.Status(c.Context)
	if err != nil || s.ID != id || s.State == lease.Ending {
		return "", err
	}
	return id, nil
}

func (e *environment) beginMaintenance(c *cli.Context) error {
	a, err := e.leaseAsked(c, c.String("id"), "")
	if err != nil {
		return err
	}
	client, err := e.controlClient(c)
	if err != nil {
		return err
	}
	outer, err := e.around(c, client)
	if err != nil {
		return err
	}
	a.ID = cmp.Or(outer, a.ID)
	status, err := client.Begin(c.Context, a, telling(c))
	if err != nil {
		return staysIn(err)
	}
	if e.format(c) == formatJSON {
		return e.writeJSON(c.App.Writer, status)
	}
	if status.State == lease.Covered {
		note(c, "this host is out of service by the job %s", printable(a.Job))
		return nil
	}
	if outer != "" {
		note(c, "this host is out of service until the command of 'jorc maintenance run' has ended")
		return nil
	}
	note(c, "this host is out of service%s; 'jorc maintenance end' ends it", after(" until ", when(status.Until)))
	return nil
}

func (e *environment) endMaintenance(c *cli.Context) error {
	if c.IsSet("reason") { // nothing of the cluster is changed that could be recorded
		return usagef(c, "--reason is for the lease of another host: give --node, or leave it out")
	}
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	client, err := e.controlClient(c)
	if err != nil {
		return err
	}
	switch outer, err := e.around(c, client); {
	case err != nil:
		return err
	case outer != "":
		note(c, "this host is back in service when the command of 'jorc maintenance run' has ended")
		return nil
	}
	if err := client.End(c.Context, c.String("id"), c.Duration("timeout"), telling(c)); err != nil {
		return staysOut(err)
	}
	if e.format(c) == formatJSON {
		return e.showMaintenance(c)
	}
	return nil
}

func (e *environment) runInMaintenance(c *cli.Context) error {
	args, program, _ := splitDash(c)
	switch {
	case len(args) > 0:
		return usagef(c, "too many arguments before --")
	case len(program) == 0:
		return usagef(c, "missing COMMAND after --")
	}
	a, err := e.leaseAsked(c, commandLease+" run "+rand.Text()[:12], text.Line(printable(program[0]), lease.MostReason))
	if err != nil {
		return err
	}
	client, err := e.controlClient(c)
	if err != nil {
		return err
	}
	outer, err := e.around(c, client)
	if err != nil {
		return err
	}
	if outer != "" {
		a.ID = outer
		if _, err := client.Begin(c.Context, a, telling(c)); err != nil {
			return staysIn(err)
		}
		return e.runChild(c.Context, c, program)
	}
	held, err := client.Hold(c.Context, a, telling(c), func(r *lease.Refusal) {
		note(c, "this host comes back into service while %s runs: %s", printable(program[0]), refusalText(r))
	})
	if err != nil {
		return staysIn(err)
	}
	ran := e.runChild(c.Context, c, program, leaseVariable+"="+a.ID)
	held.Close() // which ends it in any case
	if c.Context.Err() != nil {
		return ran
	}
	if err := client.End(c.Context, a.ID, backWithin, telling(c)); err != nil {
		note(c, "%v; it ends later", staysOut(err))
	}
	return ran
}

func (e *environment) rebootInMaintenance(c *cli.Context) error {
	a, err := e.leaseAsked(c, c.String("id"), "reboot")
	if err != nil {
		return err
	}
	client, err := e.controlClient(c)
	if err != nil {
		return err
	}
	outer, err := e.around(c, client)
	if err != nil {
		return err
	}
	a.ID = cmp.Or(outer, a.ID)
	err = client.Reboot(c.Context, a, telling(c), func() { note(c, "this host is being rebooted") })
	return staysIn(err)
}

func (e *environment) showMaintenance(c *cli.Context) error {
	client, err := e.controlClient(c)
	if err != nil {
		return err
	}
	s, err := client.Status(c.Context)
	if err != nil {
		return err
	}
	s.State = cmp.Or(s.State, "none")
	l := rowsOf("what,detail", []string{"state", string(s.State)})
	for _, row := range [][]string{
		{"id", printable(s.ID)},
		{"reason", printable(s.Reason)},
		{"since", when(s.Since)},
		{"until", when(s.Until)},
		{"waits for", waitsFor(s)},
		{"trouble", printable(s.Trouble)},
		{"rebooted", map[bool]string{true: "yes"}[s.Rebooted]},
	} {
		if row[1] != "" {
			l.rows = append(l.rows, row)
		}
	}
	if err := e.print(c, l, s); err != nil {
		return err
	}
	return answerOf(s.Trouble == "")
}

// telling prints what a lease waits for, once for each reason.
func telling(c *cli.Context) func(lease.Status) {
	last := ""
	return func(s lease.Status) {
		text := waitsFor(s)
		if text == "" {
			switch s.State {
			case lease.Asked:
				text = "for the orchestrator"
			case lease.Placed:
				text = "this host has its place"
			case lease.Draining:
				text = "this host is in maintenance, and drains"
			default:
				return
			}
		}
		if text != last {
			last = text
			note(c, "waiting: %s", text)
		}
	}
}

// waitsFor says in one line why a lease is not further; empty: it does not wait, or that is not known.
func waitsFor(s lease.Status) string {
	if s.Waits == nil {
		return ""
	}
	return refusalText(s.Waits)
}

func refusalText(r *lease.Refusal) string {
	return printable(r.Reason) + after("; that may change at ", when(r.At))
}

// staysIn is the error of a host that does not go out of service.
func staysIn(err error) error {
	var refusal *lease.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	code := exitTimeout
	switch {
	case refusal.Kind == lease.InvalidRequest:
		code = exitUsage
	case refusal.Final:
		code = exitStopped
	}
	return &exitError{code: code, err: fmt.Errorf("this host stays in service: %s", refusalText(refusal))}
}

// staysOut is the error of a host that is not back in service.
func staysOut(err error) error {
	var refusal *lease.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	code := exitTimeout
	if refusal.Final || refusal.Kind == lease.HeldByOther {
		code = exitStopped
	}
	return &exitError{code: code, err: fmt.Errorf("this host is not back in service: %s", refusalText(refusal))}
}
