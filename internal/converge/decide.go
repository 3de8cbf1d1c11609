package converge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/workflow"
)

// action is something to do now.
type action string

const (
	doNothing  action = ""
	doAdopt    action = "adopt"    // take over the version that another program brought
	doBegin    action = "begin"    // an attempt
	doStatic   action = "static"   // start or continue the static workflow
	doDrop     action = "drop"     // the open attempt: another version is desired
	doValidate action = "validate" // start or continue the validation workflow
	doStop     action = "stop"     // the job that is driven
	doEnded    action = "ended"    // the job that was driven has ended
	doPass     action = "pass"     // all that validates did
	doInvalid  action = "invalid"  // checks fail
	doRecord   action = "record"   // the version that runs
	doLeft     action = "left"     // admission was given back
)

// Phase is what a converger is about.
type Phase string

// Phases.
const (
	PhaseStarting   Phase = "starting"   // Consul has not answered yet
	PhaseIdle       Phase = "idle"       // no version is desired
	PhaseHeld       Phase = "held"       // by the cluster, the role, the host or a file
	PhasePaused     Phase = "paused"     // nothing new starts
	PhasePending    Phase = "pending"    // waiting for what is required
	PhaseAdmission  Phase = "admission"  // waiting to be let in
	PhaseStatic     Phase = "static"     // the static workflow runs
	PhaseReboot     Phase = "reboot"     // the job continues after a reboot
	PhaseValidation Phase = "validation" // looking whether it works
	PhaseRecording  Phase = "recording"  // it does
	PhaseFailed     Phase = "failed"     // and is tried again, by itself or by an operator
	PhaseConverged  Phase = "converged"
)

// decision is what to do now, what to wait for, and what to say meanwhile.
type decision struct {
	do    action
	until time.Time // decide again then at the latest; zero: only when something changes

	phase   Phase
	detail  string
	outcome Outcome // of a single pass; empty: the pass continues

	require bool   // follow what is required
	enter   string // version to ask admission for
	leave   string // version to give admission back for
	blocked string // why the host does not begin with another version; empty: it does, or has none
	cycle   bool   // look for cycles of requirements

	waiting string // what the pending state to be reported is about; empty: none
}

// wake makes d's next look no later than at.
func (d *decision) wake(at time.Time) {
	if !at.IsZero() && (d.until.IsZero() || at.Before(d.until)) {
		d.until = at
	}
}

// decide says what follows from f.
func decide(f *facts, now time.Time) decision {
	var d decision
	a := f.p.Attempt
	switch {
	case a.Stage == stageRecording:
		d = decision{do: doRecord, phase: PhaseRecording, detail: "version " + a.Version + " passed validation"}
	case a.open():
		d = decideOpen(f, now)
	default:
		d = decideClosed(f, now)
		if (a.broken() || f.needed()) && d.enter == "" && d.do == doNothing {
			d.blocked = cmp.Or(d.detail, string(d.phase))
		}
	}
	if f.job.id != "" {
		d.do = f.besideJob(d.do)
	}
	if f.unsaved { // nothing begins before what came before it is on the disk
		d.do = doNothing
		if f.mem.saveIs != "" {
			d.detail = f.mem.saveIs
		}
		d.wake(f.mem.saveAt)
	}
	if d.do != doNothing && d.do == f.mem.trouble && now.Before(f.mem.troubleAt) {
		d.do, d.detail = doNothing, f.mem.troubleIs
		d.wake(f.mem.troubleAt)
	}
	return d
}

// decideOpen continues an open attempt.
func decideOpen(f *facts, now time.Time) decision {
	a := f.p.Attempt
	patient := f.mem.started.Add(f.patience)
	switch {
	case f.replaced(a.Version):
		return decision{do: doDrop, phase: PhaseStatic, detail: "version " + f.desired + " is desired now"}
	case f.job.id != "":
		return decideDriven(f)
	case (!f.desiredKnown || !f.holdKnown) && now.Before(patient):
		return decision{until: patient, phase: PhaseStarting, detail: "asking Consul before continuing with version " + a.Version}
	case f.held() != "":
		return decision{phase: PhaseHeld, detail: f.held(), outcome: Held}
	case a.Stage == stageStatic:
		return decision{do: doStatic, phase: PhaseStatic, detail: "version " + a.Version}
	}
	return decideValidating(f, now)
}

// besideJob is do, or what takes its place while a job is driven: a job that waits
// does not keep another attempt from being made.
func (f *facts) besideJob(do action) action {
	switch do {
	case doDrop, doBegin, doAdopt, doStatic, doValidate:
		if !f.job.ended && !f.job.stopping && (do == doDrop || f.job.wait != nil && (do == doBegin || do == doAdopt)) {
			return doStop
		}
		do = doNothing
	}
	if f.job.ended {
		return doEnded
	}
	return do
}

// decideDriven is about the job of the open attempt, which is driven.
func decideDriven(f *facts) decision {
	a := f.p.Attempt
	d := decision{phase: PhaseStatic, detail: "version " + a.Version}
	if a.Stage == stageValidating {
		d.phase = PhaseValidation
	}
	w := f.job.wait
	if w == nil {
		return d
	}
	d.detail = waitReason(w)
	switch {
	case f.held() != "":
		d.phase, d.detail, d.outcome = PhaseHeld, f.held(), Held
	case w.Err != nil:
	case w.Result.State == workflow.Held:
		d.phase, d.outcome = PhaseHeld, Held
	case w.Result.State == workflow.Reboot:
		d.phase, d.detail, d.outcome = PhaseReboot, "waits for a reboot of this host: "+d.detail, Pending
	case w.Result.State == workflow.Pending:
		d.phase = PhasePending
	}
	return d
}

// decideValidating finds out whether what the static workflow made works.
func decideValidating(f *facts, now time.Time) decision {
	d := decision{phase: PhaseValidation, detail: "version " + f.p.Attempt.Version}
	fails, at := f.checksFail(now)
	asks := f.asks(now)
	switch {
	case f.drained && f.p.Attempt.Validation == "":
		return decision{phase: PhaseHeld, detail: drainedText, outcome: Held}
	case !asks.IsZero() && !f.p.Attempt.Passed && f.p.Attempt.Validation == "":
		return asking(asks)
	case !f.p.Attempt.Passed:
		d.do = doValidate
	case f.checksPass():
		d.do = doPass
	case fails:
		d.do = doInvalid
	case !f.checksKnown:
		d.detail = "asking for the health checks of this host"
	default:
		d.detail = "health checks have until " + at.Format(time.TimeOnly) + " to pass: " + text.Few("; ", f.failing, 5)
		d.wake(at)
	}
	return d
}

func cycleText(cycle []string) string {
	if n := len(cycle); n > 0 && (n == 1 || cycle[0] != cycle[n-1]) {
		cycle = append(cycle[:n:n], cycle[0])
	}
	text := ""
	for i, name := range cycle {
		if i > 0 {
			text += " → "
		}
		text += name
	}
	return fmt.Sprintf("%s: static requirements form a cycle, so each waits for the next for ever: move one of them into a template or a task, or ask there for \"addressable\"", text)
}

// decideClosed finds out whether an attempt has to be made.
func decideClosed(f *facts, now time.Time) decision {
	a := f.p.Attempt
	switch {
	case !f.needed() && f.local != "" && a.Version != f.local && !a.unfinished():
		return decision{do: doAdopt, phase: PhaseRecording, detail: "version " + f.local + " is there already"}
	case f.needed() && !f.static && f.held() != "":
		return decision{phase: PhaseHeld, detail: f.held(), outcome: Held}
	case f.needed() && !f.static && !f.holdKnown:
		return decision{phase: PhaseStarting, detail: "asking Consul whether this host is held"}
	case f.needed() && !f.static:
		return decision{phase: PhaseIdle, detail: "no static workflow is configured: another program brings version " + f.desired, outcome: Pending}
	case f.needed() && (!a.broken() || a.Version != f.desired):
		return decideStart(f, now, f.desired)
	case a.broken():
		return decideBroken(f, now)
	}
	return decideSettled(f, now)
}

// decideBroken is about an attempt that failed, or no longer works.
func decideBroken(f *facts, now time.Time) decision {
	a := f.p.Attempt
	d := decision{phase: PhaseFailed, detail: a.Why, outcome: Failed}
	if a.Stage == stageInvalid && f.still() == "" && f.asks(now).IsZero() && f.job.wait == nil {
		again := !now.Before(f.mem.validateAt)
		if a.Checks {
			again = f.checksPass()
		}
		if again || a.Validation != "" {
			d.do = doValidate
			return d
		}
		if !a.Checks {
			d.wake(f.mem.validateAt)
		}
	}
	switch {
	case !f.desiredKnown: // a single pass does not end before it is known whether to try again
		d.outcome = ""
		return d
	case f.desired == "":
		return d // nothing is started
	case a.Again == againContinue && a.Cut == stageValidating && !f.drained:
		return decision{do: doBegin, phase: PhaseValidation, detail: "version " + a.Version}
	case !f.static:
		return d
	case a.Stage == stageInterrupted && a.Again == "", now.Before(f.mem.retryAt):
		if a.Stage != stageInterrupted {
			d.wake(f.mem.retryAt)
		}
		switch {
		case f.held() != "":
			d.detail = "held: " + f.held() + "; " + d.detail
		case f.drained:
			d.detail = drainedText + "; " + d.detail
		}
		return d
	}
	return decideStart(f, now, f.desired)
}

// decideStart begins an attempt at version once nothing is in its way.
func decideStart(f *facts, now time.Time, version string) decision {
	switch {
	case !f.holdKnown:
		return decision{phase: PhaseStarting, detail: "asking Consul whether this host is held"}
	case f.held() != "":
		return decision{phase: PhaseHeld, detail: f.held(), outcome: Held}
	case f.hold.Paused != "":
		return decision{phase: PhasePaused, detail: f.hold.Paused, outcome: Held}
	case f.drained:
		return decision{phase: PhaseHeld, detail: drainedText, outcome: Held}
	case !f.asks(now).IsZero():
		return asking(f.asks(now))
	}
	d := decision{phase: PhasePending, require: f.requires}
	switch {
	case f.requires && !f.missingKnown:
		d.detail = "asking whether what is required is there"
		return d
	case f.requires && len(f.missing) > 0 && len(f.cycle) > 0:
		d.phase, d.detail, d.cycle = PhaseFailed, cycleText(f.cycle), true
		d.waiting, d.outcome = "cycle "+text.Few("; ", f.cycle, 5), Failed
		return d
	case f.requires && len(f.missing) > 0:
		d.detail, d.waiting = waitingFor(f.missing), targets(f.missing)
		if at := f.mem.pendingAt.Add(f.cycleAfter); f.cycles && !f.mem.pendingAt.IsZero() {
			if d.cycle = !now.Before(at); !d.cycle {
				d.wake(at)
			}
		}
		return d
	case f.admission && f.p.Entered != version:
		d.phase, d.enter, d.detail = PhaseAdmission, version, f.waiting
		if d.detail == "" {
			d.detail = "asking to be let in for version " + version
		}
		if f.p.Waiting != "" {
			d.waiting = awaitsAdmission // the reported reason no longer holds
		}
		return d
	}
	return decision{do: doBegin, require: f.requires, phase: PhaseStatic, detail: "version " + version}
}

// decideSettled keeps an eye on what is as it should be.
func decideSettled(f *facts, now time.Time) decision {
	a := f.p.Attempt
	d := decision{phase: PhaseConverged, detail: "version " + a.Version}
	switch {
	case !f.desiredKnown:
		d.phase, d.detail = PhaseStarting, "asking Consul which version is desired"
		if f.desiredErr != "" {
			d.detail = f.desiredErr
		}
	case f.desired == "":
		d.phase, d.detail, d.outcome = PhaseIdle, "no version is desired", Converged
	case f.still() != "":
		d.outcome = Held
	default:
		d.outcome = Converged
	}
	if f.admission && f.p.Entered != "" && f.stored {
		if f.left == f.p.Entered {
			d.do = doLeft
			return d
		}
		d.leave = f.p.Entered
	}
	if a.Stage != stageDone {
		return d // there is nothing yet
	}
	fails, at := f.checksFail(now)
	asks := f.asks(now)
	switch {
	case f.drained:
		d.detail = drainedText
		return d
	case fails:
		d.do, d.detail = doInvalid, f.checksWhy()
	case f.held() != "":
		d.detail = "held: " + f.held()
	case !asks.IsZero() && a.Validation == "":
		d.wake(asks)
	case !now.Before(f.mem.validateAt) || a.Validation != "":
		d.do = doValidate
	default:
		d.wake(f.mem.validateAt)
	}
	d.wake(at)
	if d.outcome == Converged && (!f.stored || d.leave != "" || d.do != doNothing || f.job.id != "" && !f.job.reboots()) {
		d.outcome = ""
	}
	return d
}
