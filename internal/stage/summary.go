package stage

import (
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// Summary is how far a stage is, in numbers.
type Summary struct {
	State   string
	Counts  pace.Counts
	Blocker pace.Blocker // empty: no change is in progress
	Since   time.Time    // when the first host took the change; zero: none is in progress
	// WaitingSince is since when hosts wait and nothing begins or ends; zero: none waits, or one is at work.
	WaitingSince time.Time
	// LastProgress is when the last host had what it wanted, or when hosts could begin again after that.
	LastProgress time.Time
}

// Summarize returns the summary of a stage. It is a pure function.
func Summarize(d Documents, s State, now time.Time) Summary {
	return newPlanner(d.Book, d.Stops, s, now).summary()
}

// Progress is how far a host is with what the stage brings. One whose first content is not rendered yet waits.
func (h *Host) Progress() pace.State {
	r := h.Report
	switch {
	case r.Open():
		return pace.Working
	case r.Unhealthy() && !r.TakenBack():
		return pace.Failed
	case r.Wants == "" && !r.Silent():
		return pace.HasIt
	case h.aside() != "":
		return pace.Held
	case !h.Up:
		return pace.Down
	}
	return pace.Pending
}

func (p *planner) summary() Summary {
	s := Summary{State: StateDone}
	wanting, silent := false, false
	var done, waits time.Time
	for _, h := range p.hosts {
		r := h.Report
		s.Counts.Add(h.Progress())
		silent = silent || r.Silent()
		if r.State == cluster.StageDone {
			done = pace.Latest(done, h.Answer.Since)
		}
		if r.Wants != "" && !r.Open() {
			wanting = true
			waits = pace.Earliest(waits, r.WantsSince)
		}
	}
	switch {
	case p.Stops.Unresumed():
		s.State = StateStopped
	case wanting || s.Counts.Working > 0 || p.stepPending():
		s.State = StateChanging
	case silent:
		s.State = StateWaiting
	}
	if p.Book.Active {
		s.Since = p.Book.Since
	}
	s.LastProgress = pace.Latest(s.Since, done, p.windowsOpenSince(), p.Freezes.Ended(p.now))
	if gate := p.Book.PassedGate; gate != nil {
		s.LastProgress = pace.Latest(s.LastProgress, gate.At)
	}
	if s.Counts.Working == 0 && wanting {
		s.WaitingSince = pace.Latest(waits, s.LastProgress)
	}
	s.Blocker = p.blocker(s.State)
	return s
}

// blocker returns what a stage in that state waits for.
func (p *planner) blocker(state string) pace.Blocker {
	var gate *pace.GateProgress
	if step := p.Book.Step; step != nil && p.policy.Gated() {
		gate = step.Gate
	}
	_, frozen := p.Freezes.At(nil, p.now)
	switch {
	case state == StateStopped:
		return pace.BlockedByPause
	case state != StateChanging:
		return ""
	case gate != nil && gate.Passed && !p.Book.Step.passed(p.policy):
		return pace.BlockedByPromotion
	case gate != nil && !gate.Baked:
		return pace.BlockedByBake
	case p.Halted != "":
		return pace.BlockedByCluster
	case gate != nil && !gate.Passed:
		return pace.BlockedByGate
	case !p.survey.InWindow():
		return pace.BlockedByWindow
	case frozen:
		return pace.BlockedByFreeze
	}
	return pace.BlockedByHosts
}

// windowsOpenSince returns since when the windows of all hosts are open; zero: hosts have no windows, or one is closed.
func (p *planner) windowsOpenSince() (since time.Time) {
	for _, all := range p.survey.Windows {
		since = pace.Latest(since, pace.WindowsOpenSince(all, p.now))
	}
	return since
}
