package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/text"
)

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

// slots returns the groups of the cluster that flags and environment name.
func (e *environment) slots(c *cli.Context) (*slots.Slots, *consul.Client, error) {
	cl, client, _, err := e.ledger(c)
	if err != nil {
		return nil, nil, err
	}
	return slots.New(cl.Store(), slots.Options{}), client, nil
}

func (e *environment) showSlots(c *cli.Context) error {
	group, err := optional(c)
	if err != nil {
		return err
	}
	if len(arguments(c)) > 0 && strings.TrimSpace(group) == "" {
		return usagef(c, "GROUP must not be blank")
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
		return unknownGroup(c, s, group)
	}
	l := listing{columns: []string{"state", "node", "id", "since", "reason"}}
	row := func(state string, entry slots.Entry) {
		l.rows = append(l.rows, []string{state, entry.Node, entry.ID, sinceText(entry.Since), entry.Reason})
	}
	for _, entry := range v.Holders {
		row("holds", entry)
	}
	for _, entry := range v.Queue {
		row("waits", entry)
	}
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

func (e *environment) unlockSlot(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 2 {
		return usagef(c, "missing arguments GROUP and NODE[/ID]")
	}
	if strings.TrimSpace(args[0]) == "" {
		return usagef(c, "GROUP must not be blank")
	}
	node, id, given := strings.Cut(args[1], "/")
	if node == "" || given && id == "" {
		return usagef(c, "%q must be NODE or NODE/ID", args[1])
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
	if _, exists, err := s.Show(c.Context, args[0]); err != nil {
		return err
	} else if !exists {
		return unknownGroup(c, s, args[0])
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
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s has no slot and no place in slot group %q; nothing was changed\n", printable(args[1]), args[0])
		if cl, err := e.cluster(c, ""); err == nil && unknownHost(c, cl, node) != "" {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", unknownHost(c, cl, node))
		}
	}
	return err
}
