package pages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/pages"
	"github.com/jorc/jorc/internal/ui/uitest"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

// site is a cluster in a real Consul and the pages that show it.
type site struct {
	*uitest.Cluster
	t    testing.TB
	name string
	url  string
}

// newSite returns the pages of a cluster of the hosts db, web-1 and web-2. sealed: no
// params are shown.
func newSite(t testing.TB, sealed bool) *site {
	t.Helper()
	server, name := consultest.Shared(t)
	f := &site{Cluster: uitest.New(t, server, server.Client(), name), t: t, name: name}
	f.JoinHost(uitest.Host{Name: "db", Role: "db", Service: "db", Check: "passing"})
	for _, node := range []string{"web-1", "web-2"} {
		f.JoinHost(uitest.Host{Name: node, Role: "web", Service: "web", Check: "passing", Requires: "db"})
		f.Must(f.ReportVersion(t.Context(), f.Node(node), "v1"))
	}
	fleets := f.Run(ui.FleetOptions{Client: f.Client, Prefix: "jorc", Default: name})
	web := httptest.NewServer(pages.New(pages.Options{
		Fleet: func(r *http.Request, name string) (*ui.Fleet, error) {
			return fleets.Fleet(r.Context(), name, sealed)
		},
		Clusters: func(r *http.Request) (ui.Clusters, error) { return fleets.Clusters(r.Context()) },
		LogsOut:  func(*http.Request) bool { return false },
	}))
	f.url = web.URL
	t.Cleanup(web.Close)
	f.shows("/hosts", f.Node("web-2"))
	return f
}

// get returns the status and the text of a page.
func (f *site) get(path string) (int, string, http.Header) {
	f.t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Get(f.url + path)
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

// finishedID is the rollout that finish records.
const finishedID = "20260102T030405Z-v0"

// finish records a rollout that ended, with text in each field that others write.
func (f *site) finish(text string) {
	f.t.Helper()
	waiting := int64(7)
	record, err := json.Marshal(rollout.Finished{
		ID: finishedID, Version: "v0", Outcome: rollout.OutcomeAborted, Why: "by " + text, By: text, Reason: text, Started: time.Now().Add(-time.Hour), Finished: time.Now(),
		Hosts: []rollout.HostTimes{{HostProgress: pace.HostProgress{Node: f.Node("web-1"), State: pace.Failed, Detail: text}, Waiting: &waiting}}, Left: 3,
	})
	f.Must(nil, err)
	f.Must(nil, f.Client.KVPut(f.t.Context(), &consul.KVPair{Key: f.Store().Path("history/rollouts/" + finishedID), Value: record}))
	f.shows("/changes", "/change?", finishedID)
}

// paths are all pages.
func (f *site) paths() []string {
	q := url.QueryEscape
	return []string{
		"/", "/changes", "/changes?kind=run&state=ended", "/change?id=version.v2", "/change?id=version.v2&state=failed", "/hosts", "/hosts?sort=-Zone&columns=Datacenter,Params&limit=200", "/host?name=" + q(f.Node("web-1")), "/events",
		"/events?kind=node_up&host=x", "/services", "/service?name=" + q("db-"+f.name), "/dependencies", "/change?id=run.r1", "/slots",
		"/leaders", "/leaders?values=1", "/change?id=version." + finishedID, "/change?id=files.pool", "/audit", "/audit?offset=1&limit=1",
	}
}

// TestPages: each page shows its part, has a policy that runs nothing of what it
// shows, and nothing inline.
func TestPages(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	f.shows("/", "no orchestrator runs", "jorc --cluster="+f.name+" doctor")
	f.Orchestrate("db")
	f.Trigger("v2")
	_, _, err := runs.New(f.Store()).Ask(t.Context(), "r1", runs.Request{Workflow: "reindex"}, "ann")
	f.Must(nil, err)
	f.Must(f.SetState(t.Context(), f.Node("web-1"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Version: "v2", Detail: "no space left on device", LogURL: "https://logs.example/1"}))
	f.shows("/", f.Node("web-1")+": config failed", "no space left on device")
	f.shows("/change?id=version.v2", "v2", "ann", "canary", f.Node("web-2"), `<dt>During freezes</dt><dd class="bad">a hole in the fence</dd>`, `<dt>Over the budget</dt><dd class="bad">the hole is open</dd>`)
	f.Must(f.Hold(t.Context(), cluster.Scope{Node: f.Node("web-2")}, cluster.Hold{Until: time.Now().Add(time.Hour), Reason: "new disks"}))
	f.shows("/host?name="+url.QueryEscape(f.Node("web-2")), "held: new disks (", " left)")
	f.shows("/change?id=version.v2", "<h2>Missing</h2>", f.Node("web-2")+`</a>: <span class="warn">it is held: new disks`)
	f.shows("/hosts?filter="+url.QueryEscape(`Zone == "rack-web-2"`), "1 of 3 hosts", f.Node("web-2"))
	f.shows("/host?name="+url.QueryEscape(f.Node("web-1")), "no space left on device", `href="https://logs.example/1"`, "rack-web-1")
	f.Must(f.ReportWriter(f.Node("web-2")).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		return r.WithTemplates([]cluster.TemplateProblem{
			{Name: "nginx.conf", State: cluster.TemplateFailed, Detail: "its check failed"},
			{Name: "upstreams", State: cluster.TemplateWaiting, Detail: "service db"},
		}).WithExpiring([]cluster.Expiring{{Kind: "certificate", Name: "consul.client_cert"}}), nil
	}))
	f.shows("/", f.Node("web-2")+": certificate consul.client_cert cannot be read", f.Node("web-2")+": template nginx.conf failed", f.Node("web-2")+": template upstreams waits longer than usual")
	f.shows("/host?name="+url.QueryEscape(f.Node("web-2")), "<th scope=\"row\">nginx.conf</th>", "its check failed", "service db", "template &#34;upstreams&#34; waits",
		"Certificates and tokens that end", "<th scope=\"row\">consul.client_cert</th><td>certificate</td><td>cannot be read</td>")
	f.shows("/events", "member_joined")
	f.shows("/events?kind=desired_version_changed", "v2")
	f.shows("/services", "db-"+f.name, "2 passing")
	f.shows("/service?name="+url.QueryEscape("db-"+f.name), f.Node("db"), f.Node("web-1"))
	f.shows("/dependencies", "<svg", `href="/host?name=`+f.Node("web-1")+`"`)
	f.shows("/changes?kind=run", "run.r1", "workflow reindex")
	f.shows("/change?id=run.r1", "reindex", "ann")
	f.shows("/leaders", f.Node("db"), "motd", "History of the profile", "<li>motd added</li>", "profile revert ID")
	f.shows("/leaders?values=1", "<li>motd added: &#34;welcome&#34;</li>", "<li>db_password added</li>")
	f.shows("/changes?kind=files", `<td colspan="7" class="dim">none</td>`)
	f.Stage("web-2", "pool", "param workers")
	f.shows("/change?id=files.pool", "it is held: new disks")
	f.Must(f.Unhold(t.Context(), cluster.Scope{Node: f.Node("web-2")}, cluster.Hold{}))
	f.shows("/changes", "/change?id=files.pool", "changing", "version.v2")
	f.shows("/change?id=files.pool", "waiting 1", "param workers", f.Node("web-2"), "change show files.pool")
	f.FailStage("web-2", "pool", "checks of service web are critical", "param workers")
	f.shows("/", "stage pool is stopped: its change failed on "+f.Node("web-2"), "(changed: param workers)")
	f.shows("/change?id=files.pool", "What stopped it", "checks of service web are critical", "stage resume pool", "change_stopped")
	f.Must(f.Pause(fleet.WithAuthor(t.Context(), fleet.Author{
		Command: "jorc cluster pause", Reason: "disks", By: func(context.Context) (string, error) { return "ann", nil },
	}), cluster.Hold{Reason: "disks", By: "ann", Since: time.Now()}))
	f.shows("/audit", "jorc cluster pause", "ann", "disks", "current/control")
	f.Must(f.Resume(t.Context()))
	f.Rules(`[{"name": "nightly", "workflow": "vacuum", "schedule": "0 3 * * *", "zone": "Europe/Berlin"}]`)
	f.shows("/changes", "nightly", "0 3 * * *", "Europe/Berlin", "none yet")
	f.finish("disks are slow")
	f.shows("/change?id=version."+finishedID, "v0", "aborted", "by disks are slow", f.Node("web-1"), "7 s", "3 more", "change show version."+finishedID)
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

// TestMoved: addresses of before lead to where what they showed is now.
func TestMoved(t *testing.T) {
	t.Parallel()
	f := newSite(t, false)
	for path, want := range map[string]string{
		"/rollout":                   "/changes?kind=version",
		"/finished?id=20260102-v0":   "/change?id=version.20260102-v0",
		"/runs?cluster=prod&state=x": "/changes?cluster=prod&kind=run",
		"/run?id=r1&cluster=prod":    "/change?cluster=prod&id=run.r1",
		"/stages":                    "/changes?kind=files",
		"/stage?name=pool":           "/change?id=files.pool",
	} {
		if status, body, header := f.get(path); status != http.StatusMovedPermanently || header.Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q: %s", path, status, header.Get("Location"), want, body)
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
		"/change?id=run.x":         {http.StatusNotFound, "x"},
		"/change?id=files.x":       {http.StatusNotFound, "stage &#34;x&#34;"},
		"/change?id=version.x":     {http.StatusNotFound, "no such rollout"},
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
			if _, body, _ := f.get(path); strings.Contains(body, uitest.Secret) || f == sealed && strings.Contains(body, "welcome") {
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
	f.Must(f.Pause(t.Context(), cluster.Hold{Reason: markup, By: markup}))
	f.Must(f.SetState(t.Context(), f.Node("web-1"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: markup, LogURL: "javascript:alert(1)"}))
	f.Param("text", markup, "")
	f.Stage("web-1", "pool", "param "+markup)
	f.Orchestrate("db")
	f.Must(f.Resume(t.Context()))
	f.FailStage("web-1", "pool", markup, "param "+markup)
	f.Must(f.Pause(fleet.WithAuthor(t.Context(), fleet.Author{
		Command: "jorc " + markup, Reason: markup, By: func(context.Context) (string, error) { return markup, nil },
	}), cluster.Hold{Reason: markup, By: markup}))
	f.finish(markup)
	f.shows("/", "stage pool is stopped")
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
		f.Must(f.Join(t.Context(), fmt.Sprintf("%s-n%03d", f.name, i), func(r cluster.Record) (cluster.Record, error) { return r, nil }))
	}
	page := f.shows("/hosts?limit=1000&sort=Node", "233 hosts", "1–200 of 233")
	if n := strings.Count(page, `<tr id="host-`); n != 200 {
		t.Errorf("%d rows", n)
	}
	f.shows("/hosts?limit=1000&offset=200&sort=Node", "201–233 of 233", `rel="prev"`)
	if len(page) > 400<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	f.shows("/", "<b>Advice:</b> the cluster has ", "jorc cluster budget set --max-out 10%")
}

// TestDeniedPages: a team's viewer whose token may not read one prefix of a cluster gets
// pages with 403 that name it, also while another viewer sees the cluster.
func TestDeniedPages(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	f := &site{Cluster: uitest.New(t, s, s.Client(), "prod"), t: t, name: "prod"}
	f.JoinHost(uitest.Host{Name: "web-1", Role: "web", Service: "web", Check: "passing"})
	fleets := f.Run(ui.FleetOptions{Client: f.Client, Prefix: "jorc", Default: "prod"})
	viewer := func(r *http.Request) *ui.Viewer { return ui.ViewerOf(r.Context()) }
	server, err := ui.New(ui.Options{Addr: "127.0.0.1:0", Fleets: fleets, Consul: s.Config(), Log: hclog.NewNullLogger(), Pages: ui.Pages{Handler: pages.New(pages.Options{
		Fleet:    func(r *http.Request, name string) (*ui.Fleet, error) { return viewer(r).Fleet(r.Context(), name) },
		Clusters: func(r *http.Request) (ui.Clusters, error) { return viewer(r).Clusters(r.Context()) },
		LogsOut:  func(r *http.Request) bool { return viewer(r).LogsOut },
	})}})
	f.Must(nil, err)
	f.Must(nil, server.Listen(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		f.Must(nil, <-ended)
	})
	ask := func(token, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(server.URL(), "/")+path, nil)
		f.Must(nil, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		f.Must(nil, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		f.Must(nil, err)
		return answer.StatusCode, string(body)
	}
	all := `key_prefix "jorc/prod/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" } `
	paths := []string{"/", "/changes", "/hosts", "/host?name=" + f.Node("web-1"), "/events", "/services", "/dependencies", "/slots", "/audit", "/leaders"}
	sees := s.NewToken(all)
	for _, path := range paths {
		if status, body := ask(sees, path); status != http.StatusOK {
			t.Errorf("with all rights, %s: %d %s", path, status, body)
		}
	}
	for _, prefix := range []string{"current/", "host/", "nodes/", "runs/", "slots/", "view/", "stages/", "audit/", "history/", "orchestrate/"} {
		token := s.NewToken(all + `key_prefix "jorc/prod/` + prefix + `" { policy = "deny" }`)
		for _, path := range paths {
			status, body := ask(token, path)
			if status != http.StatusForbidden || strings.Contains(body, f.Node("web-1")) || !strings.Contains(body, "jorc/prod/"+strings.TrimSuffix(prefix, "/")) {
				t.Errorf("without %s, %s: %d %s; want 403 that names the prefix", prefix, path, status, body)
			}
		}
	}
}
