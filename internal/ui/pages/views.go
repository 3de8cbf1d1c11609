package pages

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
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
		{"/changes", "changes.html", "Changes", "Changes", changesPage},
		{"/change", "change.html", "Change", "Changes", changePage},
		{"/hosts", "hosts.html", "Hosts", "Hosts", hostsPage},
		{"/host", "host.html", "Host", "Hosts", hostPage},
		{"/events", "events.html", "Events", "Events", eventsPage},
		{"/services", "services.html", "Services", "Services", servicesPage},
		{"/service", "service.html", "Service", "Services", servicePage},
		{"/dependencies", "dependencies.html", "Dependencies", "Dependencies", dependenciesPage},
		{"/slots", "slots.html", "Slots", "Slots", slotsPage},
		{"/audit", "audit.html", "Audit", "Audit", auditPage},
		{"/leaders", "leaders.html", "Leaders and profile", "Leaders and profile", leadersPage},
	}
}

// moved are pages of before, and where what they showed is now: the page of a change, with the name of the parameter that had the
// rest of its ID, or the list of a kind.
var moved = []struct{ path, kind, name string }{
	{"/rollout", cluster.KindVersion, ""},
	{"/finished", cluster.KindVersion, "id"},
	{"/runs", cluster.KindRun, ""},
	{"/run", cluster.KindRun, "id"},
	{"/stages", cluster.KindFiles, ""},
	{"/stage", cluster.KindFiles, "name"},
}

// redirect answers for a page of before.
func redirect(kind, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		form := r.URL.Query()
		to := link(form.Get("cluster"))
		at := to.to("/changes", "kind", kind)
		if name != "" {
			at = to.to("/change", "id", kind+"."+form.Get(name))
		}
		http.Redirect(w, r, at, http.StatusMovedPermanently)
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

// HostLink is the link to a host, ServiceLink to a service, ChangeLink to a change, RunLink to a run.
func (l linker) HostLink(node string) string    { return l.to("/host", "name", node) }
func (l linker) ServiceLink(name string) string { return l.to("/service", "name", name) }
func (l linker) ChangeLink(id string) string    { return l.to("/change", "id", id) }
func (l linker) RunLink(id string) string       { return l.ChangeLink(cluster.RunChange(id)) }

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

func changesPage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	v := struct {
		base
		ui.Changes
		Pager         pager
		Kinds, States []chip
	}{base: baseOf(q)}
	if v.Changes, err = q.now.Changes(ui.ChangesQuery{Kind: q.get("kind"), State: q.get("state"), Page: page}); err != nil {
		return nil, v.About, err
	}
	v.Pager = q.paged("/changes", v.Paged, len(v.Changes.Changes))
	chip := func(name, kind, state string) chip {
		return chip{name, v.To("/changes", "kind", kind, "state", state), kind == q.get("kind") && state == q.get("state")}
	}
	kind, state := q.get("kind"), q.get("state")
	v.Kinds = append(v.Kinds, chip("all kinds", "", state))
	for _, one := range cluster.ChangeKinds() {
		v.Kinds = append(v.Kinds, chip(one, one, state))
	}
	v.States = append(v.States, chip("all", kind, ""), chip("in progress", kind, ui.ChangesInProgress), chip("ended", kind, ui.ChangesEnded))
	return v, v.About, nil
}

// chip is a link to a part of a list.
type chip struct {
	Name, Link string
	Current    bool
}

// changeShown is a change as its page shows it: one of the parts is there.
type changeShown struct {
	base
	C       ui.Change
	Pager   pager
	Shares  []share
	Rollout *rolloutShown
	Stage   *stageShown
	Run     *runShown
	Record  *recordShown
}

type (
	rolloutShown struct {
		base
		*ui.Rollout
	}
	recordShown struct {
		base
		R *ui.RolloutRecord
	}
	stageShown struct {
		base
		S *ui.Stage
	}
	runShown struct {
		base
		R *ui.RunRow
	}
)

func changePage(q query) (any, ui.About, error) {
	page, err := q.page()
	if err != nil {
		return nil, ui.About{}, err
	}
	c, err := q.fleet.Change(q.ctx, q.get("id"), ui.ChangeQuery{State: q.get("state"), Page: page})
	if err != nil {
		return nil, ui.About{}, err
	}
	v := changeShown{base: baseOf(q), C: c, Pager: q.paged("/change", c.Paged, len(c.Hosts)), Shares: shares(c.Counts)}
	switch {
	case c.Version != nil:
		v.Rollout = &rolloutShown{v.base, c.Version}
	case c.EndedVersion != nil:
		v.Record = &recordShown{v.base, c.EndedVersion}
	case c.Files != nil:
		v.Stage = &stageShown{v.base, c.Files}
	case c.Run != nil:
		v.Run = &runShown{v.base, c.Run}
	}
	return v, c.About, nil
}

// shares are the hosts of a change by state.
func shares(c pace.Counts) (all []share) {
	begin := 0
	for _, one := range []struct {
		state pace.State
		class string
		count int
	}{
		{pace.HasIt, "good", c.Done},
		{pace.Working, "busy", c.Working},
		{pace.Failed, "bad", c.Failed},
		{pace.Down, "warn", c.Down},
		{pace.Left, "warn", c.GivenUp},
		{pace.Held, "warn", c.Held},
		{pace.Pending, "dim", c.Waiting},
	} {
		all = append(all, share{one.state.String(), one.class, begin, one.count})
		begin += one.count
	}
	return all
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
	asked := ui.EventQuery{Host: q.get("host"), Service: q.get("service"), Change: q.get("change"), Before: before, Limit: page.Limit}
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
