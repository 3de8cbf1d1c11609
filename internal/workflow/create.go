package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/profile"
)

// newMark begins the names of job directories that are not whole, oldMark of
// directories that are being removed.
const (
	newMark = ".new-"
	oldMark = ".old-"
)

// create makes the job, whole or not at all.
func (r *Runner) create(ctx context.Context, j Job) (*job, error) {
	w, err := r.find(j.Workflow)
	if err != nil {
		return nil, err
	}
	if len(w.Tasks) == 0 {
		return nil, fmt.Errorf("workflow %q: %w: it has no task", w.Name, ErrInvalid)
	}
	if j.ID == "" {
		j.ID = newID(r.now())
	}
	sp, scripts, err := prepare(w, newFacts(ctx, &r.o, j))
	if err != nil {
		return nil, err
	}
	now := r.now().UTC()
	made := &job{dir: filepath.Join(r.jobs, j.ID), spec: sp, rec: &record{
		Format: specFormat, State: Running, Task: -1, Created: now, Updated: now, Boot: r.boot(),
	}}
	for i := range sp.Steps {
		t := TaskStatus{Name: sp.Steps[i].Name, State: TaskPlanned}
		if slices.Contains(j.Done, t.Name) {
			t.State, t.Why = TaskSkipped, "done on another host"
		}
		made.rec.Tasks = append(made.rec.Tasks, t)
	}
	text := "created"
	if j.Origin != "" {
		text += " by " + j.Origin
	}
	r.note(made, -1, string(Running), text)
	if err := r.place(made, j, scripts); err != nil {
		return nil, fmt.Errorf("job %q: it could not be created, and nothing was run: %w", j.ID, err)
	}
	if r.o.Changed != nil {
		r.o.Changed(made.result())
	}
	return made, nil
}

// place writes the files of a new job.
func (r *Runner) place(made *job, j Job, scripts map[string]string) (err error) {
	temp := filepath.Join(r.jobs, newMark+j.ID)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(temp)
		}
	}()
	r.hook("create")
	for name, v := range map[string]any{specFile: made.spec, recordFile: made.rec, paramsFile: j.Params} {
		doc, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(temp, name), doc, 0o600); err != nil {
			return err
		}
	}
	if j.Change != nil {
		if err := durable.WriteFile(filepath.Join(temp, changeFile), j.Change, 0o600); err != nil {
			return err
		}
	}
	for name, script := range scripts {
		if err := durable.WriteFile(filepath.Join(temp, name), []byte(script), 0o700); err != nil {
			return err
		}
	}
	r.hook("created")
	if err := os.Rename(temp, made.dir); err != nil {
		return err
	}
	r.hook("placed")
	return durable.SyncDir(r.jobs)
}

// sweep removes what a crash left half made or half removed.
func (r *Runner) sweep() error {
	entries, err := os.ReadDir(r.jobs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newMark) && !strings.HasPrefix(e.Name(), oldMark) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(r.jobs, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// specFormat is the format of a job's files.
const specFormat = 1

// spec is what a job does; it is written once, when the job is created.
type spec struct {
	Format   int            `json:"format"`
	ID       string         `json:"id"`
	Nonce    string         `json:"nonce"` // marks its processes
	Workflow string         `json:"workflow"`
	Version  string         `json:"version"`
	Origin   string         `json:"origin"`
	Params   profile.Params `json:"params"`
	Change   bool           `json:"change"`            // there is a file "change"
	Secrets  []string       `json:"secrets,omitempty"` // tokens that were made for it: kept out of logs
	Values   []string       `json:"values,omitempty"`  // lines of values that it was given: kept out of the record
	Steps    []step         `json:"tasks"`
}

// step is a task whose templates are rendered.
type step struct {
	Name        string            `json:"name"`
	Command     []string          `json:"command,omitempty"`
	Script      string            `json:"script,omitempty"` // file in the job's directory
	Interpreter []string          `json:"interpreter,omitempty"`
	User        string            `json:"user,omitempty"`
	Dir         string            `json:"dir,omitempty"`
	Env         []string          `json:"env,omitempty"`
	TokenFile   string            `json:"token_file,omitempty"`
	Timeout     time.Duration     `json:"timeout,omitempty"` // ns; 0: none
	OnlyIfLimit time.Duration     `json:"only_if_limit,omitempty"`
	KillGrace   time.Duration     `json:"kill_grace,omitempty"` // ns; 0: that of package command
	Retries     int               `json:"retries,omitempty"`
	RetryDelay  time.Duration     `json:"retry_delay,omitempty"` // ns
	OkExitCodes []int             `json:"ok_exit_codes"`
	Idempotent  bool              `json:"idempotent,omitempty"`
	OnlyIf      []string          `json:"only_if,omitempty"`
	Requires    []config.Requires `json:"requires,omitempty"`
}

// taskText is one template of a task, and what it is called in errors.
type taskText struct{ what, source string }

// texts are all templates of a task in the order: script, command, only_if,
// env by name.
func texts(t *config.Task) []taskText {
	var all []taskText
	if t.Script != "" {
		all = append(all, taskText{"script", t.Script})
	}
	for i, arg := range t.Command {
		all = append(all, taskText{fmt.Sprintf("command[%d]", i), arg})
	}
	for i, arg := range t.OnlyIf {
		all = append(all, taskText{fmt.Sprintf("only_if[%d]", i), arg})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		all = append(all, taskText{"env." + name, t.Env[name]})
	}
	return all
}

// Check reports what is wrong with the templates of workflows.
func Check(workflows []config.Workflow) error {
	var errs []error
	for i := range workflows {
		for j := range workflows[i].Tasks {
			t := &workflows[i].Tasks[j]
			for _, x := range texts(t) {
				parsed, err := parse(x.source)
				if err == nil {
					err = defined(parsed)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("workflow %q: task %q: %s: %w", workflows[i].Name, t.Name, x.what, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// prepare renders the tasks of w; scripts are the files to write beside the
// spec. Errors are ErrInvalid, or that what a template needs is not known.
func prepare(w *config.Workflow, f *facts) (sp *spec, scripts map[string]string, err error) {
	j := &f.job
	sp = &spec{
		Format: specFormat, ID: j.ID, Nonce: nonce(8), Workflow: w.Name, Version: j.Version, Origin: j.Origin,
		Params: j.Params, Change: j.Change != nil, Steps: make([]step, len(w.Tasks)),
	}
	scripts = map[string]string{}
	for i := range w.Tasks {
		t := &w.Tasks[i]
		s, script, err := freeze(t, i, f)
		if unknown := (*unknownError)(nil); errors.As(err, &unknown) {
			return nil, nil, fmt.Errorf("workflow %q: task %q: %w", w.Name, t.Name, err)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("workflow %q: task %q: %w: %w", w.Name, t.Name, ErrInvalid, f.discreet(err))
		}
		if s.Script != "" {
			scripts[s.Script] = script
		}
		sp.Steps[i] = s
	}
	sp.Secrets = f.secrets()
	sp.Values = secretLines(f.given(sp), f.o.Node, j.Version, w.Name)
	return sp, scripts, nil
}

// given are the texts that the tasks of a job have from params, from the
// environment of their configuration, and from a trigger.
func (f *facts) given(sp *spec) []string {
	all := append(textsOf(f.job.Params), changedTexts(f.job.Change)...)
	for name, v := range f.used {
		if doc, err := json.Marshal(v); err == nil && !strings.HasPrefix(name, "cluster/") { // jorc's own settings
			all = append(all, textsIn(doc)...)
		}
	}
	for i := range sp.Steps {
		for _, env := range sp.Steps[i].Env {
			_, value, _ := strings.Cut(env, "=")
			all = append(all, value)
		}
	}
	return all
}

func freeze(t *config.Task, i int, f *facts) (s step, script string, err error) {
	s = step{
		Name: t.Name, User: t.User, Dir: t.Dir, TokenFile: t.TokenFile, KillGrace: t.KillGrace, Retries: t.Retries, RetryDelay: t.RetryDelay,
		OkExitCodes: t.OkExitCodes, Idempotent: t.Idempotent, Requires: t.Requires,
	}
	s.Timeout, s.OnlyIfLimit = timeouts(t)
	if len(s.OkExitCodes) == 0 {
		s.OkExitCodes = []int{0}
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	f.task = t
	for _, x := range texts(t) {
		out, err := render(x.source, f)
		if err != nil {
			return s, "", fmt.Errorf("%s: %w", x.what, err)
		}
		if strings.ContainsRune(out, 0) {
			return s, "", fmt.Errorf("%s: it holds a zero byte, which no program takes", x.what)
		}
		kind, index, _ := strings.Cut(x.what, "[")
		if index != "" && f.betrays(out) {
			return s, "", fmt.Errorf("%s: a token in an argument, which every user of the host can see: use it in a script, or in env", x.what)
		}
		switch {
		case x.what == "script":
			script = tidy(out)
			s.Script, s.Interpreter = fileName(i, t.Name), interpreter(script)
			if f.betrays(strings.Join(s.Interpreter, " ")) {
				return s, "", errors.New("script: a token in its #! line, which every user of the host can see")
			}
		case kind == "command":
			s.Command = append(s.Command, out)
		case kind == "only_if":
			s.OnlyIf = append(s.OnlyIf, out)
		default:
			s.Env = append(s.Env, strings.TrimPrefix(x.what, "env.")+"="+out)
		}
	}
	return s, script, nil
}

// timeouts returns how long a task and its only_if may take; 0 is without limit.
func timeouts(t *config.Task) (task, onlyIf time.Duration) {
	switch {
	case t.Timeout == 0:
		return config.DefaultTaskTimeout, onlyIfTime
	case t.Timeout < 0:
		return 0, onlyIfTime
	}
	return t.Timeout, t.Timeout
}

// fileName is a task's name in the job's directory: its script; with ".log" its log.
func fileName(i int, task string) string { return fmt.Sprintf("%02d-%s", i+1, task) }

// interpreter is who runs a script: what its shebang names, split as the kernel
// does, or /bin/sh. Naming it makes scripts run on file systems mounted noexec.
func interpreter(script string) []string {
	line, isShebang := strings.CutPrefix(script, "#!")
	if !isShebang {
		return []string{"/bin/sh"}
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimSpace(line)
	program, argument, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	if program == "" {
		return []string{"/bin/sh"}
	}
	if argument = strings.TrimSpace(argument); argument != "" {
		return []string{program, argument}
	}
	return []string{program}
}

// tidy brings a shebang to the front when only blank lines, such as template
// actions leave, stand before it.
func tidy(script string) string {
	if rest := strings.TrimLeft(script, " \t\r\n"); strings.HasPrefix(rest, "#!") {
		return rest
	}
	return script
}

// argv is the command of a step: its arguments, or its script in dir.
func (s *step) argv(dir string) []string {
	if s.Script == "" {
		return s.Command
	}
	return append(append([]string{}, s.Interpreter...), filepath.Join(dir, s.Script))
}
