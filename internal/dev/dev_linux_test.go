package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
)

// TestExample: what the announcement promises happens, and nothing is left.
func TestExample(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	if len(r.NotReady) > 0 || r.Kept || len(r.Files) != 2 || len(r.Web) != 2 {
		t.Errorf("announced %+v", r.Places)
	}
	server := func(url string) string { return "server " + strings.TrimPrefix(url, "http://") + ";" }
	both := func(text string) bool {
		return strings.Contains(text, server(r.Web[0])) && strings.Contains(text, server(r.Web[1]))
	}
	r.wantFile(t, "upstreams.conf", both)
	r.wantFile(t, "overview.txt", func(text string) bool { return strings.HasPrefix(text, "Hello!") && strings.Contains(text, "worker") })
	r.wantFile(t, "reloads.log", func(text string) bool { return strings.Contains(text, "overview.txt is new") })

	post(t, r.Web[0]+"/down")
	r.wantFile(t, "upstreams.conf", func(text string) bool {
		return !strings.Contains(text, server(r.Web[0])) && strings.Contains(text, server(r.Web[1]))
	})
	post(t, r.Web[0]+"/up")
	r.wantFile(t, "upstreams.conf", both)

	if err := os.WriteFile(filepath.Join(r.Dir, "worker.down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, "overview.txt", func(text string) bool {
		_, worker, _ := strings.Cut(text, "\nworker ")
		return strings.Contains(worker, "critical")
	})
	if err := r.client(t).KVPut(t.Context(), &consul.KVPair{Key: "greeting", Value: []byte("Moin")}); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, "overview.txt", func(text string) bool { return strings.HasPrefix(text, "Moin!") })

	if err := r.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it to be gone", r.Dir, err)
	}
	for _, addr := range append([]string{r.HTTPAddr, r.DNSAddr}, strings.TrimPrefix(r.Web[0], "http://")) {
		if c, err := net.Dial("tcp", addr); err == nil {
			t.Errorf("%s still accepts connections", addr)
			_ = c.Close()
		}
	}
}

// TestKeep: a session in a kept directory continues with the user's changes, even
// if its ports are no longer free.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a 'b' ${c}")
	first := start(t, Options{Keep: dir})
	if !first.Kept || first.Dir != dir {
		t.Errorf("announced %+v", first.Places)
	}
	if err := Run(t.Context(), Options{Keep: dir}); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("a second one: got %v, want that the directory is locked", err)
	}
	if err := first.client(t).KVPut(t.Context(), &consul.KVPair{Key: "greeting", Value: []byte("Servus")}); err != nil {
		t.Fatal(err)
	}
	first.wantFile(t, "overview.txt", func(text string) bool { return strings.HasPrefix(text, "Servus!") })
	if err := first.end(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	template := filepath.Join(dir, "templates", "overview.ctmpl")
	if err := os.WriteFile(template, []byte(`mine: {{ key "greeting" }}`), 0o600); err != nil {
		t.Fatal(err)
	}

	second := start(t, Options{Keep: dir})
	if second.HTTPAddr != first.HTTPAddr || second.Web[0] != first.Web[0] {
		t.Logf("a port was taken by others: %s, %s", second.HTTPAddr, second.Web[0])
	}
	second.wantFile(t, "overview.txt", func(text string) bool { return text == "mine: Servus" })
	if err := second.end(); err != nil {
		t.Fatalf("Run: %v", err)
	}

	var taken ports
	if err := taken.load(filepath.Join(dir, "ports.json")); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{taken.Server, taken.HTTP} {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue // by others: as good
		}
		defer l.Close()
	}
	third := start(t, Options{Keep: dir})
	if third.HTTPAddr == address(taken.HTTP) {
		t.Errorf("Consul is at %s, which is taken", third.HTTPAddr)
	}
	pair, _, err := third.client(t).KVGet(t.Context(), "greeting", consul.Query{})
	if err != nil || pair == nil || string(pair.Value) != "Servus" {
		t.Errorf("greeting: got %v, %v", pair, err)
	}
}

// TestConsulDies: jorc dev says so and ends.
func TestConsulDies(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	pid := consulOf(t, r.Dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-r.done
	r.done <- err
	if want := fmt.Sprintf("Consul (pid %d) has ended: signal: killed", pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it to be gone", r.Dir, err)
	}
}

// consulOf finds the process whose configuration is in dir.
func consulOf(t *testing.T, dir string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, []byte("-config-file="+dir+"/")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no Consul runs in %s", dir)
	return 0
}

// TestOwnConfig: a given configuration is used unchanged except for Consul's
// address; the announcement lists what is not ready.
func TestOwnConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "jorc.hcl")
	text := `
consul {
  address    = "127.0.0.1:1"
  token_file = "/nonexistent"
}
http { address = "127.0.0.1:1" }
state_dir = "/nonexistent"
service "mine" { port = 1 }
template "t" {
  contents    = "{{ range service \"mine\" }}{{ .Port }}{{ end }}"
  destination = "` + dir + `/t"
}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Config: []string{file}})
	if len(r.NotReady) > 0 || len(r.Web) > 0 || len(r.Config) != 1 || len(r.Files) != 1 || !strings.Contains(r.Text("jorc"), dir+"/t") {
		t.Errorf("announced %+v", r.Places)
	}
	consultest.Eventually(t, "the file", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(dir, "t"))
		if err == nil && string(data) != "1" {
			err = fmt.Errorf("holds %q", data)
		}
		return err
	})
	if err := r.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
