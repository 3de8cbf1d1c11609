// Package runs carries out workflows on members of a cluster: what is asked for,
// how the orchestrator spreads it over members, and how a node does its part.
//
// A run and all that is known of it is written by the orchestrator, below
// runs/<id>/. A node watches and writes one small key, host/<node>/queue: what it is
// to run, and what came of it. So what others do costs a node nothing, and a
// node's token reaches no further than its own key.
package runs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
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
	keyActive = keyRuns + ".active/" // <id>: in progress, or results are still to come
	keyEnded  = keyRuns + ".ended/"  // <id>: nothing more is expected
	keyTails  = "/tails/"            // of a run, <node>
)

// awaitsLate is what the index holds of a run that has ended while
// results of lost members may still come.
const awaitsLate = "late"

// Runs are the runs of one cluster. It is safe for concurrent use.
type Runs struct {
	store  *kv.Store
	active kv.Tree[string]
	ended  kv.Tree[string]
	queues kv.Tree[Queue]
}

// New returns the runs whose cluster's keys are in store. It does no I/O.
func New(store *kv.Store) *Runs {
	return &Runs{
		store:  store,
		active: kv.NewTextTree(store, keyActive),
		ended:  kv.NewTextTree(store, keyEnded),
		queues: kv.NewTree[Queue](store, cluster.PrefixHosts, format).Ending(cluster.EndQueue).Checked(mostQueue, Queue.bounded),
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
	return kv.NewText(r.store, keyRuns+id+keyTails+node)
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
