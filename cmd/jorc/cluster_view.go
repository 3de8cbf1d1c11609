package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

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

// seenCluster is what a view says of the whole, with no list missing.
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

func (e *environment) showView(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	saved, err := orchestrator.ReadView(c.Context, cl.Store())
	if err != nil {
		return madeAnew(err)
	}
	if saved.Commit.Generation == 0 {
		return fmt.Errorf("cluster %q has no view: no orchestrator has run a cycle yet", cl.Name())
	}
	for _, p := range saved.Problems {
		fmt.Fprintf(c.App.ErrWriter, "jorc: a part of the view is damaged, and written again when something changes: %v\n", p)
	}
	warnUnorchestrated(c, cl, "this view is of "+saved.Commit.Time.UTC().Format(time.RFC3339))
	v := saved.View
	if c.Bool("aggregate") {
		a := v.Aggregate()
		return e.print(c, aggregateListing(a), a)
	}
	s := seen{
		Cluster: cl.Name(), Time: saved.Commit.Time, Generation: saved.Commit.Generation, Seq: saved.Commit.Seq, Orchestrator: saved.Commit.Node,
		Whole: seenCluster{
			Desired: v.Cluster.Desired, Leaders: append([]string{}, v.Cluster.Leaders...), Managers: append([]string{}, v.Cluster.Managers...),
			Paused: v.Cluster.Paused, ObserveOnly: v.Cluster.ObserveOnly, Holds: append([]string{}, v.Cluster.Holds...), Trouble: map[string]string{},
		},
		Nodes: []seenNode{}, Services: v.Services(), Aggregate: v.Aggregate(),
	}
	maps.Copy(s.Whole.Trouble, v.Cluster.Trouble)
	l := listing{columns: []string{"node", "address", "zone", "roles", "life", "agent", "health", "version", "states", "trouble"}, states: []string{"life", "agent", "health"}}
	for _, name := range v.Names() {
		n := v.Nodes[name]
		s.Nodes = append(s.Nodes, seenNode{name, n})
		l.rows = append(l.rows, []string{name, n.Address, n.Zone, strings.Join(n.Roles, ","), string(n.Life), n.Agent, n.Health, n.Version, stateText(n), both(n.Trouble, n.HoldFile)})
	}
	return e.print(c, l, s)
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
	l := listing{columns: []string{"by", "value", "members"}, rows: [][]string{{"all", "", strconv.Itoa(a.Nodes)}}, states: []string{"value"}}
	for _, by := range []struct {
		name   string
		counts map[string]int
	}{{"life", a.Life}, {"agent", a.Agents}, {"health", a.Health}, {"version", a.Versions}, {"role", a.Roles}, {"zone", a.Zones}} {
		for _, value := range slices.Sorted(maps.Keys(by.counts)) {
			l.rows = append(l.rows, []string{by.name, value, strconv.Itoa(by.counts[value])})
		}
	}
	return l
}

// madeAnew says what becomes of what the orchestrator keeps when it is damaged.
func madeAnew(err error) error {
	if errors.Is(err, kv.ErrDamaged) {
		return fmt.Errorf("%w; the orchestrator writes it again when something changes", err)
	}
	return err
}
