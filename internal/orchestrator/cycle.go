package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// cycle runs one cycle and reports on it. again says that there is more to do at once.
func (t *term) cycle(ctx context.Context, trigger string) (again bool) {
	asked := t.requests.begin()
	switch {
	case len(asked) > 0:
		trigger = triggerRequest
	case trigger == triggerRequest: // the cycle before was in time for it
		trigger = triggerDue
	}
	start := time.Now()
	r := Report{Node: t.o.Node, Epoch: t.held.Epoch(), Trigger: trigger, Start: start.UTC().Truncate(time.Millisecond), Outcome: OutcomeUnchanged}
	again, err := t.steps(ctx, &r)
	if err != nil {
		t.watcher.Reset() // the next state is read completely
	}
	if t.overwritten(err) && r.Events+r.Decided == 0 {
		r.Synced, r.Failed, r.Problems = 0, 0, nil
		again, err = t.steps(ctx, &r)
	}
	r.Duration = time.Since(start).Milliseconds()
	t.setOutcome(ctx, &r, err)
	t.countFailures(ctx, &r)
	if err := t.finish(ctx, &r, asked); err != nil && ctx.Err() == nil {
		t.o.Log.Warn("the report of a cycle cannot be kept", "error", err)
		t.requests.requeue(asked)
	}
	t.requests.end()
	t.setStatus(func(s *Status) { s.Cycles++; s.Last = &r })
	return again
}

// overwritten reports whether err means that another program wrote without the lock what is
// current, as when keys are restored from a backup: it is to be read again.
func (t *term) overwritten(err error) bool {
	return t.journal == nil && t.held.Err() == nil && errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrLockLost)
}

// setOutcome says how the cycle went, and for how long to rest if it failed.
func (t *term) setOutcome(ctx context.Context, r *Report, err error) {
	switch {
	case t.held.Err() != nil || ctx.Err() != nil || errors.Is(err, kv.ErrLockLost):
		r.Outcome, r.Error = OutcomeLost, "the agent stops"
		if lost := t.held.Err(); lost != nil {
			r.Error = short(lost.Error())
		}
		return
	case err != nil:
		r.Outcome, r.Error = OutcomeFailed, short(err.Error())
		t.backoff = min(max(2*t.backoff, t.o.Interval), maxBackoff)
		t.o.Log.Warn("a cycle failed", "error", err, "next_in", t.backoff)
		return
	case r.Outcome == OutcomeUnchanged && r.Failed > 0:
		r.Outcome = OutcomePartial
	case r.Outcome == OutcomeUnchanged && r.Events+r.Decided > 0:
		r.Outcome = OutcomeChanged
	}
	t.backoff = 0
	if r.Events > 0 {
		t.o.Log.Debug("cycle", "outcome", r.Outcome, "events", r.Events, "decisions", r.Decided, "duration_ms", r.Duration)
	}
}

// failsUntilEvent is how many cycles in a row fail before an event says so.
const failsUntilEvent = 3

// countFailures counts the cycles in a row that failed, and journals when they
// become too many and when cycles succeed again. An event that cannot be
// journalled now is tried again after the next cycle.
func (t *term) countFailures(ctx context.Context, r *Report) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	switch r.Outcome {
	case OutcomeLost:
		return
	case OutcomeFailed:
		if t.fails++; t.fails == failsUntilEvent {
			t.unsaved = append(t.unsaved, Event{
				Kind: event.OrchestratorFailing, Time: now, Text: fmt.Sprintf("%d cycles of the orchestrator on %s failed in a row: %s", t.fails, t.o.Node, r.Error),
			})
		}
	default:
		if t.fails >= failsUntilEvent {
			t.unsaved = append(t.unsaved, Event{
				Kind: event.OrchestratorRecovered, Time: now, Text: fmt.Sprintf("cycles of the orchestrator on %s succeed again, after %d that failed", t.o.Node, t.fails),
			})
		}
		t.fails = 0
	}
	t.setStatus(func(s *Status) { s.Fails = t.fails })
	if len(t.unsaved) == 0 || t.journal == nil {
		return
	}
	if err := t.save(ctx, t.journal.View(), t.unsaved, now, nil, &Report{}); err != nil { // not an event of this cycle
		t.o.Log.Warn("an event about failed cycles cannot be journalled yet", "error", err)
		return
	}
	t.unsaved = nil
}

// steps are those of a cycle: last view, facts, new view, difference, save.
func (t *term) steps(ctx context.Context, r *Report) (again bool, err error) {
	events, err := t.open(ctx)
	if err != nil {
		return false, err
	}
	if r.Trigger == triggerRequest && t.o.Grants {
		if err := t.grants.settle(ctx); err != nil {
			r.problem("decider", deciderRollout, err)
		}
	}
	decided, more := t.outbox.next() // on a state that is not newer than the one that is read now
	state, err := t.fetch(ctx, r.Trigger == triggerChange)
	if err != nil {
		return false, err
	}
	now := time.Now()
	before := t.journal.View()
	probes, again, err := t.prober.run(ctx, probeTargets(&state, before), now)
	if err != nil {
		return false, err
	}
	t.probes.Set(probes)
	state = state.WithProbes(probes)
	v, changed := t.views.next(&state, before, now)
	r.count(v)
	events = append(events, operatorChanges(state.Changes, t.journal.Commit().Audited)...)
	events = append(events, differenceOf(before, v, changed, state.Attributed, endedHolds(&state))...)
	if len(events)+len(decided) > 0 {
		if err = t.saveDecided(ctx, v, events, decided, now, r); err != nil {
			return false, fmt.Errorf("save the view: %w", err)
		}
		t.views.base = nil // the next cycle compares with v
	}
	t.controlChange = state.Stored.Change(now)
	if err := t.endHolds(ctx, &state, now); err != nil {
		if errors.Is(err, kv.ErrLockLost) || ctx.Err() != nil {
			return false, err
		}
		r.problem("document", cluster.KeyControl, err)
	}
	if err := t.project(ctx, &state); err != nil {
		if errors.Is(err, kv.ErrLockLost) || ctx.Err() != nil {
			return false, err
		}
		r.problem("document", cluster.PrefixRunning, err)
	}
	t.setStatus(func(s *Status) { s.Aggregate = t.views.aggregate })
	last := t.lastObserved()
	seen := observe(state, v, last, t.began, now)
	if r.Idle = idleReason(&state); r.Idle == "" {
		t.grants.problems.report(r)
	}
	t.setObserved(seen)
	if last == nil || len(events) > 0 {
		t.grants.wake.Notify() // since when hosts are down or away
	}
	return again || more, err
}

// endHolds writes that holds have ended, once the events that say so are journalled. They
// are over by the clock, whether this is written or not.
func (t *term) endHolds(ctx context.Context, s *cluster.State, now time.Time) error {
	err := t.cluster.In(t.store).EndHolds(ctx, s.Stored, now)
	if errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrLockLost) {
		return nil // changed meanwhile: the next cycle sees it
	}
	return err
}

// project brings the index keys of nodes up to date where Consul has ACLs.
func (t *term) project(ctx context.Context, s *cluster.State) error {
	if !t.aclsKnown {
		enabled, err := t.o.Client.ACLsEnabled(ctx)
		if err != nil {
			return err
		}
		if t.aclsKnown = true; enabled {
			t.projector = t.cluster.NewProjector(t.store)
		}
	}
	if t.projector == nil {
		return nil
	}
	documents := make(map[string]kv.Leaf[cluster.Report], len(s.Hosts))
	for node, h := range s.Hosts {
		if err := s.DamagedReport(node); h.Reported || err != nil {
			documents[node] = kv.Leaf[cluster.Report]{Entry: kv.Entry[cluster.Report]{Value: h.Report}, Err: err}
		}
	}
	return t.projector.Project(ctx, documents)
}

// count says of how many nodes everything could be read.
func (r *Report) count(v View) {
	var troubled []string
	for name, n := range v.Nodes {
		if n.Trouble != "" {
			troubled = append(troubled, name)
		}
	}
	slices.Sort(troubled)
	for _, name := range troubled {
		r.Failed++
		r.problem("node", name, errors.New(v.Nodes[name].Trouble))
	}
	r.Synced = len(v.Nodes) - r.Failed
	for key, why := range v.Cluster.Trouble {
		r.problem("document", key, errors.New(why))
	}
}

// idleReason says why nothing is decided.
func idleReason(s *cluster.State) string {
	for _, key := range []string{cluster.KeyControl, cluster.KeyLeaders, cluster.KeyProfile} {
		if err := s.Damaged[key]; err != nil {
			return fmt.Sprintf("%s cannot be read: nothing is decided on what may be wrong", key)
		}
	}
	switch {
	case s.Control.ObserveOnly != nil:
		return "observe only: " + s.Control.ObserveOnly.String()
	case !s.Exists:
		return "the cluster was never created: " + fleet.CreationHint(s.Cluster)
	}
	return ""
}

// open reads what is current, at the beginning and after every failure to save.
// What of it was damaged becomes events.
func (t *term) open(ctx context.Context) ([]Event, error) {
	if err := t.reports.load(ctx); err != nil {
		return nil, err
	}
	problems, err := t.outbox.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what was decided: %w", err)
	}
	events := t.damaged("what was decided cannot be read; it is left out", problems)
	if t.journal != nil {
		return events, nil
	}
	j, problems, err := OpenJournal(ctx, t.store, t.o.Journal)
	if err != nil {
		return nil, fmt.Errorf("read the last view: %w", err)
	}
	if err := t.sinks.open(ctx, j.Commit().Seq); err != nil {
		return nil, err
	}
	events = append(events, t.damaged("a part of the last view cannot be read; it is observed anew", problems)...)
	t.journal = j
	t.setStatus(func(s *Status) { s.Seq = j.Commit().Seq })
	return events, nil
}

// damaged are the events of problems.
func (t *term) damaged(what string, problems []error) (events []Event) {
	for _, p := range problems {
		t.o.Log.Warn(what, "error", p)
		events = append(events, Event{Kind: event.DocumentDamaged, Text: what + ": " + p.Error()})
	}
	return events
}

// save saves and tells the ones that wait for events.
func (t *term) save(ctx context.Context, v View, events []Event, now time.Time, also func(*kv.Txn), r *Report) error {
	numbered, err := t.journal.Save(ctx, v, events, now, also)
	if err != nil {
		if !isDecisionError(err) {
			t.journal = nil
		}
		return err
	}
	seq := t.journal.Commit().Seq
	r.saved(numbered[0].Seq, seq)
	t.setStatus(func(s *Status) { s.Seq = seq })
	t.sinks.notify(seq)
	return nil
}

// finish keeps the report if it says something new, answers the ones that asked
// for the cycle, and says when the next is due after an error. When all of that
// is as it was, nothing is written.
func (t *term) finish(ctx context.Context, r *Report, asked []string) error {
	if r.Outcome == OutcomeLost {
		return nil
	}
	var kept []Report
	if t.reports.read && (len(asked) > 0 || t.reports.isNews(*r)) {
		kept, *r = t.reports.appended(*r)
	}
	keep := func(txn *kv.Txn) {
		if kept != nil {
			t.reports.doc.SetIn(txn, Reports{kept})
		}
	}
	var answers []Answer
	for _, id := range asked {
		answers = append(answers, Answer{ID: id, Report: r.Number})
	}
	written := false
	_, err := t.requests.doc.Change(ctx, func(old kv.Entry[next], txn *kv.Txn) (next, bool, error) {
		n, changed := old.Value.answer(answers)
		n, changed = n.failed(*r, t.backoff, changed)
		if changed {
			keep(txn)
		}
		written = changed
		return n, changed, nil
	})
	switch {
	case errors.Is(err, kv.ErrDamaged):
		txn := t.store.Txn()
		t.requests.doc.SetIn(txn, next{})
		keep(txn)
		_, err = txn.Commit(ctx)
	case err == nil && !written && kept != nil:
		txn := t.store.Txn()
		keep(txn)
		_, err = txn.Commit(ctx)
	}
	if err == nil && kept != nil {
		t.reports.last = kept
	}
	return err
}

// failed says in n when the next cycle is due after an error: nothing new while
// the error and the backoff stay.
func (n next) failed(r Report, backoff time.Duration, changed bool) (next, bool) {
	switch {
	case backoff == 0 && n.Error == "" && n.Due.IsZero():
		return n, changed
	case backoff == 0:
		n.Error, n.Due = "", time.Time{}
	case n.Error == r.Error && backoff == maxBackoff:
		return n, changed
	default:
		n.Error, n.Due = r.Error, time.Now().Add(backoff).UTC().Truncate(time.Second)
	}
	return n, true
}
