// Package budget brings changes of all kinds together: which hosts are out of service
// for them and for anything else, and what the cluster's budget leaves. Package pace
// has the rules; rollout, stage and runs know what is theirs.
package budget

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// consulServers is the service under which Consul's servers are in the catalog.
const consulServers = "consul"

// Life says since when a host has been as it is: down or absent, and critical or in
// maintenance. Zero: that is not known.
type Life func(node string) (liveness, health time.Time)

// Documents are what the kinds of changes keep beside the reports of hosts.
type Documents struct {
	Stages map[string]stage.Documents // by name
	Runs   *runs.Runs
}

// Count counts which members of a state are out of service, whatever the reason. members
// are what rollout.StateOf made of it, holder is the host that holds the orchestrator's lock. A
// nil life knows nothing.
func Count(s *cluster.State, members rollout.State, d Documents, holder string, life Life, now time.Time) *pace.Account {
	if life == nil {
		life = func(string) (a, b time.Time) { return a, b }
	}
	hosts := make([]pace.Host, 0, len(members.Members))
	for i := range members.Members {
		m := &members.Members[i]
		h := count(s.Hosts[m.Node], m, d, members.Session, life, now)
		h.Holder = m.Node == holder
		hosts = append(hosts, h)
	}
	return pace.NewAccount(s.Control.Budget, hosts)
}

// DocumentsOf decodes documents of stages. One that cannot be read is left out: its hosts
// count by their own reports.
func DocumentsOf(store *kv.Store, documents map[string]cluster.StageDocuments) Documents {
	stages, all := stage.New(store), make(map[string]stage.Documents, len(documents))
	for name, stored := range documents {
		if d, err := stages.Parse(name, stored); err == nil {
			all[name] = d
		}
	}
	return Documents{Stages: all, Runs: runs.New(store)}
}

// ReadLife reads what the orchestrator knows of hosts; a nil Life: nothing is known.
type ReadLife func(ctx context.Context, c *fleet.Cluster) (Life, error)

// Of returns what is known of members: it reads only if one is absent from the catalog, of which it
// matters since when.
func (r ReadLife) Of(ctx context.Context, c *fleet.Cluster, members rollout.State) (Life, error) {
	absent := func(m rollout.Member) bool { return m.Condition.Liveness == cluster.LivenessAbsent }
	if r == nil || !slices.ContainsFunc(members.Members, absent) {
		return nil, nil
	}
	return r(ctx, c)
}

// OfMembers counts for rollout.Rollouts.Counting. What the token may not read of stages
// counts as absent.
func OfMembers(life ReadLife) rollout.Count {
	return func(ctx context.Context, c *fleet.Cluster, s *cluster.State, members rollout.State) (*pace.Account, error) {
		documents, err := c.StageDocuments(ctx)
		if err != nil && !errors.Is(err, consul.ErrDenied) {
			return nil, err
		}
		holder, err := Holder(ctx, c)
		if err != nil {
			return nil, err
		}
		known, err := life.Of(ctx, c, members)
		if err != nil {
			return nil, err
		}
		return Count(s, members, DocumentsOf(c.Store(), documents), holder, known, time.Now()), nil
	}
}

// OfState counts for stage.Show. r is the rollout of the same cluster.
func OfState(r *rollout.Rollouts, life ReadLife) stage.Count {
	return func(ctx context.Context, c *fleet.Cluster, s *cluster.State) (*pace.Account, error) {
		if s.Control.Budget == nil {
			return nil, nil //nolint:nilnil // nil: no limit
		}
		stored, err := r.Load(ctx)
		if err != nil {
			return nil, err
		}
		members, err := rollout.StateOf(s, stored)
		var filter *cluster.FilterError // it leaves out no member then
		if err != nil && !errors.As(err, &filter) {
			return nil, err
		}
		return OfMembers(life)(ctx, c, s, members)
	}
}

// Holder returns the host that holds the orchestrator's lock; empty: none does, or that is not known. It
// returns consul.ErrUnreachable.
func Holder(ctx context.Context, c *fleet.Cluster) (string, error) {
	h, held, err := fleet.Orchestrator(ctx, c.Store())
	switch {
	case errors.Is(err, kv.ErrNewer), errors.Is(err, consul.ErrDenied):
		return "", nil
	case err != nil || !held:
		return "", err
	}
	return h.Node, nil
}

// gaveUp is when an operator gave up on a grant that the host still has; zero: none did.
func gaveUp(host *cluster.Host, m *rollout.Member, session string) (at time.Time) {
	for _, g := range m.Grants.Value.All {
		if g.State != pace.GivenUp || !g.Since.After(at) {
			continue // most hosts have none: their answers are not looked up
		}
		if part := change.PartOf(g.Change, g, host.Report.Answered(g.Change), session); part.Open() && part.GivenUp() {
			at = g.Since
		}
	}
	return at
}

// count is one member with the first of several reasons why it is out of service: a version, a lease, a stage, a run, and then
// what is not of jorc. session is that of the orchestrator's lock, empty: not known.
func count(host *cluster.Host, m *rollout.Member, documents Documents, session string, life Life, now time.Time) pace.Host {
	h := pace.Host{Node: m.Node, Zone: m.Zone, Roles: m.Roles}
	if host.Services[consulServers].Total() > 0 {
		h.Lone = append(h.Lone, pace.ConsulServer)
	}
	if host.Record.Orchestrates {
		h.Lone = append(h.Lone, pace.Candidate)
	}
	liveness, health := life(m.Node)
	h.Gone = m.Gone(liveness, now)
	base, given := h, gaveUp(host, m, session)
	// is notes a reason: the first one that counts says why. It reports whether another one makes no difference: an offer may be void, so
	// one that takes the host out for certain does. An operator gives up on a host as it is then: it does not count, whatever else
	// it has. What begins there later does, and what it is offered it may still accept.
	is := func(next pace.Host) bool {
		before := next.For == "" || !next.Since.IsZero() && !next.Since.After(given)
		next.GivenUp = next.GivenUp || !next.Offered && !given.IsZero() && before
		switch {
		case h.Out == "", h.GivenUp && !next.GivenUp:
			h = next
		case !next.Offered && !next.GivenUp:
			h.Offered = false
		}
		return !h.Offered && !h.GivenUp
	}
	if g, open := m.OpenGrant(); open {
		next := base
		next.For, next.Out, next.Since, next.Failed = cluster.ChangeID(cluster.KindVersion, g.Version), "it has a grant of "+g.Version, g.Since, g.State == cluster.GrantFailed
		switch {
		case g.State == string(pace.Offered):
			next.Offered = !m.Answer.Open()
		case g.State == string(pace.GivenUp):
			next.GivenUp = true
		case next.Failed:
			next.Out = "its grant of " + g.Version + " failed"
		}
		if is(next) {
			return h
		}
	}
	l, _, _ := change.LeaseIn(host)
	if part := l.Part(session); part.Offered() || part.Open() {
		next := base
		next.For, next.Out, next.Since = cluster.LeaseChange(m.Node), cluster.LeaseText(l.Wish), part.GrantedSince()
		next.GivenUp, next.Offered = part.GivenUp(), !part.Open()
		if is(next) {
			return h
		}
	}
	if why, name := stage.HoldsOf(host, m.Grants, documents.Stages); name != "" {
		next := base
		next.For, next.Out, next.Since, next.Failed, next.GivenUp, next.Offered = cluster.FilesChange(name), why.Text, why.Since, why.Failed, why.GivenUp, why.Offered
		if is(next) {
			return h
		}
	}
	next := base
	if e, disturbs := documents.Runs.Disturbing(host); disturbs {
		next.For, next.Out, next.Since = cluster.RunChange(e.Run), e.OutText(), e.Started
		is(next)
		return h
	}
	switch reason := m.Condition.OutOfService(false); {
	case reason != pace.InService:
		next.Out, next.Failed = reason.Text(), reason == pace.OutDown || reason == pace.OutCritical
		if next.Since = health; reason == pace.OutDown {
			next.Since, next.Down = liveness, true
		}
		is(next)
	case m.Config.State == cluster.StateRunning:
		next.Out, next.Since = "it converges without a grant", m.Config.Since
		is(next)
	}
	return h
}

// Waits is a change that waits for a place in the budget.
type Waits struct {
	Change string   `json:"change"` // its ID: "version.v2", "files.edge"
	Nodes  []string `json:"nodes"`  // that the budget keeps back now
	Why    string   `json:"why"`    // of the first of them
}

// Waiting returns the changes that only the budget keeps from going on, and the hosts.
// stored, members and d are what account was made of; active are the runs in progress.
func Waiting(s *cluster.State, stored rollout.Stored, members rollout.State, d Documents, active []runs.Run, account *pace.Account, now time.Time) []Waits {
	all := []Waits{}
	add := func(change string, nodes []string) {
		if len(nodes) > 0 {
			limit, _ := account.Admit(nodes[0])
			all = append(all, Waits{change, nodes, limit.String()})
		}
	}
	if stored.Current() && stored.Document.Paced() {
		members.Places = account
		var nodes []string
		for _, d := range rollout.Plan(stored.Document, members, now).Denied {
			nodes = append(nodes, d.Node)
		}
		add(cluster.ChangeID(cluster.KindVersion, stored.Document.Version), nodes)
	}
	hosts := stage.HostsOf(s)
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		one := d.Stages[name]
		plan := stage.Plan(one.Book, one.Stops, stage.State{Stage: name, Hosts: hosts[name], Halted: members.Halted, Freezes: members.Control.Freezes, Quiet: members.Quiet, Places: account}, now)
		add(cluster.FilesChange(name), plan.Denied)
	}
	for i := range active {
		denied := slices.DeleteFunc(slices.Clone(active[i].Denied), func(node string) bool { _, admitted := account.Admit(node); return admitted })
		add(cluster.RunChange(active[i].ID), denied)
	}
	return all
}

// Barred is why nothing that disturbs may begin on a host, beside a freeze; empty: it may.
func Barred(s *cluster.State, node string) string {
	host := s.Hosts[node]
	if host == nil {
		return ""
	}
	if hold, held := s.Control.Held(node, s.Roles(host)); held {
		return "it is held " + hold.String()
	}
	if kept := host.Kept(); kept != "" {
		return kept
	}
	if host.Condition.Drained() {
		return "it is in maintenance that an operator began"
	}
	return ""
}
