package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/web"
)

// template is one template of the agent's status.
func (m *machine) template(d *process, name string) (web.Template, error) {
	m.t.Helper()
	var s web.Status
	if err := json.Unmarshal([]byte(d.get("/v1/status")), &s); err != nil {
		return web.Template{}, err
	}
	for _, t := range s.Templates {
		if t.Name == name {
			return t, nil
		}
	}
	return web.Template{}, fmt.Errorf("no template %q in %+v", name, s)
}

// wantTemplate waits until a template has a state, and says of its data what part names.
func (m *machine) wantTemplate(d *process, name, state, part string) web.Template {
	m.t.Helper()
	var got web.Template
	m.eventually("template "+name+" to be "+state, func() (err error) {
		if got, err = m.template(d, name); err == nil && (got.State != state || !strings.Contains(strings.Join(got.Stale, "\n"), part)) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	return got
}

// TestStaleAfterRights: a template whose data the token may no longer read is stale, with
// age and cause, wherever states of templates are shown; its file stays. Doctor also
// names a reload that fails.
func TestStaleAfterRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, s, `
consul { token_file = "DIR/token" }
http { address = "`+l.Addr().String()+`" }
member {}
template "users" {
  contents    = "{{ key \"app/users\" }}"
  destination = "DIR/users"
}
template "reloads" {
  contents    = "{{ key \"app/reloads\" }}"
  destination = "DIR/reloads"
  reload      = ["test", "!", "-e", "DIR/broken"]
}
template "own" {
  contents    = "own"
  destination = "DIR/own"
}
`)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cl, rules := fleet.New(s.Client(), "jorc", "default"), ""
	if _, err := cl.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range cl.Policies(s.Node) {
		if strings.Contains(p.Description, "jorc: the agent on") {
			rules = p.Rules
		}
	}
	reads := s.NewToken(rules + "\nkey_prefix \"app/\" { policy = \"read\" }")
	m.write("token", reads)
	m.put("app/users", "one")
	m.put("app/reloads", "one")
	d := m.agent()
	m.env = append(m.env, "CONSUL_HTTP_TOKEN="+s.RootToken) // of the commands
	m.wantFile("users", "one")
	m.wantTemplate(d, "reloads", web.TemplateRendered, "")
	doctor := func() string { return m.run("doctor", "--config", m.path("jorc.hcl")).stdout }
	m.eventually("doctor to say that all is well", func() error { return lacks(doctor(), "and is well") })

	m.write("broken", "")
	m.put("app/reloads", "two")
	m.wantTemplate(d, "reloads", web.TemplateFailed, "")
	wantShown := func(code int, name, state, detail string) {
		t.Helper()
		got := m.run("status", "--config", m.path("jorc.hcl"), "-o", "plain")
		if got.code != code || !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "template\t"+name+"\t"+state+"\t") && strings.Contains(line, detail)
		}) {
			t.Errorf("jorc status does not show %s as %s, %q: %+v", name, state, detail, got)
		}
	}
	wantShown(exitFailed, "reloads", web.TemplateFailed, "reload")
	wantShown(exitFailed, "users", web.TemplateRendered, "")
	if got := doctor(); !strings.Contains(got, `template "reloads" failed`) {
		t.Errorf("doctor with a reload that fails: %s", got)
	}
	if err := os.Remove(m.path("broken")); err != nil {
		t.Fatal(err)
	}
	m.put("app/reloads", "three")
	m.wantFile("reloads", "three")
	m.wantTemplate(d, "reloads", web.TemplateRendered, "")
	wantShown(exitOK, "reloads", web.TemplateRendered, "")

	before := time.Now()
	m.write("token", s.NewToken(rules))
	n := 0
	m.eventually("the right to be missed", func() error { // each change ends the query that blocks
		n++
		m.put("app/users", fmt.Sprint("change ", n))
		got, err := m.template(d, "users")
		return cmp.Or(err, lacks(got.State, web.TemplateStale))
	})
	stale := m.wantTemplate(d, "users", web.TemplateStale, `app/users`)
	m.wantTemplate(d, "reloads", web.TemplateStale, `app/reloads`)
	if stale.Since.Before(before.Add(-time.Second)) || stale.Error != "" {
		t.Errorf("got %+v", stale)
	}
	m.wantTemplate(d, "own", web.TemplateRendered, "")
	wantShown(exitFailed, "users", web.TemplateStale, "app/users since ")
	var shown web.Status
	if got := m.run("status", "--config", m.path("jorc.hcl"), "-o", "json"); json.Unmarshal([]byte(got.stdout), &shown) != nil || len(shown.Templates) != 3 || got.code != exitFailed {
		t.Errorf("jorc status -o json: %+v", got)
	}
	file := m.read("users")
	m.put("app/users", "three")
	if got := doctor(); !strings.Contains(got, " is stale since ") || !strings.Contains(got, "app/") || !strings.Contains(got, "other templates that failed or are stale: 1") {
		t.Errorf("doctor with stale templates: %s", got)
	}
	for path, want := range map[string]string{"/metrics": `jorc_templates{state="stale"} 2`, "/": "stale for"} {
		if got := d.get(path); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %s", path, want, got)
		}
	}
	for args, want := range map[string]string{"cluster attention": "template_stale", "update why " + s.Node: `template "users" is stale since`} {
		m.eventually(args, func() error {
			got := m.run(strings.Fields(args)...).stdout
			return cmp.Or(lacks(got, want), lacks(got, "app/"))
		})
	}
	if got := m.read("users"); got != file || got == "" {
		t.Errorf("the file was %q and is %q", file, got)
	}

	m.write("token", reads)
	m.wantFile("users", "three")
	m.wantTemplate(d, "users", web.TemplateRendered, "")
	if got := d.get("/metrics"); !strings.Contains(got, `jorc_templates{state="rendered"} `) || strings.Contains(got, `template="users"`) {
		t.Errorf("after it: %s", got)
	}
}

// TestStaleAfterAnOutage: while Consul is away a template becomes stale after stale_after,
// and is rendered again once Consul is back.
func TestStaleAfterAnOutage(t *testing.T) {
	t.Parallel()
	const conf = `
http { address = "127.0.0.1:0" }
template_options { stale_after = "1%s" }
template "users" {
  contents    = "{{ key \"app/users\" }}"
  destination = "DIR/users"
}
`
	s := consultest.Start(t, consultest.Persistent())
	soon, late := newMachine(t, s, fmt.Sprintf(conf, "s")), newMachine(t, s, fmt.Sprintf(conf, "h"))
	soon.put("app/users", "one")
	d, other := soon.agent(), late.agent()
	for _, m := range []*machine{soon, late} {
		m.wantFile("users", "one")
	}
	s.Stop()
	stale := soon.wantTemplate(d, "users", web.TemplateStale, "app/users")
	late.wantTemplate(other, "users", web.TemplateRendered, "app/users")
	if stale.Since.IsZero() || soon.read("users") != "one" {
		t.Errorf("got %+v and %q", stale, soon.read("users"))
	}
	if got := d.get("/healthz?ready"); strings.Contains(got, "users") {
		t.Errorf("a stale file makes the host not ready: %s", got)
	}
	s.Restart()
	soon.put("app/users", "two")
	soon.wantFile("users", "two")
	soon.wantTemplate(d, "users", web.TemplateRendered, "")
}

// TestStaleAfterRefusal: a template whose key Consul refuses is stale, with age and cause, if its
// file was rendered before, also by an agent before; one that was never rendered has failed.
func TestStaleAfterRefusal(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	const conf = `
http { address = "127.0.0.1:0" }
template "users" {
  contents    = "{{ key \"app/v1-b\" }} {{ key \"app/other\" }}"
  destination = "DIR/users"
}
`
	m, never := newMachine(t, s, conf), newMachine(t, s, conf)
	p := s.Proxy()
	m.env = append(m.env, "CONSUL_HTTP_ADDR="+p.Addr)
	refuses := s.Proxy()
	refuses.Do(consultest.RefuseName("app/v1-b"))
	never.env = append(never.env, "CONSUL_HTTP_ADDR="+refuses.Addr)
	m.put("app/v1-b", "one")
	m.put("app/other", "a")
	d := m.agent()
	m.wantFile("users", "one a")
	p.WaitBlocking("/v1/kv/app/v1-b")
	p.Do(consultest.RefuseName("app/v1-b"))
	m.put("app/v1-b", "two") // the answer to the query that blocks; the next one is refused
	wantStale := func() {
		t.Helper()
		got := m.wantTemplate(d, "users", web.TemplateStale, "app/v1-b")
		if got.Since.IsZero() || got.Error != "" || !strings.Contains(got.Stale[0], "refused by Consul") || !strings.Contains(got.Stale[0], " since ") {
			t.Errorf("got %+v", got)
		}
	}
	wantStale()
	m.wantFile("users", "two a")
	d.signal(syscall.SIGTERM)
	d.wantExit(exitOK)
	d = m.agent()
	wantStale()
	m.put("app/other", "b")
	never.wantTemplate(never.agent(), "users", web.TemplateFailed, "")
	if got := m.read("users"); got != "two a" {
		t.Errorf("the file is %q", got)
	}
	p.Do(nil)
	m.wantFile("users", "two b")
	m.wantTemplate(d, "users", web.TemplateRendered, "")
}
