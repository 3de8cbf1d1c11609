package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/uitest"
)

// problems are the kinds of problems of a snapshot.
func problems(s *ui.Snapshot) (kinds []string) {
	for _, p := range s.Attention().Problems {
		kinds = append(kinds, p.Kind)
	}
	return kinds
}

// missing returns which of the wanted kinds of problems a snapshot lacks.
func missing(kinds ...string) func(*ui.Snapshot) string {
	return func(s *ui.Snapshot) string {
		for _, kind := range kinds {
			if !slices.Contains(problems(s), kind) {
				return "no problem of kind " + kind + " among " + strings.Join(problems(s), ", ")
			}
		}
		return ""
	}
}

func TestAttention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fleet := f.fleet(false)
	s := f.eventually("what is wrong is shown", fleet, missing("failed", "critical", "no_orchestrator"))
	for _, p := range s.Attention().Problems {
		switch p.Kind {
		case "failed":
			if p.Cause != "no space left on device" || !slices.Equal(p.Hosts, []string{f.Node("c")}) {
				t.Errorf("failed: %+v", p)
			}
			if want := "jorc --cluster=" + f.name + " update why " + f.Node("c"); p.Command != want {
				t.Errorf("command %q; want %q", p.Command, want)
			}
		case "critical":
			if !strings.Contains(p.Cause, "service:web") {
				t.Errorf("critical: %+v", p)
			}
		}
	}
	if kinds := problems(s); slices.Contains(kinds, "budget") {
		t.Errorf("without a budget: %v", kinds)
	}
	f.Must(f.SetBudget(t.Context(), &pace.Budget{MaxOut: pace.Amount{N: 1}}))
	s = f.eventually("failed hosts use the budget up", fleet, missing("budget"))
	for _, p := range s.Attention().Problems {
		if p.Kind == "budget" && (!strings.Contains(p.Cause, "give-up") || len(p.Hosts) == 0 || p.Severity != ui.Critical) {
			t.Errorf("budget: %+v", p)
		}
	}
	f.Must(f.ReportWriter(f.Node("b")).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.WithTemplates([]cluster.TemplateProblem{
			{Name: "nginx.conf", State: cluster.TemplateFailed, Detail: "its check failed"},
			{Name: "other", State: cluster.TemplateFailed},
			{Name: "upstreams", State: cluster.TemplateWaiting, Detail: "service db"},
			{Name: "users", State: cluster.TemplateStale, Detail: "key users: denied"},
		}), nil
	}))
	s = f.eventually("problems of templates are shown", fleet, missing("template_failed", "template_stale", "template_waiting"))
	for _, p := range s.Attention().Problems {
		want := ""
		switch p.Kind {
		case "template_failed":
			want = "its check failed; other templates of the host with problems: 1"
		case "template_stale":
			want = "key users: denied"
		case "template_waiting":
			want = "service db"
		default:
			continue
		}
		if p.Cause != want || !slices.Equal(p.Hosts, []string{f.Node("b")}) {
			t.Errorf("%+v; want the cause %q", p, want)
		}
	}
	if h, err := s.Host(f.Node("b")); err != nil || len(h.Templates) != 4 || h.MoreTemplates != 0 {
		t.Errorf("the host: %+v, %v", h.Templates, err)
	}
	end := s.Now.Add(time.Hour).UTC().Truncate(time.Second)
	for _, node := range []string{f.Node("a"), f.Node("b")} {
		f.Must(f.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			return r.WithExpiring([]cluster.Expiring{{Kind: "certificate", Name: "consul.ca_file", Until: end}}), nil
		}))
	}
	f.Must(f.ReportWriter(f.Node("c")).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.WithExpiring([]cluster.Expiring{{Kind: "token", Name: "vault.token", Until: end.Add(-2 * time.Hour)}, {Kind: "certificate", Name: "vault.ca_file"}}), nil
	}))
	ends := map[string]string{
		"certificate consul.ca_file ends soon": ui.Warning, f.Node("c") + ": token vault.token has ended": ui.Critical,
		f.Node("c") + ": certificate vault.ca_file cannot be read": ui.Critical,
	}
	s = f.eventually("what ends is shown once, with its hosts", fleet, func(s *ui.Snapshot) string {
		seen := map[string]string{}
		for _, p := range s.Attention().Problems {
			if p.Kind == "expiry" {
				seen[p.Title] = p.Severity
				if soon := strings.HasSuffix(p.Title, "soon"); soon && (p.Count != 2 || !strings.Contains(p.Cause, end.Format(time.RFC3339))) {
					return fmt.Sprintf("%+v", p)
				}
			}
		}
		if !maps.Equal(seen, ends) {
			return fmt.Sprint(seen)
		}
		return ""
	})
	if h, err := s.Host(f.Node("c")); err != nil || len(h.Expiring) != 2 || h.Expiring[0].Name != "vault.ca_file" {
		t.Errorf("the host: %+v, %v", h.Expiring, err)
	}
	f.Must(f.Pause(t.Context(), cluster.Hold{Reason: "<script>alert(1)</script>", By: "ann"}))
	f.Must(f.Hold(t.Context(), cluster.Scope{Node: f.Node("b")}, cluster.Hold{Reason: "disks"}))
	f.Must(f.Store().Txn().Set(cluster.ReportKey(f.Node("c")), []byte("no JSON")).Commit(t.Context()))
	s = f.eventually("pause, hold and damage are shown", fleet, missing("paused", "held", "damaged"))
	a := s.Attention()
	if i := slices.IndexFunc(a.Problems, func(p ui.Problem) bool { return p.Kind == "damaged" }); a.Problems[i].Command != "jorc --cluster="+f.name+" status repair" {
		t.Errorf("damaged: %+v", a.Problems[i])
	}
}

func TestRollout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fleet := f.fleet(false)
	if r := f.eventually("a snapshot", fleet, func(*ui.Snapshot) string { return "" }).Rollout(); r.Exists || !strings.Contains(r.Why, "jorc update trigger") {
		t.Errorf("without a rollout: %+v", r)
	}
	f.Orchestrate("a")
	f.Trigger("v2")
	s := f.eventually("the canary is admitted", fleet, func(s *ui.Snapshot) string {
		if r := s.Rollout(); r.Status == nil || r.Status.Now.Working != 1 || !s.Orchestrated || len(s.Journal) == 0 {
			return encoded(t, r)
		}
		return ""
	})
	r := s.Rollout()
	hosts := func(state string) ui.Change {
		c, err := fleet.Change(t.Context(), "version.v2", ui.ChangeQuery{State: state})
		f.Must(nil, err)
		return c
	}
	if all := hosts(""); len(all.Hosts) != 3 || all.Counts.Members != 3 || all.Next != 0 || !r.Orchestrated || r.Status.Version != "v2" || r.PolicyText == "" || len(r.Steps) == 0 {
		t.Errorf("rollout: %+v, %+v", r, all)
	}
	working := hosts("working")
	if working.Matched != 1 || working.Total != 3 || working.Hosts[0].Granted.IsZero() || working.Hosts[0].Out != "grant" {
		t.Errorf("working: %+v", working.Hosts)
	}
	why := hosts("waiting").Hosts
	if len(why) == 0 || why[0].Detail == "" {
		t.Errorf("pending: %+v", why)
	}
	h, err := fleet.Host(t.Context(), working.Hosts[0].Node)
	if err != nil || len(h.Changes) != 1 || h.Changes[0].Change != "version.v2" || h.Changes[0].State != pace.Working || !h.Why.Pending || len(h.Why.Reasons) == 0 {
		t.Errorf("host: %+v, %v", h, err)
	}
	events := s.Events(ui.EventQuery{Limit: 1})
	if len(events.Events) != 1 || events.Older != events.Events[0].Seq || events.Last != s.LastSeq {
		t.Errorf("events: %+v", events)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fleet := f.fleet(false)
	s := f.eventually("the hosts are shown", fleet, func(s *ui.Snapshot) string {
		if h, err := s.Hosts(ui.HostQuery{Filter: `Health == "critical"`}); err != nil || h.Matched != 1 {
			return "no critical host"
		}
		return ""
	})
	names := func(q ui.HostQuery) string {
		h, err := s.Hosts(q)
		if err != nil {
			t.Fatalf("Hosts(%+v) = %v", q, err)
		}
		var all []string
		for _, row := range h.Hosts {
			all = append(all, strings.TrimPrefix(row.Node, f.name+"-"))
		}
		return strings.Join(all, " ")
	}
	for want, q := range map[string]ui.HostQuery{
		"a b c": {},
		"c b a": {Sort: "-Zone"},
		"a b":   {Filter: `Version == "v1"`, Role: "app"},
		"b":     {Sort: "Node", Page: ui.Page{Offset: 1, Limit: 1}},
		"c":     {Filter: `Services contains "web-` + f.name + `" and Health != passing`},
		"":      {Role: "nothing"},
	} {
		if got := names(q); got != want {
			t.Errorf("Hosts(%+v) = %q; want %q", q, got, want)
		}
	}
	page, err := s.Hosts(ui.HostQuery{Columns: []string{"Params.db_password", "Params", "NodeMeta"}, Page: ui.Page{Limit: 2}})
	if err != nil || page.Next != 2 || page.Total != 3 {
		t.Errorf("page: %+v, %v", page.Paged, err)
	}
	if text := encoded(t, page); strings.Contains(text, uitest.Secret) {
		t.Errorf("a secret param is shown: %s", text)
	}
	want := "jorc --cluster=" + f.name + " cluster members '--filter=Zone == \"it'\\''s\"' --sort=-Node"
	if h, err := s.Hosts(ui.HostQuery{Filter: `Zone == "it's"`, Sort: "-Node"}); err != nil || h.Command != want {
		t.Errorf("command %q, %v; want %q", h.Command, err, want)
	}
	for _, q := range []ui.HostQuery{{Filter: "Zone ="}, {Sort: "nothing"}, {Columns: []string{"nothing"}}} {
		if _, err := s.Hosts(q); !errors.Is(err, ui.ErrQuery) {
			t.Errorf("Hosts(%+v) = %v; want ErrQuery", q, err)
		}
	}
	if _, err := fleet.Host(t.Context(), "nothing"); !errors.Is(err, cluster.ErrNoHost) {
		t.Errorf("Host(nothing) = %v", err)
	}
}

// A viewer that may not see params can neither see nor ask about any.
func TestSealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ready := func(s *ui.Snapshot) string {
		if len(s.State.Hosts) < 3 {
			return "no hosts"
		}
		return ""
	}
	s := f.eventually("a snapshot", f.fleet(true), ready)
	for _, filter := range []string{`Params.db_password == "` + uitest.Secret + `"`, `Params.db_password matches "^s3"`, `"db_password" in Params`} {
		if h, err := s.Hosts(ui.HostQuery{Filter: filter, Columns: []string{"Params"}}); err == nil && h.Matched != 0 {
			t.Errorf("filter %q matches %d hosts", filter, h.Matched)
		}
	}
	if p := s.Profile(true); p.Shown || p.Available || len(p.Params) > 0 {
		t.Errorf("profile: %+v", p)
	}
	open := f.eventually("a snapshot", f.fleet(false), ready)
	if h, err := open.Hosts(ui.HostQuery{Filter: `Params.db_password == "` + uitest.Secret + `"`}); err != nil || h.Matched != 3 {
		t.Errorf("filter of a viewer that may: %d, %v", h.Matched, err)
	}
	hidden, shown := open.Profile(false), open.Profile(true)
	for _, p := range append(hidden.Params, shown.Params...) {
		if p.Key == "db_password" && (!p.Secret || p.Value != nil) {
			t.Errorf("param: %+v", p)
		}
	}
	if text := encoded(t, hidden); strings.Contains(text, "welcome") || strings.Contains(text, uitest.Secret) {
		t.Errorf("values that were not asked for: %s", text)
	}
	if text := encoded(t, shown); !strings.Contains(text, "welcome") || strings.Contains(text, uitest.Secret) {
		t.Errorf("values that were asked for: %s", text)
	}
	f.Param("motd", "closed", "")
	for _, test := range []struct {
		sealed, values, changes, shown bool
	}{{true, true, false, false}, {false, false, true, false}, {false, true, true, true}} {
		h := f.profileHistory(test.sealed, test.values, func(h ui.ProfileHistory) bool {
			return !test.changes || len(h.Changes) > 0 && h.Changes[0].Items[0].Key == "motd" && h.Changes[0].Items[0].Change == "changed"
		})
		text := encoded(t, h)
		if (len(h.Changes) > 0) != test.changes || h.Shown != test.shown || h.Unrecorded || strings.Contains(text, "closed") != test.shown || strings.Contains(text, uitest.Secret) {
			t.Errorf("%+v: history: %s", test, text)
		}
		for _, c := range h.Changes {
			for _, i := range c.Items {
				if i.Key == "db_password" && i.In == "params" && (!i.Secret || i.Old != nil || i.New != nil) || (i.New != nil && !test.shown) {
					t.Errorf("%+v: item %+v", test, i)
				}
			}
		}
	}
}

// profileHistory is the history of the profile, once it is as ok wants it.
func (f *fixture) profileHistory(sealed, values bool, ok func(ui.ProfileHistory) bool) (h ui.ProfileHistory) {
	f.t.Helper()
	consultest.Eventually(f.t, "the history is shown", func(ctx context.Context) (err error) {
		if h, err = f.fleet(sealed).ProfileHistory(ctx, values, ui.Page{}); err == nil && !ok(h) {
			err = fmt.Errorf("it is %s", encoded(f.t, h))
		}
		return err
	})
	return h
}

func TestServices(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Must(f.Join(t.Context(), f.Node("d"), func(r cluster.Record) (cluster.Record, error) {
		r.Requires = []cluster.Requirement{{Target: "web-" + f.name, Count: 2}}
		return r, nil
	}))
	name := "web-" + f.name
	s := f.eventually("the service is shown", f.fleet(false), func(s *ui.Snapshot) string {
		if d, err := s.Service(name); err != nil || d.RequiredCount != 1 || d.Total() != 3 {
			return encoded(t, d)
		}
		return ""
	})
	d, _ := s.Service(name)
	if d.Critical != 1 || d.Functional != 2 || len(d.ProvidedBy) != 3 || len(d.Instances) != 3 || d.RequiredBy[0] != f.Node("d") {
		t.Errorf("service: %s", encoded(t, d))
	}
	svg, err := s.DependenciesSVG(func(kind, name string) string { return "/" + kind + "/" + name })
	if err != nil || !strings.Contains(svg, `<a href="/host/`+f.Node("a")+`">`) {
		t.Errorf("drawing: %s, %v", svg, err)
	}
	if g := s.Dependencies(); len(g.Requires) != 1 || len(g.Cycles) != 0 {
		t.Errorf("dependencies: %+v", g)
	}
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPartOnly: with a token that may read the state, but not runs and slots, the rest is
// shown and each answer names what is missing.
func TestPartOnly(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := newFixtureOn(t, s, s.Client(), "prod")
	conf := s.Config()
	conf.Token = config.Secret(s.NewToken(`
key_prefix "jorc/prod/" { policy = "read" }
key_prefix "jorc/prod/runs/" { policy = "deny" }
key_prefix "jorc/prod/slots/" { policy = "deny" }
key_prefix "jorc/prod/stages/" { policy = "deny" }
key_prefix "jorc/prod/audit/" { policy = "deny" }
node_prefix "" { policy = "read" }
service_prefix "" { policy = "read" }
`))
	client, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f.Stage("a", "pool", "param workers")
	part := &fixture{Cluster: uitest.Of(t, s, client, "prod"), t: t, name: "prod"}
	part.Run(ui.FleetOptions{Client: client, Prefix: "jorc", Default: "prod"})
	now := part.eventually("the missing parts are named", part.fleet(false), func(s *ui.Snapshot) string {
		text := strings.Join(s.Partial, "\n")
		for _, prefix := range []string{"runs", "slots", "stages", "audit"} {
			if !strings.Contains(text, "jorc/prod/"+prefix) {
				return "it names " + text
			}
		}
		return ""
	})
	h, err := now.Hosts(ui.HostQuery{})
	if err != nil || h.Matched != 3 || len(h.Partial) == 0 {
		t.Errorf("hosts: %s, %v", encoded(t, h), err)
	}
	v, err := now.Changes(ui.ChangesQuery{Kind: cluster.KindFiles})
	if err != nil || len(v.Changes) != 1 || v.Changes[0].State != "" || v.Changes[0].Waits == "" || len(v.Partial) == 0 {
		t.Errorf("stages: %s, %v", encoded(t, v), err)
	}
	if a, err := part.fleet(false).Audit(t.Context(), ui.Page{}); err != nil || len(a.Changes) > 0 || !strings.Contains(strings.Join(a.Partial, "\n"), "jorc/prod/audit") {
		t.Errorf("audit: %s, %v", encoded(t, a), err)
	}
	if h, err := part.fleet(false).ProfileHistory(t.Context(), true, ui.Page{}); err != nil || len(h.Changes) > 0 || !strings.Contains(strings.Join(h.Partial, "\n"), "jorc/prod/audit") {
		t.Errorf("history of the profile: %s, %v", encoded(t, h), err)
	}
	if !slices.Contains(problems(now), "partial") {
		t.Errorf("problems: %v", problems(now))
	}
	f.Must(f.Pause(t.Context(), cluster.Hold{Reason: "disks"}))
	part.eventually("a change", part.fleet(false), missing("paused"))
}
