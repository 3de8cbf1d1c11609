package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// host is where agents of one configuration run, one after the other.
type host struct {
	t      *testing.T
	server *consultest.Server
	client *consul.Client
	dir    string
	log    *buffer

	address string // of Consul, when it is not the server's own

	watchdog, stopWithin time.Duration
	templateReports      agent.TemplateReports

	hangup   concurrency.Signal
	notified *buffer // a line for each
	agent    *agent.Agent
	cancel   context.CancelFunc
	done     chan error // nil: none runs
}

func newHost(t *testing.T, s *consultest.Server, conf string) *host {
	t.Helper()
	h := &host{t: t, server: s, client: s.Client(), dir: t.TempDir(), log: &buffer{}, notified: &buffer{}, hangup: concurrency.NewSignal()}
	h.configure(conf)
	t.Cleanup(func() {
		if h.done != nil {
			if err := h.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", h.log)
		}
	})
	return h
}

// configure writes the configuration; DIR in it is the host's directory.
func (h *host) configure(conf string) {
	h.t.Helper()
	h.write("jorc.hcl", strings.ReplaceAll(conf, "DIR", h.dir))
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) load() (*config.Config, error) {
	state, address := h.path("state"), cmp.Or(h.address, h.server.HTTPAddr)
	c, err := config.Load([]string{h.path("jorc.hcl")}, config.Options{Overrides: config.Overrides{
		HTTPAddr: &address, DNSAddr: &h.server.DNSAddr, StateDir: &state,
	}})
	if err == nil && c.HTTP.Addr == "127.0.0.1:8520" {
		c.HTTP.Addr = "127.0.0.1:0"
	}
	return c, err
}

// make makes an agent of the present configuration.
func (h *host) make() *agent.Agent {
	h.t.Helper()
	c, err := h.load()
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := agent.New(agent.Options{
		Config: c, Load: h.load, Hangup: h.hangup.C(), Watchdog: h.watchdog, StopWithin: h.stopWithin, TemplateReports: h.templateReports,
		Notify:  func(state string) { fmt.Fprintln(h.notified, state) },
		Version: "v1", Log: hclog.New(&hclog.LoggerOptions{Output: h.log, Level: hclog.Debug}),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

// start runs an agent.
func (h *host) start() {
	h.t.Helper()
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	h.agent, h.done = h.make(), make(chan error, 1)
	go func(a *agent.Agent, done chan error) { done <- a.Run(ctx) }(h.agent, h.done)
}

// stop ends the agent and returns what Run has returned.
func (h *host) stop() error {
	h.t.Helper()
	h.cancel()
	defer func() { h.done = nil }()
	select {
	case err := <-h.done:
		return err
	case <-time.After(time.Minute):
		h.t.Fatal("the agent does not end")
		return nil
	}
}

// reload asks for a reload and returns when it has been tried.
func (h *host) reload() web.Reload {
	h.t.Helper()
	before := h.agent.Status().Reload
	count := strings.Count(h.notified.String(), "READY=1")
	h.hangup.Notify()
	h.eventually("a reload", func() error {
		if strings.Count(h.notified.String(), "READY=1") == count || h.agent.Status().Reload.At.Equal(before.At) {
			return errors.New("not yet")
		}
		return nil
	})
	return h.agent.Status().Reload
}

func (h *host) eventually(what string, check func() error) {
	h.t.Helper()
	consultest.Eventually(h.t, what, func(context.Context) error { return check() })
}

// wantFile waits until the file of a name holds text.
func (h *host) wantFile(name, text string) {
	h.t.Helper()
	h.eventually(name, func() error {
		data, err := os.ReadFile(h.path(name))
		if err == nil && string(data) != text {
			err = fmt.Errorf("got %q, want %q", data, text)
		}
		return err
	})
}

// wantTemplate waits until the named template's status is as wanted.
func (h *host) wantTemplate(name string, wanted func(web.Template) bool) {
	h.t.Helper()
	h.eventually("template "+name, func() error {
		for _, s := range h.agent.Status().Templates {
			if s.Name == name && wanted(s) {
				return nil
			}
		}
		return fmt.Errorf("got %+v", h.agent.Status().Templates)
	})
}

// wantServices waits until exactly these are registered.
func (h *host) wantServices(ids ...string) {
	h.t.Helper()
	h.eventually("services "+strings.Join(ids, ", "), func() error {
		have, err := h.client.AgentServices(h.t.Context(), "")
		if err != nil {
			return err
		}
		for _, id := range ids {
			if have[id] == nil {
				return fmt.Errorf("%s is not there", id)
			}
		}
		if len(have) != len(ids) {
			return fmt.Errorf("got %v", have)
		}
		return nil
	})
}

func (h *host) put(key, value string) {
	h.t.Helper()
	if err := h.client.KVPut(h.t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		h.t.Fatal(err)
	}
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
