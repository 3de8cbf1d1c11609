package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

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
			a.offerPart(next.conf)
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
		return nil, errors.New("this agent cannot read its configuration again")
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
	return a.build(c)
}

// activate makes next the current generation.
func (a *Agent) activate(next *generation) {
	a.mu.Lock()
	a.gen, a.conf = next, next.conf
	a.mu.Unlock()
	a.o.Log.SetLevel(hclog.LevelFromString(next.conf.LogLevel))
	for _, w := range next.conf.Warnings {
		a.o.Log.Warn(w.String())
	}
	a.o.Log.Info("configuration reloaded", "services", len(next.conf.Services), "templates", len(next.conf.Templates))
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
		{"consul", old.Consul != next.Consul},
	} {
		if f.changed {
			return fmt.Errorf("%s has changed, which takes a restart: systemctl restart jorc", f.name)
		}
	}
	return nil
}
