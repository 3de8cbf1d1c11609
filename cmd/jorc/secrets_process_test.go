package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestSecrets: tokens, from a file or the environment, and what they let jorc
// read show in no log, no process list, no answer of the status API and no
// child's environment.
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	const password = "correct-horse-battery-staple"
	for _, from := range []string{"file", "environment"} {
		m := newMachine(t, s, `
log_level = "trace"
http { addr = "127.0.0.1:0" }
service "web-`+from+`" {
  port = 80
  check {
    script   = ["sh", "-c", "env >DIR/check.env"]
    interval = "1s"
  }
}
template "t" {
  contents    = "{{ key \"password\" }}"
  destination = "DIR/t"
  check       = ["sh", "-c", "env >DIR/checked.env"]
  reload      = ["sh", "-c", "env >DIR/reload.env"]
}
template "bad" {
  contents    = "{{ with key \"password\" }}{{ fail \"on purpose\" }}{{ end }}"
  destination = "DIR/bad"
}
template "env" {
  contents    = "{{ env \"CONSUL_HTTP_TOKEN\" }}{{ env \"CONSUL_HTTP_TOKEN_FILE\" }}"
  destination = "DIR/env"
}
`)
		m.put("password", password)
		if from == "file" {
			m.write("token", s.RootToken+"\n")
			m.env = append(m.env, "CONSUL_HTTP_TOKEN_FILE="+m.path("token"))
		} else {
			m.env = append(m.env, "CONSUL_HTTP_TOKEN="+s.RootToken)
		}
		d := m.agent()
		m.wantFile("t", password)
		m.eventually("the children", func() error {
			for _, name := range []string{"check.env", "checked.env", "reload.env"} {
				if err := lacks(m.read(name), "PATH="); err != nil {
					return err
				}
			}
			return lacks(d.said.String(), `template=bad`)
		})
		m.configure("nonsense")
		d.signal(syscall.SIGHUP)
		d.wantSaid("the new configuration is bad")
		seen := map[string]string{
			"log": d.said.String(), "told to systemd": d.notified.String(), "rendered from the environment": m.read("env"),
		}
		for _, path := range []string{"/v1/status", "/healthz?ready", "/metrics", "/"} {
			seen[path] = d.get(path)
		}
		for _, name := range []string{"check.env", "checked.env", "reload.env"} {
			seen[name] = m.read(name)
		}
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range lines {
			data, _ := os.ReadFile(file) // it may have ended
			seen[file] = string(bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
		}
		d.signal(syscall.SIGTERM)
		d.wantExit(0)
		for what, text := range seen {
			if strings.Contains(text, s.RootToken) {
				t.Errorf("token from %s: it is in %s:\n%s", from, what, text)
			}
			if strings.Contains(text, password) {
				t.Errorf("token from %s: what it lets read is in %s:\n%s", from, what, text)
			}
		}
	}
}
