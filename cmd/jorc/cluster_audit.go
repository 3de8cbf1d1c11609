package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
)

// recorded are the commands that change a cluster for all its members. Each value is
// the number of leading arguments that the audit shows: the others, and the values of
// flags that are not in shownFlags, may be secret.
var recorded = map[string]int{
	"jorc cluster init": 1, "jorc cluster import": 0, "jorc cluster join": 0, "jorc cluster leave": 0, "jorc cluster leader": 0,
	"jorc cluster profile set": 1, "jorc cluster profile add": 1, "jorc cluster profile remove": 1, "jorc cluster profile patch": 0,
	"jorc cluster profile params": 0, "jorc cluster profile edit": 0, "jorc cluster profile revert": 1, "jorc cluster profile schema set": 1, "jorc cluster profile schema remove": 1,
	"jorc cluster meta set": 1, "jorc cluster meta remove": 1, "jorc cluster drpcli": 0,
	"jorc cluster pause": 0, "jorc cluster resume": 0, "jorc cluster hold": 0, "jorc cluster unhold": 0,
	"jorc cluster observe-only on": 0, "jorc cluster observe-only off": 0,
	"jorc cluster budget set": 0, "jorc cluster budget clear": 0, "jorc cluster freeze add": 0, "jorc cluster freeze remove": 1,
	"jorc cluster run": 1, "jorc cluster approve": 1, "jorc cluster cancel": 1, "jorc cluster unlock": 2,
	"jorc update trigger": 1, "jorc trigger_update": 1, "jorc update rollback": 0, "jorc update pause": 0, "jorc update resume": 0,
	"jorc update promote": 0, "jorc update abort": 0, "jorc update give-up": 1, "jorc update retry": 1,
	"jorc change pause": 1, "jorc change resume": 1, "jorc change approve": 1, "jorc change cancel": 1, "jorc change give-up": 1, "jorc change retry": 2,
	"jorc maintenance begin": 0, "jorc maintenance end": 0, // of another host
	"jorc stage approve": 1, "jorc stage resume": 1, "jorc status decommission": 1,
}

// shownFlags are the flags whose values the audit shows.
var shownFlags = []string{
	"node", "role", "filter", "count", "elect", "manager", "id", "to", "replace", "force", "kill",
	"on-manager", "skip-undefined", "retry-of", "from-start", "needs-approval", "require-converged",
	"canary", "batches", "max-parallel", "max-failures", "min-healthy", "node-deadline", "progress-deadline", "bake",
	"gate", "gate-samples", "gate-interval", "gate-timeout", "approve-each", "zone-by-zone", "order", "on-failure", "window",
	"for", "until", "from", "weekly", "during-freeze", "over-budget", "max-out", "zones",
}

// record makes a command that changes a cluster record who runs it, and why. name is
// the whole name of the command.
func (e *environment) record(c *cli.Command, name string) {
	arguments, changes := recorded[name]
	if !changes || len(c.Subcommands) > 0 {
		return
	}
	if flagNamed(c.Flags, "reason") == nil && !c.SkipFlagParsing && !c.Hidden {
		c.Flags = append(c.Flags, reasonFlag())
	}
	action := c.Action
	c.Action = func(c *cli.Context) error {
		c.Context = fleet.WithAuthor(c.Context, fleet.Author{
			Command: commandText(c, name, arguments), Reason: c.String("reason"),
			By: func(context.Context) (string, error) { return e.author(c) },
		})
		return action(c)
	}
}

// commandText is a command line as the audit shows it.
func commandText(c *cli.Context, name string, arguments int) string {
	parts := []string{name}
	for i := range min(arguments, c.NArg()) {
		if arg := c.Args().Get(i); arg != "--" {
			parts = append(parts, printable(arg))
		}
	}
	for _, flag := range shownFlags {
		if c.Command != nil && (flagNamed(c.Command.Flags, flag) != nil || flag == "node") && c.IsSet(flag) {
			parts = append(parts, printable("--"+flag+shownValue(c, flag)))
		}
	}
	return strings.Join(parts, " ")
}

// shownValue is the value of a flag as the audit shows it, after a "=".
func shownValue(c *cli.Context, flag string) string {
	switch f := flagNamed(c.Command.Flags, flag).(type) {
	case *cli.StringSliceFlag:
		return "=" + strings.Join(c.StringSlice(flag), ",")
	case *cli.BoolFlag:
		if c.Bool(flag) {
			return ""
		}
	case *cli.StringFlag:
		value := c.String(flag)
		if f.Name == "filter" && (strings.Contains(value, "Params") || strings.Contains(value, "Meta")) {
			return "=(about params or meta, not shown)" // it may quote their values
		}
		if strings.ContainsAny(value, " \"") {
			return "='" + value + "'"
		}
	}
	return "=" + fmt.Sprint(c.Value(flag))
}

func auditCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "audit", Usage: "show who changed the cluster, when and why",
		Description: "Lists the changes that jorc's commands made, and observed changes whose author is not recorded. The last 1,000 are kept. " +
			"An author is what the command claims; only Consul's ACLs make sure of the token.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print new changes as they occur", DisableDefaultText: true},
			&cli.IntFlag{Name: "limit", Usage: "only the last `N`; 0: all stored ones", Value: 100},
			&cli.DurationFlag{Name: "since", Usage: "only changes of the last `D`", DefaultText: "all"},
			&cli.StringFlag{Name: "by", Usage: "only changes whose author contains `TEXT`"},
			&cli.StringFlag{Name: "command", Usage: "only changes whose command contains `TEXT`, such as 'update trigger'"},
		},
		Action: env.showAudit,
	}
}

// auditFilter selects changes.
type auditFilter struct {
	since       time.Time
	by, command string
}

func (f auditFilter) of(events []orchestrator.Event) []orchestrator.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e orchestrator.Event) bool {
		var change cluster.AuditEntry // empty: its author is not known
		if e.Audit != nil {
			change = *e.Audit
		}
		return !e.Audited() || changeTime(e).Before(f.since) || !strings.Contains(change.By, f.by) || !strings.Contains(change.Command, f.command)
	})
}

// changeTime is when the change was made, or observed.
func changeTime(e orchestrator.Event) time.Time {
	if e.Audit != nil {
		return e.Audit.Time
	}
	return e.Time
}

func (e *environment) showAudit(c *cli.Context) error {
	if err := notNegative(c, "limit", "since"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	audit, err := orchestrator.ReadAudit(c.Context, cl.Store(), cl.Cluster)
	if err != nil {
		return rewrittenLater(err)
	}
	if audit.Problems != nil {
		note(c, "some changes are damaged and left out: %v", audit.Problems)
	}
	filter := auditFilter{by: c.String("by"), command: c.String("command")}
	if d := c.Duration("since"); d > 0 {
		filter.since = time.Now().Add(-d)
	}
	events := append([]orchestrator.Event{}, filter.of(audit.Events)...)
	if limit := c.Int("limit"); limit > 0 {
		events = events[max(0, len(events)-limit):]
	}
	if c.Bool("follow") {
		warnUnorchestrated(c, cl, "no changes are journalled")
		journalled := slices.DeleteFunc(events, func(e orchestrator.Event) bool { return e.Seq == 0 })
		return e.followEvents(c, cl, orchestrator.FollowAudit, filter.of, auditListing, journalled, audit.Seq)
	}
	return e.print(c, auditListing(events), events)
}

func auditListing(events []orchestrator.Event) listing {
	return listingOf("time,by,command,reason,what", events, func(e orchestrator.Event) []string {
		if e.Audit == nil {
			return []string{when(e.Time), "unknown", "", "", e.Text}
		}
		return []string{when(e.Audit.Time), cmp.Or(e.Audit.By, "unknown"), e.Audit.Command, e.Audit.Reason, e.Audit.KeysText()}
	})
}
