package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

const (
	specFile   = "spec.json"
	recordFile = "job.json"
	paramsFile = "params.json"
	changeFile = "change"
)

// maxHistory bounds the transitions that a job remembers.
const maxHistory = 256

// record is how far a job is; it is on the disk before anything that depends
// on it happens.
type record struct {
	Format   int          `json:"format"`
	State    State        `json:"state"`
	Why      string       `json:"why"`
	Task     int          `json:"task"`   // the one that Why is about; -1: none
	Boot     boot         `json:"boot"`   // of the last attempt
	Temp     string       `json:"temp"`   // directory of the attempt that is running, for other users
	Output   string       `json:"output"` // the end of what the last successful task printed
	Tasks    []TaskStatus `json:"tasks"`
	History  []Transition `json:"history"`
	Created  time.Time    `json:"created"`
	Updated  time.Time    `json:"updated"`
	Finished time.Time    `json:"finished,omitzero"`
}

// job is a job in the hands of its runner.
type job struct {
	dir  string
	spec *spec
	rec  *record
}

// open reports whether there is something left to do.
func (j *job) open() bool { return j.rec.Finished.IsZero() }

// loadJob reads the job of that id. Errors are ErrNoJob and ErrDamaged.
func (r *Runner) loadJob(id string) (*job, error) {
	j := &job{dir: filepath.Join(r.jobs, id), spec: &spec{}, rec: &record{}}
	err := readJSON(filepath.Join(j.dir, specFile), j.spec)
	if err == nil {
		err = readJSON(filepath.Join(j.dir, recordFile), j.rec)
	}
	switch {
	case err != nil:
	case j.spec.Format > specFormat || j.rec.Format > specFormat:
		err = fmt.Errorf("it was written by a newer jorc (format %d)", max(j.spec.Format, j.rec.Format))
	case j.spec.ID != id || len(j.spec.Steps) == 0 || len(j.rec.Tasks) != len(j.spec.Steps) || j.rec.Task < -1 || j.rec.Task >= len(j.spec.Steps):
		err = errors.New("its files do not belong together")
	}
	if _, gone := os.Stat(j.dir); errors.Is(gone, fs.ErrNotExist) {
		return nil, fmt.Errorf("job %q: %w", id, ErrNoJob) // removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("job %q: %w: %w: remove %s", id, ErrDamaged, err, j.dir)
	}
	return j, nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// note adds a transition; i is the task's, -1 for the job's own.
func (r *Runner) note(j *job, i int, state, text string) {
	t := Transition{At: r.now().UTC(), State: state, Text: text}
	if i >= 0 {
		t.Task = j.spec.Steps[i].Name
	}
	j.rec.History = append(j.rec.History, t)
	if over := len(j.rec.History) - maxHistory; over > 0 {
		j.rec.History = slices.Delete(j.rec.History, 0, over)
	}
	args := []any{"job", j.spec.ID, "workflow", j.spec.Workflow, "state", state}
	if t.Task != "" {
		args = append(args, "task", t.Task)
	}
	if text != "" {
		args = append(args, "why", text)
	}
	if state == string(Failed) || state == string(Interrupted) {
		r.log.Warn("workflow", args...)
	} else {
		r.log.Info("workflow", args...)
	}
}

// save writes the record, and calls Options.Changed.
func (r *Runner) save(j *job) error {
	j.rec.Updated = r.now().UTC()
	doc, err := json.Marshal(j.rec)
	if err != nil {
		return fmt.Errorf("job %q: %w", j.spec.ID, err)
	}
	r.hook("save")
	if err := r.writeFile(filepath.Join(j.dir, recordFile), doc); err != nil {
		return fmt.Errorf("job %q: it cannot be written down how far it is: %w", j.spec.ID, err)
	}
	r.hook("saved")
	if r.o.Changed != nil {
		r.o.Changed(j.result())
	}
	return nil
}

// writeFile falls back on the reserve when the disk is full.
func (r *Runner) writeFile(path string, data []byte) error {
	err := durable.WriteFile(path, data, 0o600)
	if isFull(err) && r.freeReserve() {
		err = durable.WriteFile(path, data, 0o600)
	}
	return err
}

// finish ends the job for good.
func (r *Runner) finish(j *job, s State, i int, why string) error {
	j.rec.State, j.rec.Task, j.rec.Why = s, i, why
	j.rec.Finished = r.now().UTC()
	r.note(j, -1, string(s), jobWhy(j, i, why))
	if err := r.save(j); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = map[string]finished{}
	}
	r.ended[j.spec.ID] = j.finished()
	return nil
}

// suspend leaves the job open in state s; it writes nothing when that is nothing new.
func (r *Runner) suspend(j *job, s State, i int, why string) error {
	if j.rec.State == s && j.rec.Task == i && j.rec.Why == why {
		return nil
	}
	j.rec.State, j.rec.Task, j.rec.Why = s, i, why
	r.note(j, -1, string(s), jobWhy(j, i, why))
	return r.save(j)
}

func jobWhy(j *job, i int, why string) string {
	if i < 0 {
		return why
	}
	return fmt.Sprintf("task %q: %s", j.spec.Steps[i].Name, why)
}

// setRunning makes the job running, whatever it waited for.
func (j *job) setRunning() { j.rec.State, j.rec.Task, j.rec.Why = Running, -1, "" }

// result is the job as others see it.
func (j *job) result() Result {
	res := Result{
		ID: j.spec.ID, Workflow: j.spec.Workflow, Version: j.spec.Version, Origin: j.spec.Origin, Output: j.rec.Output, Out: j.spec.Out,
		State: j.rec.State, Open: j.open(), Why: j.rec.Why, Suspect: []string{},
		Tasks: slices.Clone(j.rec.Tasks), History: slices.Clone(j.rec.History),
		Created: j.rec.Created, Updated: j.rec.Updated, Finished: j.rec.Finished,
	}
	for i := range res.Tasks {
		if res.Tasks[i].Failures > 0 {
			res.Suspect = append(res.Suspect, res.Tasks[i].Name)
		}
		res.Tasks[i].Idempotent = j.spec.Steps[i].Idempotent
		res.Tasks[i].LeftBehind = append([]string{}, res.Tasks[i].LeftBehind...)
	}
	if i := j.rec.Task; i >= 0 {
		t := j.rec.Tasks[i]
		res.Task, res.ExitCode, res.Tail, res.LogURL = t.Name, t.ExitCode, t.Tail, t.LogURL
		res.LogPath = j.logPath(i)
	}
	return res
}

func (j *job) logPath(i int) string {
	return filepath.Join(j.dir, fileName(i, j.spec.Steps[i].Name)+".log")
}

// Names in the directory of jobs that are not jobs.
const (
	lockName    = "lock"
	reserveName = "reserve"
)

// reserveSize is the room that is kept for writing down how a task ended, in
// bytes: a task begins only when there is that much.
const reserveSize = 256 << 10

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// ensureReserve makes sure that the end of a task can be written down, also
// when its own output fills the disk.
func (r *Runner) ensureReserve() error {
	path := filepath.Join(r.jobs, reserveName)
	if info, err := os.Stat(path); err == nil && info.Size() == reserveSize {
		return nil
	}
	err := allocate(path)
	if err != nil {
		_ = os.Remove(path) // a part of it does not help
		return fmt.Errorf("no room to write down how a task ends, so none was begun: %w: free some space", err)
	}
	return nil
}

func allocate(path string) error {
	f, err := durable.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = durable.Allocate(f, reserveSize)
	if errors.Is(err, errors.ErrUnsupported) {
		if _, err = f.WriteAt(make([]byte, reserveSize), 0); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// freeReserve frees the space; it reports whether there was any.
func (r *Runner) freeReserve() bool { return os.Remove(filepath.Join(r.jobs, reserveName)) == nil }

// boot names one life of the host: the kernel's boot id, and when its first
// process began, which distinguishes the lives of a container.
type boot struct {
	ID   string `json:"id"`
	Init string `json:"init"`
}

func currentBoot() boot {
	return boot{ID: durable.BootID(), Init: command.StartTime(1)}
}

// same reports whether the host was not restarted in between. What is unknown of
// either counts as equal.
func (b boot) same(o boot) bool {
	equal := func(x, y string) bool { return x == "" || y == "" || x == y }
	return equal(b.ID, o.ID) && equal(b.Init, o.Init)
}
