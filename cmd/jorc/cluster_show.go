package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

// shown is the answer of `cluster show -o json`.
type shown struct {
	Name        string        `json:"name"`
	Members     int           `json:"members"`
	Leaders     []string      `json:"leaders"`
	LeaderCount int           `json:"leader_count"`
	Managers    []string      `json:"managers"`
	Params      int           `json:"params"`
	Bytes       int           `json:"profile_bytes"`
	Limit       int           `json:"profile_limit"`
	Paused      *cluster.Hold `json:"paused"`
	ObserveOnly *cluster.Hold `json:"observe_only"`
	Held        *cluster.Hold `json:"held"` // the whole cluster
	// By role and by node; "off" is an exception from what is held more widely.
	HeldRoles map[string]cluster.Hold `json:"held_roles"`
	HeldNodes map[string]cluster.Hold `json:"held_nodes"`
	// Orchestrator is the node that orchestrates the cluster; nil: none.
	Orchestrator *orchestrates `json:"orchestrator"`
}

type orchestrates struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

func (e *environment) showCluster(c *cli.Context) error {
	name, err := optional(c)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, name)
	if err != nil {
		return err
	}
	a, err := cl.Export(c.Context)
	if err != nil {
		return err
	}
	d, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	size := d.Size()
	s := shown{
		Name: a.Name, Members: len(a.Members), Leaders: append([]string{}, a.Leaders.Leader...), LeaderCount: a.Leaders.Count,
		Managers: append([]string{}, a.Leaders.Managers(a.Members)...), Params: len(d.Params), Bytes: size.Bytes, Limit: size.Limit,
		HeldRoles: map[string]cluster.Hold{}, HeldNodes: map[string]cluster.Hold{},
	}
	l := listing{columns: []string{"what", "value"}, rows: [][]string{
		{"cluster", s.Name},
		{"members", strconv.Itoa(s.Members)},
		{"leaders", strings.TrimSpace(fmt.Sprintf("%s (%d of %d)", strings.Join(s.Leaders, ", "), len(s.Leaders), s.LeaderCount))},
		{"managers", strings.Join(s.Managers, ", ")},
		{"params", strconv.Itoa(s.Params)},
		{"profile", size.String()},
	}}
	text := "nobody"
	switch h, held, err := cluster.Orchestrator(c.Context, cl.Store()); {
	case err != nil:
		text = "unknown: " + err.Error()
	case held:
		s.Orchestrator = &orchestrates{h.Node, h.Since}
		text = fmt.Sprintf("%s since %s", h.Node, h.Since.UTC().Format(time.RFC3339))
	}
	l.rows = append(l.rows, []string{"orchestrator", text})
	if a.Control != nil {
		s.hold(*a.Control)
		l.rows = append(l.rows, holdRows(*a.Control)...)
	}
	return e.print(c, l, s)
}

func (s *shown) hold(c cluster.Control) {
	s.Paused, s.ObserveOnly, s.Held = c.Paused, c.ObserveOnly, c.Hold
	maps.Copy(s.HeldRoles, c.Roles)
	maps.Copy(s.HeldNodes, c.Nodes)
}

// holdRows says what holds a cluster still, the widest first.
func holdRows(c cluster.Control) (rows [][]string) {
	add := func(what string, h *cluster.Hold) {
		switch {
		case h == nil:
		case h.Off:
			rows = append(rows, []string{"not " + what, h.String()})
		default:
			rows = append(rows, []string{what, h.String()})
		}
	}
	add("paused", c.Paused)
	add("observe only", c.ObserveOnly)
	add("held", c.Hold)
	for _, of := range []struct {
		what  string
		holds map[string]cluster.Hold
	}{{"held role ", c.Roles}, {"held node ", c.Nodes}} {
		for _, name := range slices.Sorted(maps.Keys(of.holds)) {
			h := of.holds[name]
			add(of.what+name, &h)
		}
	}
	return rows
}
