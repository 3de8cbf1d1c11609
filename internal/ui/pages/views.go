package pages

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
)

// Limits of rows: a browser shows more slowly.
const (
	defaultRows = 100
	maxRows     = 200
)

const startPath = "/{$}"

// all are the pages, in the order of the menu.
func (p *Pages) all() []page {
	return []page{
		{startPath, "attention.html", "Needs attention", "Needs attention", attentionPage},
		{"/rollout", "rollout.html", "Rollout", "Rollout", rolloutPage},
		{"/finished", "finished.html", "Finished rollout", "Rollout", finishedPage},
		{"/hosts", "hosts.html", "Hosts", "Hosts", hostsPage},
		{"/host", "host.html", "Host", "Hosts", hostPage},
		{"/events", "events.html", "Events", "Events", eventsPage},
		{"/services", "services.html", "Services", "Services", servicesPage},
		{"/service", "service.html", "Service", "Services", servicePage},
		{"/dependencies", "dependencies.html", "Dependencies", "Dependencies", dependenciesPage},
		{"/runs", "runs.html", "Runs", "Runs", runsPage},
		{"/run", "run.html", "Run", "Runs", runPage},
		{"/stages", "stages.html", "Stages", "Stages", stagesPage},
		{"/stage", "stage.html", "Stage", "Stages", stagePage},
		{"/slots", "slots.html", "Slots", "Slots", slotsPage},
		{"/audit", "audit.html", "Audit", "Audit", auditPage},
		{"/leaders", "leaders.html", "Leaders and profile", "Leaders and profile", leadersPage},
	}
}

// base is what the data of each page begins with.
type base struct {
	linker
	Form map[string]string // the query's values
}

func baseOf(q query) base {
	b := base{linker{q.get("cluster")}, map[string]string{}}
	for name := range q.form {
		b.Form[name] = q.get(name)
	}
	return b
}

// To is to, for templates.
func (l linker) To(path string, pairs ...string) string { return l.to(path, pairs...) }

// HostLink is the link to a host, ServiceLink to a service, StageLink to a stage, RunLink to a
// run, RecordLink to a rollout that ended.
func (l linker) HostLink(node string) string    { return l.to("/host", "name", node) }
func (l linker) RecordLink(id string) string    { return l.to("/finished", "id", id) }
func (l linker) ServiceLink(name string) string { return l.to("/service", "name", name) }
func (l linker) StageLink(name string) string   { return l.to("/stage", "name", name) }
func (l linker) RunLink(id string) string       { return l.to("/run", "id", id) }

// pager has the links to the other pages of a list.
type pager struct {
	ui.Paged
	From, To        int
	Previous, Later string // links; empty: there is no such page
}

// paged returns the pager of a list at path; the links keep the query.
func (q query) paged(path string, p ui.Paged, shown int) pager {
	at := func(offset int) string {
		form := maps.Clone(q.form)
		form.Del("offset")
		if offset > 0 {
			form.Set("offset", strconv.Itoa(offset))
		}
		if len(form) == 0 {
			return path
		}
		return path + "?" + form.Encode()
	}
	r := pager{Paged: p, From: p.Offset + 1, To: p.Offset + shown}
	if p.Offset > 0 {
		r.Previous = at(max(0, p.Offset-p.Limit))
	}
	if p.Next > 0 {
		r.Later = at(p.Next)
	}
	return r
}

// page reads which part of a list is asked for. It returns ui.ErrQuery.
func (q query) page() (ui.Page, error) {
	offset, err := q.number("offset")
	if err != nil {
		return ui.Page{}, err
	}
	limit, err := q.number("limit")
	if err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Offset: int(min(offset, 1<<30)), Limit: int(min(cmp.Or(limit, defaultRows), maxRows))}, nil
}

// number reads a number; one that is not there is 0. It returns ui.ErrQuery.
func (q query) number(name string) (uint64, error) {
	s := q.get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %q is not a number", ui.ErrQuery, name, s)
	}
	return n, nil
}

func attentionPage(q query) (any, ui.About, error) {
	v := struct {
		base
		ui.Attention
		Overview ui.Overview
	}{baseOf(q), q.now.Attention(), q.now.Overview()}
	return v, v.About, nil
}

func finishedPage(q query) (any, ui.About, error) {
	r, err := q.now.RolloutRecord(q.get("id"))
	if err != nil {
		return nil, ui.About{}, err
	}
	return struct {
		base
		R ui.RolloutRecord
	}{baseOf(q), r}, r.About, nil
}

func rolloutPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	r := q.now.Rollout(ui.RolloutQuery{State: q.get("state"), Page: page})
	v := struct {
		base
		ui.Rollout
		Pager  pager
		Counts []share
	}{base: baseOf(q), Rollout: r, Pager: q.paged("/rollout", r.Paged, len(r.Hosts))}
	if r.Status != nil {
		c := r.Status.Now
		begin := 0
		for _, s := range []share{
			{Name: rollout.HostDone, Class: "good", Count: c.Done},
			{Name: rollout.HostWorking, Class: "busy", Count: c.Working},
			{Name: rollout.HostFailed, Class: "bad", Count: c.Failed},
			{Name: rollout.HostDown, Class: "warn", Count: c.Down},
			{Name: rollout.HostGivenUp, Class: "warn", Count: c.GivenUp},
			{Name: rollout.HostHeld, Class: "warn", Count: c.Held},
			{Name: rollout.HostPending, Class: "dim", Count: c.Pending},
		} {
			s.Begin, begin = begin, begin+s.Count
			v.Counts = append(v.Counts, s)
		}
	}
	return v, r.About, nil
}

// share is one part of a whole.
type share struct {
	Name, Class  string
	Begin, Count int
}

func hostsPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	h, err := q.now.Hosts(ui.HostQuery{Filter: q.get("filter"), Role: q.get("role"), Sort: q.get("sort"), Columns: columnsOf(q.get("columns")), Page: page})
	if err != nil && !errors.Is(err, ui.ErrQuery) {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Hosts
		Pager  pager
		Matrix matrix
		Sorts  []sortLink
		Roles  []choice
		Zones  []choice
		Sealed bool
		Failed bool // the query is invalid
	}{base: baseOf(q), Hosts: h, Pager: q.paged("/hosts", h.Paged, len(h.Hosts)), Sealed: q.now.Sealed(), Failed: err != nil}
	v.Matrix = matrixOf(v.base, q.now)
	for _, name := range []string{"Node", "Address", "Zone", "Version", "Health", "Agent"} {
		v.Sorts = append(v.Sorts, q.sortLink(name))
	}
	v.Roles = choices(h.Counts.Roles, func(name string) string { return v.To("/hosts", "role", name) })
	v.Zones = choices(h.Counts.Zones, func(name string) string { return v.To("/hosts", "filter", equals("Zone", name)) })
	return v, h.About, err
}

func columnsOf(text string) (columns []string) {
	for c := range strings.SplitSeq(text, ",") {
		if c = strings.TrimSpace(c); c != "" {
			columns = append(columns, c)
		}
	}
	return columns
}

// sortLink is the head of a column that the rows can be sorted by.
type sortLink struct {
	Name, Link string
	Sorted     string // ascending, descending; empty: they are not
}

func (q query) sortLink(name string) sortLink {
	s, next := sortLink{Name: name}, name
	switch q.get("sort") {
	case name:
		s.Sorted, next = "ascending", "-"+name
	case "-" + name:
		s.Sorted, next = "descending", name
	}
	form := maps.Clone(q.form)
	form.Del("offset")
	form.Set("sort", next)
	s.Link = "/hosts?" + form.Encode()
	return s
}

// choice is a link to a part of the hosts, with their number.
type choice struct {
	Name, Link string
	Count      int
}

// mostChoices bounds how many roles and zones are offered.
const mostChoices = 12

// choices are the most frequent ones.
func choices(counts map[string]int, to func(string) string) (all []choice) {
	for name, n := range counts {
		if name != orchestrator.AggregateNone {
			all = append(all, choice{name, to(name), n})
		}
	}
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostChoices)]
}

// equals is a filter for a field's value.
func equals(field, value string) string { return field + " == " + strconv.Quote(value) }

// matrix counts hosts by version and health.
type matrix struct {
	Health []string
	Rows   []matrixRow
	More   int // versions that are not shown
}

type matrixRow struct {
	Version string
	Desired bool
	Total   choice
	Cells   []choice
}

// mostVersions bounds the rows of a matrix.
const mostVersions = 10

func matrixOf(b base, s *ui.Snapshot) matrix {
	m := matrix{Health: []string{"passing", "warning", "critical", "maintenance", ""}}
	counts := map[string]map[string]int{}
	total := map[string]int{}
	for _, h := range s.State.Hosts {
		if !h.Member {
			continue
		}
		if counts[h.Report.Version] == nil {
			counts[h.Report.Version] = map[string]int{}
		}
		counts[h.Report.Version][h.Condition.Health]++
		total[h.Report.Version]++
	}
	versions := slices.Collect(maps.Keys(counts))
	slices.SortFunc(versions, func(a, b string) int { return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b)) })
	m.More = max(0, len(versions)-mostVersions)
	for _, version := range versions[:len(versions)-m.More] {
		of := equals("Version", version)
		row := matrixRow{version, version != "" && version == s.State.Desired, choice{version, b.To("/hosts", "filter", of), total[version]}, nil}
		for _, health := range m.Health {
			row.Cells = append(row.Cells, choice{health, b.To("/hosts", "filter", of+" and "+equals("Health", health)), counts[version][health]})
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

func hostPage(q query) (any, ui.About, error) {
	h, err := q.fleet.Host(q.ctx, q.get("name"))
	if err != nil {
		return nil, ui.About{}, err
	}
	return struct {
		base
		H ui.Host
	}{baseOf(q), h}, h.About, nil
}

func eventsPage(q query) (any, ui.About, error) {
	before, err := q.number("before")
	if err != nil {
		return nil, ui.About{}, err
	}
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	asked := ui.EventQuery{Host: q.get("host"), Service: q.get("service"), Before: before, Limit: page.Limit}
	for _, kind := range q.form["kind"] {
		if kind != "" {
			asked.Kinds = append(asked.Kinds, kind)
		}
	}
	v := struct {
		base
		ui.Events
		OlderLink string
		NewerLink string
	}{base: baseOf(q), Events: q.now.Events(asked)}
	if v.Older > 0 {
		form := maps.Clone(q.form)
		form.Set("before", strconv.FormatUint(v.Older, 10))
		v.OlderLink = "/events?" + form.Encode()
	}
	if before > 0 {
		form := maps.Clone(q.form)
		form.Del("before")
		v.NewerLink = "/events?" + form.Encode()
	}
	return v, v.About, nil
}

func servicesPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Services
		Pager pager
	}{base: baseOf(q), Services: q.now.Services(page)}
	v.Pager = q.paged("/services", v.Paged, len(v.Services.Services))
	return v, v.About, nil
}

func servicePage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	d, err := q.now.Service(q.get("name"))
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.ServiceDetail
		Pager pager
	}{base: baseOf(q), ServiceDetail: d}
	all := d.Instances
	begin := min(page.Offset, len(all))
	end := min(begin+page.Limit, len(all))
	v.Instances = all[begin:end]
	paged := ui.Paged{Total: len(all), Matched: len(all), Offset: begin, Limit: page.Limit}
	if end < len(all) {
		paged.Next = end
	}
	v.Pager = q.paged("/service", paged, len(v.Instances))
	return v, v.About, nil
}

func dependenciesPage(q query) (any, ui.About, error) {
	v := struct {
		base
		ui.Dependencies
		Drawing   template.HTML
		NoDrawing string
		Hidden    int // requirements that are not listed
	}{base: baseOf(q), Dependencies: q.now.Dependencies()}
	svg, err := q.now.DependenciesSVG(func(kind, name string) string {
		if kind == "service" {
			return v.ServiceLink(name)
		}
		return v.HostLink(name)
	})
	if err != nil {
		v.NoDrawing = err.Error()
	}
	v.Drawing = template.HTML(svg) // it escapes names, and has neither styles nor scripts
	v.Hidden = max(0, len(v.Requires)-maxRows)
	v.Requires = v.Requires[:len(v.Requires)-v.Hidden]
	return v, v.About, nil
}

func runsPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Runs
		Pager  pager
		States []runs.State
	}{
		base: baseOf(q), Runs: q.now.Runs(q.get("state"), page),
		States: []runs.State{runs.NeedsApproval, runs.Pending, runs.Running, runs.Done, runs.Failed, runs.Cancelled},
	}
	v.Pager = q.paged("/runs", v.Paged, len(v.Runs.Runs))
	return v, v.About, nil
}

func runPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	r, err := q.fleet.Run(q.ctx, q.get("id"), page)
	if err != nil {
		return nil, ui.About{}, err
	}
	return struct {
		base
		R     ui.Run
		Pager pager
	}{baseOf(q), r, q.paged("/run", r.Paged, len(r.Members))}, r.About, nil
}

func stagesPage(q query) (any, ui.About, error) {
	v := struct {
		base
		ui.Stages
	}{baseOf(q), q.now.Stages()}
	return v, v.About, nil
}

func stagePage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	s, err := q.now.Stage(q.get("name"), page)
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		S     ui.Stage
		Pager pager
	}{base: baseOf(q), S: s}
	if s.Status != nil {
		v.Pager = q.paged("/stage", s.Paged, len(s.Status.Hosts))
	}
	return v, s.About, nil
}

func slotsPage(q query) (any, ui.About, error) {
	v := struct {
		base
		ui.Slots
	}{baseOf(q), q.now.Slots()}
	return v, v.About, nil
}

func auditPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	a, err := q.fleet.Audit(q.ctx, page)
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Audit
		Pager pager
	}{baseOf(q), a, q.paged("/audit", a.Paged, len(a.Changes))}
	return v, v.About, nil
}

// profileChanges is how many changes of the profile its page shows.
const profileChanges = 20

func leadersPage(q query) (any, ui.About, error) {
	values := q.get("values") == "1"
	history, err := q.fleet.ProfileHistory(q.ctx, values, ui.Page{Limit: profileChanges})
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Leaders
		Profile ui.Profile
		History ui.ProfileHistory
	}{baseOf(q), q.now.Leaders(), q.now.Profile(values), history}
	v.Partial = append(v.Partial, history.Partial[len(v.Partial):]...)
	return v, v.About, nil
}
