// Package runs carries out workflows on members of a cluster: what is asked for,
// how the orchestrator spreads it over members, and how a node does its part.
//
// A run and all that is known of it is written by the orchestrator, below
// runs/<id>/. It grants each node its job in host/<node>/grants, beside the grants of
// all other changes; what came of it the node writes to host/<node>/results. So what
// others do costs a node nothing, and a node's token reaches no further than its own key.
package runs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Sentinels of this package.
var (
	// ErrInvalid: this cannot be a run.
	ErrInvalid = errors.New("invalid")
	// ErrNoRun: there is no run of that ID.
	ErrNoRun = errors.New("no such run")
	// ErrTaken: there is another run of that ID. It is a kv.ErrConflict.
	ErrTaken error = taken{}
	// ErrState: the run is past the point where this is possible.
	ErrState = errors.New("too late")
)

// format is that of all documents of this package.
const format = 1

// Keys, below the cluster's prefix. The active runs are
// listed in an index; IDs do not begin with a dot.
const (
	keyRuns   = cluster.PrefixRuns
	keyActive = cluster.PrefixActiveRuns // <id>: in progress, or results are still to come
	keyEnded  = keyRuns + ".ended/"      // <id>: nothing more is expected
	keyTimes  = keyRuns + ".schedules/"
	keyWaits  = keyRuns + ".waits/" // <node>/<id>: what the run's job there waits for
)

// awaitsLate is what the index holds of a run that has ended while
// results of lost members may still come.
const awaitsLate = "late"

// Runs are the runs of one cluster. It is safe for concurrent use.
type Runs struct {
	store   *kv.Store
	active  kv.Tree[string]
	ended   kv.Tree[string]
	results kv.Tree[Results]
	waits   kv.Tree[wait]
	// timetables are those of rules with a schedule.
	timetables kv.Tree[Timetable]
}

// New returns the runs whose cluster's keys are in store. It does no I/O.
func New(store *kv.Store) *Runs {
	return &Runs{
		store:      store,
		active:     kv.NewTextTree(store, keyActive),
		ended:      kv.NewTextTree(store, keyEnded),
		waits:      kv.NewTree[wait](store, keyWaits, format),
		timetables: kv.NewTree[Timetable](store, keyTimes, format),
		results:    kv.NewTree[Results](store, cluster.PrefixHosts, format).Ending(cluster.EndResults).Checked(mostResults, Results.bounded),
	}
}

func (r *Runs) spec(id string) kv.Doc[Run] {
	return kv.NewDoc[Run](r.store, keyRuns+id+"/spec", format)
}

func (r *Runs) members(id string) kv.Doc[Roster] {
	return kv.NewDoc[Roster](r.store, keyRuns+id+"/members", format)
}

func (r *Runs) jobs(id string) kv.Tree[Job] {
	return kv.NewTree[Job](r.store, keyRuns+id+"/nodes/", format)
}

func (r *Runs) tail(id, node string) kv.Doc[string] {
	return kv.NewText(r.store, cluster.TailKey(id, node))
}

type taken struct{}

func (taken) Error() string { return "another run has this id" }
func (taken) Unwrap() error { return kv.ErrConflict }

// maxID bounds a run's ID in bytes: a job's, which is made of it, has 128.
const maxID = 96

// NewID returns an ID that sorts by time, to a millisecond.
func NewID(now time.Time) string {
	return strconv.FormatInt(now.UnixMilli(), 36) + "-" + strings.ToLower(rand.Text()[:5])
}

// CheckID returns ErrInvalid for what cannot be the ID of a run.
func CheckID(id string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	switch {
	case id == "":
		return fmt.Errorf("run id: %w: it is empty", ErrInvalid)
	case len(id) > maxID:
		return fmt.Errorf("run id: %w: it has %d bytes, at most %d are possible", ErrInvalid, len(id), maxID)
	case id[0] == '.' || id[0] == '-' || strings.ContainsFunc(id, bad):
		return fmt.Errorf("run id %q: %w: letters, digits, '.', '_' and '-' make one, and a letter, a digit or '_' begins it", id, ErrInvalid)
	}
	return nil
}

// jobID is what the run's job is called on a node.
func jobID(run string, attempt int) string {
	if attempt <= 1 {
		return "run-" + run
	}
	return fmt.Sprintf("run-%s.%d", run, attempt)
}

// State is how far a run is, or its job on one member.
type State string

// States. A run is lost only job by job.
const (
	NeedsApproval State = "needs-approval"
	Pending       State = "pending" // of a job: the node is granted it, or will be
	Running       State = "running"
	Done          State = "done"
	Failed        State = "failed"
	Cancelled     State = "cancelled"
	Lost          State = "lost" // the member was gone for too long; its result is taken when it is back
)

// Ended reports whether nothing more is expected to happen.
func (s State) Ended() bool { return s == Done || s == Failed || s == Cancelled || s == Lost }

// Request is what is asked for.
type Request struct {
	Workflow string         `json:"workflow"`
	Params   profile.Params `json:"params,omitempty"`
	Filter   string         `json:"filter,omitempty"` // as cluster.ParseFilter reads it
	Role     string         `json:"role,omitempty"`
	// OnManager: once, on a manager or where the orchestrator is.
	OnManager bool `json:"on_manager,omitempty"`
	// Disturbs: it takes its members out of service, also where the host's workflow does
	// not say so.
	Disturbs      bool `json:"disturbs,omitempty"`
	NeedsApproval bool `json:"needs_approval,omitempty"`
	// Windows are when its jobs may begin; none: always.
	Windows []pace.Window `json:"windows,omitempty"`
	// Exceptions are the rules of the cluster that a run that disturbs does not follow.
	pace.Exceptions
	Limits

	Nodes   []string `json:"nodes,omitempty"`    // only these; nil: all that match
	RetryOf string   `json:"retry_of,omitempty"` // the run that Nodes are from
	// FromStart: a member on which that run was interrupted runs the whole workflow, and
	// does not continue with the interrupted task.
	FromStart bool `json:"from_start,omitempty"`
	// Done are the tasks that RetryOf finished, if it was interrupted on a manager: they are not
	// run again.
	Done []string `json:"done,omitempty"`
}

// Same reports whether both ask for the same: 1 and 1.0 are the same value of a param.
func (q Request) Same(o Request) bool {
	sameParams := q.Params.Equal(o.Params)
	q.Params = o.Params
	return sameParams && text.SameJSON(q, o)
}

// Run is one run; it is kept at runs/<id>/spec.
type Run struct {
	ID      string    `json:"id"`
	Request Request   `json:"request"`
	Rule    *Standing `json:"rule,omitempty"` // set for a run that a rule asks for
	By      string    `json:"by,omitempty"`   // who asked
	// Gate: the gate of a rollout asked for it.
	Gate    bool      `json:"gate,omitempty"`
	Created time.Time `json:"created"`

	State   State  `json:"state"`
	Why     string `json:"why,omitempty"`
	Cancel  string `json:"cancel,omitempty"`  // who cancelled it while it was running
	Kill    bool   `json:"kill,omitempty"`    // with Cancel: running tasks are ended, too
	Stopped string `json:"stopped,omitempty"` // why no further member begins: too many failed
	// Denied are the first members on which only the budget of the cluster keeps it from beginning.
	Denied  []string  `json:"denied,omitempty"`
	Counts  Counts    `json:"counts"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	History []Change  `json:"history"`
}

// Standing is the rule behind a run that members join for as long as the rule
// is there.
type Standing struct {
	Name  string `json:"name"`
	After string `json:"after,omitempty"`
	Gone  bool   `json:"gone,omitempty"` // the rule no longer exists
}

// Counts are a run's members by state.
type Counts struct {
	Members   int `json:"members"`
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Done      int `json:"done"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	Lost      int `json:"lost"`
}

// Hosts are the members as the hosts of any change: a lost member failed, and one whose job was cancelled was given up.
func (c Counts) Hosts() pace.Counts {
	return pace.Counts{Members: c.Members, Waiting: c.Pending, Working: c.Running, Done: c.Done, Failed: c.Failed + c.Lost, GivenUp: c.Cancelled}
}

// Host is the state of a member as of a host in any change, as Counts.Hosts has it.
func (s State) Host() pace.State {
	switch s {
	case Running:
		return pace.Working
	case Done:
		return pace.HasIt
	case Failed, Lost:
		return pace.Failed
	case Cancelled:
		return pace.Left
	}
	return pace.Pending
}

func (c *Counts) add(s State) {
	c.Members++
	switch s {
	case Running:
		c.Running++
	case Done:
		c.Done++
	case Failed:
		c.Failed++
	case Cancelled:
		c.Cancelled++
	case Lost:
		c.Lost++
	default:
		c.Pending++
	}
}

func (c *Counts) merge(o Counts) {
	c.Members += o.Members
	c.Pending += o.Pending
	c.Running += o.Running
	c.Done += o.Done
	c.Failed += o.Failed
	c.Cancelled += o.Cancelled
	c.Lost += o.Lost
}

// Change is one transition.
type Change struct {
	At    time.Time `json:"at"`
	State State     `json:"state"`
	By    string    `json:"by"` // a node, "orchestrator on <node>", or a person
	Text  string    `json:"text,omitempty"`
}

// maxHistory bounds the transitions that a document remembers.
const maxHistory = 32

func noted(h []Change, c Change) []Change {
	h = append(slices.Clone(h), c)
	return h[max(0, len(h)-maxHistory):]
}

// Roster is who a run is for; it is kept at runs/<id>/members.
type Roster struct {
	Nodes []string `json:"nodes"` // sorted; of a rule in the order of their joining
}

// Job is a run's part on one member, as the orchestrator knows it; it is kept
// at runs/<id>/nodes/<node>.
type Job struct {
	State    State    `json:"state"`
	Why      string   `json:"why,omitempty"`
	Task     string   `json:"task,omitempty"` // the one that Why is about
	ExitCode int      `json:"exit_code"`
	LogURL   string   `json:"log_url,omitempty"`
	Done     []string `json:"done,omitempty"` // tasks; of a run on a manager only
	// Once is the running task if it must not run again after an interruption, or the one at which
	// the job was interrupted; of a run on a manager only.
	Once    string `json:"once,omitempty"`
	Attempt int    `json:"attempt"` // from 1; a run on a manager, and a job that was taken back, may need more
	// Back: it was taken back before it began, because its window closed or its member was
	// frozen. The member waits again.
	Back    bool     `json:"back,omitempty"`
	History []Change `json:"history"`
}
