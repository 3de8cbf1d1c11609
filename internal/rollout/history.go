package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Outcomes of a rollout.
const (
	OutcomeDone       = "done"
	OutcomeAborted    = "aborted"
	OutcomeSuperseded = "superseded"  // another version was triggered before it was over
	OutcomeRolledBack = "rolled back" // to the version before, by its policy
)

// Finished is the record of a rollout that ended, at history/rollouts/<id>.
type Finished struct {
	ID       string      `json:"id"` // when it began, and the version
	Version  string      `json:"version"`
	Previous string      `json:"previous,omitempty"`
	Outcome  string      `json:"outcome"`
	Why      string      `json:"why,omitempty"` // it ended so
	By       string      `json:"by,omitempty"`  // who triggered it
	Reason   string      `json:"reason,omitempty"`
	Policy   pace.Policy `json:"policy"`
	// RollbackOf: it took another rollout back.
	RollbackOf *Rollback `json:"rollback_of,omitempty"`
	// Exceptions are the rules of the cluster that it did not follow.
	pace.Exceptions
	Started  time.Time   `json:"started"`
	Finished time.Time   `json:"finished"`
	Counts   pace.Counts `json:"counts"`
	// Waiting and Active are the times of all hosts, in seconds.
	Waiting Spread `json:"waiting"`
	Active  Spread `json:"active"`
	// Hosts are the ones that are not done, and then the ones with the longest active
	// times, in that order; Left is how many are left out.
	Hosts []HostTimes `json:"hosts,omitempty"`
	Left  int         `json:"hosts_left"`
}

// HostTimes says what a rollout took on one host. Times that are not known are left out.
type HostTimes struct {
	pace.HostProgress // when the rollout ended
	// Waiting is from the beginning of the rollout until the host began, Active from then
	// on until it was healthy and back in service, or the rollout ended.
	Waiting *int64 `json:"waiting_seconds,omitempty"`
	Active  *int64 `json:"active_seconds,omitempty"`
}

// Spread sums up times of hosts, in seconds.
type Spread struct {
	Hosts int   `json:"hosts"` // of which the time is known
	P50   int64 `json:"p50"`
	P90   int64 `json:"p90"`
	P99   int64 `json:"p99"`
	Most  int64 `json:"max"`
}

// Known is the document at history/current: the rollout as the orchestrator saw it
// last. A rollout that another one superseded is known from there alone.
type Known struct {
	ID       string   `json:"id"`
	Document Document `json:"document"`
	Recorded bool     `json:"recorded"` // it is over, and its record is written
}

// Bounds of the history.
const (
	keptRollouts   = 100
	mostHostTimes  = 200
	historyFormat  = 1
	prefixHistory  = cluster.PrefixHistory + "rollouts/"
	keyKnown       = cluster.PrefixHistory + "current"
	maxHistoryText = 500 // bytes
)

// ErrNoRollout: there is no record of such a rollout.
var ErrNoRollout = errors.New("no such rollout in the history")

const historyTime = "20060102T150405Z"

// historyID identifies the rollout of a document: its time of beginning sorts. A
// rollback may begin in the same second as the rollout of its version.
func (s Spec) historyID() string {
	separator := "-"
	if s.RollbackOf != nil {
		separator = "."
	}
	return s.Started.UTC().Format(historyTime) + separator + s.Version
}

// versionOf is the version of the rollout with an ID.
func versionOf(id string) string { return id[min(len(id), len(historyTime)+1):] }

// isKnown reports whether the known rollout is about the rollout of the document.
func (s Stored) isKnown() bool { return s.known.Exists && s.known.Value.ID == s.Document.historyID() }

// superseded reports whether another rollout took the place of the known one.
func (s Stored) superseded() bool { return s.known.Exists && !s.isKnown() && !s.known.Value.Recorded }

// Knowing returns s with what other, as Load read it, says of the rollouts before.
func (s Stored) Knowing(other Stored) Stored {
	s.known = other.known
	return s
}

// Unrecorded reports whether a rollout ended that has no record yet: by a command that
// triggered another version, or aborted it.
func (s Stored) Unrecorded() bool {
	return s.Damaged == nil && s.Exists && (s.superseded() || s.Document.Over() && !(s.isKnown() && s.known.Value.Recorded))
}

// Ended returns the record of the rollout that is Unrecorded; state is made of s.
func (s Stored) Ended(state State) Finished {
	d := s.Document
	if !s.superseded() {
		return finished(d, d.outcome(), d.why(), state, d.Finished)
	}
	old, outcome, why := s.known.Value.Document, OutcomeSuperseded, "superseded by "+d.Version+d.TriggeredText()
	if r := d.RollbackOf; r != nil && r.Version == old.Version {
		outcome, why = OutcomeRolledBack, r.Reason
	}
	return finished(old, outcome, why, state, d.Started)
}

func (d Document) outcome() string {
	if d.Phase == pace.Aborted {
		return OutcomeAborted
	}
	return OutcomeDone
}

func (d Document) why() string {
	if d.Stopped == nil {
		return ""
	}
	return strings.TrimSuffix("by "+d.Stopped.By+": "+d.Stopped.Reason, ": ")
}

// Record returns what writes the record of a rollout that ended by a command, see
// Ended; names are those of the records that there are.
func (r *Rollouts) Record(s Stored, f Finished, names []string) func(*kv.Txn) {
	return func(t *kv.Txn) {
		r.addRecord(t, f, names)
		k := s.known.Value
		if k.Recorded = true; f.ID == s.Document.historyID() {
			k.ID, k.Document = f.ID, s.Document
			t.CheckIndex(keyVersion, s.spec.Index)
		}
		r.knowns.SwapIn(t, s.known, k)
	}
}

// ReplaceRecorded is Replace that also keeps the history: the rollout as it will be, and
// the record of the one that ends by this.
func (r *Rollouts) ReplaceRecorded(s Stored, next Document, state State, names []string, now time.Time) func(*kv.Txn) {
	replace := r.Replace(s, next)
	if replace == nil {
		return nil
	}
	return func(t *kv.Txn) {
		replace(t)
		k := Known{ID: next.historyID(), Document: next}
		switch old := s.Document; {
		case s.Exists && !old.Over() && next.RollbackOf != nil && next.RollbackOf.Version == old.Version && next.historyID() != old.historyID():
			r.addRecord(t, finished(old, OutcomeRolledBack, next.RollbackOf.Reason, state, now), names)
			if next.Over() { // no member had left
				k.Recorded = true
				f := finished(next, OutcomeDone, "", state, now)
				kv.NewDoc[Finished](r.store, prefixHistory+f.ID, historyFormat).SetIn(t, f)
			}
		case next.Over():
			k.Recorded = true
			r.addRecord(t, finished(next, next.outcome(), next.why(), state, next.Finished), names)
		}
		r.knowns.SwapIn(t, s.known, k)
	}
}

// Know returns what keeps the present rollout for the history; nil: it is known as it
// is, or over.
func (r *Rollouts) Know(s Stored) func(*kv.Txn) {
	if !s.Exists || s.Damaged != nil || s.Document.Over() || s.isKnown() && s.known.Value.Document.equal(s.Document) {
		return nil
	}
	return func(t *kv.Txn) {
		t.CheckIndex(keyVersion, s.spec.Index)
		r.knowns.SwapIn(t, s.known, Known{ID: s.Document.historyID(), Document: s.Document})
	}
}

// addRecord writes a record, and deletes the oldest ones beyond the limit.
func (r *Rollouts) addRecord(t *kv.Txn, f Finished, names []string) {
	kv.NewDoc[Finished](r.store, prefixHistory+f.ID, historyFormat).SetIn(t, f)
	names = slices.DeleteFunc(slices.Clone(names), func(id string) bool { return id == f.ID })
	slices.Sort(names)
	for len(names) >= keptRollouts && t.Len() < kv.MaxOps-10 {
		t.Delete(prefixHistory + names[0])
		names = names[1:]
	}
}

// finished makes the record of a rollout from what its hosts report.
func finished(d Document, outcome, why string, s State, end time.Time) Finished {
	f := Finished{
		ID: d.historyID(), Version: d.Version, Previous: d.Previous, Outcome: outcome, Why: text.Line(why, maxHistoryText), By: d.By, Reason: d.Reason,
		Policy: d.Policy, RollbackOf: d.RollbackOf, Exceptions: d.Exceptions, Started: d.Started, Finished: pace.Second(end), Hosts: []HostTimes{},
	}
	p := newPlanner(d, s, end)
	f.Counts = p.counts
	o := p.Outlook()
	var waiting, active []int64
	for _, m := range p.members {
		h := m.times(d, end)
		progress := p.hostProgress(m, o)
		h.Zone, h.State = m.Zone, m.in.State
		if h.State != pace.HasIt {
			h.Detail = shorten(progress.Detail)
		}
		if h.Waiting != nil {
			waiting = append(waiting, *h.Waiting)
		}
		if h.Active != nil {
			active = append(active, *h.Active)
		}
		f.Hosts = append(f.Hosts, h)
	}
	f.Waiting, f.Active = spread(waiting), spread(active)
	slices.SortStableFunc(f.Hosts, func(a, b HostTimes) int {
		return cmp.Or(pace.CompareProgress(a.State, b.State), cmp.Compare(seconds(b.Active), seconds(a.Active)), cmp.Compare(a.Node, b.Node))
	})
	f.Left = max(0, len(f.Hosts)-mostHostTimes)
	f.Hosts = f.Hosts[:len(f.Hosts)-f.Left]
	return f
}

func seconds(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

// times are the member's times in the rollout. With a policy they come from its answer
// to the grant, without one from the state of its workflow.
func (m *Member) times(d Document, end time.Time) HostTimes {
	h := HostTimes{HostProgress: pace.HostProgress{Node: m.Node}}
	began, ended := m.Answer.Since, m.Answer.Ended
	mine := m.Answer.ID != "" && m.Answer.Tag == d.Version
	if m.Answer.Open() {
		ended = end
	}
	if !d.Paced() {
		c := m.Config
		mine, began, ended = c.Version == d.Version, c.Began, c.Since
		if c.State == cluster.StateRunning {
			began, ended = c.Since, end
		}
	}
	between := func(a, b time.Time) *int64 {
		n := int64(max(0, b.Sub(a)) / time.Second)
		return &n
	}
	switch {
	case mine && !began.IsZero() && !began.Before(d.Started.Add(-time.Second)):
		h.Waiting = between(d.Started, began)
		if !ended.IsZero() {
			h.Active = between(began, ended)
		}
	case m.Version != d.Version:
		h.Waiting = between(d.Started, end)
	}
	return h
}

func spread(all []int64) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	at := func(percent int) int64 { return all[(len(all)-1)*percent/100] }
	return Spread{Hosts: len(all), P50: at(50), P90: at(90), P99: at(99), Most: all[len(all)-1]}
}

// RecordNames reads the names of the records, the oldest first. It returns a class of
// package consul.
func (r *Rollouts) RecordNames(ctx context.Context) ([]string, error) {
	names, err := kv.NewTextTree(r.store, prefixHistory).Names(ctx)
	slices.Sort(names)
	return names, err
}

// History reads the records of all rollouts that are kept, the newest first; bad are
// the ones that cannot be read. It returns a class of package consul.
func (r *Rollouts) History(ctx context.Context) (all []Finished, bad []error, err error) {
	leaves, err := kv.NewTree[Finished](r.store, prefixHistory, historyFormat).List(ctx)
	if err != nil {
		return nil, nil, err
	}
	all = []Finished{}
	for _, leaf := range leaves {
		if leaf.Err != nil {
			bad = append(bad, leaf.Err)
			continue
		}
		all = append(all, leaf.Value)
	}
	slices.SortFunc(all, func(a, b Finished) int { return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID)) })
	return all, bad, nil
}

// RecordOf reads one record by its ID, or the newest one of a version. It returns
// ErrNoRollout, kv.ErrDamaged, kv.ErrNewer or a class of package consul.
func (r *Rollouts) RecordOf(ctx context.Context, name string) (Finished, error) {
	names, err := r.RecordNames(ctx)
	if err != nil {
		return Finished{}, err
	}
	for _, id := range slices.Backward(names) {
		if id != name && versionOf(id) != name {
			continue
		}
		e, err := kv.NewDoc[Finished](r.store, prefixHistory+id, historyFormat).Get(ctx)
		if err != nil {
			return Finished{}, err
		}
		if e.Exists {
			return e.Value, nil
		}
	}
	return Finished{}, fmt.Errorf("%q: %w%s: 'jorc update history' lists them", name, ErrNoRollout, text.Unknown(name, "rollouts", names))
}
