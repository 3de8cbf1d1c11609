//go:build system

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestLinkedDestination: a link of another user makes only its own template fail.
func TestLinkedDestination(t *testing.T) {
	for name, target := range map[string]string{
		"configuration": "jorc.hcl", "state directory": "state/node", "other destination": "other", "static path": "static", "version file": "version",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanted(t, `
http { address = "127.0.0.1:0" }
version_file = "DIR/version"
workflow "w" {
  task "one" { script = "true" }
}
static {
  workflow = "w"
  paths    = ["DIR/static"]
}
template "app" {
  contents    = "app\n"
  destination = "DIR/home/app.conf"
}
template "other" {
  contents    = "other\n"
  destination = "DIR/other"
}
`)
			before := p.read("jorc.hcl")
			link := p.link(p.path(target), "app.conf")
			if got := p.run("config", "validate", p.path("jorc.hcl")); got.code != exitOK || !strings.Contains(got.stderr, "warning: ") || !strings.Contains(got.stderr, `template "app"`) || !strings.Contains(got.stderr, link) {
				t.Errorf("config validate: %+v, want a warning about template app and %s", got, link)
			}
			got := p.run("render", "--once", "--config", p.path("jorc.hcl"))
			if got.code == exitOK || !strings.Contains(got.stderr, link) {
				t.Errorf("render: %+v, want template app to fail for %s", got, link)
			}
			p.wantFile("other", "other\n")
			if p.read("jorc.hcl") != before {
				t.Error("the configuration was written through the link")
			}
			p.ok(os.Remove(link))
			p.must("render", "--once", "--config", p.path("jorc.hcl"))
			p.wantFile("home/app.conf", "app\n")
		})
	}
}

// TestLinkedReads: what only root may read reaches no file and no variable by a link of
// another user.
func TestLinkedReads(t *testing.T) {
	p := newPlanted(t, `
http { address = "127.0.0.1:0" }
template "source" {
  source      = "DIR/home/source"
  destination = "DIR/out-source"
}
template "file" {
  contents    = "{{ file \"DIR/home/file\" }}"
  destination = "DIR/out-file"
}
template "other" {
  contents    = "other\n"
  destination = "DIR/other"
}
`)
	p.ok(os.WriteFile(p.secret, []byte("secret\n"), 0o600))
	source, file := p.link(p.secret, "source"), p.link(p.secret, "file")
	if got := p.run("config", "validate", p.path("jorc.hcl")); got.code != exitOK || !strings.Contains(got.stderr, source) {
		t.Errorf("config validate: %+v, want a warning about %s", got, source)
	}
	p.refused(source, "render", "--once", "--config", p.path("jorc.hcl"))
	p.refused(file, "render", "--once", "--config", p.path("jorc.hcl"))
	p.wantFile("other", "other\n")
	for _, out := range []string{"out-source", "out-file"} {
		if _, err := os.Stat(p.path(out)); err == nil {
			t.Errorf("%s was written: %q", out, p.read(out))
		}
	}
	version := p.link(p.secret, "version")
	p.refused(version, "update", "local", "--version-file", version)
	out := p.link(p.vault, "migrated")
	p.write("ct.hcl", "consul { address = \"127.0.0.1:8500\" }\n")
	p.refused(out, "migrate", "consul-template", "--out", out, p.path("ct.hcl"))
	p.refused(out, "migrate", "consul-template", "--out", out+"/deep", p.path("ct.hcl"))
}

// TestLinkedDestinationOfAgent: an agent starts and reloads beside a link of another user,
// also one that is made later, and beside a source that this user breaks.
func TestLinkedDestinationOfAgent(t *testing.T) {
	const conf = `
http { address = "127.0.0.1:0" }
template "app" {
  contents    = "app\n"
  destination = "DIR/home/app.conf"
}
template "theirs" {
  source      = "DIR/home/source"
  destination = "DIR/theirs"
}
template "other" {
  contents    = "CONTENT\n"
  destination = "DIR/other"
}
`
	p := newPlanted(t, strings.ReplaceAll(conf, "CONTENT", "one"))
	link := p.link(p.path("jorc.hcl"), "app.conf")
	p.link(p.secret, "source")
	d := p.agent()
	p.wantFile("other", "one\n")
	d.wantSaid(link)
	for i, source := range []string{"secret", "{{ if }}", "{{ range }}"} {
		if i > 0 {
			p.ok(os.Remove(p.path("home/source")), os.WriteFile(p.path("home/source"), []byte(source), 0o644), os.Chown(p.path("home/source"), alice, alice))
		}
		content := "again " + strings.Repeat("x", i)
		p.configure(strings.ReplaceAll(conf, "CONTENT", content))
		d.signal(syscall.SIGHUP)
		p.wantFile("other", content+"\n")
	}
	p.safe()
	p.ok(os.Remove(link))
	p.wantFile("home/app.conf", "app\n")
}
