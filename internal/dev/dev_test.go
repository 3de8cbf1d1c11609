package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
)

// running is a Run under way.
type running struct {
	Places
	log  *buffer
	stop context.CancelFunc
	done chan error
}

// start runs what o says and returns when it has been announced.
func start(t *testing.T, o Options) *running {
	t.Helper()
	r := &running{log: &buffer{}, done: make(chan error, 1)}
	announced := make(chan Places, 1)
	o.Consul = consultest.Binary(t)
	o.Announce = func(p Places) error { announced <- p; return nil }
	o.Logger = func(string, bool) hclog.Logger {
		return hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Info})
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.done <- Run(ctx, o) }()
	t.Cleanup(func() { _ = r.end() })
	select {
	case r.Places = <-announced:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("Run: %v\n%s", err, r.log)
	case <-time.After(time.Minute):
		t.Fatalf("not announced within a minute\n%s", r.log)
	}
	return r
}

// end ends it and returns what Run has returned.
func (r *running) end() error {
	r.stop()
	err := <-r.done
	r.done <- err
	return err
}

func (r *running) client(t *testing.T) *consul.Client {
	t.Helper()
	c, err := consul.New(config.Consul{Address: r.HTTPAddr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wantFile waits until the file named so holds what is wanted.
func (r *running) wantFile(t *testing.T, name string, holds func(text string) bool) {
	t.Helper()
	consultest.Eventually(t, name+" to follow", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(r.Dir, "files", name))
		if err == nil && !holds(string(data)) {
			err = errors.New(string(data))
		}
		return err
	})
}

// buffer may be written and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func post(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
}

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
			t.Errorf("somebody still listens on %s", addr)
			_ = c.Close()
		}
	}
}

// TestKeep: what is kept goes on where it was, with what the user has changed,
// even when its ports have been taken.
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

// TestOwnConfig: a configuration that was given is used as it is but for where
// Consul is; what is not ready is told.
func TestOwnConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "jorc.hcl")
	text := `
consul {
  address    = "127.0.0.1:1"
  token_file = "/nonexistent"
}
http { addr = "127.0.0.1:1" }
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
