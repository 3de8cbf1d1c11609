package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// generation is what one configuration is made into, apart from the services.
// Building one touches nothing that runs.
type generation struct {
	conf     *config.Config
	engine   *watch.Engine
	replacer *replace.Replacer
	recover  func(ctx context.Context)
}

func (a *Agent) build(c *config.Config) (*generation, error) {
	if err := checkNeeds(c); err != nil {
		return nil, err
	}
	log := a.o.Log.Named("templates")
	r := replace.New(c.StateDir, nil, log)
	g := &generation{conf: c, replacer: r, recover: func(ctx context.Context) {
		recovered, err := r.Recover(ctx, replace.RecoverOptions{Destinations: destinations(c)})
		for _, u := range recovered {
			log.Info("made good what a crash had left", "unit", u.Unit, "files", u.Destinations, "action", u.Action)
		}
		if err != nil {
			log.Error("what a crash had left could not all be made good", "error", err)
		}
	}}
	o, err := a.engineOptions(c)
	if err != nil {
		return nil, err
	}
	o.Replacer = r
	g.engine, err = watch.New(o)
	return g, err
}

// engineOptions are those of an engine without a replacer.
func (a *Agent) engineOptions(c *config.Config) (watch.Options, error) {
	o := watch.Options{
		Client: a.client, Consul: c.Consul, Vault: c.Vault, Templates: c.Templates,
		Allow: c.TemplateOpts, LookupEnv: a.o.LookupEnv, StateDir: c.StateDir,
		Held:     func() string { return held(c.StateDir) },
		Rendered: a.rendered, Log: a.o.Log.Named("templates"),
	}
	for i := range c.Templates {
		if len(c.Templates[i].Check) > 0 {
			if err := replace.CheckArgs(c.Templates[i].Check); err != nil {
				return o, fmt.Errorf("template %q: check: %w", c.Templates[i].Name, err)
			}
		}
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

// require reports whether all that r asks for is there.
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

// checkNeeds parses what the configuration requires, wherever it says so.
func checkNeeds(c *config.Config) error {
	all := append([]config.Requires{}, c.Requires...)
	for i := range c.Templates {
		all = append(all, c.Templates[i].Requires...)
	}
	for i := range c.Workflows {
		for j := range c.Workflows[i].Tasks {
			all = append(all, c.Workflows[i].Tasks[j].Requires...)
		}
	}
	var errs []error
	for _, r := range all {
		if _, err := blocker.NeedOf(r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Check reports what is wrong with a configuration that only the packages that
// use it can tell: targets, check commands and templates that do not parse.
func Check(c *config.Config) error {
	errs := []error{checkNeeds(c)}
	for i := range c.Templates {
		t := &c.Templates[i]
		if len(t.Check) > 0 {
			if err := replace.CheckArgs(t.Check); err != nil {
				errs = append(errs, fmt.Errorf("%s: template %q: check: %w", t.Pos, t.Name, err))
			}
		}
		if err := watch.Check(t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Pos, err))
		}
	}
	return errors.Join(errs...)
}

func destinations(c *config.Config) []string {
	list := make([]string, len(c.Templates))
	for i := range c.Templates {
		list[i] = c.Templates[i].Destination
	}
	return list
}

// held says why this host is held: the file "hold" in its state directory,
// whose content is the reason.
func held(stateDir string) string {
	reason, err := os.ReadFile(filepath.Join(stateDir, "hold"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return fmt.Sprintf("the hold file cannot be read: %v", err)
	case strings.TrimSpace(string(reason)) == "":
		return "the file hold in " + stateDir
	}
	return strings.TrimSpace(string(reason))
}

// run renders until ctx ends.
func (g *generation) run(ctx context.Context) error {
	g.recover(ctx)
	return g.engine.Run(ctx)
}

// once renders once.
func (g *generation) once(ctx context.Context) error {
	g.recover(ctx)
	return g.engine.Once(ctx)
}
