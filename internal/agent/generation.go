package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/supervise"
	"github.com/jorc/jorc/internal/watch"
)

// generation is the template engine that one configuration results in. Building
// one does not affect the running generation.
type generation struct {
	conf     *config.Config
	engine   *watch.Engine
	replacer *replace.Replacer
	recover  func(ctx context.Context)
	begin    func() // stages, after recover
	loading  *loading
	looping  atomic.Bool // the engine's loop runs
}

// build makes the generation of c; withProcesses: its files are those of processes, too.
func (a *Agent) build(c *config.Config, withProcesses bool) (*generation, error) {
	if err := usable(c); err != nil {
		return nil, err
	}
	log := a.o.Log.Named("templates")
	r := replace.New(c.StateDir, nil, log)
	if c.Owners != nil {
		r.Owners = c.Owners
	}
	g := &generation{conf: c, replacer: r, loading: a.loading}
	g.recover = func(ctx context.Context) {
		recovered, err := r.Recover(ctx, replace.RecoverOptions{
			Destinations: destinations(c),
			Gate: func(ctx context.Context, unit string) (func(), error) {
				ctx, cancel := context.WithTimeout(ctx, recoverSlotTimeout)
				defer cancel()
				return g.engine.Gate(ctx, unit)
			},
			Back: func(unit string) bool { return a.stages.Overdue(unit, stagesOf(c)) },
		})
		for _, u := range recovered {
			log.Info("repaired an interrupted replacement", "unit", u.Unit, "files", u.Destinations, "action", u.Action)
		}
		if err != nil {
			log.Error("cannot repair every interrupted replacement; the next start tries again", "error", err)
		}
	}
	o, err := a.engineOptions(c)
	if err != nil {
		return nil, err
	}
	o.Replacer = r
	o.Stages = a.stages
	o.Loaded = a.loading.loaded
	if withProcesses {
		o.Replacer = a.processes.Replacer(r)
		if more := supervise.Templates(c.Processes); len(more) > 0 {
			o.Templates = slices.Concat(o.Templates, more)
		}
	}
	g.begin = func() { a.stages.Begin(stage.Files{Replacer: o.Replacer, Compare: r.Compare}, stagesOf(c)) }
	g.engine, err = watch.New(o)
	return g, err
}

// engineOptions returns the options of an engine, without a replacer.
func (a *Agent) engineOptions(c *config.Config) (watch.Options, error) {
	o := watch.Options{
		Client: a.client, Consul: c.Consul, Vault: c.Vault, Templates: c.Templates,
		Allow: c.TemplateOpts, LookupEnv: a.o.LookupEnv, StateDir: c.StateDir,
		LoadLater: true, Held: func() string { return strings.TrimPrefix(HoldReason(c.StateDir), "held ") },
		Others: countWatches(c), Params: memberParams{a, c},
		Slot: a.slot, Rendered: a.rendered, Changed: func() { a.templatesChanged.Notify(); a.filesChanged.Notify() }, Log: a.o.Log.Named("templates"),
	}
	dns, err := catalog.NewResolver(c.DNS.Addr)
	if err != nil {
		return o, err
	}
	b := blocker.New(dns, blocker.FromClient(a.client))
	o.Require = func(ctx context.Context, r []config.Requires, changed func(bool, string)) error {
		return require(ctx, b, r, changed)
	}
	return o, nil
}

// require calls changed with whether all requirements are met and, if not, what is
// missing, whenever that changes.
func require(ctx context.Context, b *blocker.Blocker, r []config.Requires, changed func(bool, string)) error {
	needs, err := blocker.NeedsOf(r)
	if err != nil {
		return err
	}
	return b.Watch(ctx, needs, blocker.Options{}, func(states []blocker.State) {
		missing := blocker.Lines(states)
		changed(len(missing) == 0, strings.Join(missing, "; "))
	})
}

func destinations(c *config.Config) []string {
	list := make([]string, len(c.Templates))
	for i := range c.Templates {
		list[i] = c.Templates[i].Destination
	}
	return list
}

// HoldReason returns why this host is held, or "" when it is not. The file "hold"
// in its state directory holds the host; the content of the file is the reason.
func HoldReason(stateDir string) string {
	file := filepath.Join(stateDir, "hold")
	reason, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return fmt.Sprintf("held: the hold file cannot be read: %v", err)
	case strings.TrimSpace(string(reason)) == "":
		return "held by the file " + file
	}
	return "held by the file " + file + ": " + strings.TrimSpace(string(reason))
}

// run renders until ctx ends.
func (g *generation) run(ctx context.Context) error {
	g.recover(ctx)
	g.begin()
	defer g.loading.stopped()
	if g.loading.await(ctx, g); ctx.Err() != nil {
		return nil
	}
	g.looping.Store(true)
	stop := context.AfterFunc(ctx, func() { g.looping.Store(false) }) // the loop no longer answers: it waits for its commands
	defer stop()
	return g.engine.Run(ctx)
}

// once renders once.
func (g *generation) once(ctx context.Context) error {
	g.recover(ctx)
	return g.engine.Once(ctx)
}

// runGenerations runs the current generation, and the next one after each
// successful reload.
func (a *Agent) runGenerations(ctx context.Context) error {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		gen := a.generation()
		go func() { done <- a.runGeneration(ctx, running, gen) }()
		next, err := a.nextGeneration(ctx, done)
		if next != nil {
			a.registrar.SetOnStop(next.conf.OnStop)
			a.registrar.Reload(next.conf.Services) // services do not wait for templates
			a.nextConfig.Set(next.conf)
		}
		stop()
		if next == nil {
			return err
		}
		if err := <-done; err != nil {
			return err
		}
		a.activate(next)
	}
	return nil
}

// runGeneration runs gen until running ends. After life, the agent's context, ends,
// gen's commands have Options.StopWithin to finish.
func (a *Agent) runGeneration(life, running context.Context, gen *generation) error {
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(life, func() {
		t := time.NewTimer(a.o.StopWithin)
		defer t.Stop()
		select {
		case <-t.C:
			a.o.Log.Warn("reload commands killed; the next start repeats them", "waited", a.o.StopWithin)
			gen.replacer.Abandon()
		case <-ended:
		}
	})
	defer stop()
	return gen.run(running)
}

// nextGeneration waits for a reload whose configuration is valid. It returns nil
// when the current generation has ended by itself or with ctx.
func (a *Agent) nextGeneration(ctx context.Context, done <-chan error) (*generation, error) {
	for {
		select {
		case err := <-done:
			return nil, err
		case <-a.o.Hangup:
		}
		a.o.Notify(reloading())
		next, err := a.prepare()
		a.mu.Lock()
		a.reload = reloadResult{at: time.Now(), err: err}
		a.mu.Unlock()
		a.metrics.ConfigReloaded(err == nil)
		if err == nil {
			return next, nil
		}
		a.o.Log.Error("the new configuration is invalid; the agent keeps the current one", "error", err)
		a.o.Notify("READY=1")
		if ctx.Err() != nil {
			return nil, <-done
		}
	}
}

// prepare carries out the steps of a reload that can fail.
func (a *Agent) prepare() (*generation, error) {
	if a.o.Load == nil {
		return nil, errors.New("this agent cannot reload its configuration")
	}
	c, err := a.o.Load()
	if err != nil {
		return nil, err
	}
	if err := checkUnchangeable(a.generation().conf, c); err != nil {
		return nil, err
	}
	if err := Check(c); err != nil {
		return nil, err
	}
	return a.build(c, true)
}

// activate makes next the current generation.
func (a *Agent) activate(next *generation) {
	a.mu.Lock()
	a.gen, a.conf = next, next.conf
	a.mu.Unlock()
	a.processes.Configure(next.conf.Processes, next.conf.Templates)
	a.o.Log.SetLevel(hclog.LevelFromString(next.conf.LogLevel))
	for _, w := range next.conf.Warnings {
		a.o.Log.Warn(w.String())
	}
	a.o.Log.Info("configuration reloaded", "services", len(next.conf.Services), "templates", len(next.conf.Templates), "processes", len(next.conf.Processes))
	a.o.Notify("READY=1")
}

func (a *Agent) generation() *generation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gen
}

// checkUnchangeable returns an error if next changes a setting that needs a restart.
func checkUnchangeable(old, next *config.Config) error {
	for _, f := range []struct {
		name    string
		changed bool
	}{
		{"cluster", old.Cluster != next.Cluster},
		{"prefix", old.Prefix != next.Prefix},
		{"node", old.Node != next.Node},
		{"state_dir", old.StateDir != next.StateDir},
		{"http", old.HTTP != next.HTTP},
		{"control", old.Control != next.Control},
		{"fleetlock", !reflect.DeepEqual(withoutPlace(old.FleetLock), withoutPlace(next.FleetLock))},
		{"ui", !sameUI(old.UI, next.UI)},
		{"consul", old.Consul != next.Consul},
	} {
		if f.changed {
			return fmt.Errorf("%s has changed, which takes a restart: systemctl restart jorc", f.name)
		}
	}
	return nil
}

// withoutPlace returns a copy that says nothing about the place in the file.
func withoutPlace(f *config.FleetLock) config.FleetLock {
	if f == nil {
		return config.FleetLock{Pos: "none"}
	}
	return config.FleetLock{Users: f.Users, Drain: f.Drain}
}

func sameUI(a, b *config.UI) bool { return a == b || a != nil && b != nil && *a == *b }

// recoverSlotTimeout bounds the wait for the fleet slot of an interrupted reload. If
// the wait ends first, the reload is repeated later, when the unit gets the slot.
const recoverSlotTimeout = 2 * time.Second

// newSlots returns the fleet slots of the agent's cluster.
func newSlots(client *consul.Client, c *config.Config) *slots.Slots {
	return slots.New(kv.New(client, storePrefix(c)), slots.Options{})
}

// slot implements watch.Options.Slot.
func (a *Agent) slot(ctx context.Context, group string, limit int, reason string) (release func(), err error) {
	node, err := a.nodeName(ctx)
	if err != nil {
		return nil, fmt.Errorf("slot of %q: %w", group, err)
	}
	lease, err := a.slots.Acquire(ctx, group, limit, slots.Holder{Node: node, Reason: reason})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := lease.Release(ctx); err != nil {
			a.o.Log.Warn("cannot release slot; it ends with its session", "group", group, "reason", reason, "error", err)
		}
	}, nil
}
