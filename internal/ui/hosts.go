package ui

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
)

// ErrQuery: a filter, column, order or page cannot be used.
var ErrQuery = errors.New("invalid query")

// Bounds of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Page is which part of a list to return.
type Page struct {
	Offset int
	Limit  int // 0: DefaultLimit; at most MaxLimit
}

// Paged says which part of a list an answer has.
type Paged struct {
	Total   int `json:"total"`   // without the query's filters
	Matched int `json:"matched"` // with them
	Offset  int `json:"offset"`
	Limit   int `json:"limit"`
	// Next is the offset of the next page; 0: this is the last one.
	Next int `json:"next"`
}

// pageOf returns one page of all.
func pageOf[T any](all []T, p Page, total int) ([]T, Paged) {
	limit := p.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	limit = min(limit, MaxLimit)
	begin := min(max(0, p.Offset), len(all))
	end := min(begin+limit, len(all))
	paged := Paged{Total: total, Matched: len(all), Offset: begin, Limit: limit}
	if end < len(all) {
		paged.Next = end
	}
	return all[begin:end], paged
}

// HostQuery selects, orders and shows hosts.
type HostQuery struct {
	Filter  string   // as 'jorc cluster members --filter' reads it
	Role    string   // only hosts with the role
	Sort    string   // a field; "-" before it sorts in descending order
	Columns []string // fields to show beside the fixed ones
	Page
}

// Hosts are the members of a cluster.
type Hosts struct {
	About
	Counts orchestrator.Aggregate `json:"counts"` // of all members
	// Columns are the keys of HostRow.Fields.
	Columns []string  `json:"columns"`
	Hosts   []HostRow `json:"hosts"`
	Paged
}

// HostRow is one member in a list.
type HostRow struct {
	Node       string   `json:"node"`
	Address    string   `json:"address"`
	Datacenter string   `json:"datacenter"`
	Zone       string   `json:"zone"`
	Roles      []string `json:"roles"`
	Version    string   `json:"version"`
	Health     string   `json:"health"`   // passing, warning, critical, maintenance; empty: the host is absent
	Agent      string   `json:"agent"`    // up, down
	Liveness   string   `json:"liveness"` // up, suspect, down, absent, unmonitored
	// Status is the state by category.
	Status map[string]string `json:"status"`
	// Held is what stops convergence there; empty: nothing does.
	Held string `json:"held"`
	// Fields are the columns that were asked for, by their keys.
	Fields map[string]any `json:"fields"`
	// Texts are the same for people.
	Texts map[string]string `json:"-"`
}

// Hosts returns the members that q selects. It returns ErrQuery.
func (s *Snapshot) Hosts(q HostQuery) (Hosts, error) {
	matched, columns, err := s.selected(q)
	if err != nil {
		return Hosts{}, err
	}
	h := Hosts{About: s.about(q.args()...), Counts: s.derived.counts(), Columns: []string{}, Hosts: []HostRow{}}
	for _, c := range columns {
		h.Columns = append(h.Columns, c.Key)
	}
	page, paged := pageOf(matched, q.Page, h.Counts.Nodes)
	h.Paged = paged
	for i := range page {
		h.Hosts = append(h.Hosts, s.row(&page[i], columns))
	}
	return h, nil
}

// selected are the members that q matches, in its order, and its columns.
func (s *Snapshot) selected(q HostQuery) ([]cluster.Member, []cluster.Column, error) {
	filter, err := cluster.ParseFilter(q.Filter)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	order, descending := strings.CutPrefix(q.Sort, "-")
	var by *cluster.Column
	if order != "" {
		c, err := s.column(order)
		if err != nil {
			return nil, nil, err
		}
		by = &c
	}
	var columns []cluster.Column
	for _, name := range q.Columns {
		c, err := s.column(name)
		if err != nil {
			return nil, nil, err
		}
		columns = append(columns, c)
	}
	all := s.members()
	var matched []cluster.Member
	for i := range all {
		if filter.Match(&all[i]) && (q.Role == "" || slices.Contains(all[i].Roles, q.Role)) {
			matched = append(matched, all[i])
		}
	}
	if by != nil {
		by.Sort(matched, descending)
	}
	return matched, columns, nil
}

// column reads the name of a column. It returns ErrQuery.
func (s *Snapshot) column(name string) (cluster.Column, error) {
	c, err := cluster.ParseColumn(strings.TrimSpace(name))
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return c, nil
}

// args are the command that answers q.
func (q HostQuery) args() []string {
	args := []string{"cluster", "members"}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	add("filter", q.Filter)
	add("role", q.Role)
	add("sort", q.Sort)
	if len(q.Columns) > 0 {
		add("fields", "Node,"+strings.Join(q.Columns, ","))
	}
	return args
}

// row is one member in a list.
func (s *Snapshot) row(m *cluster.Member, columns []cluster.Column) HostRow {
	r := HostRow{
		Node: m.Node, Address: m.Address, Datacenter: m.Datacenter, Zone: m.Zone, Roles: append([]string{}, m.Roles...), Version: m.Version,
		Health: m.Health, Agent: m.Agent, Liveness: string(m.Condition.Liveness), Status: m.Status,
		Fields: map[string]any{}, Texts: map[string]string{},
	}
	if h, held := s.State.Control.Held(m.Node, m.Roles); held {
		r.Held = h.TextAt(s.Now)
	} else {
		r.Held = s.State.Hosts[m.Node].Report.HeldByFile()
	}
	for _, c := range columns {
		r.Fields[c.Key], r.Texts[c.Key] = s.shown(c, m), c.Text(m)
		if s.hides(c) {
			r.Texts[c.Key] = unshown
		}
	}
	return r
}

// Host is one host.
type Host struct {
	About
	HostRow
	Member  bool   `json:"member"`
	Desired string `json:"desired"`
	// Since is since when the host has run its version.
	Since    time.Time `json:"since,omitzero"`
	Previous string    `json:"previous"` // the version before
	// LifeSince and HealthSince are since when an orchestrator has seen its liveness
	// and its health as they are.
	LifeSince   time.Time `json:"life_since,omitzero"`
	HealthSince time.Time `json:"health_since,omitzero"`
	// States are its states by category, with output and links to logs.
	States   []cluster.HostState `json:"states"`
	Services []HostService       `json:"services"`
	// Failing are its critical checks.
	Failing  []FailingCheck        `json:"failing"`
	Requires []cluster.Requirement `json:"requires"`
	// Why is what 'jorc update why' answers.
	Why cluster.Why `json:"why"`
	// Changes are its parts in changes in progress: of a version, of files and its lease.
	Changes []HostChange `json:"changes"`
	// Templates are the ones that failed or wait longer than usual, the first of them, as the
	// host reports; MoreTemplates is how many others do.
	Templates     []cluster.TemplateProblem `json:"templates"`
	MoreTemplates int                       `json:"more_templates"`
	// Expiring are the certificates and tokens that end soon, have ended or cannot be read.
	Expiring []cluster.Expiring `json:"expiring"`
	// Jobs are those of runs, the newest first.
	Jobs []HostJob `json:"jobs"`
	// Slots are the slots that it holds or waits for, in words.
	Slots  []string             `json:"slots"`
	Events []orchestrator.Event `json:"events"` // the last ones, the newest first
	// Damaged are its documents that cannot be read, and why.
	Damaged []string `json:"damaged"`
}

// HostService is a service of a host.
type HostService struct {
	Service string `json:"service"`
	cluster.Tally
}

// FailingCheck is a critical check.
type FailingCheck struct {
	Check   string `json:"check"`
	Service string `json:"service"` // empty: the host itself
}

// HostJob is a run's part on one host.
type HostJob struct {
	Run      string    `json:"run"`
	Workflow string    `json:"workflow"`
	Created  time.Time `json:"created,omitzero"`
	runs.Member
	// Output is the end of what its last task printed.
	Output string `json:"output"`
}

// mostHostEvents bounds the events of a Host.
const mostHostEvents = 50

// Host returns one host without its jobs. It returns cluster.ErrNoHost, or consul.ErrDenied for
// one that the viewer may not see.
func (s *Snapshot) Host(node string) (Host, error) {
	if err := s.hidden.refusal("host", node); err != nil {
		return Host{}, err
	}
	known := s.State.Hosts[node]
	if known == nil {
		return Host{}, fmt.Errorf("host %q: %w", node, cluster.ErrNoHost)
	}
	h := Host{
		About: s.about("update", "why", node), Member: known.Member, Desired: s.State.Desired,
		Since: known.Report.Since, Previous: known.Report.Previous,
		States: []cluster.HostState{}, Services: []HostService{}, Failing: []FailingCheck{},
		Requires: append([]cluster.Requirement{}, known.Record.Requires...),
		Jobs:     []HostJob{}, Slots: append([]string{}, slots.ClaimsOf(s.Groups, node)...), Events: []orchestrator.Event{}, Damaged: []string{},
	}
	h.Templates, h.MoreTemplates = known.Report.TemplateProblems()
	h.Expiring = known.Report.EndsSoon()
	m := s.State.MemberOf(node)
	if s.sealed {
		m.Params, m.Meta = nil, nil
	}
	h.HostRow = s.row(&m, nil)
	if v, ok := s.Times[node]; ok {
		h.LifeSince, h.HealthSince = v.LifeSince, v.HealthSince
	}
	for _, category := range slices.Sorted(maps.Keys(known.Report.States)) {
		c := known.Report.States[category]
		h.States = append(h.States, cluster.HostState{
			Host: node, Category: category, State: c.State, Since: c.Since, Version: c.Version, Detail: c.Detail, LogURL: c.LogURL, Suspect: c.Suspect,
		})
	}
	for _, service := range slices.Sorted(maps.Keys(known.Services)) {
		if service != cluster.AgentService {
			h.Services = append(h.Services, HostService{service, known.Services[service]})
		}
	}
	for _, c := range known.Failing {
		h.Failing = append(h.Failing, FailingCheck{c.CheckID, c.ServiceName})
	}
	for _, err := range s.State.DamagedHost(node) {
		h.Damaged = append(h.Damaged, strings.TrimSuffix(err.Error()+": "+cluster.RepairHint(err), ": "))
	}
	h.Why = s.why(node, m.Roles)
	h.Changes = s.changesOf(node)
	for i := len(s.Journal) - 1; i >= 0 && len(h.Events) < mostHostEvents; i-- {
		if s.Journal[i].Node == node {
			h.Events = append(h.Events, s.Journal[i])
		}
	}
	return h, nil
}

// why is what 'jorc update why' answers about a host.
func (s *Snapshot) why(node string, roles []string) cluster.Why {
	facts, err := s.State.WhyFacts(node)
	if err != nil {
		return cluster.Why{Host: node, Desired: s.State.Desired, Reasons: []cluster.Reason{{Reason: cluster.WhyUnknown, Detail: err.Error()}}}
	}
	facts.Held = s.State.Control.HeldBy(node, roles)
	if facts.Desired != "" && facts.Desired != facts.Report.Version {
		facts.Rollout = s.Rollouts.WhyOf(s.Stored, s.Members, s.Orchestrated, node)
		facts.Slots = slots.ClaimsOf(s.Groups, node)
	}
	return cluster.Explain(facts)
}
