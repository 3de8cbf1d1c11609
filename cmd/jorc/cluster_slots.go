package main

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// slotsCommands are those of "jorc cluster" that are about slots.
func slotsCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name:      "slots",
			Usage:     "say who holds slots of the cluster, since when and why, and who waits",
			ArgsUsage: "[GROUP]",
			Description: "Without GROUP all groups. Claims that are durable end by release and unlock only; others end with their process. " +
				"One that is gone is of a process or host that died; who wants the slot next takes it over.",
			Action: env.showSlots,
		},
		lockCommand(env),
		{
			Name:      "unlock",
			Usage:     "take a node's slots away, or its place in the queue",
			ArgsUsage: "GROUP NODE[/ID]",
			Description: "Prints the claims that were taken away, one per line. Who waits gets the slot at once; a holder that is alive is told, " +
				"and 'jorc cluster lock' then stops its command. Repeating it changes nothing. " +
				"'unlock rollout HOST' means 'jorc update give-up HOST'.",
			Action: env.unlockSlot,
		},
	}
}

// slots are the groups of the cluster that flags and environment name.
func (e *environment) slots(c *cli.Context) (*slots.Slots, *consul.Client, error) {
	client, settings, err := e.consul(c)
	if err != nil {
		return nil, nil, err
	}
	return slots.New(kv.New(client, path.Join(settings.Prefix, settings.Cluster)), slots.Options{}), client, nil
}

func (e *environment) showSlots(c *cli.Context) error {
	group, err := optional(c)
	if err != nil {
		return err
	}
	s, _, err := e.slots(c)
	if err != nil {
		return err
	}
	if group != "" {
		return e.showGroup(c, s, group)
	}
	names, err := s.Groups(c.Context)
	if err != nil {
		return err
	}
	l, all := listing{columns: []string{"group", "max", "held", "waiting"}}, []slots.View{}
	var unreadable []error
	for _, name := range names {
		v, _, err := s.Show(c.Context, name)
		if errors.Is(err, kv.ErrNewer) {
			unreadable = append(unreadable, err)
			continue
		} else if err != nil {
			return err
		}
		all = append(all, v)
		l.rows = append(l.rows, []string{name, limitText(v.Max), strconv.Itoa(len(v.Holders)), strconv.Itoa(len(v.Queue))})
	}
	if err := e.print(c, l, all); err != nil {
		return err
	}
	return errors.Join(unreadable...)
}

func (e *environment) showGroup(c *cli.Context, s *slots.Slots, group string) error {
	v, exists, err := s.Show(c.Context, group)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("slot group %q: there is none: nobody has asked for a slot of it", group)
	}
	l := listing{columns: []string{"state", "node", "id", "since", "ends", "reason"}}
	row := func(state string, entry slots.Entry) {
		l.rows = append(l.rows, []string{state, entry.Node, entry.ID, sinceText(entry.Since), endsText(entry), entry.Reason})
	}
	for _, entry := range v.Holders {
		row("holds", entry)
	}
	for _, entry := range v.Queue {
		row("waits", entry)
	}
	return e.print(c, l, v)
}

func limitText(limit int) string {
	if limit == 0 {
		return "no limit"
	}
	return strconv.Itoa(limit)
}

func sinceText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// endsText says how a claim ends.
func endsText(e slots.Entry) string {
	switch {
	case e.Gone:
		return "gone"
	case e.Durable:
		return "by hand"
	}
	return "with its process"
}

func (e *environment) unlockSlot(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 2 {
		return usagef(c, "which GROUP and NODE[/ID]?")
	}
	node, id, given := strings.Cut(args[1], "/")
	if node == "" || given && id == "" {
		return usagef(c, "%q is not NODE or NODE/ID", args[1])
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	if args[0] == slots.Reserved {
		return e.giveUpHost(c, node)
	}
	s, _, err := e.slots(c)
	if err != nil {
		return err
	}
	out, err := s.Unlock(c.Context, args[0], node, id)
	if format == formatJSON && err == nil {
		err = writeJSON(c.App.Writer, append([]string{}, out...))
	} else if format != formatJSON {
		for _, name := range out {
			fmt.Fprintln(c.App.Writer, printable(name))
		}
	}
	if err == nil && len(out) == 0 {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s has no claim in slot group %q; nothing was changed\n", printable(args[1]), args[0])
	}
	return err
}
