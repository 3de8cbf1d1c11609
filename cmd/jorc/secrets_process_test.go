package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
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
http { address = "127.0.0.1:0" }
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
		d.wantSaid("the new configuration is invalid")
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

// TestValuesStaySecret: values of keys and params, Vault's, files that only root may read,
// and addresses of webhooks show in no log, no answer of the status API and
// nothing that jorc writes to KV or prints when it crashes, whatever fails on them.
func TestValuesStaySecret(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	const secret = "Sesame"
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as Vault's key-value store answers
		if r.Header.Get("X-Vault-Token") != secret+"VaultToken" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, `{"lease_duration":3600,"data":{"pw":"`+secret+`Vault"}}`)
	}))
	t.Cleanup(vault.Close)
	m := newMachine(t, s, `
log_level = "trace"
cluster   = "default"
vault {
  address    = "`+vault.URL+`"
  token_file = "DIR/vault-token"
}
template "vault" {
  contents    = "{{ with secret \"secret/app\" }}{{ .Data.pw | parseInt }}{{ end }}"
  destination = "DIR/vault"
}
http { address = "127.0.0.1:0" }
orchestrator {
  enabled  = true
  interval = "1s"
  sink "webhook" {
    url = "http://joe:SesameUser@127.0.0.1:1/hooks/SesamePath?token=SesameQuery"
  }
}
member {}
template "key" {
  contents    = "{{ key \"pw\" | parseInt }}"
  destination = "DIR/key"
}
template "param" {
  contents    = "{{ param \"pw\" | parseBool }}"
  destination = "DIR/param"
}
template "file" {
  contents    = "{{ file \"DIR/pw\" | sprig_mustToDate \"2006-01-02\" }}"
  destination = "DIR/file"
}
template "stdout" {
  contents    = "{{ key \"pw\" | spew_dump }}"
  destination = "DIR/stdout"
}
template "name" {
  contents    = "{{ key (key \"pw\") }}"
  destination = "DIR/name"
}
template "check" {
  contents    = "{{ key \"pw\" }}"
  destination = "DIR/check"
  perms       = "0600"
  check       = ["sh", "-c", "cat $0; cat $0 >&2; exit 1", "{{.Staged}}"]
}
workflow "prints" {
  allow_params = ["pw"]
  task "succeeds" {
    script = "echo it is {{.Param \"pw\"}}"
  }
  task "fails" {
    env    = { PW = "SesameEnv-{{.Param \"pw\"}}", LONG = "{{.Param \"long\"}}" }
    script = "echo {{.Param \"pw\"}}; echo \"$PW\"; cat \"$JORC_PARAMS\"; echo \"$LONG\"; exit 3"
  }
}
workflow "works" {
  task "succeeds" {
    script = "echo it is {{.Param \"pw\"}}; cat \"$JORC_PARAMS\""
  }
}
workflow "changed" {
  task "fails" {
    script = "cat \"$JORC_CHANGE\"; grep -o 'Sesame[A-Za-z]*' \"$JORC_CHANGE\"; exit 3"
  }
}
trigger "pw" {
  key      = "pw2"
  workflow = "changed"
}
template "reload" {
  contents    = "{{ key \"pw\" }}"
  destination = "DIR/reload"
  perms       = "0640"
  reload      = ["sh", "-c", "cat DIR/reload; exit 1"]
}
`)
	m.write("vault-token", secret+"VaultToken")
	m.put("pw", secret+"Key")
	m.put("pw2", "nothing yet")
	m.write("pw", secret+"File")
	for _, args := range [][]string{{"cluster", "init", "default"}, {"cluster", "profile", "set", "pw", secret + "Param"}, {"cluster", "profile", "set", "long", strings.Repeat("x", 150) + secret + "Long"}} {
		if got := m.run(args...); got.code != exitOK {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	d := m.agent()
	m.eventually("all to have failed", func() error {
		for _, what := range []string{"parseInt: failed", "parseBool: failed", "line 1, column 45: parseInt: failed", "sprig_mustToDate: failed", "spew_dump is switched off", "(a computed name) does not exist", "check.check.log", "reload.reload.log"} {
			if err := lacks(d.get("/v1/status"), what); err != nil {
				return err
			}
		}
		return lacks(d.said.String(), "127.0.0.1:1#")
	})
	for id, workflow := range map[string]string{"r1": "prints", "r2": "works", "r3": "prints"} {
		args := []string{"cluster", "run", workflow, "--id", id, "--wait"}
		if id == "r3" {
			args = append(args, "--param", "pw="+secret+"Given", "--on-manager")
		}
		if got, want := m.run(args...).code, map[string]int{"prints": exitFailed, "works": exitOK}[workflow]; got != want {
			t.Errorf("%q: exit %d, want %d", args, got, want)
		}
	}
	m.eventually("the trigger", func() error {
		_, err := os.Stat(m.path("state/triggers/pw.json"))
		return err
	})
	m.put("pw2", secret+"Changed")
	m.eventually("the trigger's job", func() error {
		return lacks(m.run("workflow", "jobs", "-o", "plain", "--config", m.path("jorc.hcl")).stdout, "changed\t\tfailed\t")
	})
	seen := map[string]string{"told to systemd": d.notified.String()}
	for _, path := range []string{"/v1/status", "/healthz?ready", "/metrics", "/"} {
		seen[path] = d.get(path)
	}
	d.signal(syscall.SIGTERM)
	d.wantExit(0)
	seen["log"] = d.said.String()
	crashed := m.agent()
	m.eventually("templates to fail again", func() error { return lacks(crashed.get("/v1/status"), "parseBool: failed") })
	crashed.signal(syscall.SIGQUIT)
	crashed.wantExit(2)
	if seen["crash"] = crashed.said.String(); !strings.Contains(seen["crash"], "\ngoroutine 1 ") {
		t.Error("the crash prints no stacks")
	}
	pairs, _, err := m.client.KVList(t.Context(), "", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for _, pattern := range []string{"state/jobs/*/job.json", "state/manager/jobs/*/job.json"} {
		files, err := filepath.Glob(m.path(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			seen[file] = string(data)
			records++
		}
	}
	if records != 4 {
		t.Errorf("%d job records, want 4", records)
	}
	sinks := false
	for _, p := range pairs {
		value := string(p.Value)
		if strings.HasSuffix(p.Key, "/r3/spec") {
			value = strings.Replace(value, `"params":{"pw":"`+secret+`Given"}`, "", 1) // what was asked for
		}
		if p.Key != "pw" && p.Key != "pw2" && p.Key != "jorc/default/profile" {
			seen["key "+p.Key] = value
		}
		sinks = sinks || p.Key == "jorc/default/events/sinks"
	}
	if !sinks {
		t.Error("no key says how far the sinks are")
	}
	for _, args := range [][]string{{"cluster", "events"}, {"cluster", "logs", "r1"}, {"cluster", "logs", "r2"}, {"cluster", "runs"}, {"cluster", "runs", "r1", "-o", "json"}, {"workflow", "jobs", "-o", "json", "--config", m.path("jorc.hcl")}, {"cluster", "view"}, {"cluster", "report"}, {"doctor"}, {"render", "--config", m.path("jorc.hcl"), "--timeout", "5s"}} {
		got := m.run(args...)
		seen[strings.Join(args, " ")] = got.stdout + got.stderr
	}
	if got := m.run("workflow", "logs", "run-r1", "--config", m.path("jorc.hcl")).stdout; !strings.Contains(got, secret+"Param") {
		t.Errorf("the log on the host is %q: want it whole", got)
	}
	if got := seen["cluster logs r2"]; !strings.Contains(got, "it is [redacted]") {
		t.Errorf("cluster logs r2: %q", got)
	}
	for what, text := range seen {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("a secret is in %s: …%s", what, text[max(at-200, 0):min(at+100, len(text))])
		}
	}
}
