package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

// follow runs the present generation, and the next one after each reload that
// succeeds.
func (a *Agent) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		gen := a.generation()
		go func() { done <- a.runGeneration(ctx, running, gen) }()
		next, err := a.nextGeneration(ctx, done)
		if next != nil {
			a.registrar.SetOnStop(next.conf.OnStop)
			a.registrar.Reload(next.conf.Services) // they do not wait for templates
			a.handOver(next.conf)
		}
		stop()
		if next == nil {
			return err
		}
		if err := <-done; err != nil {
			return err
		}
		a.adopt(next)
	}
	return nil
}

// runGeneration runs gen until running ends. When life, the agent's, has ended,
// its commands are not waited for much longer.
func (a *Agent) runGeneration(life, running context.Context, gen *generation) error {
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(life, func() {
		t := time.NewTimer(a.o.StopWithin)
		defer t.Stop()
		select {
		case <-t.C:
			a.o.Log.Warn("reload commands are ended; the next start makes them good", "waited", a.o.StopWithin)
			gen.replacer.Abandon()
		case <-ended:
		}
	})
	defer stop()
	return gen.run(running)
}

// nextGeneration waits for a reload that can be carried out; it returns nil
// when the present generation has ended by itself or with ctx.
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
		a.o.Log.Error("the new configuration is bad; the old one goes on", "error", err)
		a.o.Notify("READY=1")
		if ctx.Err() != nil {
			return nil, <-done
		}
	}
}

// prepare does all of a reload that can fail.
func (a *Agent) prepare() (*generation, error) {
	if a.o.Load == nil {
		return nil, errors.New("this agent cannot read its configuration again")
	}
	c, err := a.o.Load()
	if err != nil {
		return nil, err
	}
	if err := fixed(a.generation().conf, c); err != nil {
		return nil, err
	}
	if err := Check(c); err != nil {
		return nil, err
	}
	return a.build(c)
}

// adopt makes next the present generation.
func (a *Agent) adopt(next *generation) {
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

// fixed refuses changes of what only a restart can change.
func fixed(old, next *config.Config) error {
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
