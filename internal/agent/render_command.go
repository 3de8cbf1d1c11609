package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/fixture"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/watch"
)

// RenderMode is what Render does with the rendered files.
type RenderMode int

// The modes of Render.
const (
	RenderOnce RenderMode = iota // write the files, as the agent would
	DryRun                       // list the files that would change
	Diff                         // show what would change in them
)

// Render renders every template once, by the same pipeline as Run, without
// publishing services. In the modes DryRun and Diff it writes to out instead
// of to files, may run beside an agent, and changes reports whether a file would
// change.
func (a *Agent) Render(ctx context.Context, mode RenderMode, out io.Writer) (changes bool, err error) {
	defer a.client.Close()
	if mode == RenderOnce {
		lock, err := a.lock()
		if err != nil {
			return false, err
		}
		defer a.unlock(lock)
		gen, err := a.build(a.conf, false)
		if err != nil {
			return false, err
		}
		a.mu.Lock()
		a.gen = gen
		a.mu.Unlock()
		return false, a.unreached(gen.once(ctx))
	}
	o, err := a.engineOptions(a.conf) // without the environment of processes
	if err != nil {
		return false, err
	}
	c := &comparer{replacer: a.gen.replacer}
	o.Replacer, o.ReadOnly, o.Held, o.Rendered = c, true, nil, nil
	engine, err := watch.New(o)
	if err != nil {
		return false, err
	}
	err = a.unreached(engine.Once(ctx))
	if mode == DryRun {
		return c.list(out), err
	}
	return c.diff(out), err
}

// comparer stands in for a replacer and changes nothing.
type comparer struct {
	replacer *replace.Replacer

	mu      sync.Mutex
	changed []comparison
}

type comparison struct {
	file    replace.File
	current []byte
}

// Replace implements watch.Replacer.
func (c *comparer) Replace(_ context.Context, u replace.Unit) (replace.Outcome, error) {
	for _, f := range u.Files {
		current, same, err := c.replacer.Compare(f)
		if err != nil {
			return replace.Outcome{}, err
		}
		if same {
			continue
		}
		c.mu.Lock()
		c.changed = append(c.changed, comparison{file: f, current: current})
		c.mu.Unlock()
	}
	return replace.Outcome{}, nil
}

func (c *comparer) sorted() []comparison {
	sort.Slice(c.changed, func(i, j int) bool { return c.changed[i].file.Destination < c.changed[j].file.Destination })
	return c.changed
}

// list prints one destination a line.
func (c *comparer) list(out io.Writer) bool {
	for _, f := range c.sorted() {
		fmt.Fprintln(out, f.file.Destination)
	}
	return len(c.changed) > 0
}

// diff prints unified diffs that patch(1) accepts.
func (c *comparer) diff(out io.Writer) bool {
	for _, f := range c.sorted() {
		from := f.file.Destination
		if f.current == nil {
			from = "/dev/null"
		}
		// The caller notices errors of its writer at the next write.
		_, _ = io.WriteString(out, text.Diff(from, f.file.Destination, f.current, f.file.Data, nil))
	}
	return len(c.changed) > 0
}

// Record returns a template of the configuration with the data that it is made of now. Nothing
// is written.
func (a *Agent) Record(ctx context.Context, name string) (*fixture.Record, error) {
	defer a.client.Close()
	i := slices.IndexFunc(a.conf.Templates, func(t config.Template) bool { return t.Name == name })
	if i < 0 {
		names := make([]string, len(a.conf.Templates))
		for i := range a.conf.Templates {
			names[i] = a.conf.Templates[i].Name
		}
		return nil, fmt.Errorf("template %q does not exist%s", name, text.Unknown(name, "templates", names))
	}
	o, err := a.engineOptions(a.conf)
	if err != nil {
		return nil, err
	}
	one := a.conf.Templates[i]
	one.Requires, one.Slot, one.Stage = nil, "", nil
	o.Templates, o.StateDir = []config.Template{one}, ""
	o.Replacer, o.ReadOnly, o.Held, o.Rendered, o.Changed, o.LoadLater = nowhere{}, true, nil, nil, nil, false
	engine, err := watch.New(o)
	if err != nil {
		return nil, err
	}
	if err := a.unreached(engine.Once(ctx)); err != nil {
		return nil, err
	}
	document, err := fleet.New(a.client, a.conf.Prefix, a.conf.Cluster).Profile(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out which params are secret: %w", err)
	}
	data, err := engine.Record(document.Secret, a.o.Process.Environ())
	if err != nil {
		return nil, err
	}
	return &fixture.Record{Template: one, Allow: a.conf.TemplateOpts, Data: data}, nil
}

// nowhere stands in for a replacer where no file is written.
type nowhere struct{}

// Replace implements watch.Replacer.
func (nowhere) Replace(context.Context, replace.Unit) (replace.Outcome, error) {
	return replace.Outcome{}, nil
}
