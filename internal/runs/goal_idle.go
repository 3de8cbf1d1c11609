package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// judgeIdle waits until nothing is in progress; then those count as failed that
// report it, and those whose last run came to that.
func judgeIdle(l look) Verdict {
	v := Verdict{Over: true}
	var busy []string
	for _, r := range l.runs {
		if inProgress(r) && !l.own[r.ID] {
			busy = append(busy, "run "+r.ID)
		}
	}
	if l.rollsOut() {
		busy = append(busy, fmt.Sprintf("rollout of %s (%s)", l.rollout.Version, l.rollout.StateText()))
	}
	for i := range l.members {
		node := l.members[i].Node
		d := l.reports[node]
		for _, category := range sorted(d.States) {
			if s := d.States[category].State; (s == "running" || s == "pending") && node != l.caller.Node {
				busy = append(busy, node+" ("+category+")")
				break
			}
		}
		if why := failure(d, ""); why != "" {
			v.Failed = append(v.Failed, Trouble{node, why})
		}
	}
	if len(busy) > 0 {
		return Verdict{Missing: "in progress: " + several(busy)}
	}
	v.Failed = append(v.Failed, failedRuns(l)...)
	return v
}

func inProgress(r Run) bool { return r.State == Pending || r.State == Running }

// rollsOut tells whether a rollout with a policy goes on, or waits to, for some of
// the members that count. Without a policy each member is on its own, and one that
// has no workflow may never bring itself to the version.
func (l look) rollsOut() bool {
	d := l.rollout
	if !d.Paced() || d.Over() || d.State() == rollout.Paused {
		return false
	}
	callerCounts := slices.ContainsFunc(l.members, func(m cluster.Member) bool { return m.Node == l.caller.Node })
	return !l.some && !callerCounts || slices.ContainsFunc(l.members, func(m cluster.Member) bool {
		return m.Node != l.caller.Node && l.reports[m.Node].Version != d.Version && d.Policy.KeepsBack(m.Roles) == ""
	})
}

// failedRuns are the members whose last run failed, also when that was before
// the waiting began: whether it was must not depend on who was faster. Of runs
// that ended meanwhile those are told, too, that failed on nobody who counts.
func failedRuns(l look) []Trouble {
	type result struct {
		at       time.Time
		run, why string
	}
	last := map[string]result{}
	failed, named := map[string]bool{}, map[string]bool{} // runs, by whether a member is to blame, and one who counts
	for _, d := range l.results {
		for _, m := range d.Members {
			if len(m.History) == 0 {
				continue
			}
			r := result{at: m.History[len(m.History)-1].At, run: d.ID}
			if d.State != Done && (m.State == Failed || m.State == Lost) { // one on a manager may be done elsewhere
				failed[d.ID] = true
				r.why = fmt.Sprintf("run %s %s%s", d.ID, m.State, behind(": ", m.Why))
			}
			if known, ok := last[m.Node]; !ok || r.at.After(known.at) {
				last[m.Node] = r
			}
		}
	}
	var all []Trouble
	for i := range l.members {
		if r := last[l.members[i].Node]; r.why != "" {
			named[r.run] = true
			all = append(all, Trouble{l.members[i].Node, r.why})
		}
	}
	for _, r := range l.runs {
		managers := r.Request.OnManager || r.Request.Role == cluster.RoleManager
		if l.seen[r.ID] && r.State == Failed && !named[r.ID] && (managers || !failed[r.ID]) {
			all = append(all, Trouble{Why: fmt.Sprintf("run %s failed: %s", r.ID, r.Why)})
		}
	}
	return all
}

// ownRuns returns the runs in progress that belong to the caller, or of which only
// the caller's node has not finished its part: it cannot before the caller ends.
func (w *Waiter) ownRuns(ctx context.Context, all []Run, caller Caller) (map[string]bool, error) {
	own := map[string]bool{}
	for _, run := range all {
		if !inProgress(run) || caller.Node == "" && run.ID != caller.Run {
			continue
		}
		if run.ID == caller.Run {
			own[run.ID] = true
			continue
		}
		d, err := New(w.Cluster.Store()).Show(ctx, run.ID)
		switch {
		case errors.Is(err, ErrNoRun), errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			continue
		case err != nil:
			return nil, err
		}
		open := slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.State.Ended() })
		own[run.ID] = len(open) > 0 && !slices.ContainsFunc(open, func(m Member) bool { return m.Node != caller.Node })
	}
	return own, nil
}

// results reads the runs by which l's members are judged: from the newest back
// until each has had a part in one, and those of rules, which members join late.
// It is two requests for each.
func (w *Waiter) results(ctx context.Context, l look) ([]Detail, error) {
	open := map[string]bool{}
	for i := range l.members {
		open[l.members[i].Node] = true
	}
	all := []Detail{}
	for _, run := range l.runs { // the newest come first
		standing := run.Rule != nil && !run.Rule.Gone
		if run.Started.IsZero() || len(open) == 0 && !standing {
			continue
		}
		d, err := New(w.Cluster.Store()).Show(ctx, run.ID)
		switch {
		case errors.Is(err, ErrNoRun), errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			continue
		case err != nil:
			return nil, err
		}
		for _, m := range d.Members {
			if len(m.History) > 0 {
				delete(open, m.Node)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// behind is text with something before it, or nothing.
func behind(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}
