package pages_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/pages"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

const secret = "s3cret-of-the-database"

// site is a cluster in a real Consul and the pages that show it.
type site struct {
	t      testing.TB
	name   string
	client *consul.Client
	c      *cluster.Cluster
	fleets *ui.Fleets
	url    string
}

// newSite returns the pages of a cluster of the hosts db, web-1 and web-2. sealed: no
// params are shown.
func newSite(t testing.TB, sealed bool) *site {
	t.Helper()
	server, name := consultest.Shared(t)
	f := &site{t: t, name: name, client: server.Client(), c: cluster.New(server.Client(), "jorc", name)}
	f.must(f.c.Init(t.Context(), cluster.InitOptions{Leaders: 1}))
	f.param("db_password", secret, `{"type":"string","secret":true}`)
	f.param("motd", "welcome", "")
	f.join("db", "passing", "db", cluster.Requirement{})
	for _, node := range []string{"web-1", "web-2"} {
		f.join(node, "passing", "web", cluster.Requirement{Target: "db-" + name, Count: 1})
		f.must(f.c.ReportVersion(t.Context(), f.node(node), "v1"))
	}
	f.fleets = ui.NewFleets(ui.FleetOptions{Client: f.client, Prefix: "jorc", Default: name})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.fleets.Run(ctx) }()
	web := httptest.NewServer(pages.New(pages.Options{
		Fleet: func(r *http.Request, name string) (*ui.Fleet, error) {
			return f.fleets.Fleet(r.Context(), name, sealed)
		},
		Clusters: func(r *http.Request) (ui.Clusters, error) { return f.fleets.Clusters(r.Context()) },
		LogsOut:  func(*http.Request) bool { return false },
	}))
	f.url = web.URL
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	f.shows("/hosts", f.node("web-2"))
	return f
}

func (f *site) must(_ any, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// node is the name of a host of this test: the catalog belongs to all tests.
func (f *site) node(name string) string { return f.name + "-" + name }

func (f *site) param(key, value, schema string) {
	f.t.Helper()
	_, err := f.c.ChangeProfile(f.t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		v, err := profile.Text(value)
		if err == nil {
			d, err = e.Set(d, profile.Scope{}, key, v, profile.Ref{})
		}
		if err != nil || schema == "" {
			return d, err
		}
		text, err := profile.ParseValue(schema)
		if err != nil {
			return d, err
		}
		return e.SetSchema(d, key, text)
	})
	f.must(nil, err)
}

// join registers a host with an agent and a service, and makes it a member.
func (f *site) join(name, check, service string, requires cluster.Requirement) {
	f.t.Helper()
	node, presence := f.node(name), "jorc-"+f.name
	for _, r := range []*consul.CatalogRegistration{
		{Node: node, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"}}},
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: presence, Service: "jorc"},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + presence, ServiceID: presence, ServiceName: "jorc", Status: "passing"}},
		},
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: service, Service: service + "-" + f.name, Port: 80},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + service, Name: service, ServiceID: service, ServiceName: service + "-" + f.name, Status: check}},
		},
	} {
		f.must(nil, f.client.CatalogRegister(f.t.Context(), r))
	}
	f.must(f.c.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles, r.Zone, r.Provides = []string{service}, "rack-"+name, []string{service + "-" + f.name}
		if requires.Target != "" {
			r.Requires = []cluster.Requirement{requires}
		}
		v, err := profile.Text(secret)
		if err == nil {
			r.Params, err = r.Params.Set("db_password", v, profile.Ref{})
		}
		return r, err
	}))
}

// orchestrate runs an orchestrator until the test ends.
func (f *site) orchestrate() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	o := orchestrator.New(orchestrator.Options{
		Client: f.client, Prefix: "jorc", Cluster: f.name, Node: f.node("db"), Grants: true, Interval: time.Second,
		Deciders: []orchestrator.Decider{orchestrator.ForRollout(rollout.New(f.client, "jorc", f.name))},
	})
	go func() { ended <- o.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("orchestrator: %v", err)
		}
	})
}

func (f *site) trigger(version string) {
	f.t.Helper()
	f.must(rollout.New(f.client, "jorc", f.name).Trigger(f.t.Context(), rollout.Request{
		Version: version, By: "ann", Policy: func(p *rollout.Policy) { p.Canary, p.MaxParallel = 1, rollout.Amount{N: 3} },
	}))
}

// get returns the status and the text of a page.
func (f *site) get(path string) (int, string, http.Header) {
	f.t.Helper()
	answer, err := http.Get(f.url + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer.StatusCode, string(body), answer.Header
}

// shows waits until a page has all texts.
func (f *site) shows(path string, texts ...string) string {
	f.t.Helper()
	var page string
	consultest.Eventually(f.t, path, func(context.Context) error {
		status, body, _ := f.get(path)
		for _, text := range texts {
			if status != http.StatusOK || !strings.Contains(body, text) {
				return fmt.Errorf("%s: %d without %q", path, status, text)
			}
		}
		page = body
		return nil
	})
	return page
}

// paths are all pages.
func (f *site) paths() []string {
	q := url.QueryEscape
	return []string{
		"/", "/rollout", "/rollout?state=failed", "/hosts", "/hosts?sort=-Zone&columns=Datacenter,Params&limit=200", "/host?name=" + q(f.node("web-1")), "/events",
		"/events?kind=node_up&host=x", "/services", "/service?name=" + q("db-"+f.name), "/dependencies", "/runs", "/runs?state=failed", "/run?id=r1", "/slots",
		"/leaders", "/leaders?values=1",
	}
}

// TestPages: each page shows its part, has a policy that runs nothing of what it
// shows, and nothing inline.
func TestPages(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	f.shows("/", "no orchestrator runs", "jorc --cluster="+f.name+" doctor")
	f.orchestrate()
	f.trigger("v2")
	_, _, err := runs.New(f.c.Store()).Ask(t.Context(), "r1", runs.Request{Workflow: "reindex"}, "ann")
	f.must(nil, err)
	f.must(f.c.SetState(t.Context(), f.node("web-1"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Version: "v2", Detail: "no space left on device", LogURL: "https://logs.example/1"}))
	f.shows("/", f.node("web-1")+": config failed", "no space left on device")
	f.shows("/rollout", "v2", "ann", "canary", f.node("web-2"))
	f.shows("/hosts?filter="+url.QueryEscape(`Zone == "rack-web-2"`), "1 of 3 hosts", f.node("web-2"))
	f.shows("/host?name="+url.QueryEscape(f.node("web-1")), "no space left on device", `href="https://logs.example/1"`, "rack-web-1")
	f.shows("/events", "member_joined")
	f.shows("/events?kind=desired_version_changed", "v2")
	f.shows("/services", "db-"+f.name, "2 passing")
	f.shows("/service?name="+url.QueryEscape("db-"+f.name), f.node("db"), f.node("web-1"))
	f.shows("/dependencies", "<svg", `href="/host?name=`+f.node("web-1")+`"`)
	f.shows("/runs", "r1", "reindex")
	f.shows("/run?id=r1", "reindex", "ann")
	f.shows("/leaders", f.node("db"), "motd")
	for _, path := range f.paths() {
		status, body, header := f.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d: %s", path, status, body)
		}
		for _, inline := range []string{"<style", "style=", "onclick", "onload", "javascript:", "#ZgotmplZ"} {
			if strings.Contains(body, inline) {
				t.Errorf("%s has %q", path, inline)
			}
		}
		if p := header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; ") || strings.Contains(p, "unsafe") {
			t.Errorf("%s: policy %q", path, p)
		}
		if !strings.Contains(body, `<code>jorc --cluster=`) || !strings.Contains(body, " as of <time") {
			t.Errorf("%s lacks its command line or its time", path)
		}
	}
}

// TestWrongPages: a wrong address gets a page that says what is wrong.
func TestWrongPages(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/nothing":                 {http.StatusNotFound, "/nothing does not exist"},
		"/host?name=x":             {http.StatusNotFound, "host &#34;x&#34;"},
		"/service?name=x":          {http.StatusNotFound, "service &#34;x&#34;"},
		"/run?id=x":                {http.StatusNotFound, "x"},
		"/?cluster=x" + f.name:     {http.StatusNotFound, "cluster &#34;x"},
		"/hosts?offset=x":          {http.StatusBadRequest, "offset"},
		"/hosts?filter=Zone+%3D":   {http.StatusBadRequest, `value="Zone ="`},
		"/events?before=-1":        {http.StatusBadRequest, "before"},
		"/assets/0123456/pages.js": {http.StatusNotFound, "not found"},
	} {
		if status, body, _ := f.get(path); status != want.status || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d; want %d with %q: %s", path, status, want.status, want.text, body)
		}
	}
}

// TestHiddenValues: values of params are shown only to a viewer that asks for them;
// secret ones, and any on a sealed server, never.
func TestHiddenValues(t *testing.T) {
	t.Parallel()
	open, sealed := newSite(t, false), newSite(t, true)
	if page := open.shows("/leaders", "motd"); strings.Contains(page, "welcome") {
		t.Error("a value that was not asked for is shown")
	}
	open.shows("/leaders?values=1", "welcome")
	for _, f := range []*site{open, sealed} {
		for _, path := range append(f.paths(), "/hosts?columns=Params.db_password", "/hosts?columns=Params.motd") {
			if _, body, _ := f.get(path); strings.Contains(body, secret) || f == sealed && strings.Contains(body, "welcome") {
				t.Errorf("%s shows a value", path)
			}
		}
	}
}

// TestHostileTexts: what others write stays text, and characters that steer are shown
// as others.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	const markup = `"><script>alert(1)</script><img src=x onerror=alert(1)>'` + "\x1b[2J\u202e\u2066\u0000\u0085"
	f.must(f.c.Pause(t.Context(), cluster.Hold{Reason: markup, By: markup}))
	f.must(f.c.SetState(t.Context(), f.node("web-1"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: markup, LogURL: "javascript:alert(1)"}))
	f.param("text", markup, "")
	f.shows("/", "the cluster is paused", "config failed")
	for _, path := range append(f.paths(), "/hosts?filter="+url.QueryEscape(markup), "/host?name="+url.QueryEscape(markup), "/events?host="+url.QueryEscape(markup)) {
		_, body, _ := f.get(path)
		for _, bad := range []string{"<script>", "<img", "\x1b", "\u202e", "\u2066", "\u0085", `href="javascript`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
}

// TestManyHosts: at most 200 rows are shown at a time, and links lead to the others.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	for i := range 230 {
		f.must(f.c.Join(t.Context(), fmt.Sprintf("%s-n%03d", f.name, i), func(r cluster.Record) (cluster.Record, error) { return r, nil }))
	}
	page := f.shows("/hosts?limit=1000&sort=Node", "233 hosts", "1–200 of 233")
	if n := strings.Count(page, `<tr id="host-`); n != 200 {
		t.Errorf("%d rows", n)
	}
	f.shows("/hosts?limit=1000&offset=200&sort=Node", "201–233 of 233", `rel="prev"`)
	if len(page) > 400<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
}
