package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/text"
)

func (e *environment) showEvents(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 0 {
		return usagef(c, "--limit is %d, but must be 0 or more", limit)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	kinds := c.StringSlice("kind")
	events, seq, err := lastEvents(c, cl, kinds, limit)
	if err != nil {
		return err
	}
	if c.Bool("follow") {
		warnUnorchestrated(c, cl, "no events occur")
		return e.followEvents(c, cl, kinds, events, seq)
	}
	return e.print(c, eventListing(events), events)
}

// lastEvents are the last events of some kinds, and the number of the last of all.
func lastEvents(c *cli.Context, cl *cluster.Cluster, kinds []string, limit int) ([]orchestrator.Event, uint64, error) {
	read := limit
	if len(kinds) > 0 {
		read = 0 // how far back events of a kind are is not known
	}
	events, commit, err := orchestrator.ReadEvents(c.Context, cl.Store(), 0, read)
	if errors.Is(err, kv.ErrDamaged) && commit.Seq > 0 {
		fmt.Fprintf(c.App.ErrWriter, "jorc: some events are damaged and left out: %v\n", err)
		err = nil
	}
	if err != nil {
		return nil, 0, madeAnew(err)
	}
	if err := checkKinds(kinds, events); err != nil {
		return nil, 0, err
	}
	events = ofKinds(events, kinds)
	if limit > 0 {
		events = events[max(0, len(events)-limit):]
	}
	return append([]orchestrator.Event{}, events...), commit.Seq, nil
}

// checkKinds refuses kinds of which there are no events, and of which this jorc
// does not know either: a newer one may write others.
func checkKinds(kinds []string, events []orchestrator.Event) error {
	known := orchestrator.Kinds()
	for _, kind := range kinds {
		if slices.Contains(known, kind) || slices.ContainsFunc(events, func(e orchestrator.Event) bool { return e.Kind == kind }) {
			continue
		}
		hint := ""
		if near := text.Closest(kind, known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return fmt.Errorf("events of kind %q: there are none, and no such kind is known%s; known are %s", kind, hint, strings.Join(known, ", "))
	}
	return nil
}

func ofKinds(events []orchestrator.Event, kinds []string) []orchestrator.Event {
	if len(kinds) == 0 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(e orchestrator.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

func eventListing(events []orchestrator.Event) listing {
	l := listing{columns: []string{"seq", "time", "kind", "text"}}
	for _, event := range events {
		l.rows = append(l.rows, eventRow(event))
	}
	return l
}

func eventRow(e orchestrator.Event) []string {
	return []string{strconv.FormatUint(e.Seq, 10), e.Time.UTC().Format(time.RFC3339), e.Kind, e.Text}
}

// followEvents prints events and new ones, one per line: as JSON objects
// or as rows.
func (e *environment) followEvents(c *cli.Context, cl *cluster.Cluster, kinds []string, events []orchestrator.Event, after uint64) error {
	format, err := e.format(c)
	if err != nil {
		return err
	}
	write := func(events []orchestrator.Event) error {
		for _, event := range ofKinds(events, kinds) {
			if err := writeEvent(c, format, event); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(events); err != nil {
		return err
	}
	var last string
	err = orchestrator.FollowEvents(c.Context, cl.Store(), after, write, func(err error) {
		if text := err.Error(); text != last { // Consul may be away for long
			last = text
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", text)
		}
	})
	if c.Context.Err() != nil && errors.Is(err, context.Canceled) {
		return endedBy(c.Context, err)
	}
	return err
}

func writeEvent(c *cli.Context, format string, event orchestrator.Event) error {
	switch format {
	case formatJSON:
		encoder := json.NewEncoder(c.App.Writer)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(event)
	case formatPlain:
		return eventListing([]orchestrator.Event{event}).writePlain(c.App.Writer)
	}
	row := eventRow(event)
	for i := range row {
		row[i] = printable(row[i])
	}
	_, err := fmt.Fprintln(c.App.Writer, strings.Join(row, "  "))
	return err
}
