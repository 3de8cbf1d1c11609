package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestUI: 'jorc ui' shows the caller's cluster to the browser that brings the key, keeps
// the token and the key to itself, and ends on Ctrl-C.
func TestUI(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	m := newMachine(t, s, "")
	m.env = append(m.env, "CONSUL_HTTP_TOKEN="+s.RootToken)
	if got := m.run("cluster", "init", "default"); got.code != 0 {
		t.Fatalf("init: %+v", got)
	}
	if got := m.run("cluster", "join", "--node", "a", "--role", "db"); got.code != 0 {
		t.Fatalf("join: %+v", got)
	}
	if got := m.run("cluster", "attention", "-o", "json"); got.code != exitFailed || !strings.Contains(got.stdout, "no_orchestrator") {
		t.Errorf("attention: %+v", got)
	}
	if got := m.run("ui", "--addr", "0.0.0.0:0"); got.code != exitUsage || !strings.Contains(got.stderr, "loopback") {
		t.Errorf("on all addresses: %+v", got)
	}

	m.write("xdg-open", "#!/bin/sh\necho \"$@\" > args\ncat \"$1\" > opened.part && mv opened.part opened\n")
	if err := os.Chmod(m.path("xdg-open"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.env = append(m.env, "PATH="+m.dir+":"+os.Getenv("PATH"))
	d := m.start("ui", "--open")
	d.wantSaid("Ctrl-C")
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?key=\w+`).FindString(d.said.String())
	m.eventually("a browser to be opened", func() error { return lacks(m.contents("opened"), address) })
	if args := m.contents("args"); strings.Contains(args, "key") || strings.Contains(args, address[strings.Index(address, "=")+1:]) {
		t.Errorf("the key is among the browser's arguments: %s", args)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(h *http.Client, address string) (int, string) {
		answer, err := h.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), s.RootToken) {
			t.Errorf("%s shows the token", address)
		}
		return answer.StatusCode, string(body)
	}
	base, _, _ := strings.Cut(address, "?")
	if status, _ := get(browser, base); status != http.StatusUnauthorized {
		t.Errorf("without the key: %d", status)
	}
	if status, _ := get(browser, address); status != http.StatusOK {
		t.Errorf("with the key: %d", status)
	}
	if status, body := get(browser, base+"v1/fleet/clusters/default/hosts"); status != http.StatusOK || !strings.Contains(body, `"node":"a"`) {
		t.Errorf("hosts: %d %s", status, body)
	}
	if status, body := get(browser, base); status != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("page: %d %s", status, body)
	}
	d.signal(syscall.SIGINT)
	d.wantExit(0)
	if left, _ := filepath.Glob(m.path("jorc-ui-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// contents is what a file holds; empty: it does not exist.
func (m *machine) contents(name string) string {
	data, err := os.ReadFile(m.path(name))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return string(data)
}
