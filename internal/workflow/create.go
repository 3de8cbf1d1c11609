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

	"github.com/jorc/jorc/internal/durable"
)

// newMark begins the names of job directories that are not whole, oldMark of
// those that are being removed.
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
