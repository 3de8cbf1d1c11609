package lease

import (
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// step is one thing that a host does about its lease.
type step string

const (
	nothing  step = ""
	report   step = "report"   // the report does not say what the record does
	withdraw step = "withdraw" // the caller has left
	accept   step = "accept"
	decline  step = "decline"
	take     step = "take" // have no job run meanwhile
	enter    step = "enter"
	ready    step = "ready"
	end      step = "end"     // the caller is done
	trouble  step = "trouble" // the time is over, and the host is not healthy
	lift     step = "lift"    // come back into service
	admit    step = "admit"   // let other changes reach the host: one may be what makes it healthy
	finish   step = "finish"  // it is over
	forget   step = "forget"  // the report says so
)

// takeOver is how long a host that waits for a place waits for another orchestrator when the last one has ended: longer than a
// candidate takes to notice that.
const takeOver = time.Minute

// admitAfter is after how many times the least time in health a host that is back, and not healthy, is open to other changes.
const admitAfter = 10

// facts is what a decision depends on.
type facts struct {
	change.Seen
	rec   record
	node  string
	alone time.Time // since when no orchestrator runs; zero: one does, or that is not known

	calls  int       // open ones of the lease's caller
	called time.Time // when the last of them ended, or this process began
	// restarted: this process has the lease of the one before, whose callers have not asked it yet.
	restarted bool
	end       bool // the caller is done
	taken     bool // no job runs
	busy      bool // a job has run for a moment since the host had its place

	boot    string
	age     time.Duration // since the acceptance
	drained time.Duration // since maintenance is on
	back    time.Time     // since when the host is back in service; zero: it is not
}

func (f *facts) grant() change.Grant { return f.Granted(cluster.LeaseChange(f.node)) }

// kept reports whether a call of the caller is open, or the last one ended a short time ago.
func (f *facts) kept(now time.Time) (kept bool, until time.Time) {
	if f.calls > 0 {
		return true, until
	}
	until = f.called.Add(f.rec.Keep)
	if f.restarted {
		until = f.called.Add(max(f.rec.Keep, joinWithin))
	}
	return now.Before(until), until
}

// decide returns what to do next, and when to decide again if nothing happens. It is a pure function.
func decide(f *facts, now time.Time) (do step, again time.Time) {
	r := &f.rec
	switch {
	case !r.Grant.Open() && r.Wish != "":
		return decideAsking(f, now)
	case !r.in(f.Report, f.node).Equal(f.Report):
		return report, again
	case r.Wish == "":
		return nothing, again
	case r.Over:
		return forget, again
	case r.Ending:
		return decideEnding(f, now)
	}
	return decidePlaced(f, now)
}

// decideAsking is about a host that has no place yet.
func decideAsking(f *facts, now time.Time) (do step, again time.Time) {
	r := &f.rec
	kept, until := f.kept(now)
	g := f.grant()
	acceptable, from := f.Accepts(g, now)
	acceptable = acceptable && g.Tag == r.Wish && f.stopped(now) == nil
	switch {
	case f.end || !kept:
		return withdraw, again
	case !r.in(f.Report, f.node).Equal(f.Report):
		return report, until
	case acceptable && !g.Until.IsZero() && !now.Before(g.Until):
		return decline, until
	case acceptable:
		return accept, again
	}
	until = pace.Earliest(until, from)
	again = pace.Earliest(until, f.Control.Value.Change(now))
	if refused := f.alone.Add(takeOver); !f.alone.IsZero() && now.Before(refused) {
		again = pace.Earliest(again, refused)
	}
	return nothing, again
}

// decidePlaced is about a host that has its place.
func decidePlaced(f *facts, now time.Time) (do step, again time.Time) {
	r := &f.rec
	kept, until := f.kept(now)
	stays := r.Ready && !r.Connected // without a call
	switch {
	case f.end, !kept && !stays, r.Boot != f.boot:
		return end, again
	case f.age >= r.For && f.calls == 0 && f.Healthy():
		return end, again
	case f.age >= r.For && f.calls == 0 && f.Checked && r.Trouble == "":
		return trouble, again
	case f.calls == 0 && !r.Out: // the place is kept, and the host stays in service
		return nothing, until
	case !f.taken:
		return take, again
	case !r.Out || r.Drained.Begun.IsZero():
		return enter, again
	case !r.Ready && f.calls > 0 && f.drained >= r.Drain:
		return ready, again
	case !r.Ready && f.drained < r.Drain:
		return nothing, pace.Earliest(until, now.Add(r.Drain-f.drained))
	}
	if f.age < r.For {
		again = now.Add(r.For - f.age)
	}
	if !stays {
		again = pace.Earliest(again, until)
	}
	return nothing, again
}

// decideEnding is about a host that comes back.
func decideEnding(f *facts, now time.Time) (do step, again time.Time) {
	healthy, over, admits := f.Since.Add(f.rec.MinHealthy), f.rec.For-f.age, f.back.Add(admitAfter*f.rec.MinHealthy)
	switch {
	case f.back.IsZero():
		return lift, again
	case f.Checked && len(f.Failing) > 0 && over <= 0 && f.rec.Trouble == "":
		return trouble, again
	case f.Checked && len(f.Failing) > 0 && !f.rec.Returns && !now.Before(admits):
		return admit, again
	case !f.Healthy():
		if over > 0 {
			again = now.Add(over)
		}
		if f.Checked && !f.rec.Returns {
			again = pace.Earliest(again, admits)
		}
		return nothing, again
	case now.Before(healthy):
		return nothing, healthy
	}
	return finish, again
}

// stopped is why nothing that disturbs may begin on the host; nil: it may.
func (f *facts) stopped(now time.Time) *Refusal {
	c := f.Control.Value.At(now)
	what, hold, halted := c.Halted()
	frozen, isFrozen := f.Control.Value.Frozen(f.Roles, now)
	switch {
	case halted:
		return &Refusal{Kind: Paused, Reason: what + ": " + text.Line(hold.String(), MostReason), At: hold.Until}
	case f.Held != "":
		return &Refusal{Kind: Held, Reason: "this host is held: " + f.Held}
	case isFrozen:
		return &Refusal{Kind: Freeze, Reason: frozen.String(), At: frozen.Until}
	}
	return nil
}

// waits is why the lease is not further; nil: it does not wait.
func (f *facts) waits(now time.Time) *Refusal {
	r := &f.rec
	g := f.grant()
	stopped := f.stopped(now)
	switch {
	case r.Wish == "" || r.Ready && !r.Ending:
		return nil
	case r.Ending && !f.back.IsZero() && !f.Checked:
		return &Refusal{Kind: NotHealthy, Reason: "the checks of this host are not known yet"}
	case r.Ending && !f.back.IsZero() && len(f.Failing) > 0:
		return &Refusal{Kind: NotHealthy, Reason: "this host is not healthy: " + text.Line(strings.Join(f.Failing, "; "), MostReason)}
	case r.Ending:
		return &Refusal{Kind: NotHealthy, Reason: "the checks of this host have to pass for " + r.MinHealthy.String(), At: f.Since.Add(r.MinHealthy)}
	case r.Grant.Open() && f.busy:
		return &Refusal{Kind: Waiting, Reason: "a job runs on this host: the lease begins when its task has ended"}
	case r.Grant.Open() && r.Out && r.Drain == 0:
		return &Refusal{Kind: Waiting, Reason: "the host goes into maintenance"}
	case r.Grant.Open() && r.Out:
		return &Refusal{Kind: Waiting, Reason: "the host drains for " + r.Drain.String(), At: now.Add(r.Drain - f.drained)}
	case r.Grant.Open():
		return &Refusal{Kind: Waiting, Reason: "the lease has its place"}
	case stopped != nil:
		return stopped
	case !f.alone.IsZero() && now.Sub(f.alone) < takeOver:
		return &Refusal{Kind: Waiting, Reason: "no orchestrator runs at the moment: the lease waits for the next one"}
	case !f.alone.IsZero():
		return &Refusal{Kind: NoOrchestrator, Reason: noOrchestrator}
	case !f.Known:
		return &Refusal{Kind: Unreachable, Reason: "this host's report cannot be read from Consul yet"}
	case g.Tag == r.Wish && g.Waits != nil && g.State != pace.Offered:
		kind := Waiting
		switch g.Waits.Code {
		case pace.BecauseBudget:
			kind = Budget
		case pace.BecauseHalted:
			kind = Paused
		case pace.BecauseFreeze:
			kind = Freeze
		case pace.BecauseHeld:
			kind = Held
		}
		return &Refusal{Kind: kind, Reason: text.Line(g.Waits.Reason, MostReason), At: g.Waits.At, Answered: true}
	}
	return &Refusal{Kind: Waiting, Reason: "the lease waits for the orchestrator's answer"}
}

// status is the lease as callers see it.
func (f *facts) status(now time.Time) Status {
	r := &f.rec
	s := Status{ID: r.ID, Reason: r.Reason, Since: r.Since, Until: r.over(), Waits: f.waits(now), Trouble: r.Trouble}
	s.Rebooted = r.Grant.Open() && r.Boot != f.boot
	switch {
	case r.Wish == "":
		return Status{}
	case !r.Grant.Open():
		s.State = Asked
	case r.Ending:
		s.State = Ending
	case r.Ready:
		s.State = Ready
	case r.Out:
		s.State = Draining
	default:
		s.State = Placed
	}
	return s
}
