package workflow

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Job is one run of a workflow that is asked for. What templates see of it is
// as of its creation.
type Job struct {
	ID       string         // one segment, unique on this host; empty: a new one is made
	Workflow string         // may be empty when a job of this ID exists
	Params   profile.Params // what .Param gives
	Version  string         // what .Version gives; empty: none
	Origin   string         // who asked, for people: "jorc workflow run", "run 7f3a"
	Change   []byte         // what a trigger saw; tasks find it in the file $JORC_CHANGE

	// FromRun: a run asked for the job. Then it may have only the params that the
	// workflow allows. It counts when the job is created.
	FromRun bool

	// Out: the host is out of service for the job, or an operator runs it by hand, so that it may
	// have the host rebooted if its workflow may. It counts when the job is created.
	Out bool

	// Done names tasks that are done already, on another host or in an earlier job:
	// they are skipped. It counts when the job is created.
	Done []string
}

// State is the progress of a job.
type State string

// States of jobs. Result.Open reports whether Drive with the same ID continues it.
const (
	Running     State = "running"     // or open, and not running now
	Success     State = "success"     // every task is done or was not needed
	Failed      State = "failed"      // a task failed, its retries used up
	Pending     State = "pending"     // the next task waits for something; no failure
	Stopped     State = "stopped"     // ended early on purpose: by a task, by a hook, by Abandon
	Reboot      State = "reboot"      // continues after a reboot
	Held        State = "held"        // continues when the host is no longer on hold
	Interrupted State = "interrupted" // a task was cut off; open when the task is idempotent
	Damaged     State = "damaged"     // its files cannot be read
)

// TaskState is the progress of a task.
type TaskState string

// States of tasks.
const (
	TaskPlanned     TaskState = "planned"
	TaskRunning     TaskState = "running"
	TaskRetrying    TaskState = "retrying" // failed, and is tried again in a while
	TaskSuccess     TaskState = "success"
	TaskSkipped     TaskState = "skipped" // its only_if failed
	TaskFailed      TaskState = "failed"
	TaskPending     TaskState = "pending"
	TaskInterrupted TaskState = "interrupted"
)

func (s TaskState) done() bool { return s == TaskSuccess || s == TaskSkipped }

// ByHand is the Origin of a job that an operator runs on this host.
const ByHand = "jorc workflow run"

// Result is the state of a job.
type Result struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	Version  string `json:"version"`
	Origin   string `json:"origin"`
	State    State  `json:"state"`
	Open     bool   `json:"open"` // Drive with the same ID continues it
	Why      string `json:"why"`  // one line; empty for success
	Task     string `json:"task"` // the task that Why is about

	ExitCode int    `json:"exit_code"` // of that task's last attempt
	Tail     string `json:"tail"`      // of its output
	Out      bool   `json:"-"`         // see Job.Out
	Output   string `json:"-"`         // the last KiB of what the last successful task printed
	LogPath  string `json:"log_path"`
	LogURL   string `json:"log_url"`

	// Suspect names the tasks of which an attempt failed, whatever became of them.
	Suspect  []string     `json:"suspect"`
	Tasks    []TaskStatus `json:"tasks"`
	History  []Transition `json:"history"` // the last ones
	Created  time.Time    `json:"created"`
	Updated  time.Time    `json:"updated"`
	Finished time.Time    `json:"finished,omitzero"`
}

// Done names the tasks that another job in place of this one need not run.
func (res Result) Done() []string {
	var names []string
	for _, t := range res.Tasks {
		if t.State.done() {
			names = append(names, t.Name)
		}
	}
	return names
}

// Once is the next task, or the one that is running, if it must not run again after an
// interruption; empty: it may, or no task is left.
func (res Result) Once() string {
	for _, t := range res.Tasks {
		switch {
		case t.State.done():
		case t.Idempotent:
			return ""
		default:
			return t.Name
		}
	}
	return ""
}

// TaskStatus is the state of a task.
type TaskStatus struct {
	Name          string    `json:"name"`
	State         TaskState `json:"state"`
	Attempts      int       `json:"attempts"`
	Failures      int       `json:"failures"`      // attempts that failed
	Interruptions int       `json:"interruptions"` // attempts that were cut off
	Deferrals     int       `json:"deferrals"`     // attempts that said "not yet"
	ExitCode      int       `json:"exit_code"`     // of the last attempt
	Why           string    `json:"why"`
	Tail          string    `json:"tail"` // of the output, unless it succeeded
	LogURL        string    `json:"log_url"`
	LogError      string    `json:"log_error"`   // why the log is not whole, or not stored
	LeftBehind    []string  `json:"left_behind"` // processes that it left running: "sleep (pid 12)"
	Started       time.Time `json:"started,omitzero"`
	Ended         time.Time `json:"ended,omitzero"`
	Idempotent    bool      `json:"-"` // may run again after an interruption
}

// Transition is one change of a job or, with Task, of a task.
type Transition struct {
	At    time.Time `json:"at"`
	Task  string    `json:"task,omitempty"`
	State string    `json:"state"`
	Text  string    `json:"text,omitempty"`
}

// CheckID returns ErrInvalid for what cannot be the ID of a job.
func CheckID(id string) error {
	if err := text.CheckName(id); err != nil {
		return fmt.Errorf("%w: job id %w", ErrInvalid, err)
	}
	if id[0] == '.' || id == lockName || id == reserveName {
		return fmt.Errorf("job id %q: %w: the name is taken", id, ErrInvalid)
	}
	return nil
}

// newID sorts by time.
func newID(now time.Time) string { return now.UTC().Format("20060102T150405Z") + "-" + nonce(4) }

// nonce is a random name of 2n characters.
func nonce(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
