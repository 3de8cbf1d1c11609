package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/control"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleetlock"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/internal/workflow"
)

// Check reports the faults of a configuration that only the packages that use it
// can detect: invalid targets and check commands, and templates that cannot be read
// or parsed. A template whose source another user controls fails alone and is not
// reported. The error is a *config.Error.
func Check(c *config.Config) error {
	found, absent, _ := review(c)
	return asError(append(found, absent...))
}

// Review is Check on a machine that may differ from the one that the configuration
// is for: files and programs that do not exist here are warnings, and so are faults of
// sources that another user controls. Of the warnings of loading it returns those, and as
// an error what an agent would start with and can never work.
func Review(c *config.Config) (warnings []config.Problem, err error) {
	found, absent, theirs := review(c)
	for _, w := range c.Warnings {
		if w.Fault {
			found = append(found, w)
		} else {
			warnings = append(warnings, w)
		}
	}
	warnings = slices.Concat(warnings, theirs, absent, missingFiles(c), HiddenVariables(c))
	for _, err := range workflow.Warnings(c.Workflows) {
		warnings = append(warnings, problem("", err))
	}
	return warnings, asError(found)
}

// HiddenVariables warns about environment variables that templates read and that
// allow_env hides from them.
func HiddenVariables(c *config.Config) (warnings []config.Problem) {
	for i := range c.Templates {
		t := &c.Templates[i]
		names, err := watch.HiddenVariables(t, c.TemplateOpts.AllowEnv)
		if err != nil {
			continue // Check reports it
		}
		for _, name := range names {
			if name == "" {
				name = "that it computes"
			}
			warnings = append(warnings, problem(t.Pos, fmt.Errorf(
				"template %q reads the environment variable %s, which is always unset: template_options { allow_env } does not name it", t.Name, name)))
		}
	}
	return warnings
}

// broken is Check on the machine that the configuration is for: the directories of
// destinations must exist, too.
func broken(c *config.Config) error {
	found, absent, _ := review(c)
	return asError(slices.Concat(found, absent, missingDirectories(c)))
}

// missingDirectories warns about directories of destinations that do not exist.
func missingDirectories(c *config.Config) (warnings []config.Problem) {
	for i := range c.Templates {
		t := &c.Templates[i]
		dir := filepath.Dir(t.Destination)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !t.CreateDirs {
			warnings = append(warnings, problem(t.Pos, fmt.Errorf("template %q: the directory %s of its destination does not exist: create it or set create_dirs = true", t.Name, dir)))
		}
	}
	return warnings
}

// missingUsers warns about users and groups that do not exist.
func missingUsers(c *config.Config) (warnings []config.Problem) {
	if c.Control.Group != "" {
		if _, err := control.GroupID(c.Control.Group); err != nil {
			warnings = append(warnings, problem("", fmt.Errorf("control: only root and the agent's user can use the socket: %w", err)))
		}
	}
	if c.FleetLock != nil {
		for _, err := range fleetlock.Unknown(c.FleetLock.Users) {
			warnings = append(warnings, problem(c.FleetLock.Pos, fmt.Errorf("fleetlock: %w", err)))
		}
	}
	return warnings
}

// missingFiles warns about programs, directories, users and groups that do not exist.
func missingFiles(c *config.Config) (warnings []config.Problem) {
	program := func(place, what, dir string, argv []string) {
		if len(argv) == 0 || strings.Contains(argv[0], "{{") {
			return
		}
		name := argv[0]
		if strings.Contains(name, "/") && !filepath.IsAbs(name) {
			if dir == "" {
				return // relative to the agent's working directory
			}
			name = filepath.Join(dir, name)
		}
		_, err := exec.LookPath(name)
		if file := new(exec.Error); errors.As(err, &file) {
			err = file.Err
		}
		if file := new(fs.PathError); errors.As(err, &file) {
			err = file.Err
		}
		if err != nil {
			warnings = append(warnings, problem(place, fmt.Errorf("%s: program %q: %w", what, argv[0], err)))
		}
	}
	for i := range c.Services {
		s := &c.Services[i]
		for _, check := range s.Checks {
			program("", fmt.Sprintf("service %q: check", s.Name), "", check.Script)
		}
	}
	for i := range c.Templates {
		t := &c.Templates[i]
		program(t.Pos, fmt.Sprintf("template %q: check", t.Name), "", t.Check)
		program(t.Pos, fmt.Sprintf("template %q: reload", t.Name), "", t.Reload)
	}
	for i := range c.Processes {
		p := &c.Processes[i]
		program(p.Pos, fmt.Sprintf("process %q: command", p.Name), p.Dir, p.Command)
	}
	warnings = append(warnings, missingDirectories(c)...)
	warnings = append(warnings, missingUsers(c)...)
	for i := range c.Workflows {
		w := &c.Workflows[i]
		for _, t := range w.Tasks {
			what := fmt.Sprintf("workflow %q: task %q", w.Name, t.Name)
			program("", what, t.Dir, t.Command)
			program("", what+": only_if", t.Dir, t.OnlyIf)
		}
	}
	return warnings
}

// review returns the faults of a configuration: those of files that do not exist and
// those of files that another user controls apart from all others.
func review(c *config.Config) (found, absent, theirs []config.Problem) {
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
		case err == nil:
		case ofOthers(t.Source):
			theirs = append(theirs, problem(t.Pos, fmt.Errorf("%w; another user controls the source, so only this template fails", err)))
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, problem(t.Pos, err))
		default:
			found = append(found, problem(t.Pos, err))
		}
	}
	return found, absent, theirs
}

// ofOthers reports whether a user other than root and jorc's own decides what a source
// holds.
func ofOthers(source string) bool {
	if source == "" {
		return false
	}
	var directory *durable.OwnerError
	var link *durable.LinkError
	_, err := durable.ReadFile(source, 0)
	if errors.As(err, &link) {
		return true
	}
	err = durable.CheckOwner(filepath.Dir(source))
	return errors.As(err, &directory) || errors.As(err, &link)
}

// usable is the part of Check whose errors keep an agent from starting. A template
// or workflow that cannot be read or parsed fails alone, and without a log store
// logs stay on the host: neither delays the services.
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
		found = append(found, reservedSlot("template", t.Name, t.Slot, t.Pos)...)
		if len(t.Check) == 0 {
			continue
		}
		if err := replace.CheckArgs(t.Check); err != nil {
			found = append(found, problem(t.Pos, errors.New("template "+strconv.Quote(t.Name)+": check: "+err.Error())))
		}
	}
	for i := range c.Processes {
		p := &c.Processes[i]
		found = append(found, reservedSlot("process", p.Name, p.Slot, p.Pos)...)
	}
	for i := range c.Workflows {
		for j := range c.Workflows[i].Tasks {
			needs(c.Workflows[i].Tasks[j].Requires)
		}
	}
	known := event.Kinds()
	for _, t := range c.Triggers {
		if t.Event != "" && !slices.Contains(known, t.Event) {
			text := fmt.Sprintf("trigger %q: there is no kind of event %q: it would never run; known are %s", t.Name, t.Event, strings.Join(known, ", "))
			found = append(found, problem(t.Pos, errors.New(text)))
		}
	}
	return found
}

// reservedSlot reports a slot that only rollouts may take.
func reservedSlot(kind, name, slot, place string) []config.Problem {
	if slot != slots.Reserved {
		return nil
	}
	return []config.Problem{problem(place, fmt.Errorf("%s %q: slot group %q is reserved for rollouts ('jorc update show'): name another", kind, name, slot))}
}

// problem is err with its place, "file:line".
func problem(place string, err error) config.Problem {
	text := strings.Replace(err.Error(), blocker.ErrUsage.Error()+": ", "", 1) // the fault is not in the command line
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
