package converge

import (
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/workflow"
)

// outcomes of jobs.
const (
	jobPassed   = iota
	jobFailed   // also: interrupted, or ended by hand
	jobPending  // something is missing
	jobReboot   // goes on after one
	jobReplaced // ended here: another version is wanted
	jobAgain    // may go on: held, or interrupted and idempotent
)

// verdict is what a job means for the attempt.
type verdict struct {
	what    int
	why     string // one line
	tail    string // of the output
	logURL  string
	suspect string // tasks that passed, but not at the first go
}

// judge says what a job's result means.
//
// A job that one of its tasks stopped (exit code 195) passed: the task said on
// purpose that nothing after it is to be done here, and validation tells whether
// the host works. Counted as a failure it would be run, and stop, for ever.
func judge(res workflow.Result) verdict {
	v := verdict{why: res.Why, tail: res.Tail, logURL: res.LogURL}
	if res.Task != "" {
		v.why = fmt.Sprintf("task %q: %s", res.Task, res.Why)
	}
	if len(res.Suspect) > 0 {
		v.suspect = "failed before it passed: task " + strings.Join(res.Suspect, ", ")
	}
	switch res.State {
	case workflow.Success:
		v.what = jobPassed
	case workflow.Stopped:
		switch {
		case res.Task != "":
			v.what = jobPassed
		case strings.HasPrefix(res.Why, replacedBy):
			v.what = jobReplaced
		default:
			v.what, v.why = jobFailed, "the job was ended by hand: "+res.Why
		}
	case workflow.Pending:
		v.what = jobPending
	case workflow.Reboot:
		v.what = jobReboot
	case workflow.Held, workflow.Running:
		v.what = jobAgain
	case workflow.Interrupted:
		v.what, v.why = jobFailed, "interrupted: "+v.why
		if res.Open {
			v.what = jobAgain
		}
	default:
		v.what = jobFailed
		if res.ExitCode > 0 && !strings.Contains(v.why, "exit code") {
			v.why += fmt.Sprintf(" (exit code %d)", res.ExitCode)
		}
	}
	return v
}

// detail is for the ledger: why, and the end of what the task printed.
func (v verdict) detail() string {
	if tail := strings.TrimSpace(v.tail); tail != "" {
		return v.why + "\n" + tail
	}
	return v.why
}
