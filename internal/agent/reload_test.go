package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

const before = `
service "web" { port = 80 }
service "old" { port = 81 }
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
template "old" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/old"
}
`

const after = `
log_level = "warn"
service "web" { port = 90 }
service "new" { port = 82 }
template "t" {
  contents    = "now {{ key \"k\" }}"
  destination = "DIR/t"
}
template "new" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/new"
}
`

// TestReload: a good configuration takes the place of the old one: services and
// templates come, change and go.
func TestReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), before)
	h.put("k", "1")
	h.start()
	h.wantServices("jorc", "web", "old")
	h.wantFile("t", "1")
	h.wantFile("old", "1")

	h.configure(after)
	if got := h.reload(); !got.OK || got.Error != "" || got.At.IsZero() {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(h.notified.String(), "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("the service manager was told %q", h.notified)
	}
	h.wantServices("jorc", "web", "new")
	h.wantFile("t", "now 1")
	h.wantFile("new", "1")
	h.put("k", "2")
	h.wantFile("t", "now 2")
	h.wantFile("new", "2")
	h.wantFile("old", "1") // no longer rendered
	services, err := h.client.AgentServices(t.Context(), "")
	if err != nil || services["web"].Port != 90 {
		t.Errorf("got %+v, %v", services["web"], err)
	}
	if s := h.agent.Status(); len(s.Templates) != 2 || s.Templates[1].Name != "new" {
		t.Errorf("got %+v", s.Templates)
	}
	h.configure(before)
	h.reload()
	h.wantServices("jorc", "web", "old")
	h.wantFile("t", "2")
	h.wantFile("old", "2")
}

// TestBadReload: an invalid configuration is reported, and the agent keeps the
// current one.
func TestBadReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), before)
	h.put("k", "1")
	h.start()
	h.wantFile("t", "1")
	restart := "which takes a restart: systemctl restart jorc"
	for name, test := range map[string]struct{ conf, want string }{
		"syntax":         {"service {", "jorc.hcl:1,"},
		"unknown key":    {after + "servcie \"x\" {}\n", "jorc.hcl:13,"},
		"template":       {after + "template \"bad\" {\n  contents = \"{{ if }}\"\n  destination = \"DIR/bad\"\n}\n", `jorc.hcl:13: template "bad": parse: `},
		"source":         {after + "template \"bad\" {\n  source = \"DIR/none\"\n  destination = \"DIR/bad\"\n}\n", `jorc.hcl:13: template "bad": read the source`},
		"requires":       {after + "requires \"a..b\" {}\n", "jorc.hcl:13: requires: "},
		"check":          {after + "template \"bad\" {\n  contents = \"\"\n  destination = \"DIR/bad\"\n  check = [\"{{.X}}\"]\n}\n", `template "bad": check: `},
		"cluster":        {after + "cluster = \"other\"\n", "cluster has changed, " + restart},
		"prefix":         {after + "prefix = \"other\"\n", "prefix has changed, " + restart},
		"node":           {after + "node = \"other\"\n", "node has changed, " + restart},
		"status address": {after + "http { address = \"127.0.0.1:1\" }\n", "http has changed, " + restart},
		"connections":    {after + "consul { max_connections = 10 }\n", "consul has changed, " + restart},
	} {
		h.configure(test.conf)
		got := h.reload()
		if got.OK || !strings.Contains(got.Error, test.want) {
			t.Errorf("%s: got %+v, want %s", name, got, test.want)
		}
	}
	if err := os.Remove(h.path("jorc.hcl")); err != nil {
		t.Fatal(err)
	}
	if got := h.reload(); got.OK || !strings.Contains(got.Error, "jorc.hcl") {
		t.Errorf("no file: got %+v", got)
	}
	h.wantServices("jorc", "web", "old")
	h.put("k", "2")
	h.wantFile("t", "2")
	h.wantFile("old", "2")
	for _, name := range []string{"new", "bad"} {
		if _, err := os.Stat(h.path(name)); err == nil {
			t.Errorf("%s was rendered", name)
		}
	}
	h.configure(before)
	if got := h.reload(); !got.OK || got.Error != "" {
		t.Errorf("got %+v", got)
	}
	h.wantTemplate("t", func(s web.Template) bool { return s.State == web.TemplateRendered })
}
