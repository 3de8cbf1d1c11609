package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// generation is the template engine that one configuration results in. Building
// one does not affect the running generation.
type generation struct {
	conf     *config.Config
	engine   *watch.Engine
	replacer *replace.Replacer
	recover  func(ctx context.Context)
	looping  atomic.Bool // the engine's loop runs
}

func (a *Agent) build(c *config.Config) (*generation, error) {
	if err := usable(c); err != nil {
		return nil, err
	}
	log := a.o.Log.Named("templates")
	r := replace.New(c.StateDir, nil, log)
	g := &generation{conf: c, replacer: r}
	g.recover = func(ctx context.Context) {
		recovered, err := r.Recover(ctx, replace.RecoverOptions{
			Destinations: destinations(c),
			Gate: func(ctx context.Context, unit string) (func(), error) {
				ctx, cancel := context.WithTimeout(ctx, recoverSlotTimeout)
				defer cancel()
				return g.engine.Gate(ctx, unit)
			},
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
		Slot: a.slot, Rendered: a.rendered, Log: a.o.Log.Named("templates"),
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
	needs := make([]blocker.Need, len(r))
	for i := range r {
		n, err := blocker.NeedOf(r[i])
		if err != nil {
			return err
		}
		needs[i] = n
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
