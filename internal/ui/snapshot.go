// Package ui shows a fleet: to browsers as pages and a stream of changes, to
// programs as JSON.
//
// One Fleet per cluster keeps a Snapshot current, whatever the number of viewers.
// The views (Attention, Rollout, Hosts, …) are pure functions of a Snapshot; they use
// the projections that commands use, so a view and its command cannot disagree.
package ui

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/inventory"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/text"
)

// Snapshot is what is known of one cluster at one moment. It is shared and must not be
// changed.
type Snapshot struct {
	// Generation grows with each snapshot of a process. It comes first: snapshots
	// are compared.
	Generation uint64
	Cluster    string
	// Now is the time that ages and waits count from.
	Now time.Time
	// AsOf is until when the snapshot is known to be true.
	AsOf time.Time
	// Stale is why it may no longer be; empty: it is current.
	Stale string

	State    *cluster.State
	Rollouts *rollout.Rollouts
	Stored   rollout.Stored
	// Members are the members as the rollout sees them.
	Members rollout.State
	// Times are since when orchestrators saw hosts as they are, by host.
	Times map[string]HostTimes

	Orchestrated bool
	Orchestrator kv.Holder // who holds the lock

	AllRuns []runs.Run // the newest first
	// Finished are the rollouts that ended, the newest first.
	Finished []rollout.Finished
	Groups   []slots.View // of slots, in order
	// MoreGroups says which groups of slots are not among Groups; empty: all are.
	MoreGroups string
	Journal    []orchestrator.Event  // the last events, in order
	LastSeq    uint64                // of the last event; 0: no events
	Cycles     []orchestrator.Report // recent ones that did something
	// Partial says what could not be read, and why.
	Partial []string

	stageDocuments map[string]stageRead // by stage
	timetables     runs.Timetables
	audited        auditIndexes // zero: not known

	problems  int      // that need attention
	derived   *derived // of the snapshot, shared by its copies
	runsIndex uint64   // of the keys of runs; 0: not known

	// sealed: no param is shown, and none can be asked about.
	sealed bool

	sources *sources // what a viewer's token was checked against; nil: nothing is hidden
	hidden  *hidden  // from the viewer; nil: nothing is
}

// derived is what is computed of a snapshot once, for all views and viewers. None of it may
// be changed.
type derived struct {
	members func() []cluster.Member
	sealed  func() []cluster.Member // without params and meta
	counts  func() orchestrator.Aggregate
	// graph is which hosts require which, without members that neither require nor provide
	// anything.
	graph  func() inventory.Graph
	stages func() map[string]stageState // by name

	mu       sync.Mutex
	problems []Problem
	at       time.Time // of problems; zero: they are not known
}

// problemsFor is for how long problems count that depend on the time alone.
const problemsFor = time.Second

// allProblems returns what needs attention, at most problemsFor old.
func (s *Snapshot) allProblems() []Problem {
	d := s.derived
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || s.Now.Sub(d.at) > problemsFor {
		d.problems, d.at = s.findProblems(), s.Now
	}
	return d.problems
}

func newDerived(state *cluster.State) *derived {
	d := &derived{
		members: sync.OnceValue(func() []cluster.Member { return state.Members(nil) }),
		counts:  sync.OnceValue(func() orchestrator.Aggregate { return orchestrator.AggregateOf(state) }),
	}
	d.sealed = sync.OnceValue(func() []cluster.Member {
		all := slices.Clone(d.members())
		for i := range all {
			all[i].Params, all[i].Meta = nil, nil
		}
		return all
	})
	d.graph = sync.OnceValue(func() inventory.Graph {
		return inventory.Dependencies(slices.DeleteFunc(slices.Clone(d.members()), func(m cluster.Member) bool {
			return len(m.Provides) == 0 && len(m.Requires) == 0
		}))
	})
	return d
}

// HostTimes are since when an orchestrator has seen a host as it is.
type HostTimes struct {
	Life        cluster.Liveness
	LifeSince   time.Time
	Health      string
	HealthSince time.Time
}

// About is what every answer begins with.
type About struct {
	Cluster string `json:"cluster"`
	// Command is the command line that gives the same answer.
	Command string `json:"command"`
	// AsOf is until when the answer is known to be true.
	AsOf time.Time `json:"as_of"`
	// Stale is why it may no longer be, such as a lost connection; empty: it is
	// current, however old its last change.
	Stale string `json:"stale"`
	// Generation grows with each change.
	Generation uint64 `json:"generation"`
	// Partial says what could not be read, and why.
	Partial []string `json:"partial"`
}

// about is what an answer of the snapshot begins with; args are its command without
// the program's name.
func (s *Snapshot) about(args ...string) About {
	return About{
		Cluster: s.Cluster, Command: s.command(args...), AsOf: s.AsOf.UTC(), Stale: s.Stale,
		Generation: s.Generation, Partial: append([]string{}, s.Partial...),
	}
}

// command is a command line of jorc about the snapshot's cluster.
func (s *Snapshot) command(args ...string) string {
	if s.Cluster != cluster.DefaultName {
		args = append([]string{"--cluster=" + s.Cluster}, args...)
	}
	return commandLine(args...)
}

// commandLine is a command line of jorc as a shell reads it.
func commandLine(args ...string) string {
	words := []string{"jorc"}
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// plainWord is what a shell leaves as it is.
var plainWord = text.Pattern(`^[A-Za-z0-9_@%+=:,./-]+$`)

func quoted(word string) string {
	if plainWord().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// members are the members as filters see them; they may not be changed. In a sealed
// snapshot they have no params and no meta, so that no filter can ask about them.
func (s *Snapshot) members() []cluster.Member {
	if s.sealed {
		return s.derived.sealed()
	}
	return s.derived.members()
}

// Sealed reports whether no param is shown.
func (s *Snapshot) Sealed() bool { return s.sealed }

// mostNames bounds how many names an answer lists where it also has their number.
const mostNames = 20

// first returns at most mostNames of names, never nil.
func first(names []string) []string {
	return append([]string{}, names[:min(len(names), mostNames)]...)
}

// atCommand finds a command in a remedy: "'jorc cluster resume' continues".
var atCommand = text.Pattern(`'jorc ([^']+)'`)

// remedyCommand is the command that a text names, about the snapshot's cluster; empty:
// it names none.
func (s *Snapshot) remedyCommand(text string) string {
	found := atCommand().FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	if words := strings.Fields(found[1]); s.Cluster != cluster.DefaultName && !slices.Contains(words, "--cluster") {
		return "jorc " + quoted("--cluster="+s.Cluster) + " " + found[1]
	}
	return "jorc " + found[1]
}
