package converge

import (
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// Status is how this host converges.
type Status struct {
	Phase     Phase     `json:"phase"`
	Detail    string    `json:"detail"`
	Since     time.Time `json:"since"`   // of the phase
	Desired   string    `json:"desired"` // empty: none, or not known
	Version   string    `json:"version"` // that the version file tells
	Attempt   string    `json:"attempt"` // version that is, or was last, applied
	Job       string    `json:"job"`     // of the static workflow
	Fails     int       `json:"fails"`   // attempts in a row that came to nothing
	Why       string    `json:"why"`     // the last of them did
	Next      time.Time `json:"next,omitzero"`
	Missing   []Missing `json:"missing"` // requirements
	Failing   []string  `json:"failing"` // health checks
	Drifted   []string  `json:"drifted"` // paths of static configuration
	DriftNote string    `json:"drift_note"`
	Hold      Hold      `json:"hold"`
	Suspect   string    `json:"suspect"`
	Trouble   []string  `json:"trouble"` // what cannot be done at present, one line each

	Config     *cluster.CategoryState `json:"config"`     // as reported; nil: nothing was
	Validation *cluster.CategoryState `json:"validation"` // as reported
	Reported   bool                   `json:"reported"`   // the ledger has it

	Outcome Outcome      `json:"outcome"` // empty: it goes on
	History []Transition `json:"history"` // the last ones
}

// Transition is one change of phase.
type Transition struct {
	At      time.Time `json:"at"`
	Phase   Phase     `json:"phase"`
	Version string    `json:"version"` // desired
	Detail  string    `json:"detail"`
}

// maxHistory bounds Status.History.
const maxHistory = 50

// Status returns how this host converges now. It is safe for concurrent use.
func (c *Converger) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	if s.Phase == "" {
		s.Phase = PhaseStarting
	}
	s.Missing, s.Failing, s.Drifted, s.Trouble, s.History = whole(s.Missing), whole(s.Failing), whole(s.Drifted), whole(s.Trouble), whole(s.History)
	return s
}

// whole is a copy that is never nil: lists in JSON are lists.
func whole[T any](all []T) []T { return append([]T{}, all...) }

// publish makes the status what was found and decided, and hands it on when it
// is another one.
func (c *Converger) publish(f *facts, d decision) {
	now := c.now()
	a := c.p.Attempt
	s := Status{
		Phase: d.phase, Detail: d.detail, Since: now, Desired: f.desired, Version: f.local, Attempt: a.Version, Job: a.Job,
		Fails: a.Fails, Why: a.Why, Next: d.until.Round(0), Missing: f.missing, Failing: f.failing,
		Drifted: f.drifted, DriftNote: c.drift.noted(), Hold: f.hold, Suspect: suspectWith(a.doubt(), c.drift.told()),
		Config: c.p.Report.Config, Validation: c.p.Report.Validation, Reported: f.told && !c.unsaved, Outcome: d.outcome,
	}
	if d.outcome != "" && d.do != doNothing {
		s.Outcome = ""
	}
	c.mu.Lock()
	for _, text := range []string{c.mem.saveIs, c.mem.troubleIs, c.note, f.desiredErr, f.reportErr, f.errandErr} {
		if text != "" {
			s.Trouble = append(s.Trouble, text)
		}
	}
	old := c.status
	s.History = old.History
	if old.Phase == s.Phase && old.Desired == s.Desired {
		s.Since = old.Since
	} else {
		s.History = append(slices.Clone(s.History), Transition{At: now.UTC().Truncate(time.Millisecond), Phase: s.Phase, Version: s.Desired, Detail: s.Detail})
		if n := len(s.History) - maxHistory; n > 0 {
			s.History = s.History[n:]
		}
	}
	c.status = s
	c.mu.Unlock()
	if c.o.Changed != nil && !s.sameAs(old) {
		c.o.Changed(s)
	}
}

func (s Status) sameAs(o Status) bool {
	return s.Phase == o.Phase && s.Detail == o.Detail && s.Desired == o.Desired && s.Version == o.Version && s.Job == o.Job &&
		s.Fails == o.Fails && s.Reported == o.Reported && s.Outcome == o.Outcome && s.Suspect == o.Suspect && s.DriftNote == o.DriftNote &&
		s.Hold == o.Hold && same(s.Config, o.Config) && same(s.Validation, o.Validation) &&
		slices.Equal(s.Missing, o.Missing) && slices.Equal(s.Failing, o.Failing) && slices.Equal(s.Drifted, o.Drifted) && slices.Equal(s.Trouble, o.Trouble)
}
