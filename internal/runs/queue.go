package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Queue is what one node is to run: the jobs that it is granted, with what it says of them.
type Queue struct {
	Jobs []Queued `json:"jobs"`
}

// Queued is one job in a node's queue.
type Queued struct {
	Run string `json:"run"`
	change.JobGrant
	// Until is when its window closes or a freeze begins: the host does not begin it from then on.
	Until time.Time `json:"until,omitzero"`
	Result
}

// Results is what a node says of the jobs that it is granted; it is kept at host/<node>/results.
type Results struct {
	Jobs []Result `json:"jobs"`
}

// Result is how far a node is with one job. What it says stays until the job is no longer granted.
type Result struct {
	Job   string `json:"job"` // the job's ID on the node
	State State  `json:"state,omitempty"`
	Why   string `json:"why,omitempty"`
	Task  string `json:"task,omitempty"`
	// Rebooting: its host reboots for it, so that its agent may be down for a while.
	Rebooting bool      `json:"rebooting,omitempty"`
	ExitCode  int       `json:"exit_code,omitempty"`
	Tail      string    `json:"tail,omitempty"`
	LogURL    string    `json:"log_url,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`

	Done []string `json:"done,omitempty"` // as in Job
	Once string   `json:"once,omitempty"` // as in Job
}

// Bounds of what is read of a node's results: the orchestrator takes them over.
const (
	mostResults = 256 << 10 // bytes
	mostDone    = 1000      // tasks of one job
	longest     = 8 << 10   // bytes of one text
)

// bounded returns what of the results is beyond the bounds.
func (r Results) bounded() error {
	for _, e := range r.Jobs {
		if len(e.Done) > mostDone {
			return fmt.Errorf("a job with %d finished tasks, at most %d are read", len(e.Done), mostDone)
		}
		for _, text := range append([]string{e.Job, string(e.State), e.Why, e.Task, e.Once, e.Tail, e.LogURL}, e.Done...) {
			if len(text) > longest {
				return fmt.Errorf("a text of %d bytes, at most %d are read", len(text), longest)
			}
		}
	}
	return nil
}

// has reports whether the node says anything of a job.
func (r Results) has(job string) bool {
	return slices.ContainsFunc(r.Jobs, func(e Result) bool { return e.Job == job })
}

// of is what the node says of a job. Without a result it has not begun.
func (r Results) of(job string) Result {
	if i := slices.IndexFunc(r.Jobs, func(e Result) bool { return e.Job == job }); i >= 0 {
		return r.Jobs[i]
	}
	return Result{Job: job}
}

// with returns the results with another one of next.Job, without those of jobs that are not kept.
func (r Results) with(next Result, kept func(job string) bool) Results {
	all := slices.DeleteFunc(slices.Clone(r.Jobs), func(e Result) bool { return e.Job == next.Job || !kept(e.Job) })
	return Results{append(all, next)}
}

// queueOf is the queue of a node with these grants and results.
func queueOf(granted change.Grants, said Results) Queue {
	q := Queue{Jobs: []Queued{}}
	for _, g := range granted.Jobs() {
		e := queued(g)
		e.Result = said.of(g.Tag)
		e.State = cmp.Or(e.State, Pending)
		q.Jobs = append(q.Jobs, e)
	}
	return q
}

// queued is the job of a grant, which has not begun.
func queued(g change.Grant) Queued {
	run, _ := cluster.RunOf(g.Change)
	return Queued{Run: run, JobGrant: *g.Job, Until: g.Until, Result: Result{Job: g.Tag, State: Pending}}
}

// Granted are the grants of the queue, in the place of those of runs in old. now is when the new ones are offered.
func (q Queue) Granted(old change.Grants, now time.Time) change.Grants {
	jobs := make([]change.Grant, 0, len(q.Jobs))
	for _, e := range q.Jobs {
		g, known := old.Job(e.Job)
		if !known {
			g = change.Grant{Change: cluster.RunChange(e.Run), Tag: e.Job, ID: e.Job, State: pace.Offered, Since: now.Truncate(time.Second), Until: e.Until}
		}
		g.Job = &e.JobGrant
		jobs = append(jobs, g)
	}
	return old.WithJobs(jobs)
}

// Results are what the node says of the jobs of the queue.
func (q Queue) Results() (said Results) {
	for _, e := range q.Jobs {
		said.Jobs = append(said.Jobs, e.Result)
	}
	return said
}

// Disturbing returns the first job of a host's queue, as a cluster.State has it, for which the host
// is out of service; ok is false without such a job.
func (r *Runs) Disturbing(h *cluster.Host) (e Queued, ok bool) {
	if r == nil || !strings.Contains(h.Grants.Value, `"disturbs"`) { // most are not decoded
		return e, false
	}
	said, _ := r.results.At(h.Node).Parse(h.Results) // what cannot be read is empty
	q := queueOf(change.GrantsIn(h).Value, said.Value)
	i := slices.IndexFunc(q.Jobs, func(e Queued) bool { return e.Disturbs })
	if i < 0 {
		return e, false
	}
	return q.Jobs[i], true
}

// queueAt reads the queue of a node. What is damaged counts as empty.
func (r *Runs) queueAt(ctx context.Context, node string) (Queue, error) {
	grants, results := change.GrantsAt(r.store, node), r.results.At(node)
	read, err := r.store.Txn().Get(grants.Key()).Get(results.Key()).Commit(ctx)
	if err != nil {
		return Queue{}, err
	}
	granted, err := grants.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Queue{}, err
	}
	said, err := results.From(read)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return Queue{}, err
	}
	return queueOf(granted.Value, said.Value), nil
}

// OutText is why a host is out of service for a job, in words.
func (e Queued) OutText() string {
	switch {
	case e.State.Ended():
		return "run " + e.Run + " ended there, and it has to be in service for long enough"
	case e.State == Running:
		return "run " + e.Run + " is at work there"
	}
	return "run " + e.Run + " begins there"
}

func (q Queue) find(job string) int {
	return slices.IndexFunc(q.Jobs, func(e Queued) bool { return e.Job == job })
}

func (q Queue) has(run string) bool {
	return slices.ContainsFunc(q.Jobs, func(e Queued) bool { return e.Run == run })
}

func (q Queue) clone() Queue {
	jobs := make([]Queued, len(q.Jobs))
	copy(jobs, q.Jobs)
	return Queue{Jobs: jobs}
}
