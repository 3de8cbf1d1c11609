package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	if j.FromRun {
		if err := checkFromRun(w, j.Params); err != nil {
			return nil, err
		}
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
			t.State, t.Why = TaskSkipped, "done in another job"
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
	var files []durable.NewFile
	for name, v := range map[string]any{specFile: made.spec, recordFile: made.rec, paramsFile: j.Params} {
		doc, err := json.Marshal(v)
		if err != nil {
			return err
		}
		files = append(files, durable.NewFile{Name: name, Data: doc, Perm: 0o600})
	}
	if j.Change != nil {
		files = append(files, durable.NewFile{Name: changeFile, Data: j.Change, Perm: 0o600})
	}
	for name, script := range scripts {
		files = append(files, durable.NewFile{Name: name, Data: []byte(script), Perm: 0o700})
	}
	if err := durable.WriteNew(temp, files); err != nil {
		return err
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
	Reboots  bool           `json:"reboots,omitempty"` // it may have the host rebooted
	Out      bool           `json:"out,omitempty"`     // see Job.Out
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

// interpreter is the program that runs a script: the one that its shebang names, split as the kernel
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
