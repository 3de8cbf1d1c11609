package agent

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/jorc/jorc/internal/replace"
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
		if !utf8.Valid(f.current) || !utf8.Valid(f.file.Data) {
			fmt.Fprintf(out, "Binary files %s and the new content differ\n", f.file.Destination)
			continue
		}
		// The caller notices errors of its writer at the next write.
		_ = difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{
			A: lines(f.current), B: lines(f.file.Data),
			FromFile: from, ToFile: f.file.Destination, Context: 3,
		})
	}
	return len(c.changed) > 0
}

// lines splits data. A last line without a newline differs from one with it.
func lines(data []byte) []string {
	list := strings.SplitAfter(string(data), "\n")
	last := len(list) - 1
	if list[last] == "" {
		return list[:last]
	}
	list[last] += "\n\\ No newline at end of file\n"
	return list
}
