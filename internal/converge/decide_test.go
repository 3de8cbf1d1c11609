package converge

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/workflow"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func in(d time.Duration) time.Time { return noon.Add(d) }

// known are facts of a host that knows what it has to know, and runs v1.
func known(change func(*facts)) *facts {
	f := &facts{
		inputs: inputs{desired: "v1", desiredKnown: true, holdKnown: true, checksKnown: true},
		mem:    memory{started: in(-time.Hour), validateAt: in(time.Minute)},
		p:      progress{Attempt: attempt{Version: "v1", Stage: stageDone, Job: "j"}},
		local:  "v1", stored: true, static: true, settle: 30 * time.Second, patience: 10 * time.Second, cycleAfter: 5 * time.Second,
	}
	change(f)
	return f
}

func TestDecide(t *testing.T) {
	t.Parallel()
	new := func(f *facts) { f.desired = "v2" }
	both := func(all ...func(*facts)) func(*facts) {
		return func(f *facts) {
			for _, change := range all {
				change(f)
			}
		}
	}
	stageIs := func(s stage) func(*facts) { return func(f *facts) { f.p.Attempt.Stage = s } }
	held := func(f *facts) { f.hold.Held = "by hand" }
	paused := func(f *facts) { f.hold.Paused = "night" }
	drained := func(f *facts) { f.checks, f.drained = true, true }
	unknown := func(f *facts) { f.checks, f.checksKnown, f.mem.started = true, false, in(-4*time.Second) }
	due := func(f *facts) { f.mem.validateAt, f.mem.retryAt = noon, noon }
	requires := func(f *facts) { f.requires, f.missingKnown = true, true }
	missing := both(requires, func(f *facts) { f.missing, f.mem.pendingAt = lacking("mysql", 0, 1), in(-time.Second) })
	admission := func(f *facts) { f.admission = true }
	failing := func(since time.Duration) func(*facts) {
		return func(f *facts) { f.checks, f.failing, f.failingSince = true, []string{"web: critical"}, in(-since) }
	}
	for _, tt := range []struct {
		name  string
		facts func(*facts)
		do    action
		phase Phase
		until time.Time
	}{
		{"all is well", func(*facts) {}, doNothing, PhaseConverged, in(time.Minute)},
		{"nothing desired", func(f *facts) { f.desired = "" }, doNothing, PhaseIdle, in(time.Minute)},
		{"nothing desired, nothing there", func(f *facts) { f.desired, f.local, f.p = "", "", progress{} }, doNothing, PhaseIdle, time.Time{}},
		{"desired not known", func(f *facts) { f.desiredKnown = false }, doNothing, PhaseStarting, in(time.Minute)},
		{"validation due", func(f *facts) { f.mem.validateAt = noon }, doValidate, PhaseConverged, time.Time{}},
		{"validation due, held", both(func(f *facts) { f.mem.validateAt = noon }, held), doNothing, PhaseConverged, time.Time{}},
		{"validation due, paused", both(func(f *facts) { f.mem.validateAt = noon }, paused), doValidate, PhaseConverged, time.Time{}},
		{"another version", new, doBegin, PhaseStatic, time.Time{}},
		{"another version, no static workflow", both(new, func(f *facts) { f.static = false }), doNothing, PhaseIdle, time.Time{}},
		{"another version, no static workflow, held", both(new, held, func(f *facts) { f.static = false }), doNothing, PhaseHeld, time.Time{}},
		{"another version, no static workflow, holds not known", both(new, func(f *facts) { f.static, f.holdKnown = false, false }), doNothing, PhaseStarting, time.Time{}},
		{"another version, holds not known", both(new, func(f *facts) { f.holdKnown = false }), doNothing, PhaseStarting, time.Time{}},
		{"another version, held", both(new, held), doNothing, PhaseHeld, time.Time{}},
		{"another version, paused", both(new, paused), doNothing, PhasePaused, time.Time{}},
		{"another version, something missing", both(new, missing), doNothing, PhasePending, time.Time{}},
		{"another version, nothing missing", both(new, requires), doBegin, PhaseStatic, time.Time{}},
		{"another version, not known what is missing", both(new, requires, func(f *facts) { f.missingKnown = false }), doNothing, PhasePending, time.Time{}},
		{"a cycle is looked for soon", both(new, missing, func(f *facts) { f.cycles = true }), doNothing, PhasePending, in(4 * time.Second)},
		{"a cycle", both(new, missing, func(f *facts) { f.cycle = []string{"a"} }), doNothing, PhaseFailed, time.Time{}},
		{"a cycle that does not matter", both(new, requires, func(f *facts) { f.cycle = []string{"a"} }), doBegin, PhaseStatic, time.Time{}},
		{"not let in", both(new, admission), doNothing, PhaseAdmission, time.Time{}},
		{"let in for another version", both(new, admission, func(f *facts) { f.p.Entered = "v1" }), doNothing, PhaseAdmission, time.Time{}},
		{"let in", both(new, admission, func(f *facts) { f.p.Entered = "v2" }), doBegin, PhaseStatic, time.Time{}},
		{"version file lost", func(f *facts) { f.local = "" }, doBegin, PhaseStatic, time.Time{}},
		{"another program installed it", func(f *facts) { f.local, f.desired = "v2", "v2" }, doAdopt, PhaseRecording, time.Time{}},

		{"static runs", both(new, stageIs(stageStatic), func(f *facts) { f.p.Attempt.Version = "v2" }), doStatic, PhaseStatic, time.Time{}},
		{"static runs, held", both(stageIs(stageStatic), held), doNothing, PhaseHeld, time.Time{}},
		{"static runs, paused", both(stageIs(stageStatic), paused), doStatic, PhaseStatic, time.Time{}},
		{"static runs, nothing is desired", both(stageIs(stageStatic), func(f *facts) { f.desired = "" }), doStatic, PhaseStatic, time.Time{}},
		{"static runs, another version", both(stageIs(stageStatic), new), doDrop, PhaseStatic, time.Time{}},
		{"static runs, another version and held", both(stageIs(stageStatic), new, held), doDrop, PhaseStatic, time.Time{}},
		{"static is driven", both(stageIs(stageStatic), driven()), doNothing, PhaseStatic, time.Time{}},
		{"static is driven, held", both(stageIs(stageStatic), driven(), held), doNothing, PhaseStatic, time.Time{}},
		{"static is driven, another version", both(stageIs(stageStatic), driven(), new), doStop, PhaseStatic, time.Time{}},
		{"static is being stopped", both(stageIs(stageStatic), driven(), new, func(f *facts) { f.job.stopping = true }), doNothing, PhaseStatic, time.Time{}},
		{"static waits", both(stageIs(stageStatic), waiting(workflow.Pending)), doNothing, PhasePending, time.Time{}},
		{"static waits, held", both(stageIs(stageStatic), waiting(workflow.Pending), held), doNothing, PhaseHeld, time.Time{}},
		{"static is held before that is known here", both(stageIs(stageStatic), waiting(workflow.Held)), doNothing, PhaseHeld, time.Time{}},
		{"static waits for a reboot", both(stageIs(stageStatic), waiting(workflow.Reboot)), doNothing, PhaseReboot, time.Time{}},
		{"static waits for another job", both(stageIs(stageStatic), driven(), func(f *facts) { f.job.wait = &workflow.Wait{Err: workflow.ErrBusy} }), doNothing, PhaseStatic, time.Time{}},
		{"static has ended", both(stageIs(stageStatic), driven(), func(f *facts) { f.job.ended = true }), doEnded, PhaseStatic, time.Time{}},
		{"static has ended, another version", both(stageIs(stageStatic), driven(), new, func(f *facts) { f.job.ended = true }), doEnded, PhaseStatic, time.Time{}},
		{"validation is driven, another version", both(driven(), new), doNothing, PhaseStatic, time.Time{}},
		{"validation waits, another version", both(waiting(workflow.Pending), new), doStop, PhaseStatic, time.Time{}},
		{"validation is driven", both(driven(), func(f *facts) { f.mem.validateAt = noon }), doNothing, PhaseConverged, time.Time{}},
		{"invalid, due, validation waits", both(stageIs(stageInvalid), waiting(workflow.Pending), func(f *facts) { f.mem.retryAt = noon }), doStop, PhaseStatic, time.Time{}},
		{"after a start without Consul, soon", both(stageIs(stageStatic), func(f *facts) { f.desiredKnown, f.mem.started = false, in(-4*time.Second) }), doNothing, PhaseStarting, in(6 * time.Second)},
		{"after a start without Consul, later", both(stageIs(stageStatic), func(f *facts) { f.desiredKnown, f.holdKnown = false, false }), doStatic, PhaseStatic, time.Time{}},
		{"after a start without Consul, it was held", both(stageIs(stageStatic), func(f *facts) { f.holdKnown, f.p.Hold.Held = false, "by hand" }), doNothing, PhaseHeld, time.Time{}},

		{"validating", stageIs(stageValidating), doValidate, PhaseValidation, time.Time{}},
		{"validated", both(stageIs(stageValidating), func(f *facts) { f.p.Attempt.Passed = true }), doPass, PhaseValidation, time.Time{}},
		{"validated, checks not known", both(stageIs(stageValidating), func(f *facts) { f.p.Attempt.Passed, f.checks, f.checksKnown = true, true, false }), doNothing, PhaseValidation, time.Time{}},
		{"validated, checks begin", both(stageIs(stageValidating), failing(10*time.Second), func(f *facts) { f.p.Attempt.Passed = true }), doNothing, PhaseValidation, in(20 * time.Second)},
		{"validated, checks fail", both(stageIs(stageValidating), failing(30*time.Second), func(f *facts) { f.p.Attempt.Passed = true }), doInvalid, PhaseValidation, time.Time{}},
		{"validated, checks passed and fail", both(stageIs(stageValidating), failing(0), func(f *facts) { f.p.Attempt.Passed, f.checksAllGood = true, true }), doInvalid, PhaseValidation, time.Time{}},
		{"valid", stageIs(stageRecording), doRecord, PhaseRecording, time.Time{}},
		{"valid, and held", both(stageIs(stageRecording), held), doRecord, PhaseRecording, time.Time{}},
		{"valid, and another version", both(stageIs(stageRecording), new), doRecord, PhaseRecording, time.Time{}},

		{"checks fail later", both(failing(0), func(f *facts) { f.checksAllGood = true }), doInvalid, PhaseConverged, in(30 * time.Second)},
		{"checks fail after a start", failing(29 * time.Second), doNothing, PhaseConverged, in(time.Second)},

		{"failed", both(stageIs(stageFailed), func(f *facts) { f.mem.retryAt = in(time.Second) }), doNothing, PhaseFailed, in(time.Second)},
		{"failed, due", both(stageIs(stageFailed), func(f *facts) { f.mem.retryAt = noon }), doBegin, PhaseStatic, time.Time{}},
		{"failed, due, held", both(stageIs(stageFailed), held), doNothing, PhaseHeld, time.Time{}},
		{"failed, due, nothing desired", both(stageIs(stageFailed), func(f *facts) { f.desired = "" }), doNothing, PhaseFailed, time.Time{}},
		{"failed, another version", both(stageIs(stageFailed), new, func(f *facts) { f.mem.retryAt = in(time.Hour) }), doBegin, PhaseStatic, time.Time{}},
		{"failed at another version, back", both(stageIs(stageFailed), func(f *facts) { f.p.Attempt.Version, f.mem.retryAt = "v2", in(time.Hour) }), doBegin, PhaseStatic, time.Time{}},
		{"dropped, back", stageIs(stageDropped), doBegin, PhaseStatic, time.Time{}},
		{"invalid", both(stageIs(stageInvalid), func(f *facts) { f.mem.retryAt = in(time.Second) }), doNothing, PhaseFailed, in(time.Second)},
		{"invalid, validation due", both(stageIs(stageInvalid), func(f *facts) { f.mem.retryAt, f.mem.validateAt = in(time.Second), noon }), doValidate, PhaseFailed, time.Time{}},
		{"invalid, due", both(stageIs(stageInvalid), func(f *facts) { f.mem.retryAt = noon }), doBegin, PhaseStatic, time.Time{}},
		{"invalid, checks recovered", both(stageIs(stageInvalid), func(f *facts) { f.p.Attempt.Checks, f.mem.retryAt = true, in(time.Second) }), doValidate, PhaseFailed, time.Time{}},
		{"invalid, checks fail on", both(stageIs(stageInvalid), failing(0), func(f *facts) { f.p.Attempt.Checks, f.mem.retryAt = true, in(time.Second) }), doNothing, PhaseFailed, in(time.Second)},

		{"drained, validation due", both(drained, due), doNothing, PhaseConverged, time.Time{}},
		{"drained, checks fail", both(failing(time.Hour), drained, func(f *facts) { f.checksAllGood = true }), doNothing, PhaseConverged, time.Time{}},
		{"drained, another version", both(drained, new), doNothing, PhaseHeld, time.Time{}},
		{"drained, another version, with a policy", both(drained, new, admission), doNothing, PhaseHeld, time.Time{}},
		{"drained, the static workflow was interrupted", both(drained, stageIs(stageStatic)), doStatic, PhaseStatic, time.Time{}},
		{"drained, validating", both(drained, stageIs(stageValidating)), doNothing, PhaseHeld, time.Time{}},
		{"drained, the validation was interrupted", both(drained, stageIs(stageValidating), func(f *facts) { f.p.Attempt.Validation = "j" }), doValidate, PhaseValidation, time.Time{}},
		{"drained, validated", both(drained, failing(time.Hour), stageIs(stageValidating), func(f *facts) { f.p.Attempt.Passed = true }), doNothing, PhaseHeld, time.Time{}},
		{"drained, valid", both(drained, stageIs(stageRecording)), doRecord, PhaseRecording, time.Time{}},
		{"drained, failed, due", both(drained, due, stageIs(stageFailed)), doNothing, PhaseHeld, time.Time{}},
		{"drained, invalid, due", both(drained, due, stageIs(stageInvalid)), doNothing, PhaseHeld, time.Time{}},
		{"drained is not known yet, validation due", both(unknown, due), doNothing, PhaseConverged, in(6 * time.Second)},
		{"drained is not known yet, another version", both(unknown, new), doNothing, PhaseStarting, in(6 * time.Second)},
		{"drained is not known yet, validating", both(unknown, stageIs(stageValidating)), doNothing, PhaseStarting, in(6 * time.Second)},
		{"drained is never known", both(unknown, new, func(f *facts) { f.mem.started = in(-10 * time.Second) }), doBegin, PhaseStatic, time.Time{}},

		{"to leave", both(admission, func(f *facts) { f.p.Entered = "v1" }), doNothing, PhaseConverged, in(time.Minute)},
		{"left", both(admission, func(f *facts) { f.p.Entered, f.left = "v1", "v1" }), doLeft, PhaseConverged, time.Time{}},
		{"nothing begins before progress is saved", both(new, func(f *facts) { f.unsaved, f.mem.saveAt = true, in(time.Second) }), doNothing, PhaseStatic, in(time.Second)},
		{"what could not be done waits", both(new, func(f *facts) { f.mem.trouble, f.mem.troubleAt = doBegin, in(time.Second) }), doNothing, PhaseStatic, in(time.Second)},
		{"what could not be done keeps nothing else", both(new, func(f *facts) { f.mem.trouble, f.mem.troubleAt = doValidate, in(time.Second) }), doBegin, PhaseStatic, time.Time{}},
	} {
		d := decide(known(tt.facts), noon)
		if d.do != tt.do || d.phase != tt.phase || !d.until.Equal(tt.until) {
			t.Errorf("%s: got %q, phase %s, until %v (%s), want %q, %s, %v", tt.name, d.do, d.phase, d.until, d.detail, tt.do, tt.phase, tt.until)
		}
	}
}

// TestDecideTasks is about what runs beside the loop.
func TestDecideTasks(t *testing.T) {
	t.Parallel()
	d := decide(known(func(f *facts) { f.admission, f.p.Entered = true, "v1" }), noon)
	want(t, "leave", d.leave, "v1")
	want(t, "outcome", d.outcome, Outcome(""))
	d = decide(known(func(f *facts) { f.admission, f.p.Entered, f.stored = true, "v1", false }), noon)
	want(t, "leave before it is reported", d.leave, "")
	d = decide(known(func(f *facts) { f.admission, f.desired = true, "v2" }), noon)
	want(t, "enter", d.enter, "v2")
	d = decide(known(func(f *facts) { f.admission, f.desired, f.requires = true, "v2", true }), noon)
	want(t, "enter before what is missing is known", d.enter, "")
	want(t, "require", d.require, true)
}

func driven() func(*facts) { return func(f *facts) { f.job.id = "j" } }

func waiting(s workflow.State) func(*facts) {
	return func(f *facts) { f.job = jobStatus{id: "j", wait: &workflow.Wait{Result: workflow.Result{State: s}}} }
}

func TestCycleText(t *testing.T) {
	t.Parallel()
	wantText(t, "open", cycleText([]string{"a", "b"}), "a → b → a:")
	wantText(t, "closed", cycleText([]string{"a", "b", "a"}), "a → b → a:")
	wantText(t, "itself", cycleText([]string{"a"}), "a → a:")
}

// TestStatusBefore: a converger that does not run yet has a status too.
func TestStatusBefore(t *testing.T) {
	t.Parallel()
	s := New(Options{StateDir: t.TempDir()}).Status()
	want(t, "phase", s.Phase, PhaseStarting)
	want(t, "history", s.History != nil, true)
}
