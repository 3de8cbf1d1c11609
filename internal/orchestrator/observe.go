package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/view"
)

// facts are the answers that a view is made of.
type facts struct {
	cluster.Observation
	documents map[string]kv.Leaf[nodes.Document]
	desired   string
	wanted    map[string]error // why the desired version and the rollout cannot be read, by key
}

// fetch reads all of them, with as many requests for many members as for one.
func (t *tenure) fetch(ctx context.Context) (facts, error) {
	var f facts
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { f.Observation, err = t.cluster.Observe(ctx); return err })
	g.Go(func() (err error) { f.documents, err = t.ledger.Documents().List(ctx); return err })
	g.Go(func() (err error) { f.desired, f.wanted, err = t.rollouts.Readable(ctx); return err })
	return f, g.Wait()
}

// viewOf makes the view of f. What cannot be read is as it was in before. The
// nodes that gossip does not hear are not judged yet: they are returned.
func viewOf(f *facts, before view.View, name string) (view.View, []patient) {
	v := view.View{Cluster: f.clusterPart(before.Cluster), Nodes: make(map[string]view.Node, len(f.Members))}
	for i := range f.Members {
		m := &f.Members[i]
		r := f.Records[m.Node]
		n := view.Node{
			Address: m.Address, Datacenter: m.Datacenter, Zone: m.Zone, Roles: slices.Clone(m.Roles), Health: m.Health, Agent: m.Agent,
			Params: digest(r.Params.Value().String()), Meta: digest(r.Meta.Value().String()), Needs: digestJSON(r.Provides, r.Requires),
		}
		was, known := before.Nodes[m.Node]
		if known && f.Unreadable[cluster.KeyLeaders] != nil {
			n.Roles = was.Roles
		}
		if n.Address == "" { // it is not in the catalog any more
			n.Address, n.Datacenter = was.Address, was.Datacenter
		}
		v.Nodes[m.Node] = n
	}
	for _, key := range slices.Sorted(maps.Keys(f.Unreadable)) { // of several the same each time
		err := f.Unreadable[key]
		node, ok := cluster.NodeOf(key)
		if !ok {
			continue
		}
		n, readable := v.Nodes[node]
		switch {
		case key == cluster.MemberKey(node):
			n = before.Nodes[node]
		case !readable:
			continue // it is no member
		}
		n.Trouble = trouble(err)
		v.Nodes[node] = n
	}
	for node, n := range v.Nodes {
		leaf := f.documents[node]
		if leaf.Err != nil {
			was := before.Nodes[node]
			n.Version, n.States = was.Version, was.States
			n.Trouble = strings.TrimPrefix(n.Trouble+"; "+trouble(leaf.Err), "; ")
		} else {
			n.Version, n.States = leaf.Value.Version, states(leaf.Value)
		}
		n.Life, n.Services = "", nil
		v.Nodes[node] = n
	}
	for i := range f.Members {
		m := &f.Members[i]
		m.Version, m.Status = v.Nodes[m.Node].Version, map[string]string{}
		for category, s := range v.Nodes[m.Node].States {
			m.Status[category] = s.State
		}
	}
	return v, inventory(v, f.Inventory, before, catalog.PresenceID(name))
}

func states(d nodes.Document) map[string]view.State {
	if len(d.States) == 0 {
		return nil
	}
	all := make(map[string]view.State, len(d.States))
	for category, s := range d.States {
		all[category] = view.State{State: s.State, Version: s.Version, Suspect: shorten(s.Suspect)}
	}
	return all
}

// maxSuspect bounds in bytes what a view says of a suspect state.
const maxSuspect = 200

func shorten(text string) string {
	if len(text) <= maxSuspect {
		return text
	}
	return strings.ToValidUTF8(text[:maxSuspect], "") + "…"
}

// clusterPart is what f says of the whole.
func (f *facts) clusterPart(before view.Cluster) view.Cluster {
	c := view.Cluster{
		Exists: f.Exists, Desired: f.desired, Leaders: sorted(f.Leaders.Leader), Managers: sorted(f.Leaders.Manager), LeaderCount: f.Leaders.Count,
		Paused: holdText(f.Control.Paused), ObserveOnly: holdText(f.Control.ObserveOnly), Holds: holds(f.Control),
	}
	if f.Exists {
		c.Profile = digestJSON(f.Profile)
	}
	bad := map[string]string{}
	for key, err := range f.wanted {
		bad[key] = trouble(err)
	}
	if bad[cluster.KeyDesired] != "" {
		c.Desired = before.Desired
	}
	for key, err := range f.Unreadable {
		switch key {
		case cluster.KeyProfile:
			c.Exists, c.Profile = before.Exists, before.Profile
		case cluster.KeyLeaders:
			c.Leaders, c.Managers, c.LeaderCount = before.Leaders, before.Managers, before.LeaderCount
		case cluster.KeyControl:
			c.Paused, c.ObserveOnly, c.Holds = before.Paused, before.ObserveOnly, before.Holds
		default:
			continue
		}
		bad[key] = trouble(err)
	}
	if len(bad) > 0 {
		c.Trouble = bad
	}
	return c
}

// trouble is what is said of a document that cannot be read.
func trouble(err error) string {
	if remedy := cluster.Remedy(err); remedy != "" {
		return err.Error() + ": " + remedy
	}
	return err.Error()
}

func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(names))
}

// holdText says that something is held, and why.
func holdText(h *cluster.Hold) string {
	if h == nil {
		return ""
	}
	text := "since " + h.Since.UTC().Format(time.RFC3339)
	if h.By != "" {
		text += " by " + h.By
	}
	if h.Reason != "" {
		text = h.Reason + " (" + text + ")"
	}
	return text
}

func holds(c cluster.Control) (all []string) {
	add := func(what string, h cluster.Hold) {
		if h.Off {
			what += " excepted"
		}
		all = append(all, what+": "+holdText(&h))
	}
	if c.Hold != nil {
		add("the cluster", *c.Hold)
	}
	for _, role := range slices.Sorted(maps.Keys(c.Roles)) {
		add(cluster.Scope{Role: role}.String(), c.Roles[role])
	}
	for _, node := range slices.Sorted(maps.Keys(c.Nodes)) {
		add(cluster.Scope{Node: node}.String(), c.Nodes[node])
	}
	return all
}

// digest stands for a text that only its changes matter of; an empty object has none.
func digest(text string) string {
	if text == "{}" || text == "null" || text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:6])
}

func digestJSON(values ...any) string {
	data, err := json.Marshal(values)
	if err != nil {
		data = fmt.Append(nil, values...) // it is stored as JSON, so it can be encoded
	}
	if string(data) == "[null,null]" {
		return ""
	}
	return digest(string(data))
}
