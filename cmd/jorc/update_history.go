package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
)

func historyCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "history", Usage: "list finished rollouts, or show one with its hosts", ArgsUsage: "[ID]",
		Description: "ID is that of a rollout, or a version: the last rollout of it. The last 100 rollouts are kept. " +
			"Exits 1 when there is no record of ID.",
		Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.showHistory(c, cl, argument(c, 0)) }),
	}
}

func (e *environment) showHistory(c *cli.Context, cl *target, id string) error {
	if id != "" {
		f, err := cl.rollouts().RecordOf(c.Context, id)
		if err != nil {
			return fmt.Errorf("cluster %q: %w", cl.Name(), err)
		}
		return e.print(c, finishedListing(f), f)
	}
	all, bad, err := cl.rollouts().History(c.Context)
	if err != nil {
		return err
	}
	if err := errors.Join(bad...); err != nil {
		note(c, "some rollouts cannot be read and are left out: %v", err)
	}
	return e.print(c, listingOf("id,version,outcome*,started,took,members,done,failed,active_p50,active_max,by", all, func(f rollout.Finished) []string {
		return []string{
			f.ID, f.Version, f.Outcome, when(f.Started), f.Finished.Sub(f.Started).String(), strconv.Itoa(f.Counts.Members),
			strconv.Itoa(f.Counts.Done), strconv.Itoa(f.Counts.Failed), spreadText(f.Active, f.Active.P50), spreadText(f.Active, f.Active.Most), f.By,
		}
	}), all)
}

// finishedListing is one finished rollout for people.
func finishedListing(f rollout.Finished) listing {
	l := rowsOf("what,value*")
	row := func(what, value string) {
		if value != "" {
			l.rows = append(l.rows, []string{what, value})
		}
	}
	row("id", f.ID)
	row("version", f.Version)
	row("previous", f.Previous)
	row("outcome", f.Outcome+after(": ", f.Why))
	row("by", f.By)
	row("reason", f.Reason)
	if r := f.RollbackOf; r != nil {
		row("rolled back", r.Version+after(": ", r.Reason))
	}
	row("policy", f.Policy.String())
	row("started", when(f.Started))
	row("finished", fmt.Sprintf("%s, after %s", when(f.Finished), f.Finished.Sub(f.Started)))
	n := f.Counts
	row("members", strings.TrimSuffix(fmt.Sprintf("%d: %d done, %d failed, %d working, %d waiting, %d down, %d given up",
		n.Members, n.Done, n.Failed, n.Working, n.Waiting, n.Down, n.GivenUp), ", 0 given up")+nonzero(count{n.Held, "held"}))
	for _, s := range []struct {
		what  string
		times rollout.Spread
	}{{"waiting", f.Waiting}, {"active", f.Active}} {
		if s.times.Hosts > 0 {
			row(s.what, fmt.Sprintf("p50 %ds, p90 %ds, p99 %ds, max %ds (%s)", s.times.P50, s.times.P90, s.times.P99, s.times.Most, text.Count(s.times.Hosts, "host", "hosts")))
		}
	}
	for _, h := range f.Hosts {
		row(h.Node, h.State.String()+timeText(", waiting ", h.Waiting)+timeText(", active ", h.Active)+after(": ", h.Detail))
	}
	if f.Left > 0 {
		row("left out", text.Count(f.Left, "host", "hosts")+" with shorter times")
	}
	return l
}

func timeText(what string, seconds *int64) string {
	if seconds == nil {
		return ""
	}
	return what + (time.Duration(*seconds) * time.Second).String()
}

// spreadText is one of the times of a rollout; empty: none is known.
func spreadText(s rollout.Spread, seconds int64) string {
	if s.Hosts == 0 {
		return ""
	}
	return timeText("", &seconds)
}
