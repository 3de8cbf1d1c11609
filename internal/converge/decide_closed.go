package converge

import "time"

// decideClosed finds out whether an attempt has to be made.
func decideClosed(f *facts, now time.Time) decision {
	a := f.p.Attempt
	broken := a.Stage == stageFailed || a.Stage == stageInvalid
	switch {
	case !f.needed() && f.local != "" && a.Version != f.local && !a.unfinished():
		return decision{do: doAdopt, phase: PhaseRecording, detail: "version " + f.local + " is there already"}
	case f.needed() && !f.static && f.held() != "":
		return decision{phase: PhaseHeld, detail: f.held(), outcome: Held}
	case f.needed() && !f.static && !f.holdKnown:
		return decision{phase: PhaseStarting, detail: "asking Consul whether this host is held"}
	case f.needed() && !f.static:
		return decision{phase: PhaseIdle, detail: "no static workflow is configured: somebody else brings version " + f.desired, outcome: Pending}
	case f.needed() && (!broken || a.Version != f.desired):
		return decideStart(f, now, f.desired)
	case broken:
		return decideBroken(f, now)
	}
	return decideSettled(f, now)
}

// decideBroken is about an attempt that failed, or does not work any more.
func decideBroken(f *facts, now time.Time) decision {
	a := f.p.Attempt
	d := decision{phase: PhaseFailed, detail: a.Why, outcome: Failed}
	if a.Stage == stageInvalid && f.held() == "" {
		again := !now.Before(f.mem.validateAt)
		if a.Checks {
			again = f.checksPass()
		}
		if again || a.Validation != "" && f.mem.rest == restNone {
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
	case !f.static:
		return d
	case now.Before(f.mem.retryAt):
		d.wake(f.mem.retryAt)
		if f.held() != "" {
			d.detail = "held: " + f.held() + "; " + d.detail
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
	}
	d := decision{phase: PhasePending, require: f.requires}
	switch {
	case f.requires && !f.missingKnown:
		d.detail = "asking whether what is required is there"
		return d
	case f.requires && len(f.missing) > 0 && len(f.cycle) > 0:
		d.phase, d.detail, d.cycle = PhaseFailed, cycleText(f.cycle), true
		d.waiting, d.outcome = "cycle "+list(f.cycle), Failed
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
			d.waiting = letIn // something else is reported that is not so any more
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
	case f.held() != "":
		d.outcome = Held
	default:
		d.outcome = Converged
	}
	if f.admission && f.p.Entered != "" && f.told {
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
	switch {
	case fails:
		d.do, d.detail = doInvalid, "health checks fail: "+list(f.failing)
	case f.held() != "":
		d.detail = "held: " + f.held()
	case f.mem.rest == restReady && f.ready != f.openJob():
		d.ready = f.openJob()
	case f.mem.rest == restReboot:
	case !now.Before(f.mem.validateAt) || a.Validation != "":
		d.do = doValidate
	default:
		d.wake(f.mem.validateAt)
	}
	d.wake(at)
	if d.outcome == Converged && (!f.told || d.leave != "" || d.do != doNothing || d.ready != "") {
		d.outcome = ""
	}
	return d
}
