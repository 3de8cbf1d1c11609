package orchestrator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Outcomes of cycles.
const (
	OutcomeUnchanged = "unchanged" // nothing was different, nothing was written
	OutcomeChanged   = "changed"
	OutcomePartial   = "partial" // some nodes or deciders failed, the others did not
	OutcomeFailed    = "failed"
	OutcomeLost      = "lost" // the lock: the cycle ended in the middle
)

// What makes a cycle run.
const (
	triggerStart   = "start" // of holding the lock
	triggerDue     = "due"
	triggerChange  = "change"
	triggerRequest = "request"
)

// Report is what one cycle did.
type Report struct {
	Number   uint64    `json:"number"` // of the ones that are kept; 0: it is not
	Node     string    `json:"node"`   // the orchestrator's
	Epoch    uint64    `json:"epoch"`  // of its lock
	Trigger  string    `json:"trigger"`
	Start    time.Time `json:"start"`
	Duration int64     `json:"duration_ms"`
	Outcome  string    `json:"outcome"`
	Error    string    `json:"error,omitempty"` // why it failed
	Idle     string    `json:"idle,omitempty"`  // why nothing was decided: observe only, paused, …

	Synced    int       `json:"synced"` // nodes of which everything could be read
	Failed    int       `json:"failed"` // nodes of which something could not
	Events    int       `json:"events"`
	FirstSeq  uint64    `json:"first_seq,omitempty"`
	LastSeq   uint64    `json:"last_seq,omitempty"`
	Decisions []Decided `json:"decisions,omitempty"` // the first of them
	Decided   int       `json:"decided"`             // all of them
	Problems  []Problem `json:"problems,omitempty"`  // the first of them
}

// Decided is one decision in a report.
type Decided struct {
	Decider string `json:"decider"`
	event.Decision
}

// Problem is a node, document or decider that failed.
type Problem struct {
	What string `json:"what"` // node, document, decider
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Bounds of a report, and of all that are kept, as JSON: they are written in one
// transaction with what the ones that asked are answered.
const (
	maxListed      = 20
	maxReportText  = 300 // bytes
	maxReportBytes = 128 << 10
)

func (r *Report) problem(what, name string, err error) {
	if len(r.Problems) < maxListed {
		r.Problems = append(r.Problems, Problem{What: what, Name: short(name), Why: short(err.Error())})
	}
	if what == "decider" {
		r.Outcome = OutcomePartial
	}
}

func (r *Report) decided(decider string, all []event.Decision) {
	r.Decided += len(all)
	for _, d := range all[:min(len(all), maxListed-len(r.Decisions))] {
		r.Decisions = append(r.Decisions, Decided{decider, event.Decision{Kind: short(d.Kind), Node: short(d.Node), Text: short(d.Text), Reason: short(d.Reason)}})
	}
}

func (r *Report) saved(first, last uint64) {
	if r.FirstSeq == 0 {
		r.FirstSeq = first
	}
	r.LastSeq = last
	r.Events += int(last - first + 1)
}

func short(s string) string { return text.Truncate(s, maxReportText) }

// Reports are the last cycles that did something, the newest last.
type Reports struct {
	Reports []Report `json:"reports"`
}

const (
	keyReports    = cluster.KeyCycleReports
	reportsFormat = 1
	keptReports   = 20
)

// ReadReports reads the reports that are kept. It returns what kv.Doc.Get does.
func ReadReports(ctx context.Context, s *kv.Store) ([]Report, error) {
	e, err := kv.NewDoc[Reports](s, keyReports, reportsFormat).Get(ctx)
	return e.Value.Reports, err
}

// reports keeps them.
type reports struct {
	doc  kv.Doc[Reports]
	last []Report
	read bool
}

func newReports(s *kv.Store) *reports {
	return &reports{doc: kv.NewDoc[Reports](s, keyReports, reportsFormat)}
}

// load reads what others kept; what cannot be read is replaced.
func (k *reports) load(ctx context.Context) error {
	if k.read {
		return nil
	}
	e, err := k.doc.Get(ctx)
	if err != nil && !unreadable(err) {
		return err
	}
	k.last, k.read = e.Value.Reports, true
	return nil
}

// isNews reports whether r says something that the last report did not.
func (k *reports) isNews(r Report) bool {
	if r.Events > 0 || r.Decided > 0 || r.Trigger == triggerRequest {
		return true
	}
	if len(k.last) == 0 {
		return r.failed()
	}
	before := k.last[len(k.last)-1]
	return r.failed() != before.failed() || r.failed() && (r.Error != before.Error || !sameProblems(r.Problems, before.Problems))
}

func (r Report) failed() bool { return r.Outcome == OutcomeFailed || r.Outcome == OutcomePartial }

func sameProblems(a, b []Problem) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// appended returns the list with r as its newest, and r with its number. The oldest
// make room.
func (k *reports) appended(r Report) ([]Report, Report) {
	r.Number = 1
	if n := len(k.last); n > 0 {
		r.Number = k.last[n-1].Number + 1
	}
	all := append(k.last[max(0, len(k.last)-keptReports+1):len(k.last):len(k.last)], r)
	size := 0
	for i := len(all) - 1; i >= 0; i-- {
		data, _ := json.Marshal(all[i]) // cannot fail: texts, numbers, a time
		if size += len(data); size > maxReportBytes && i < len(all)-1 {
			return all[i+1:], r
		}
	}
	return all, r
}
