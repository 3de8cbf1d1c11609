// Package dev is jorc to try out: a throw-away Consul and an agent in this
// process, on free ports of this machine, with a small example that visibly
// works. It leaves nothing behind.
package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// announceWithin is how long the announcement waits for all to be registered
// and rendered; what is missing then is part of it.
const announceWithin = 10 * time.Second

// Options are what Run needs.
type Options struct {
	Consul string   // path of the consul program; see FindConsul
	Keep   string   // directory for the data; empty: one of its own, removed in the end
	Config []string // a configuration to use instead of the example's
	// Announce is called once, when all is up. Its error ends Run.
	Announce  func(Places) error
	Overrides config.Overrides // of the log
	Logger    func(level string, json bool) hclog.Logger
	Hangup    <-chan struct{} // requests to read the configuration again; optional
	LookupEnv func(string) (string, bool)
	Version   string
	Commit    string
}

// Places is where everything is.
type Places struct {
	Dir      string   `json:"dir"`
	Kept     bool     `json:"kept"` // the directory stays
	PID      int      `json:"pid"`
	HTTPAddr string   `json:"http_addr"` // of Consul's API and UI
	DNSAddr  string   `json:"dns_addr"`
	Status   string   `json:"status"` // URL of the agent's page
	StateDir string   `json:"state_dir"`
	Config   []string `json:"config"`
	Files    []string `json:"files"` // rendered
	Web      []string `json:"web"`   // URLs of the example's HTTP services
	NotReady []string `json:"not_ready"`
}

// UI is the URL of Consul's page.
func (p Places) UI() string { return "http://" + p.HTTPAddr + "/ui" }

// Run runs Consul, the agent and the example until ctx ends; then it ends and
// removes them and returns nil. Errors: what cannot be started, and a Consul
// that ended by itself.
func Run(ctx context.Context, o Options) (err error) {
	dir, remove, err := directory(o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	lock, err := durable.TryLock(filepath.Join(dir, "dev.lock"))
	if err != nil {
		return fmt.Errorf("another jorc dev uses %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	server, err := startConsul(ctx, o.Consul, dir, o.Keep != "")
	if err != nil {
		return err
	}
	defer server.end()
	s := &session{o: o, server: server, places: Places{
		Dir: dir, Kept: o.Keep != "", PID: os.Getpid(), HTTPAddr: server.ports.httpAddr(), DNSAddr: server.ports.dnsAddr(),
		StateDir: filepath.Join(dir, "state"), Config: o.Config, Web: []string{}, NotReady: []string{},
	}}
	return s.run(ctx)
}

// session is what runs beside the Consul server.
type session struct {
	o      Options
	server *server
	places Places
}

func (s *session) run(ctx context.Context) error {
	var web []*instance
	if len(s.o.Config) == 0 {
		var err error
		if web, err = s.example(ctx); err != nil {
			return err
		}
	}
	started := make(chan struct{})
	begun := sync.OnceFunc(func() { close(started) })
	a, err := s.agent(func(state string) {
		if state == "READY=1" { // after a reload, too
			begun()
		}
	})
	if err != nil {
		return errors.Join(err, closeAll(web))
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, i := range web {
		g.Go(func() error { return i.run(ctx) })
	}
	g.Go(func() error { return s.server.watch(ctx) })
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error {
		select {
		case <-started:
			return s.announce(ctx, a)
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// agent builds the agent of the configuration, which runs on this Consul
// whatever it says.
func (s *session) agent(notify func(string)) (*agent.Agent, error) {
	conf, err := s.load()
	if err != nil {
		return nil, err
	}
	if err := agent.Check(conf); err != nil {
		return nil, err
	}
	for i := range conf.Templates {
		s.places.Files = append(s.places.Files, conf.Templates[i].Destination)
	}
	return agent.New(agent.Options{
		Config: conf, Load: s.load, Hangup: s.o.Hangup, Notify: notify, LookupEnv: s.o.LookupEnv,
		Version: s.o.Version, Commit: s.o.Commit, Log: s.o.Logger(conf.LogLevel, conf.LogJSON),
	})
}

// load reads the configuration. The environment, which may name a real Consul
// and hold its token, does not count.
func (s *session) load() (*config.Config, error) {
	o, none := s.o.Overrides, ""
	o.HTTPAddr, o.DNSAddr, o.StateDir = &s.places.HTTPAddr, &s.places.DNSAddr, &s.places.StateDir
	for _, setting := range []**string{&o.TokenFile, &o.CAFile, &o.ClientCert, &o.ClientKey, &o.Namespace, &o.Partition, &o.Datacenter} {
		*setting = &none
	}
	conf, err := config.Load(s.places.Config, config.Options{Overrides: o})
	if err != nil {
		return nil, err
	}
	conf.HTTP.Addr = "127.0.0.1:0"
	return conf, nil
}

// announce waits until all is registered and rendered, and tells where it is.
func (s *session) announce(ctx context.Context, a *agent.Agent) error {
	s.places.Status = "http://" + a.StatusAddr() + "/"
	bound, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := ready(bound, s.places.Status); err != nil {
		s.places.NotReady = append(s.places.NotReady, err.Error())
	}
	if ctx.Err() != nil || s.o.Announce == nil {
		return nil
	}
	return s.o.Announce(s.places)
}

// directory makes keep, or a directory that remove takes away with all that is
// in it.
func directory(keep string) (dir string, remove func() error, err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "jorc-dev-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(keep); err != nil {
		return "", nil, err
	}
	return dir, func() error { return nil }, os.MkdirAll(dir, 0o755)
}
