package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/inventory"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// orchestratorCommands are those of "jorc cluster" that are about what the
// orchestrator observes and decides.
func orchestratorCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name:  "orchestrate",
			Usage: "run an orchestrator cycle now and wait for it",
			Description: "Prints the cycle's report, or \"discarded\" if a cycle is running already. " +
				"Exits 1 if the cycle failed, or the cluster has no orchestrator.",
			Flags:  []cli.Flag{&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", Value: 2 * time.Minute}},
			Action: env.orchestrate,
		},
		{
			Name: "view", Usage: "show the orchestrator's last view of the members",
			Flags: []cli.Flag{&cli.BoolFlag{
				Name: "aggregate", Usage: "show only counts by life, agent, health, version, role and zone", DisableDefaultText: true,
			}},
			Action: env.onCluster(env.showView),
		},
		{
			Name: "report", Usage: "show recent orchestrator cycles that changed something", ArgsUsage: "[NUMBER]",
			Description: "With NUMBER one report with its decisions and problems, 0 for the newest.",
			Action:      env.showReport,
		},
		{
			Name: "events", Usage: "show events: observed changes and decisions",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print new events as they occur", DisableDefaultText: true},
				&cli.StringSliceFlag{Name: "kind", Usage: "only events of kind `K`, such as node_down; may be repeated"},
				&cli.StringFlag{Name: "host", Usage: "only events about `HOST`"},
				&cli.StringFlag{Name: "change", Usage: "only events about the change with this `ID`, as 'jorc change' prints it"},
				&cli.IntFlag{Name: "limit", Usage: "only the last `N`; 0: all stored ones", Value: 100},
			},
			Action: env.showEvents,
		},
		auditCommand(env),
	}
}

func (e *environment) orchestrate(c *cli.Context) error {
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	timeout := c.Duration("timeout")
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	by, err := e.author(c)
	if err != nil {
		return err
	}
	r, err := orchestrator.Ask(ctx, cl.Store(), by)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil:
		return &exitError{exitTimeout, fmt.Errorf("cluster %q: the cycle had not ended after %s: 'jorc cluster report' shows it when it has", cl.Name(), timeout)}
	case err != nil:
		return fmt.Errorf("cluster %q: %w", cl.Name(), err)
	case r == nil && e.format(c) == formatJSON:
		return e.writeJSON(c.App.Writer, map[string]string{"outcome": "discarded"})
	case r == nil:
		_, err = fmt.Fprintln(c.App.Writer, "discarded")
		return err
	}
	if err := e.print(c, reportListing(*r), r); err != nil {
		return err
	}
	if r.Outcome == orchestrator.OutcomeFailed {
		return fmt.Errorf("cluster %q: the cycle failed: %s", cl.Name(), r.Error)
	}
	return nil
}

// warnUnorchestrated reports on stderr that the cluster has no orchestrator, so that
// what is shown is old.
func warnUnorchestrated(c *cli.Context, cl *target, effect string) {
	if _, held, err := fleet.Orchestrator(c.Context, cl.Store()); err == nil && !held {
		note(c, "cluster %q: %v, so %s: start an agent with an orchestrator block", cl.Name(), orchestrator.ErrNoOrchestrator, effect)
	}
}

// reportListing is one report for people.
func reportListing(r orchestrator.Report) listing {
	l := rowsOf("what,value*")
	row := func(what, value string) {
		if value != "" {
			l.rows = append(l.rows, []string{what, value})
		}
	}
	row("number", strconv.FormatUint(r.Number, 10))
	row("start", when(r.Start))
	row("duration", milliseconds(r.Duration))
	row("orchestrator", r.Node)
	row("trigger", r.Trigger)
	row("outcome", r.Outcome)
	row("error", r.Error)
	row("idle", r.Idle)
	row("synced", strconv.Itoa(r.Synced))
	row("failed", strconv.Itoa(r.Failed))
	row("events", eventsText(r))
	row("decisions", strconv.Itoa(r.Decided))
	for _, d := range r.Decisions {
		row(strings.TrimSpace(d.Kind+" "+d.Node), d.Text+after(": ", d.Reason))
	}
	for _, p := range r.Problems {
		row(p.What+" "+p.Name, p.Why)
	}
	return l
}

func eventsText(r orchestrator.Report) string {
	if r.Events == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%d to %d)", r.Events, r.FirstSeq, r.LastSeq)
}

// seen is the answer of `cluster view -o json`.
type seen struct {
	Cluster      string                   `json:"cluster"`
	Time         time.Time                `json:"time"`
	Generation   uint64                   `json:"generation"`
	Seq          uint64                   `json:"seq"` // of the last event
	Orchestrator string                   `json:"orchestrator"`
	Whole        seenCluster              `json:"whole"`
	Nodes        []seenNode               `json:"nodes"`
	Services     map[string]cluster.Tally `json:"services"`
	Aggregate    orchestrator.Aggregate   `json:"aggregate"`
}

// seenCluster is the whole cluster in a view, with no list missing.
type seenCluster struct {
	Desired     string            `json:"desired_version"`
	Leaders     []string          `json:"leaders"`
	Managers    []string          `json:"managers"`
	Paused      string            `json:"paused"`
	ObserveOnly string            `json:"observe_only"`
	Holds       []string          `json:"holds"`
	Trouble     map[string]string `json:"trouble"`
}

type seenNode struct {
	Name string `json:"node"`
	orchestrator.NodeView
}

func (e *environment) showView(c *cli.Context, cl *target) error {
	saved, err := orchestrator.ReadView(c.Context, cl.Store())
	if err != nil {
		return rewrittenLater(err)
	}
	commit, v := saved.Commit, saved.View
	if commit.Generation == 0 {
		return fmt.Errorf("cluster %q has no view: no orchestrator has run a cycle yet", cl.Name())
	}
	for _, p := range saved.Problems {
		note(c, "a part of the view is damaged, and written again when something changes: %v", p)
	}
	warnUnorchestrated(c, cl, "this view is of "+when(commit.Time))
	if c.Bool("aggregate") {
		a := v.Aggregate()
		return e.print(c, aggregateListing(a), a)
	}
	s := seen{
		Cluster: cl.Name(), Time: commit.Time, Generation: commit.Generation, Seq: commit.Seq, Orchestrator: commit.Node,
		Whole: seenCluster{
			Desired: v.Cluster.Desired, Leaders: append([]string{}, v.Cluster.Leaders...), Managers: append([]string{}, v.Cluster.Managers...),
			Paused: v.Cluster.Paused, ObserveOnly: v.Cluster.ObserveOnly, Holds: append([]string{}, v.Cluster.Holds...), Trouble: map[string]string{},
		},
		Nodes: []seenNode{}, Services: v.Services(), Aggregate: v.Aggregate(),
	}
	maps.Copy(s.Whole.Trouble, v.Cluster.Trouble)
	for _, name := range v.Names() {
		s.Nodes = append(s.Nodes, seenNode{name, v.Nodes[name]})
	}
	return e.print(c, listingOf("node,address,zone,roles,life*,agent*,health*,version,states,trouble", s.Nodes, func(n seenNode) []string {
		return []string{n.Name, n.Address, n.Zone, strings.Join(n.Roles, ","), string(n.Life), n.Agent, n.Health, n.Version, stateText(n.NodeView), both(n.Trouble, n.HoldFile)}
	}), s)
}

// both joins two texts, of which each may be empty.
func both(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

func stateText(n orchestrator.NodeView) string {
	var parts []string
	for _, category := range slices.Sorted(maps.Keys(n.States)) {
		parts = append(parts, category+"="+n.States[category].State)
	}
	return strings.Join(parts, ",")
}

func aggregateListing(a orchestrator.Aggregate) listing {
	l := rowsOf("by,value*,members", []string{"all", "", strconv.Itoa(a.Nodes)})
	add := func(by string, counts map[string]int) {
		for _, value := range slices.Sorted(maps.Keys(counts)) {
			l.rows = append(l.rows, []string{by, value, strconv.Itoa(counts[value])})
		}
	}
	add("life", a.Life)
	add("agent", a.Agents)
	add("health", a.Health)
	add("version", a.Versions)
	add("role", a.Roles)
	add("zone", a.Zones)
	return l
}

// rewrittenLater adds to an error about a damaged document that the orchestrator
// writes it again.
func rewrittenLater(err error) error {
	if errors.Is(err, kv.ErrDamaged) {
		return fmt.Errorf("%w; the orchestrator writes it again when something changes", err)
	}
	return err
}

func (e *environment) showReport(c *cli.Context) error {
	which := argument(c, 0)
	number, err := strconv.ParseUint(which, 10, 64)
	if which != "" && err != nil {
		return usagef(c, "%q is not the number of a report", which)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	all, err := orchestrator.ReadReports(c.Context, cl.Store())
	if err != nil {
		return err
	}
	if which != "" {
		for i, r := range all {
			if r.Number == number || number == 0 && i == len(all)-1 {
				return e.print(c, reportListing(r), r)
			}
		}
		return fmt.Errorf("cluster %q: report %d does not exist: 'jorc cluster report' lists the stored reports", cl.Name(), number)
	}
	warnUnorchestrated(c, cl, "no cycles run")
	l := listingOf("number,start,duration,orchestrator,trigger,outcome*,synced,failed,events,decisions", all, func(r orchestrator.Report) []string {
		return []string{
			strconv.FormatUint(r.Number, 10), when(r.Start), milliseconds(r.Duration),
			r.Node, r.Trigger, r.Outcome, strconv.Itoa(r.Synced), strconv.Itoa(r.Failed), eventsText(r), strconv.Itoa(r.Decided),
		}
	})
	return e.print(c, l, append([]orchestrator.Report{}, all...))
}

func (e *environment) showEvents(c *cli.Context) error {
	if err := notNegative(c, "limit"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	filter := orchestrator.EventFilter{Kinds: c.StringSlice("kind"), Host: c.String("host"), Change: c.String("change")}
	if c.IsSet("host") && filter.Host == "" {
		return usagef(c, "--host must not be empty")
	}
	events, seq, err := orchestrator.LastEvents(c.Context, cl.Store(), filter, c.Int("limit"))
	if errors.Is(err, kv.ErrDamaged) && seq > 0 {
		note(c, "some events are damaged and left out: %v", err)
		err = nil
	}
	if err != nil {
		return rewrittenLater(err)
	}
	if filter.Host != "" && len(events) == 0 { // a host that was removed may have events
		if err := cl.CheckHost(c.Context, filter.Host); err != nil {
			return err
		}
	}
	if c.Bool("follow") {
		warnUnorchestrated(c, cl, "no events occur")
		return e.followEvents(c, cl, orchestrator.FollowEvents, filter.Of, eventListing, events, seq)
	}
	return e.print(c, eventListing(events), events)
}

func eventListing(events []orchestrator.Event) listing {
	return listingOf("seq,time,kind,text", events, func(e orchestrator.Event) []string {
		return []string{strconv.FormatUint(e.Seq, 10), when(e.Time), e.Kind, e.Text}
	})
}

// eventFollower is orchestrator.FollowEvents or FollowAudit.
type eventFollower func(ctx context.Context, s *kv.Store, after uint64, handle func([]orchestrator.Event) error, failed func(error)) error

// followEvents prints the selected ones of events and of the ones after them, one per
// line: as JSON objects or as rows.
func (e *environment) followEvents(
	c *cli.Context, cl *target, follow eventFollower, selected func([]orchestrator.Event) []orchestrator.Event,
	list func([]orchestrator.Event) listing, events []orchestrator.Event, after uint64,
) error {
	write := func(events []orchestrator.Event) error {
		for _, event := range selected(events) {
			if err := writeEvent(c, e.format(c), event, list([]orchestrator.Event{event})); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(events); err != nil {
		return err
	}
	var last string
	err := follow(c.Context, cl.Store(), after, write, func(err error) {
		if text := err.Error(); text != last { // Consul may be away for long
			last = text
			note(c, "%s", text)
		}
	})
	return endedBy(c.Context, err)
}

// writeEvent prints an event, of which l is the only row.
func writeEvent(c *cli.Context, format string, event orchestrator.Event, l listing) error {
	switch format {
	case formatJSON:
		encoder := json.NewEncoder(c.App.Writer)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(event)
	case formatPlain:
		return l.writePlain(c.App.Writer)
	}
	row := l.rows[0]
	for i := range row {
		row[i] = printable(row[i])
	}
	_, err := fmt.Fprintln(c.App.Writer, strings.Join(row, "  "))
	return err
}

func depsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "deps",
		Usage: "show which hosts require services of which others",
		Description: "Made from the services that members provide and those that their static configuration requires. A requirement of addressable instances blocks no host. " +
			"In a cycle that no other provider breaks the members wait for each other without end.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "check", Usage: "print cycles and nothing else; exit 1 when there is one", DisableDefaultText: true},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + joinOr(inventory.Formats()), Value: inventory.Text},
		},
		Action: env.showDeps,
	}
}

func (e *environment) showDeps(c *cli.Context) error {
	if err := oneOf(c, "format", c.String("format"), inventory.Formats()...); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	members, err := cl.Members(c.Context, fleet.MembersOptions{Unreadable: unreadable(c)})
	if err != nil {
		return err
	}
	g, check := inventory.Dependencies(members), c.Bool("check")
	switch {
	case e.format(c) == formatJSON:
		err = e.writeJSON(c.App.Writer, g.Document())
	case check:
		for _, cycle := range g.Cycles {
			if _, err := fmt.Fprintln(c.App.Writer, g.CycleText(cycle)); err != nil {
				return err
			}
		}
	default:
		var text string
		if text, err = g.Write(c.String("format")); err == nil {
			_, err = fmt.Fprint(c.App.Writer, text)
		}
	}
	if err != nil {
		return err
	}
	return answerOf(!check || len(g.Cycles) == 0)
}

// unreadable names on stderr what an answer lacks because it cannot be read.
func unreadable(c *cli.Context) func(key string, err error) {
	return func(key string, err error) {
		note(c, "%s was left out: %v", key, err)
	}
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
