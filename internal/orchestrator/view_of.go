package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/text"
)

// fetch returns the state of the cluster as it is now. Only what has changed
// since the last cycle is read.
func (t *term) fetch(ctx context.Context) (cluster.State, error) {
	s, err := t.watcher.State(ctx)
	if err != nil {
		return s, err
	}
	if err := t.rollouts.Check(s.Rollout); err != nil {
		s.Damaged = maps.Clone(s.Damaged)
		s.Damaged[cluster.KeyRollout] = err
	}
	return s, nil
}

// viewOf makes the view of s. What cannot be read is as it was in before.
func viewOf(s *cluster.State, before View) View {
	nodes := s.Nodes()
	v := View{Cluster: clusterView(s, before.Cluster), Nodes: make(map[string]NodeView, len(nodes))}
	for _, node := range nodes {
		h, was := s.Hosts[node], before.Nodes[node]
		n := was
		var damaged []string
		if err := s.DamagedMember(node); err != nil {
			damaged = append(damaged, damageText(err))
		} else {
			n = NodeView{
				Address: h.Address, Datacenter: h.Datacenter, Zone: h.Record.Zone, Roles: s.Roles(h),
				Params: digest(h.Record.Params.Value().String()), Meta: digest(h.Record.Meta.Value().String()),
				Needs: digestJSON(h.Record.Provides, h.Record.Requires),
			}
			if _, known := before.Nodes[node]; known && s.Damaged[cluster.KeyLeaders] != nil {
				n.Roles = was.Roles
			}
			if n.Address == "" { // the node is no longer in the catalog
				n.Address, n.Datacenter = was.Address, was.Datacenter
			}
		}
		if err := s.DamagedHold(node); err != nil {
			damaged = append(damaged, damageText(err))
		}
		n.Life, n.Agent, n.Health = h.Condition.Liveness, h.Condition.Agent, h.Condition.Health
		if err := s.DamagedReport(node); err != nil {
			n.Version, n.States, n.HoldFile = was.Version, was.States, was.HoldFile
			damaged = append(damaged, damageText(err))
		} else {
			n.Version, n.States, n.HoldFile = h.Report.Version, stateViews(h.Report), h.Report.HeldByFile()
		}
		n.Services = maps.Clone(h.Services)
		delete(n.Services, cluster.AgentService)
		if len(n.Services) == 0 {
			n.Services = nil
		}
		n.Trouble = strings.Join(damaged, "; ")
		v.Nodes[node] = n
	}
	return v
}

// members are the members as filters see them. What of their reports cannot be
// read is as it is in the view.
func members(s *cluster.State, v View) []cluster.Member {
	all := s.Members(nil)
	for i := range all {
		m := &all[i]
		if s.DamagedReport(m.Node) == nil {
			continue
		}
		n := v.Nodes[m.Node]
		m.Version, m.Status = n.Version, map[string]string{}
		for category, state := range n.States {
			m.Status[category] = state.State
		}
	}
	return all
}

func stateViews(d cluster.Report) map[string]StateView {
	if len(d.States) == 0 {
		return nil
	}
	all := make(map[string]StateView, len(d.States))
	for category, s := range d.States {
		all[category] = StateView{State: s.State, Version: s.Version, Suspect: text.Truncate(s.Suspect, maxSuspect)}
	}
	return all
}

// maxSuspect bounds in bytes what a view says of a suspect state.
const maxSuspect = 200

// clusterView is what the state says of the cluster as a whole.
func clusterView(s *cluster.State, before ClusterView) ClusterView {
	c := ClusterView{
		Exists: s.Exists, Desired: s.Desired, Leaders: sorted(s.Leaders.Leader), Managers: sorted(s.Managers()), LeaderCount: s.Leaders.Count,
		Paused: holdText(s.Control.Paused), ObserveOnly: holdText(s.Control.ObserveOnly), Holds: holdTexts(s.Control),
	}
	if s.Exists {
		c.Profile = digestJSON(s.Profile)
	}
	for key, err := range s.Damaged {
		switch key {
		case cluster.KeyDesired:
			c.Desired = before.Desired
		case cluster.KeyProfile:
			c.Exists, c.Profile = before.Exists, before.Profile
		case cluster.KeyLeaders:
			c.Leaders, c.Managers, c.LeaderCount = before.Leaders, before.Managers, before.LeaderCount
		case cluster.KeyControl:
			c.Paused, c.ObserveOnly, c.Holds = before.Paused, before.ObserveOnly, before.Holds
		case cluster.KeyRollout:
		default:
			continue // one host's
		}
		if c.Trouble == nil {
			c.Trouble = map[string]string{}
		}
		c.Trouble[key] = damageText(err)
	}
	return c
}

// damageText is what is said of a document that cannot be read.
func damageText(err error) string {
	if remedy := cluster.RepairHint(err); remedy != "" {
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
	return h.String()
}

func holdTexts(c cluster.Control) (all []string) {
	add := func(what string, h cluster.Hold) {
		if h.Off {
			what += " excepted"
		}
		all = append(all, what+": "+h.String())
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

// digest means a text that only its changes matter of; an empty object has none.
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
