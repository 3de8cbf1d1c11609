// Package dev runs jorc for a trial: a temporary Consul server with an agent in this
// process and a small example, or with a fleet of hosts. It removes everything at the end.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
)

// announceWithin is how long the announcement waits until all services are
// registered and all templates rendered. After that it lists what is missing.
const announceWithin = 10 * time.Second

// Options are what Run needs.
type Options struct {
	Consul string   // path of the consul program; see FindConsul
	Keep   string   // directory for the data; empty: a temporary one, removed at the end
	Config []string // a configuration to use instead of the example's
	// Announce is called once, when everything runs. Its error ends Run.
	Announce  func(Places) error
	Overrides config.Overrides // of the log
	Logger    func(level string, json bool) hclog.Logger
	Hangup    <-chan struct{} // requests to read the configuration again; optional
	LookupEnv func(string) (string, bool)
	Process   agent.ProcessOptions
	Version   string
	Commit    string
}

// Places holds the addresses and paths of the session.
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

// UI returns the URL of Consul's web UI.
func (p Places) UI() string { return "http://" + p.HTTPAddr + "/ui" }

// Run runs Consul, the agent and the example until ctx ends; then it stops and
// removes them and returns nil. It fails if one of them cannot be started or Consul
// ends by itself.
func Run(ctx context.Context, o Options) error {
	return withConsul(ctx, o.Consul, o.Keep, func(dir string, server *server) error {
		s := &session{o: o, server: server, places: Places{
			Dir: dir, Kept: o.Keep != "", PID: os.Getpid(), HTTPAddr: server.ports.httpAddr(), DNSAddr: server.ports.dnsAddr(),
			StateDir: filepath.Join(dir, "state"), Config: o.Config, Web: []string{}, NotReady: []string{},
		}}
		return s.run(ctx)
	})
}

// withConsul calls run beside a Consul server whose data are in dir, and removes both at the end.
func withConsul(ctx context.Context, program, keep string, run func(dir string, server *server) error) (err error) {
	if err := removeLeftovers(os.TempDir()); err != nil {
		return fmt.Errorf("remove what a jorc dev that was killed left behind: %w", err)
	}
	dir, remove, err := directory(keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	server, err := startConsul(ctx, program, dir, keep != "")
	if err != nil {
		return err
	}
	defer server.end()
	return run(dir, server)
}

// session is the agent and the example beside the Consul server.
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

// agent builds the agent of the configuration, but with this session's Consul.
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
		Process: s.o.Process, Version: s.o.Version, Commit: s.o.Commit, Log: s.o.Logger(conf.LogLevel, conf.LogJSON),
	})
}

// load reads the configuration. It ignores the environment, which may hold the
// address and token of a production Consul.
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

// announce waits until all services are registered and all templates rendered, then
// calls Options.Announce.
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

// directory creates and locks keep or, if keep is empty, a temporary directory. remove gives
// the lock back and deletes the temporary directory with its contents.
func directory(keep string) (dir string, remove func() error, err error) {
	if keep == "" {
		dir, lock, err := lockedDirectory(os.TempDir())
		return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Unlock()) }, err
	}
	if dir, err = filepath.Abs(keep); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := durable.TryLock(filepath.Join(dir, lockName))
	if err != nil {
		return "", nil, fmt.Errorf("another jorc dev uses %s: %w", dir, err)
	}
	if err := endLeftovers(dir); err != nil {
		return "", nil, errors.Join(err, lock.Unlock())
	}
	return dir, lock.Unlock, nil
}

// pollEvery is the interval for states without a blocking query.
const pollEvery = 20 * time.Millisecond

// ready waits until the agent reports that its services are registered and its
// templates rendered. If ctx ends first the error lists what is missing.
func ready(ctx context.Context, status string) error {
	err := errors.New("not asked yet")
	for {
		next := askReady(ctx, status)
		if next == nil {
			return nil
		}
		if ctx.Err() == nil {
			err = next
		}
		if concurrency.Sleep(ctx, pollEvery) != nil {
			return err
		}
	}
}

func askReady(ctx context.Context, status string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, status+"healthz?ready", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", strings.Join(strings.Split(strings.TrimSpace(string(body)), "\n"), "; "))
	}
	return nil
}

// remedy is the advice if no consul program is found.
const remedy = "install Consul (https://developer.hashicorp.com/consul/install), set CONSUL_BIN to its path, or run 'make consul' in jorc's sources"

// ErrNoConsul is returned if no consul program is found.
var ErrNoConsul = errors.New("no consul program found: " + remedy)

// FindConsul returns the path of the consul program: variable (the value of
// CONSUL_BIN) if it is not empty, the one beside the program self, or the one
// on PATH. The error wraps ErrNoConsul, or gives the reason why CONSUL_BIN cannot be run.
func FindConsul(variable, self string) (string, error) {
	if variable != "" {
		path, err := exec.LookPath(variable)
		if err != nil {
			return "", fmt.Errorf("CONSUL_BIN=%s: %w; %s", variable, errors.Unwrap(err), remedy)
		}
		return path, nil
	}
	for _, name := range []string{self, resolved(self)} {
		beside := filepath.Join(filepath.Dir(name), "consul")
		if path, err := exec.LookPath(beside); name != "" && err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("consul")
	if err != nil {
		return "", ErrNoConsul
	}
	return path, nil
}

func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
