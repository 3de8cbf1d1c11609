package runs

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Limits pace a run as a pace.Policy paces a rollout, with the same meanings.
type Limits struct {
	MaxParallel pace.Amount   `json:"max_parallel,omitzero"` // none: all at the same time
	Canary      int           `json:"canary,omitempty"`      // so many members come first, on their own
	Batches     []pace.Amount `json:"batches,omitempty"`     // how many are admitted in all, step by step
	// MaxFailures is how many members may fail or be lost before no further one
	// begins. nil: any number, but with steps none.
	MaxFailures *int `json:"max_failures,omitempty"`
	// MinHealthy is how long a member must have been in service, after its job, before
	// another takes its place.
	MinHealthy pace.Duration `json:"min_healthy,omitempty"`
	ZoneByZone bool          `json:"zone_by_zone,omitempty"` // one zone is finished before the next begins
	Order      []pace.Role   `json:"order,omitempty"`        // one role is finished before the next begins
}

func (l Limits) equal(o Limits) bool { return text.SameJSON(l, o) }

// policy is what the limits are to package pace.
func (l Limits) policy() pace.Policy {
	p := pace.Policy{
		MaxParallel: l.MaxParallel, Canary: l.Canary, Batches: l.Batches, MinHealthy: l.MinHealthy, ZoneByZone: l.ZoneByZone, Order: l.Order,
	}
	if l.MaxFailures != nil {
		p.MaxFailures = *l.MaxFailures
	}
	return p
}

// steps reports whether some members come before others.
func (l Limits) steps() bool {
	return l.Canary > 0 || l.ZoneByZone || len(l.Batches)+len(l.Order) > 0
}

// paced reports whether not all of n members begin at the same time.
func (l Limits) paced(n int) bool { return l.steps() || l.MaxParallel.Of(n) > 0 }

// failures returns how many failures stop the run; ok is false if none does.
func (l Limits) failures() (most int, ok bool) {
	switch {
	case l.MaxFailures != nil:
		return *l.MaxFailures, true
	case l.steps():
		return 0, true
	}
	return 0, false
}

// stop stops a run of which more members failed than may: no further one begins.
func (p *planner) stop(a *Active) {
	r := &a.Run
	most, limited := r.Request.failures()
	if !limited || r.Stopped != "" || r.Cancel != "" {
		return
	}
	var failed []string
	for _, node := range a.Roster {
		if s := a.Jobs[node].State; s == Failed || s == Lost {
			failed = append(failed, node)
		}
	}
	if len(failed) <= most {
		return
	}
	r.Stopped = fmt.Sprintf("%d of %d members failed or were lost, at most %d may", len(failed), len(a.Roster), most)
	p.decide(event.ChangeStopped, r.ID, "", fmt.Sprintf("workflow %q begins on no further member: %s: %s", r.Request.Workflow, r.Stopped, several(failed)))
}

// admits returns which members the present step admits.
func (p *planner) admits(a *Active) func(node string) bool {
	if !a.Run.Request.steps() {
		return func(string) bool { return true }
	}
	wants := make([]pace.Want, 0, len(a.Roster))
	for _, node := range a.Roster {
		wants = append(wants, pace.Want{Node: node, Has: p.settled(a, node)})
	}
	admitted := map[string]bool{}
	for _, m := range pace.NewSurvey(p.paced(a, wants)).Admitted(func(pace.Member) bool { return true }) {
		admitted[m.Node] = true
	}
	return func(node string) bool { return admitted[node] }
}

// settled reports whether nothing more is expected of a member: its job has ended, and
// if it succeeded the member has been in service for long enough.
func (p *planner) settled(a *Active, node string) bool {
	j, scheduled := a.Jobs[node]
	if !scheduled || !j.State.Ended() {
		return false
	}
	if j.State != Done {
		return true
	}
	d := time.Duration(a.Run.Request.MinHealthy)
	if d == 0 && !p.disturbed(a, node, j) {
		return true
	}
	since := p.healthySince(a, node)
	if at := since.Add(d); p.s.Now.Before(at) {
		p.again(at)
		return false
	}
	return d > 0 || !p.s.Out[node].Equal(p.s.Now)
}

// disturbed reports whether the job that has ended took its host out of service and has
// not been released.
func (p *planner) disturbed(a *Active, node string, j Job) bool {
	i := p.queues[node].find(jobID(a.Run.ID, j.Attempt))
	return i >= 0 && p.queues[node].Jobs[i].Disturbs
}

// again has the planner plan again at a time.
func (p *planner) again(at time.Time) { p.out.Again = pace.Earliest(p.out.Again, at) }

// healthySince is since when a member whose job has ended has been in service without a
// break, as far as this orchestrator knows.
func (p *planner) healthySince(a *Active, node string) time.Time {
	var ended time.Time
	if h := a.Jobs[node].History; len(h) > 0 {
		ended = h[len(h)-1].At
	}
	if out := p.s.Out[node]; out.After(ended) {
		return out
	}
	return ended
}

// unhealthy is why a member whose job succeeded has not settled.
func (p *planner) unhealthy(a *Active, node string) string {
	why := ""
	if m := p.members[node]; m != nil {
		why = string(m.Condition.OutOfService(false))
	}
	return fmt.Sprintf("has to be in service for %v (%s)", a.Run.Request.MinHealthy, cmp.Or(why, "it is for a shorter time"))
}
