package ui

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/inventory"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
)

// Clusters are the clusters that a viewer may choose from.
type Clusters struct {
	Clusters []fleet.Summary `json:"clusters"`
	// Default is the cluster that the server was started for.
	Default string `json:"default"`
	Command string `json:"command"`
}

// Overview is a cluster at a glance.
type Overview struct {
	About
	Exists       bool                   `json:"exists"`
	Desired      string                 `json:"desired"`
	Counts       orchestrator.Aggregate `json:"counts"`
	Problems     int                    `json:"problems"`
	Rollout      string                 `json:"rollout"` // its state in words; empty: no rollout
	Orchestrated bool                   `json:"orchestrated"`
	Orchestrator string                 `json:"orchestrator"` // the agent's node; empty: not known
	LastEvent    uint64                 `json:"last_event"`
}

// Overview returns the cluster at a glance.
func (s *Snapshot) Overview() Overview {
	o := Overview{
		About: s.about("cluster", "show"), Exists: s.State.Exists, Desired: s.State.Desired, Counts: s.derived.counts(),
		Problems: len(s.allProblems()), Orchestrated: s.Orchestrated, Orchestrator: s.Orchestrator.Node, LastEvent: s.LastSeq,
	}
	if status, ok := s.status(); ok {
		o.Rollout = status.StateText()
	}
	return o
}

// EventQuery selects events.
type EventQuery struct {
	Kinds   []string // none: all
	Host    string
	Service string
	Change  string // the id of one
	// After and Before bound the numbers of events; 0: no bound.
	After, Before uint64
	Limit         int // the last ones; 0: DefaultLimit, at most MaxLimit
}

// Events are the last events of a cluster.
type Events struct {
	About
	Events []orchestrator.Event `json:"events"` // the newest first
	// First is the number of the oldest event that can be asked for, Last that of the
	// newest; 0: no events.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Older is what to give as "before" for the events that come next; 0: none do.
	Older uint64   `json:"older"`
	Kinds []string `json:"kinds"` // that are known
}

// Matches reports whether q selects e; bounds of numbers do not count.
func (q EventQuery) Matches(e orchestrator.Event) bool {
	return (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) &&
		(q.Host == "" || e.Node == q.Host) && (q.Service == "" || e.Service == q.Service) && (q.Change == "" || e.Change == q.Change)
}

// Events returns the events that q selects.
func (s *Snapshot) Events(q EventQuery) Events {
	limit := q.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	limit = min(limit, MaxLimit)
	args := []string{"cluster", "events", "--limit=" + strconv.Itoa(limit)}
	for _, kind := range q.Kinds {
		args = append(args, "--kind="+kind)
	}
	if q.Change != "" {
		args = append(args, "--change="+q.Change)
	}
	e := Events{About: s.about(args...), Events: []orchestrator.Event{}, Last: s.LastSeq, Kinds: event.Kinds()}
	if len(s.Journal) > 0 {
		e.First = s.Journal[0].Seq
	}
	for i := len(s.Journal) - 1; i >= 0; i-- {
		switch one := s.Journal[i]; {
		case one.Seq <= q.After:
			return e
		case q.Before > 0 && one.Seq >= q.Before, !q.Matches(one):
		case len(e.Events) == limit:
			e.Older = e.Events[limit-1].Seq
			return e
		default:
			e.Events = append(e.Events, one)
		}
	}
	return e
}

// Services are the services of the members.
type Services struct {
	About
	Services []Service `json:"services"`
	Paged
}

// Service is one service.
type Service struct {
	Service string `json:"service"`
	cluster.Tally
	// Functional is how many instances answer in Consul's DNS.
	Functional int `json:"functional"`
	// Hosts are the members with instances.
	Hosts     []string `json:"hosts"` // the first of them
	HostCount int      `json:"host_count"`
	// ProvidedBy are the members that say they provide it, with or without instances.
	ProvidedBy []string `json:"provided_by"`
	// RequiredBy are the members whose static configuration requires it.
	RequiredBy    []string `json:"required_by"` // the first of them
	RequiredCount int      `json:"required_count"`
}

// Services returns the services in order of their names.
func (s *Snapshot) Services(page Page) Services {
	all := s.services(mostNames)
	v := Services{About: s.about("service", "list"), Services: []Service{}}
	shown, paged := pageOf(all, page, len(all))
	v.Services, v.Paged = append(v.Services, shown...), paged
	return v
}

// ServiceDetail is one service with all its hosts.
type ServiceDetail struct {
	About
	Service
	// Instances are its instances by host.
	Instances []ServiceHost `json:"instances"`
}

// ServiceHost is a service's instances on one host.
type ServiceHost struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	cluster.Tally
}

// ErrNoService: no member has, provides or requires the service.
var ErrNoService = errors.New("no member has, provides or requires it")

// Service returns one service. It returns ErrNoService, or consul.ErrDenied for one that the
// viewer may not see.
func (s *Snapshot) Service(name string) (d ServiceDetail, err error) {
	if err := s.hidden.refusal("service", name); err != nil {
		return ServiceDetail{}, err
	}
	all := s.services(len(s.State.Hosts))
	i := slices.IndexFunc(all, func(one Service) bool { return one.Service == name })
	if i < 0 {
		return ServiceDetail{}, fmt.Errorf("service %q: %w", name, ErrNoService)
	}
	d = ServiceDetail{About: s.about("service", "resolve", name), Service: all[i], Instances: []ServiceHost{}}
	for _, node := range all[i].Hosts {
		h := s.State.Hosts[node]
		d.Instances = append(d.Instances, ServiceHost{node, h.Address, h.Services[name]})
	}
	return d, nil
}

// services are all services, with at most n names each.
func (s *Snapshot) services(n int) []Service {
	all := map[string]*Service{}
	at := func(name string) *Service {
		if all[name] == nil {
			all[name] = &Service{Service: name}
		}
		return all[name]
	}
	for _, node := range s.State.Nodes() {
		for name, t := range s.State.Hosts[node].Services {
			if name != cluster.AgentService {
				one := at(name)
				one.Tally, one.Hosts = one.Plus(t), append(one.Hosts, node)
			}
		}
	}
	g := s.derived.graph()
	for name, providers := range g.Services {
		at(name).ProvidedBy = providers
	}
	for _, e := range g.Edges {
		at(e.Service).RequiredBy = append(at(e.Service).RequiredBy, e.Node)
	}
	list := []Service{}
	bound := func(names []string) []string { return append([]string{}, names[:min(len(names), n)]...) }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := *all[name]
		one.Functional, one.HostCount, one.RequiredCount = one.Tally.Functional(), len(one.Hosts), len(one.RequiredBy)
		one.Hosts, one.ProvidedBy, one.RequiredBy = bound(one.Hosts), bound(one.ProvidedBy), bound(one.RequiredBy)
		list = append(list, one)
	}
	return list
}

// Dependencies are which hosts require services of which.
type Dependencies struct {
	About
	inventory.GraphDocument
	// CycleTexts are the cycles in words: a -[mysql]-> b -[web]-> a.
	CycleTexts []string `json:"cycle_texts"`
}

// Dependencies returns which hosts require services of which. Members that neither require
// nor provide anything are left out.
func (s *Snapshot) Dependencies() Dependencies {
	g := s.derived.graph()
	d := Dependencies{About: s.about("cluster", "deps"), GraphDocument: g.Document(), CycleTexts: []string{}}
	for _, cycle := range g.Cycles {
		d.CycleTexts = append(d.CycleTexts, g.CycleText(cycle))
	}
	return d
}

// maxDrawn is how many members a drawing has at most: more cannot be read.
const maxDrawn = 500

// DependenciesSVG returns the graph as a drawing, its cycles red; link returns where a
// member ("host") or a service ("service") leads to, nil: nowhere. It returns ErrQuery
// for a graph that is too large.
func (s *Snapshot) DependenciesSVG(link func(kind, name string) string) (string, error) {
	g := s.derived.graph()
	if len(g.Nodes) > maxDrawn {
		return "", fmt.Errorf("%w: %d members are more than a drawing can show: 'jorc cluster deps' lists them", ErrQuery, len(g.Nodes))
	}
	return g.SVG(link), nil
}

// RunRow is one run. The values of its params are not shown.
type RunRow struct {
	runs.Run
	Audience string `json:"audience"` // the members that it is for, in words
}

// runRow is a run without the values of its params.
func (s *Snapshot) runRow(r runs.Run) RunRow {
	row := RunRow{Run: r, Audience: r.Audience()}
	row.Explain(s.State.Control)
	row.History = append([]runs.Change{}, r.History...)
	row.Request.Params = nil
	if s.sealed { // a filter may hold values of params
		row.Request.Filter = ""
		row.Audience = row.Run.Audience()
	}
	return row
}

// Slots are the groups of slots.
type Slots struct {
	About
	Groups []slots.View `json:"groups"`
	// More says which groups are not listed; absent: all are.
	More string `json:"more,omitempty"`
}

// Slots returns the groups of slots.
func (s *Snapshot) Slots() Slots {
	return Slots{About: s.about("cluster", "slots"), Groups: append([]slots.View{}, s.Groups...), More: s.MoreGroups}
}

// Leaders are the leaders and managers.
type Leaders struct {
	About
	cluster.LeadersDocument
	Vacancies int `json:"vacancies"`
	// Orchestrator is the agent that holds the orchestrator's lock; empty: none does.
	Orchestrator string `json:"orchestrator"`
}

// Leaders returns who leads.
func (s *Snapshot) Leaders() Leaders {
	return Leaders{
		About: s.about("cluster", "leader"), LeadersDocument: s.State.Leaders.Document(),
		Vacancies: s.State.Leaders.Vacancies(), Orchestrator: s.Orchestrator.Node,
	}
}
