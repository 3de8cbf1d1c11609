package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/text"
)

func reasonFlag() cli.Flag {
	return &cli.StringFlag{Name: "reason", Usage: "`REASON` shown to others"}
}

// endFlags are the flags for the end of a hold.
func endFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "for", Usage: "it ends by itself after `D`", DefaultText: "it does not end"},
		&cli.StringFlag{Name: "until", Usage: "it ends by itself at `T`, such as " + exampleTime},
	}
}

const exampleTime = "2026-12-24T18:00:00+01:00"

// parseTime reads the time that a flag gives.
func parseTime(c *cli.Context, flag string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, c.String(flag))
	if err != nil {
		return t, usagef(c, "--%s %q: give a time such as %s", flag, c.String(flag), exampleTime)
	}
	return t.UTC(), nil
}

// endOf returns the end that --for or --until gives; zero: none.
func endOf(c *cli.Context, now time.Time) (time.Time, error) {
	switch {
	case c.IsSet("for") && c.IsSet("until"):
		return time.Time{}, usagef(c, "--for and --until exclude each other")
	case c.IsSet("for"):
		d := c.Duration("for")
		if d < time.Second {
			return time.Time{}, usagef(c, "--for %v: give at least 1s, or leave it out for no end", d)
		}
		return now.Add(d).Truncate(time.Second), nil
	case c.IsSet("until"):
		t, err := parseTime(c, "until")
		if err == nil && !t.After(now) {
			err = usagef(c, "--until %s is in the past", c.String("until"))
		}
		return t, err
	}
	return time.Time{}, nil
}

func pauseCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "pause the cluster: nothing new starts, and waits exit 6",
		Flags: append(endFlags(), reasonFlag()),
		Action: env.control("it is paused already", func(c *cli.Context, cl *target, h cluster.Hold) (bool, error) {
			return cl.Pause(c.Context, h)
		}),
	}
}

func resumeCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "end a pause",
		Action: env.control("it is not paused", func(c *cli.Context, cl *target, _ cluster.Hold) (bool, error) {
			return cl.Resume(c.Context)
		}),
	}
}

const scopeText = "Without --role or --node the whole cluster. A hold of a node takes precedence over one of its roles, and that over one of the cluster."

func holdCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "hold", Usage: "stop convergence in the cluster, a role or a node (--node)", Description: scopeText,
		Flags: append(endFlags(),
			&cli.StringFlag{Name: "role", Usage: "members with `ROLE`"}, reasonFlag(),
			&cli.BoolFlag{Name: "force", Usage: "also a role that no member has, or a node that does not exist", DisableDefaultText: true},
		),
		Action: env.control("it is held already", func(c *cli.Context, cl *target, h cluster.Hold) (bool, error) {
			s, err := holdScope(c)
			if err == nil && !c.Bool("force") {
				err = cl.CheckScope(c.Context, s)
			}
			if err != nil {
				return false, err
			}
			return cl.Hold(c.Context, s, h)
		}),
	}
}

func unholdCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "unhold", Usage: "allow convergence again in the cluster, a role or a node (--node)",
		Description: scopeText + " While a wider hold is in force, an exception from it is stored.",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "role", Usage: "members with `ROLE`"}, reasonFlag()},
		Action: env.control("it is not held", func(c *cli.Context, cl *target, h cluster.Hold) (bool, error) {
			s, err := holdScope(c)
			if err == nil {
				err = cl.CheckHeld(c.Context, s)
			}
			if err != nil {
				return false, err
			}
			return cl.Unhold(c.Context, s, h)
		}),
	}
}

func observeOnlyCommand(env *environment) *cli.Command {
	set := func(on bool) func(*cli.Context, *target, cluster.Hold) (bool, error) {
		return func(c *cli.Context, cl *target, h cluster.Hold) (bool, error) {
			return cl.SetObserveOnly(c.Context, on, h)
		}
	}
	return &cli.Command{
		Name: "observe-only", Usage: "switch the orchestrator between observing only and deciding",
		Subcommands: []*cli.Command{
			{Name: "on", Usage: "observe only", Flags: append(endFlags(), reasonFlag()), Action: env.control("it is on already", set(true))},
			{Name: "off", Usage: "decide again", Action: env.control("it is off already", set(false))},
		},
	}
}

// control is an action that changes what holds a cluster; already is printed when
// there was nothing to change.
func (e *environment) control(already string, change func(*cli.Context, *target, cluster.Hold) (bool, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		now := time.Now().UTC()
		until, err := endOf(c, now)
		if err != nil {
			return err
		}
		return e.onCluster(func(c *cli.Context, cl *target) error {
			by, err := e.author(c)
			if err != nil {
				return err
			}
			changed, err := change(c, cl, cluster.Hold{Since: now.Truncate(time.Second), Until: until, Reason: c.String("reason"), By: by})
			if err == nil && !changed {
				note(c, "cluster %q: %s; nothing was changed", cl.Name(), already)
			}
			return err
		})(c)
	}
}

// holdScope is what --role and --node name. JORC_NODE does not count: no caller
// wants to hold one node and means the cluster, or the reverse.
func holdScope(c *cli.Context) (cluster.Scope, error) {
	s := cluster.Scope{Role: c.String("role")}
	if c.IsSet("node") {
		s.Node = c.String("node")
	}
	switch {
	case s.Role != "" && s.Node != "":
		return s, usagef(c, "--role and --node exclude each other")
	case c.IsSet("role") && s.Role == "", c.IsSet("node") && s.Node == "":
		return s, usagef(c, "a name must not be empty")
	}
	return s, nil
}

// holdRows lists what holds a cluster, the widest first.
func holdRows(c cluster.Control) (rows [][]string) {
	add := func(what string, h *cluster.Hold) {
		if h != nil && h.Off {
			what = "not " + what
		}
		if h != nil {
			rows = append(rows, []string{what, h.TextAt(time.Now())})
		}
	}
	add("paused", c.Paused)
	add("observe only", c.ObserveOnly)
	add("held", c.Hold)
	addAll := func(what string, holds map[string]cluster.Hold) {
		for _, name := range slices.Sorted(maps.Keys(holds)) {
			h := holds[name]
			add(what+name, &h)
		}
	}
	addAll("held role ", c.Roles)
	addAll("held node ", c.Nodes)
	return rows
}

// slotsCommands are the commands of "jorc cluster" for slots.
func slotsCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name:        "slots",
			Usage:       "show the holders of slots and the queues",
			ArgsUsage:   "[GROUP]",
			Description: "Without GROUP, lists all groups. A slot ends with its process; if the process is killed or its host dies, with its session in Consul.",
			Action:      env.showSlots,
		},
		lockCommand(env),
		{
			Name:      "unlock",
			Usage:     "take a host's slots away, or its place in the queue",
			ArgsUsage: "GROUP NODE[/ID]",
			Description: "Prints the removed slots and places, one per line. The next in the queue gets the slot at once; a holder that still runs is notified, " +
				"and 'jorc cluster lock' then stops its command. Repeating it changes nothing. " +
				"'unlock rollout HOST' means 'jorc update give-up HOST'.",
			Action: env.unlockSlot,
		},
	}
}

func (e *environment) showSlots(c *cli.Context) error {
	group := argument(c, 0)
	if group != "" && strings.TrimSpace(group) == "" {
		return usagef(c, "GROUP must not be blank")
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	if s := cl.slots(); group != "" {
		return e.showGroup(c, s, group)
	}
	all, err := cl.slots().ShowAll(c.Context)
	if err != nil {
		return err
	}
	l := listingOf("group,max,held,waiting", all.Groups, func(v slots.View) []string {
		limit := "no limit"
		if v.Max != 0 {
			limit = strconv.Itoa(v.Max)
		}
		return []string{v.Group, limit, strconv.Itoa(len(v.Holders)), strconv.Itoa(len(v.Queue))}
	})
	if err := e.print(c, l, all.Groups); err != nil {
		return err
	}
	if more := all.MoreText(); more != "" {
		note(c, "%s", more)
	}
	return all.Unreadable
}

func (e *environment) showGroup(c *cli.Context, s *slots.Slots, group string) error {
	v, exists, err := s.Show(c.Context, group)
	if err == nil && !exists {
		err = unknownGroup(c, s, group)
	}
	if err != nil {
		return err
	}
	row := func(state string) func(slots.Entry) []string {
		return func(entry slots.Entry) []string {
			return []string{state, entry.Node, entry.ID, when(entry.Since), entry.Reason}
		}
	}
	l := listingOf("state,node,id,since,reason", v.Holders, row("holds"))
	l.rows = append(l.rows, listingOf("", v.Queue, row("waits")).rows...)
	return e.print(c, l, v)
}

// unknownGroup is the error about a group that does not exist.
func unknownGroup(c *cli.Context, s *slots.Slots, group string) error {
	known, err := s.Groups(c.Context)
	if err != nil {
		return err
	}
	return fmt.Errorf("slot group %q: no such group%s", group, text.Unknown(group, "groups", known))
}

func (e *environment) unlockSlot(c *cli.Context) error {
	group, holder := argument(c, 0), argument(c, 1)
	node, id, given := strings.Cut(holder, "/")
	switch {
	case strings.TrimSpace(group) == "":
		return usagef(c, "GROUP must not be blank")
	case node == "" || given && id == "":
		return usagef(c, "%q must be NODE or NODE/ID", holder)
	}
	cl, err := e.existing(c, "")
	switch {
	case err != nil:
		return err
	case group == slots.Reserved:
		return e.giveUpHost(c, cl, node)
	}
	s := cl.slots()
	if _, exists, err := s.Show(c.Context, group); err != nil {
		return err
	} else if !exists {
		return unknownGroup(c, s, group)
	}
	out, err := s.Unlock(c.Context, group, node, id)
	if e.format(c) != formatJSON {
		for _, name := range out { // also of what was removed before an error
			fmt.Fprintln(c.App.Writer, printable(name))
		}
	} else if err == nil {
		err = e.writeJSON(c.App.Writer, append([]string{}, out...))
	}
	if err == nil && len(out) == 0 {
		note(c, "%s has no slot and no place in slot group %q; nothing was changed", printable(holder), group)
		noteUnknownHost(c, cl, node)
	}
	return err
}

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
	case len(args) > 1:
		return usagef(c, "too many arguments")
	case strings.TrimSpace(args[0]) == "":
		return usagef(c, "GROUP must not be blank")
	case len(program) == 0:
		return usagef(c, "missing COMMAND after --")
	}
	if err := notNegative(c, "max", "timeout"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
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
	lease, err := acquire(ctx, cancel, c, cl, args[0], h)
	if err != nil {
		return err
	}
	err = e.runHolding(c, lease, program)
	if released := lease.Release(c.Context); released != nil && lease.Err() == nil {
		note(c, "cannot release slot; it ends with its session: %v", released)
	}
	return err
}

// acquire waits for a slot for --timeout. The lease lives in ctx, so ctx is
// canceled at the timeout and has no deadline.
func acquire(ctx context.Context, cancel context.CancelCauseFunc, c *cli.Context, cl *target, group string, h slots.Holder) (*kv.Lease, error) {
	limit := c.Duration("timeout")
	late := &exitError{code: exitTimeout, err: fmt.Errorf("slot group %q: no slot was free in %v; 'jorc cluster slots %s' shows the holders", group, limit, group)}
	inTime := func() bool { return true }
	if limit > 0 {
		inTime = time.AfterFunc(limit, func() { cancel(late) }).Stop
	}
	lease, err := cl.slots().Acquire(ctx, group, c.Int("max"), h)
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
	if cl.client.Stats().LastAnswer.IsZero() {
		late.code = exitUnreachable
	}
	return nil, late
}

// runHolding runs the program until it ends, the slot is lost or jorc is asked to
// stop.
func (e *environment) runHolding(c *cli.Context, lease *kv.Lease, program []string) error {
	err := e.runChild(lease.Context(), c, program)
	if lease.Err() != nil {
		return fmt.Errorf("%w: %s was stopped", lease.Err(), program[0])
	}
	return err
}

// runChild runs a program until it ends or ctx does, also when jorc is killed. The error has its exit
// code. The flag --pass-token leaves tokens in its environment.
func (e *environment) runChild(ctx context.Context, c *cli.Context, program []string, more ...string) error {
	environ := e.environ()
	if !c.Bool("pass-token") {
		environ = withoutTokens(environ)
	}
	result, err := command.Run(ctx, command.Command{
		Args: program, Env: append(withoutSockets(environ), more...), Stdout: underlying(c.App.Writer), Stderr: underlying(c.App.ErrWriter), Guard: e.guard,
	})
	switch {
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
