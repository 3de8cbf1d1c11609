package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

func freezeCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "freeze", Usage: "set times in which nothing new begins that takes hosts out of service",
		Description: "In a freeze hosts get no grant of a version or of a stage. What is under way is finished, and a rollback ignores freezes. " +
			"Without a subcommand: list.",
		Action: env.listFreezes,
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the freezes", Action: env.listFreezes},
			{
				Name: "add", Usage: "add a freeze, and print its id",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", Usage: "it begins at `T`, such as " + exampleTime, DefaultText: "now"},
					&cli.StringFlag{Name: "to", Usage: "it ends at `T`"},
					&cli.StringFlag{Name: "weekly", Usage: "each week at `TIMES`, such as \"Fri 16:00-Mon 06:00 Europe/Berlin\""},
					&cli.StringSliceFlag{Name: "role", Usage: "only members with `ROLE`; may be repeated"},
					reasonFlag(),
				},
				Action: env.addFreeze,
			},
			{
				Name: "remove", Usage: "remove a freeze", ArgsUsage: "ID", Flags: []cli.Flag{reasonFlag()},
				Action: env.onCluster(removeFreeze),
			},
		},
	}
}

// freezeOf returns the freeze that the flags describe.
func freezeOf(c *cli.Context, now time.Time) (f pace.Freeze, err error) {
	f = pace.Freeze{Roles: c.StringSlice("role"), Reason: c.String("reason"), Since: now.Truncate(time.Second)}
	switch {
	case strings.TrimSpace(f.Reason) == "":
		return f, usagef(c, "--reason is missing: others read in it why nothing begins")
	case c.IsSet("weekly") && (c.IsSet("from") || c.IsSet("to")):
		return f, usagef(c, "--weekly and --from or --to exclude each other")
	case c.IsSet("weekly"):
		w, err := pace.ParseWindow(c.String("weekly"))
		if err != nil {
			return f, usagef(c, "--weekly: %v", err)
		}
		f.Weekly = &w
	case !c.IsSet("to"):
		return f, usagef(c, "give the end with --to, or times of the week with --weekly")
	default:
		f.From = f.Since
		if c.IsSet("from") {
			if f.From, err = parseTime(c, "from"); err != nil {
				return f, err
			}
		}
		if f.To, err = parseTime(c, "to"); err != nil {
			return f, err
		}
	}
	if err := f.Check(now); err != nil {
		return f, usagef(c, "%v", err)
	}
	return f, nil
}

func (e *environment) addFreeze(c *cli.Context) error {
	f, err := freezeOf(c, time.Now().UTC())
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	for _, role := range f.Roles {
		if err := cl.CheckRole(c.Context, role); err != nil {
			return err
		}
	}
	if f.By, err = e.author(c); err != nil {
		return err
	}
	var id [2]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	f.ID = hex.EncodeToString(id[:])
	f, err = cl.AddFreeze(c.Context, f)
	switch {
	case errors.Is(err, pace.ErrFreeze):
		return usagef(c, "%v", err)
	case err != nil:
		return err
	}
	if e.format(c) == formatJSON {
		return e.writeJSON(c.App.Writer, f)
	}
	_, err = fmt.Fprintln(c.App.Writer, f.ID)
	return err
}

func removeFreeze(c *cli.Context, cl *target) error {
	id := argument(c, 0)
	if id == "" {
		return usagef(c, "missing ID: 'jorc cluster freeze list' shows the freezes")
	}
	changed, err := cl.RemoveFreeze(c.Context, id)
	if err != nil || changed {
		return err
	}
	control, err := cl.Control(c.Context)
	if err != nil {
		return err
	}
	var known []string
	for _, f := range control.Freezes {
		known = append(known, f.ID)
	}
	note(c, "cluster %q: it has no freeze %s%s; nothing was changed", cl.Name(), printable(id), text.Unknown(id, "freezes", known))
	return nil
}

// freezeShown is a freeze as `cluster freeze list -o json` has it.
type freezeShown struct {
	pace.Freeze
	State string    `json:"state"`         // active, planned or over
	Next  time.Time `json:"next,omitzero"` // when that changes
}

// States of a freeze.
const (
	freezeActive  = "active"
	freezePlanned = "planned"
	freezeOver    = "over"
)

func showFreeze(f pace.Freeze, now time.Time) freezeShown {
	v := freezeShown{Freeze: f, State: freezePlanned, Next: f.Change(now).UTC()}
	switch {
	case f.Open(now):
		v.State = freezeActive
	case f.Over(now):
		v.State, v.Next = freezeOver, time.Time{}
	}
	return v
}

func (e *environment) listFreezes(c *cli.Context) error {
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	control, err := cl.Control(c.Context)
	if err != nil {
		return err
	}
	all, now := []freezeShown{}, time.Now()
	for _, f := range control.Freezes {
		all = append(all, showFreeze(f, now))
	}
	l := listingOf("id,state,when,roles,reason", all, func(v freezeShown) []string {
		state := v.State
		switch v.State {
		case freezeActive:
			state += " until " + when(v.Next)
		case freezePlanned:
			state += " from " + when(v.Next)
		}
		return []string{v.ID, state, v.When(), strings.Join(v.Roles, ", "), cluster.Hold{Since: v.Since, By: v.By, Reason: v.Reason}.String()}
	})
	return e.print(c, l, all)
}
