package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/workflow"
)

// Check reports what is wrong with a configuration that only the packages that
// use it can tell: targets, check commands, and templates that cannot be read or
// parsed. The error is a *config.Error.
func Check(c *config.Config) error {
	found, absent := review(c)
	return asError(append(found, absent...))
}

// Review is Check on a machine that the configuration need not be meant for:
// templates whose source is not there are listed apart.
func Review(c *config.Config) (absent []config.Problem, err error) {
	found, absent := review(c)
	return absent, asError(found)
}

func review(c *config.Config) (found, absent []config.Problem) {
	found = unusable(c)
	if err := workflow.Check(c.Workflows); err != nil {
		found = append(found, problem("", err))
	}
	if _, err := workflow.NewStore(c.LogStore); err != nil {
		found = append(found, problem("", err))
	}
	for i := range c.Templates {
		t := &c.Templates[i]
		err := watch.Check(t)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, problem(t.Pos, err))
		case err != nil:
			found = append(found, problem(t.Pos, err))
		}
	}
	return found, absent
}

// usable is the part of Check that keeps an agent from starting. A template or
// workflow that cannot be read or parsed fails alone, and without a log store
// logs stay here: services do not wait for them.
func usable(c *config.Config) error { return asError(unusable(c)) }

func unusable(c *config.Config) (found []config.Problem) {
	needs := func(list []config.Requires) {
		for _, r := range list {
			if _, err := blocker.NeedOf(r); err != nil {
				found = append(found, problem(r.Pos, errors.New(strings.TrimPrefix(err.Error(), r.Pos+": "))))
			}
		}
	}
	needs(c.Requires)
	for i := range c.Templates {
		t := &c.Templates[i]
		needs(t.Requires)
		if len(t.Check) == 0 {
			continue
		}
		if err := replace.CheckArgs(t.Check); err != nil {
			found = append(found, problem(t.Pos, errors.New("template "+strconv.Quote(t.Name)+": check: "+err.Error())))
		}
	}
	for i := range c.Workflows {
		for j := range c.Workflows[i].Tasks {
			needs(c.Workflows[i].Tasks[j].Requires)
		}
	}
	known := orchestrator.Kinds()
	for _, t := range c.Triggers {
		if t.Event != "" && !slices.Contains(known, t.Event) {
			text := fmt.Sprintf("trigger %q: there is no kind of event %q: it would never run; known are %s", t.Name, t.Event, strings.Join(known, ", "))
			found = append(found, problem(t.Pos, errors.New(text)))
		}
	}
	return found
}

// problem puts err at a place, "file:line".
func problem(place string, err error) config.Problem {
	text := strings.Replace(err.Error(), blocker.ErrUsage.Error()+": ", "", 1) // it is not the command line's
	p := config.Problem{Message: strings.Join(strings.Fields(text), " ")}
	if i := strings.LastIndexByte(place, ':'); i > 0 {
		if line, err := strconv.Atoi(place[i+1:]); err == nil {
			p.File, p.Line = place[:i], line
		}
	}
	return p
}

func asError(found []config.Problem) error {
	if len(found) == 0 {
		return nil
	}
	return &config.Error{Problems: found}
}
