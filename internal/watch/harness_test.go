package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// host is one engine's surroundings: a Consul, a directory for its files and
// its state.
type host struct {
	t      testing.TB
	server *consultest.Server
	client *consul.Client
	dir    string
	state  string
	prefix string               // of the test's keys; templates name keys without it
	edit   func(*watch.Options) // changes the engine's options; may be nil
}

func newHost(t testing.TB, s *consultest.Server) *host {
	t.Helper()
	return &host{t: t, server: s, client: s.Client(), dir: t.TempDir(), state: t.TempDir()}
}

// newSharedHost is newHost with the Consul that the tests of this package share, and
// keys of its own.
func newSharedHost(t testing.TB) *host {
	t.Helper()
	s, name := consultest.Shared(t)
	h := newHost(t, s)
	h.prefix = name + "/"
	return h
}

// tmpl is a template with contents, rendered to a file of its name.
func (h *host) tmpl(name, contents string, edit ...func(*config.Template)) config.Template {
	contents = strings.ReplaceAll(contents, `{{ key "`, `{{ key "`+h.prefix)
	c := config.Template{Name: name, Contents: contents, Destination: h.path(name)}
	for _, e := range edit {
		e(&c)
	}
	return c
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) engine(templates ...config.Template) *watch.Engine {
	h.t.Helper()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	o := watch.Options{
		Client: h.client, Consul: h.server.Config(), Templates: templates, StateDir: h.state,
		Replacer: replace.New(h.state, nil, log), Log: log,
	}
	if h.edit != nil {
		h.edit(&o)
	}
	e, err := watch.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

// run starts an engine; it is stopped by the function returned, or when the
// test ends.
func (h *host) run(templates ...config.Template) (*watch.Engine, func()) {
	h.t.Helper()
	e := h.engine(templates...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Run = %v; want nil after its context ended", err)
		}
	}
	h.t.Cleanup(stop)
	return e, stop
}

// once renders once.
func (h *host) once(templates ...config.Template) error {
	h.t.Helper()
	return h.engine(templates...).Once(h.t.Context())
}

// onceUntil renders once. With a reason, it ends that when the status has each part of it.
func (h *host) onceUntil(tmpl config.Template, reason ...string) error {
	h.t.Helper()
	e, ended := h.engine(tmpl), make(chan error, 1)
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	go func() { ended <- e.Once(ctx) }()
	if len(reason) > 0 {
		wantStatus(h.t, e, tmpl.Name, "the reason", func(s watch.Status) bool {
			text := strings.Join(append(s.Waiting, s.Error), "; ")
			return !slices.ContainsFunc(reason, func(part string) bool { return !strings.Contains(text, part) })
		})
		cancel()
	}
	return <-ended
}

// want waits until a file holds content.
func (h *host) want(name, content string) {
	h.t.Helper()
	consultest.Eventually(h.t, fmt.Sprintf("%s to hold %q", name, content), func(context.Context) error {
		got, err := os.ReadFile(h.path(name))
		if err == nil && string(got) != content {
			err = fmt.Errorf("it holds %q", got)
		}
		return err
	})
}

func (h *host) put(key, value string) {
	h.t.Helper()
	if err := h.client.KVPut(context.Background(), &consul.KVPair{Key: h.prefix + key, Value: []byte(value)}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) drop(key string) {
	h.t.Helper()
	if err := h.client.KVDeleteTree(context.Background(), h.prefix+key); err != nil {
		h.t.Fatal(err)
	}
}

// register puts an instance of service into the catalog, on a node of its own.
func (h *host) register(service string, n int, status string) {
	h.t.Helper()
	node := fmt.Sprintf("%s-node-%d", service, n)
	err := h.client.CatalogRegister(context.Background(), &consul.CatalogRegistration{
		Node: node, Address: fmt.Sprintf("10.0.0.%d", n),
		Service: &consul.AgentService{ID: service, Service: service, Port: 8000 + n},
		Check:   &consul.AgentCheck{Node: node, CheckID: "c-" + service, Name: "c", Status: status, ServiceID: service},
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) deregister(service string, n int) {
	h.t.Helper()
	d := &consul.CatalogDeregister{Node: fmt.Sprintf("%s-node-%d", service, n)}
	if err := h.client.CatalogDeregister(context.Background(), d); err != nil {
		h.t.Fatal(err)
	}
}

// wantStatus waits until the template's status fulfils ok.
func wantStatus(t testing.TB, e *watch.Engine, name, what string, ok func(watch.Status) bool) watch.Status {
	t.Helper()
	var found watch.Status
	consultest.Eventually(t, name+" "+what, func(context.Context) error {
		for _, s := range e.Status() {
			if s.Name == name {
				found = s
			}
		}
		if !ok(found) {
			return fmt.Errorf("its status is %+v", found)
		}
		return nil
	})
	return found
}

func inState(s watch.State) func(watch.Status) bool {
	return func(got watch.Status) bool { return got.State == s }
}

func mentions(lines []string, text string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) })
}

var errNotYet = errors.New("not yet")
