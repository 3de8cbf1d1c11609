package converge

import (
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// observe brings what changed around an attempt into what is remembered of it.
func (c *Converger) observe() {
	c.mu.Lock()
	in := c.in
	c.in.retry = false
	c.mu.Unlock()
	if in.retry {
		c.mem.retryAt, c.mem.troubleAt, c.mem.saveAt = time.Time{}, time.Time{}, time.Time{}
	}
	a := c.p.Attempt
	if in.holdKnown && a.open() && c.p.Hold != in.hold {
		c.p.Hold, c.unsaved = in.hold, true
	}
	if in.admitted != "" && c.p.Entered != in.admitted {
		c.p.Entered, c.unsaved = in.admitted, true
	}
	if !in.missingKnown || len(in.missing) == 0 {
		c.mem.pendingAt = time.Time{}
	} else if c.mem.pendingAt.IsZero() {
		c.mem.pendingAt = c.now()
	}
	if a.Stage != stageDone && a.Stage != stageInvalid {
		return
	}
	c.settleReport(in)
}

// settleReport says again that all is well once nothing is in its way any more,
// and whether static files drifted.
func (c *Converger) settleReport(in inputs) {
	r := c.p.Report
	back := in.desiredKnown && in.desired == c.p.Attempt.Version && c.p.Attempt.Stage == stageDone
	if back && r.Config != nil && c.p.Waiting != "" {
		r.Config, r.Instead = c.p.Good.Config, nil
		if r.Config == nil {
			r.Config = brought(in.desired)
		}
		c.p.Waiting = ""
	}
	why := suspectWith(c.p.Attempt.doubt(), c.drift.told())
	if c.p.Attempt.Job == "" { // config is told by who brought the version
		r.Validation = suspected(r.Validation, why)
	} else {
		r.Config = suspected(r.Config, why)
	}
	c.setReport(r)
}

// brought is the state of configuration that somebody else applied and said
// nothing of.
func brought(version string) *cluster.CategoryState {
	return &cluster.CategoryState{State: cluster.StateSuccess, Version: version, Suspect: "jorc did not apply it: the version file says that it is there"}
}

// suspected is s, which is doubtful for that reason if it is a success.
func suspected(s *cluster.CategoryState, why string) *cluster.CategoryState {
	if s == nil || s.State != cluster.StateSuccess || s.Suspect == why {
		return s
	}
	other := *s
	other.Suspect = why
	return &other
}

func suspectWith(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}
