package browser_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestDashboard follows a fleet of three hosts: nothing to do, a rollout, a host that
// fails, and what helps. The pages follow by themselves; none is loaded again.
func TestDashboard(t *testing.T) {
	hosts := newFleet(t, stagedPool)
	db, web, other := hosts[0], hosts[1], hosts[2]
	db.jorc("cluster", "profile", "set", "motd", "welcome")
	db.jorc("update", "trigger", "v1")
	db.jorc("update", "wait", "--timeout", "1m")
	w := newTab(t, newBrowser(t))
	base := w.enter(db.ui())
	w.shows("nothing", "Desired version", "v1", "3 passing")
	w.live()
	w.picture("nothing")
	w.accessible("nothing")

	// The rollout waits on a host until the test lets it continue.
	for _, h := range hosts {
		h.create("wait")
	}
	w.open(base + "/changes")
	w.live()
	db.jorc("update", "trigger", "v2", "--batches", "1,100%", "--max-parallel", "2", "--gate", "smoke", "--approve-each")
	w.shows("version.v2", "version v2", "at work")
	w.open(base + "/change?id=version.v2")
	w.live()
	eval[chromedp.Void](w, `window.loaded = "once"`)
	w.shows("v2", "working 1", "waiting 2", "What comes next")
	w.picture("rollout")
	w.accessible("rollout")
	for _, h := range hosts {
		h.remove("wait")
	}
	w.shows("done 1", "Gate\nasks smoke", "run gate-v2-", "3 of 1240 documents are missing")
	w.picture("gate")
	w.accessible("gate")
	for _, h := range hosts {
		h.create("pass")
	}
	w.shows("jorc --cluster=prod update promote", "Gate\npassed", "all documents are there")
	db.jorc("update", "promote")
	w.shows("done 3", "Passed gate")
	if eval[string](w, `window.loaded || ""`) != "once" {
		t.Error("the page was loaded again")
	}

	// A change of a stage fails on its first host; another value passes.
	w.open(base + "/changes")
	w.live()
	w.shows("files.pool", "done")
	w.accessible("changes")
	w.copies()
	w.open(base + "/change?id=files.pool")
	w.live()
	db.jorc("cluster", "profile", "set", "workers", "0", "--reason", "the new scheduler needs none")
	w.shows("stopped", "What stopped it", "workers", "jorc --cluster=prod stage resume pool", "change_stopped", "restored")
	w.picture("stage")
	w.accessible("stage")
	w.copies()
	w.open(base + "/")
	w.live()
	w.shows("stage pool is stopped", "jorc --cluster=prod stage show pool")
	db.jorc("cluster", "profile", "set", "workers", "8")
	w.shows("nothing")
	for _, h := range hosts { // one that is out of service from here on would keep the others waiting, and its reload heals it
		eventually(t, "another value on "+h.server.Node, func() error {
			data, err := os.ReadFile(h.path("pool.conf"))
			if err == nil && !strings.Contains(string(data), "workers 8") {
				err = fmt.Errorf("got %q", data)
			}
			return err
		})
	}
	db.jorc("change", "wait", "files.pool", "--timeout", "1m")
	w.open(base + "/change?id=files.pool")
	w.shows("done")

	// A host fails: the start page of another tab shows it, with what helps.
	other.create("fail")
	w.open(base + "/")
	w.live()
	db.jorc("update", "trigger", "v3", "--max-parallel", "3")
	w.shows("the rollout of v3 is paused", other.server.Node, "no space left on device", "jorc --cluster=prod update resume")
	web.create("broken")
	w.shows(web.server.Node + ": checks are critical")
	w.picture("attention")
	w.scheme("dark")
	w.picture("attention-dark")
	w.accessible("attention")
	w.window(390, 800)
	w.picture("attention-small")
	if eval[bool](w, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("a small screen has to be scrolled sideways")
	}
	w.window(1280, 900)
	w.open(base + "/change?id=version.v3&state=failed")
	w.shows(other.server.Node, "no space left on device", "paused")
	w.picture("rollout-paused")

	// Every page, with what the fleet has for it.
	db.jorc("cluster", "run", "reindex", "--id", "reindex-1", "--wait", "--timeout", "0")
	db.jorc("cluster", "profile", "set", "cluster/rules", `[{"name": "nightly", "workflow": "reindex", "schedule": "0 3 * * *", "zone": "Europe/Berlin"}]`)
	held := db.path("held")
	db.start("cluster", "lock", "edge-reload", "--", "sh", "-c", "touch "+held+"; sleep 1000")
	name := url.QueryEscape(other.server.Node)
	for _, p := range []struct {
		name, path string
		texts      []string
	}{
		{"hosts", "/hosts", []string{"3 hosts", "v3", "critical", "rack-"}},
		{"host", "/host?name=" + name, []string{"no space left on device", "Why it does not run v3", "reindex", "1240 documents"}},
		{"events", "/events", []string{"version_changed", "health_changed", "state_changed"}},
		{"services", "/services", []string{"web", "1 passing", "1 critical", other.server.Node}},
		{"service", "/service?name=db", []string{"1 passing", db.server.Node, web.server.Node}},
		{"dependencies", "/dependencies", []string{"db", web.server.Node}},
		{"changes", "/changes", []string{"version.v3", "files.pool", "run.reindex-1", "3 of 3 done", "nightly", "Europe/Berlin", "none yet"}},
		{"run", "/change?id=run.reindex-1", []string{"1240 documents", "done", web.server.Node}},
		{"slots", "/slots", []string{"edge-reload", "holds"}},
		{"audit", "/audit", []string{"jorc cluster profile set workers", "the new scheduler needs none", "profile"}},
		{"finished", "/change?id=version.v2", []string{"v2", "done", db.server.Node}},
		{"leaders", "/leaders", []string{"motd", "hidden", "Show values"}},
		{"values", "/leaders?values=1", []string{"welcome", "Hide values"}},
	} {
		w.open(base + p.path)
		w.shows(append(p.texts, "The same answer in a terminal:", "jorc --cluster=prod", "as of")...)
		w.picture(p.name)
		w.accessible(p.name)
		w.copies()
	}
	w.clean()

	// Filters of the page of hosts stand in its address.
	w.open(base + "/hosts")
	w.run(chromedp.SendKeys(chromedp.CSS("#filter"), `Health == "critical"`+kb.Enter))
	w.shows("1 of 3 hosts")
	if address := eval[string](w, `location.search`); !strings.Contains(address, "filter=Health") {
		t.Errorf("the address is %q", address)
	}
	w.run(chromedp.Click("//th/a[text()='Zone']"))
	w.run(chromedp.WaitVisible(chromedp.CSS(`th[aria-sort="ascending"]`)))
	w.shows("1 of 3 hosts")

	// What is typed, and where, stays when the page changes.
	w.live()
	eval[chromedp.Void](w, `document.getElementById("filter").value = ""`)
	w.run(chromedp.SendKeys(chromedp.CSS("#filter"), "Zone == "))
	web.remove("broken")
	w.shows("0 of 3 hosts")
	w.run(chromedp.SendKeys(chromedp.CSS("#filter"), "x"))
	if typed := eval[string](w, `document.activeElement.id + "|" + document.activeElement.value`); typed != "filter|Zone == x" {
		t.Errorf("after a change the focus and its text are %q", typed)
	}

	// The keyboard reaches the content; a command can be copied.
	w.open(base + "/")
	w.live()
	w.run(chromedp.KeyEvent(kb.Tab))
	if focus := eval[string](w, `document.activeElement.textContent`); focus != "Skip to content" {
		t.Errorf("the first stop of the keyboard is %q", focus)
	}
	eval[chromedp.Void](w, `window.labels = ""; new MutationObserver(all => { for (const m of all) window.labels += m.target.nodeValue; })
		.observe(document.body, {characterData: true, subtree: true})`)
	w.run(chromedp.KeyEvent(kb.Enter), chromedp.Click(chromedp.CSS("button.copy")))
	eventually(t, "the command is copied", func() error {
		if labels := eval[string](w, `window.labels`); !strings.Contains(labels, "Copied") {
			return fmt.Errorf("labels: %q", labels)
		}
		return nil
	})
	other.remove("fail")
	db.jorc("update", "resume")
	other.jorc("update", "retry")
	w.shows("config is suspect", "passed after a failed attempt")
	w.lacks("the rollout of v3 is paused")
	db.jorc("update", "trigger", "v4")
	w.shows("nothing")
	w.clean()
}

// TestWithoutJavaScript: every page can be read, and links and forms work.
func TestWithoutJavaScript(t *testing.T) {
	hosts := newFleet(t, func(*host) string { return "" })
	w := newTab(t, newBrowser(t))
	call(w, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	address := hosts[0].ui()
	w.open(address)
	read := func(texts ...string) {
		t.Helper()
		eventually(t, strings.Join(texts, ", "), func() error {
			html, err := chromedp.Run(w.ctx, chromedp.OuterHTML(chromedp.CSS("html")))
			if err != nil {
				return err
			}
			for _, text := range texts {
				if !strings.Contains(html, text) {
					return fmt.Errorf("%q is not in %s", text, html)
				}
			}
			return nil
		})
	}
	read("Needs attention", "This page updates by itself only with JavaScript")
	for menu, text := range map[string]string{
		"Changes": "no rollout under way", "Hosts": hosts[1].server.Node, "Events": "member_joined", "Services": "web", "Dependencies": "<svg", "Audit": "jorc cluster init",
		"Slots": "no groups of slots", "Leaders and profile": "Orchestrator",
	} {
		w.run(chromedp.Click(fmt.Sprintf("//nav[@id='menu']//a[normalize-space(text())='%s']", menu)))
		read("<h1>"+menu+"</h1>", text)
	}
	w.run(chromedp.Click("//nav[@id='menu']//a[normalize-space(text())='Hosts']"))
	read("3 hosts")
	w.run(chromedp.SendKeys(chromedp.CSS("#filter"), `Roles contains "db"`), chromedp.Click("//form[@action='/hosts']//button"))
	read("1 of 3 hosts", hosts[0].server.Node)
	w.clean()
}

// TestLostConnection: a page says that its connection is lost, and continues by itself;
// one whose server no longer reaches Consul says so.
func TestLostConnection(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "join", "--node", "n1")
	proxy, address := newProxy(t, h.ui())
	w := newTab(t, newBrowser(t))
	base := w.enter(address)
	w.open(base + "/hosts")
	w.shows("n1")
	w.live()
	proxy.setCut(true)
	w.shows("The connection to jorc is lost")
	w.picture("lost")
	h.jorc("cluster", "join", "--node", "n2")
	proxy.setCut(false)
	w.shows("n2")
	w.lacks("The connection to jorc is lost")
	w.live()
	s.Freeze()
	w.shows("This page shows the past")
	s.Thaw()
	w.lacks("This page shows the past")
	h.jorc("cluster", "join", "--node", "n3")
	w.shows("n3")
}

// TestKey: the key of the printed address lets in one browser, once; without it there
// is nothing to see, and the token never reaches the browser.
func TestKey(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	address := h.ui()
	first, second := newTab(t, newBrowser(t)), newTab(t, newBrowser(t))
	base := first.enter(address)
	for _, path := range []string{address, base + "/", base + "/hosts", base + "/v1/fleet/clusters"} {
		second.open(path)
		if text := second.text(); strings.Contains(text, "Desired version") || strings.Contains(text, clusterName) {
			t.Errorf("%s shows without a key: %s", path, text)
		}
	}
	second.open(base + "/")
	second.accessible("refused")
	first.live()
	if cookies := eval[string](first, `document.cookie`); cookies != "" {
		t.Errorf("scripts can read the cookie %q", cookies)
	}
	first.open(base + "/leaders")
	first.shows("Leaders and profile")
	first.clean()

	// A server that started again does not know the cookie: the page says so.
	proxy, address := newProxy(t, h.ui())
	third := newTab(t, newBrowser(t))
	third.enter(address)
	third.live()
	proxy.lead(h.ui())
	third.shows("You are no longer logged in")
}

// TestLittleToken: a token that may read little gets a page that says so.
func TestLittleToken(t *testing.T) {
	s := consultest.Start(t, consultest.WithACL())
	all := newHost(t, s, s.RootToken)
	all.jorc("cluster", "init", clusterName)
	h := newHost(t, s, s.NewToken(`key_prefix "jorc/other/" { policy = "read" }`))
	w := newTab(t, newBrowser(t))
	w.open(h.ui())
	eventually(t, "the page says what is missing", func() error {
		text := w.text()
		if !strings.Contains(text, "denied") && !strings.Contains(text, "may not") {
			return fmt.Errorf("the page shows %q", text)
		}
		return nil
	})
	if text := w.text(); strings.Contains(text, "\nnothing\n") {
		t.Errorf("what may not be read counts as nothing: %s", text)
	}
	w.accessible("denied")
}

// TestHostileCatalog: names, tags, outputs and reasons with markup, scripts and control
// characters stay text: no script runs, and the policy has nothing to stop.
func TestHostileCatalog(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	const markup = `"'><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>{{7*7}}</style></title></textarea>`
	hostile := markup + "\x1b[2J\u202e\u2066\r\b\u009b"
	client := s.Client()
	for _, node := range []string{"n1", "evil" + markup} {
		s.Bystanders(node)
		err := client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", NodeMeta: map[string]string{"k": hostile},
			Service: &consul.AgentService{ID: "web" + hostile, Service: "web" + hostile, Port: 80, Tags: []string{hostile}, Meta: map[string]string{"k": hostile}},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "c" + hostile, Name: hostile, Status: "critical", Output: hostile, ServiceID: "web" + hostile},
				{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"},
			},
		})
		t.Logf("node %q: %v", node, err)
	}
	h.jorc("cluster", "init", clusterName)
	h.jorc("cluster", "join", "--node", "n1", "--role", "web")
	h.jorc("cluster", "profile", "set", "plain", hostile)
	h.jorc("cluster", "profile", "set", "cluster/rules", `[{"name": `+quoted(markup)+`, "workflow": "w", "schedule": "@daily"}]`)
	h.jorc("cluster", "hold", "--reason", "because "+hostile)
	h.jorc("cluster", "pause", "--reason", "because "+hostile)
	h.jorc("status", "set", "config", "failed", "--host", "n1", "--detail", hostile)
	for key, value := range map[string]string{
		"nodes/evil" + markup:              `{"format":1,"version":"` + strings.ReplaceAll(markup, `"`, `\"`) + `"}`,
		"host/evil" + markup + "/member":   `{"format":1,"roles":["` + strings.ReplaceAll(markup, `"`, `\"`) + `"],"zone":"<b>z"}`,
		"nodes/n2":                         hostile,
		"slots/group/edge" + markup:        hostile,
		"runs/evil" + markup + "/spec":     hostile,
		"view/events/00000000000000000001": hostile,
		"stages/pool/stops":                `{"format":1,"stops":[{"node":` + quoted(hostile) + `,"reason":` + quoted(hostile) + `,"inputs":{"list":[{"name":` + quoted(hostile) + `}]}}]}`,
		"audit/changes":                    `{"format":1,"id":"x","changes":[{"number":1,"command":` + quoted(hostile) + `,"by":` + quoted(hostile) + `,"reason":` + quoted(hostile) + `,"keys":[` + quoted(hostile) + `]}]}`,
		"nodes/n1":                         `{"format":1,"version":` + quoted(hostile) + `,"stages":{"pool":{"wants":"x","changed":{"list":[{"name":` + quoted(hostile) + `}]}},` + quoted("evil"+hostile) + `:{"wants":"x"}}}`,
	} {
		if err := client.KVPut(t.Context(), &consul.KVPair{Key: "jorc/" + clusterName + "/" + key, Value: []byte(value)}); err != nil {
			t.Logf("key %q: %v", key, err)
		}
	}
	w := newTab(t, newBrowser(t))
	base := w.enter(h.ui())
	q := url.QueryEscape(hostile)
	for _, path := range []string{
		"/", "/changes", "/change?id=version.v2", "/hosts?columns=NodeMeta,Services", "/host?name=n1", "/host?name=" + url.QueryEscape("evil"+markup), "/events", "/services", "/service?name=" + url.QueryEscape("web"+hostile),
		"/dependencies", "/slots", "/change?id=files.pool", "/change?id=files." + url.QueryEscape("evil"+hostile), "/change?id=" + q, "/audit", "/leaders?values=1", "/hosts?filter=" + q + "&role=" + q, "/events?host=" + q, "/host?name=" + q, "/change?id=run." + q, "/nothing" + url.PathEscape(markup),
	} {
		w.open(base + path)
		w.shows("jorc")
		scripts := eval[int](w, `document.querySelectorAll("script:not([src^='/assets/'])").length`)
		pictures := eval[int](w, `document.images.length`)
		if scripts > 0 || pictures > 0 {
			t.Errorf("%s: %d scripts and %d pictures became part of the page", path, scripts, pictures)
		}
	}
	w.open(base + "/")
	w.shows("<script>alert(1)</script>")
	w.clean("status of 404", "status of 400")
}

// quoted is a text as JSON has it.
func quoted(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(data)
}

// TestManyTabs: ten tabs of one browser stay live although a browser opens six
// connections per host.
func TestManyTabs(t *testing.T) {
	s := consultest.Start(t)
	h := newHost(t, s, "")
	h.jorc("cluster", "init", clusterName)
	address := h.ui()
	in := newBrowser(t)
	var tabs []*tab
	base := ""
	for range 10 {
		w := newTab(t, in)
		if base == "" {
			base = w.enter(address)
		}
		w.open(base + "/hosts")
		w.live()
		tabs = append(tabs, w)
	}
	h.jorc("cluster", "join", "--node", "late")
	for _, w := range tabs {
		w.shows("late")
		w.clean()
	}
}
