package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// Goal is the state of a cluster that a wait is for; one field is set.
type Goal struct {
	Idle    bool   // nothing is in progress
	Except  Caller // who waits, with Idle or Run; its own work is left out, and a run behind it fails the wait
	Version string // all members run it
	Members int    // so many have joined
	Run     string // the run has ended
}

// ParseGoal reads "idle", "version=V", "members=N" or "run=ID". It returns
// ErrInvalid.
func ParseGoal(text string) (Goal, error) {
	kind, arg, given := strings.Cut(text, "=")
	switch {
	case text == "idle":
		return Goal{Idle: true}, nil
	case kind == "version" && arg != "":
		return Goal{Version: arg}, nil
	case kind == "members" && given:
		if n, err := strconv.Atoi(arg); err == nil && n > 0 {
			return Goal{Members: n}, nil
		}
		return Goal{}, fmt.Errorf("%q: %w: how many members?", text, ErrInvalid)
	case kind == "run" && given:
		return Goal{Run: arg}, CheckID(arg)
	}
	return Goal{}, fmt.Errorf("%q: %w: idle, version=V, members=N or run=ID can be waited for", text, ErrInvalid)
}

// reading is a cluster as a Waiter reads it.
type reading struct {
	members []cluster.Member // that are waited for
	reports map[string]cluster.Report
	some    bool             // not all members are waited for
	rollout rollout.Document // for idle
	runs    []Run            // for idle
	caller  caller           // for idle
	own     map[string]bool  // for idle: runs in progress of which nothing can continue before the caller ends
	seen    map[string]bool  // runs that were in progress since the waiting began
	results []Detail         // for idle: the runs by which members are judged; nil: not read yet
	run     Detail           // for run
}

// Trouble is a member that failed, and why.
type Trouble struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Verdict is how far a cluster is from a goal.
type Verdict struct {
	Over    bool      `json:"over"` // there is nothing left to wait for
	Failed  []Trouble `json:"failed"`
	Missing string    `json:"missing,omitempty"` // what is waited for
}

// assess is how far l is from the goal.
func (g Goal) assess(l reading) Verdict {
	switch {
	case g.Run != "":
		return assessRun(l.run)
	case g.Members > 0:
		if n := len(l.members); n < g.Members {
			return Verdict{Missing: fmt.Sprintf("%d of %d members", n, g.Members)}
		}
		return Verdict{Over: true}
	case g.Version != "":
		return assessVersion(g.Version, l)
	}
	return assessIdle(l)
}

func assessRun(d Detail) Verdict {
	if !d.State.Ended() {
		if failed := failedMembers(d); len(failed) > 0 { // whatever the others do, the run fails
			return Verdict{Failed: failed}
		}
		c := d.Counts
		if d.State == NeedsApproval {
			return Verdict{Missing: fmt.Sprintf("run %s needs approval: 'jorc cluster approve %s' lets it begin", d.ID, d.ID)}
		}
		return Verdict{Missing: fmt.Sprintf("run %s is %s: %d of %d members done, %d running", d.ID, d.State, c.Done, c.Members, c.Running)}
	}
	v := Verdict{Over: true}
	if d.State == Done {
		return v
	}
	if v.Failed = failedMembers(d); len(v.Failed) == 0 {
		v.Failed = []Trouble{{Why: fmt.Sprintf("run %s is %s: %s", d.ID, d.State, d.Why)}}
	}
	return v
}

// failedMembers are the members because of which a run is not done. A lost member
// may come back while the run is in progress.
func failedMembers(d Detail) []Trouble {
	var all []Trouble
	for _, m := range d.Members {
		if m.State == Failed || m.State == Lost && d.State.Ended() || m.State == Cancelled && d.State == Cancelled {
			all = append(all, Trouble{Node: m.Node, Why: string(m.State) + behind(": ", m.Why)})
		}
	}
	return all
}

func assessVersion(version string, l reading) Verdict {
	v, behind := Verdict{Over: true}, 0
	for i := range l.members {
		node := l.members[i].Node
		d := l.reports[node]
		if d.Version == version {
			continue
		}
		if why := failure(d, version); why != "" {
			v.Failed = append(v.Failed, Trouble{node, why})
			continue
		}
		behind++
	}
	if behind > 0 && len(v.Failed) == 0 {
		return Verdict{Missing: fmt.Sprintf("%d of %d members are not at version %s", behind, len(l.members), version)}
	}
	return v
}

// failure is why a node failed on its way to a version.
func failure(d cluster.Report, version string) string {
	for _, category := range sorted(d.States) {
		if s := d.States[category]; s.State == "failed" && (version == "" || s.Version == version) {
			return strings.TrimSuffix(fmt.Sprintf("%s failed: %s", category, cluster.Brief(s.Detail)), ": ")
		}
	}
	return ""
}

// assessIdle waits until nothing is in progress; then those count as failed that
// report it, and those whose last run came to that.
func assessIdle(l reading) Verdict {
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
			if s := d.States[category].State; (s == "running" || s == "pending") && !l.caller.occupies(node) {
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

// rollsOut reports whether a rollout with a policy is in progress for some of the
// members that count. Without a policy each member is on its own, and one that
// has no workflow may never bring itself to the version.
func (l reading) rollsOut() bool {
	d := l.rollout
	if !d.Paced() || d.Over() || d.State() == rollout.Paused {
		return false
	}
	if d.Gate != nil && l.own[d.Gate.Run] { // its gate cannot answer before the caller ends
		return false
	}
	callerCounts := slices.ContainsFunc(l.members, func(m cluster.Member) bool { return l.caller.occupies(m.Node) })
	return !l.some && !callerCounts || slices.ContainsFunc(l.members, func(m cluster.Member) bool {
		return !l.caller.occupies(m.Node) && l.reports[m.Node].Version != d.Version && d.Policy.KeepsBack(m.Roles) == ""
	})
}

// failedRuns are the members whose last run failed, also when that was before
// the waiting began: whether it was must not depend on timing. Runs that ended
// meanwhile are reported, too, if they failed on no member that counts.
func failedRuns(l reading) []Trouble {
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

// results reads the runs by which l's members are judged: from the newest back
// until each has had a part in one, and those of rules, which members join late.
// It is two requests for each.
func (w *Waiter) results(ctx context.Context, l reading) ([]Detail, error) {
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
		d, readable, err := w.detail(ctx, run.ID)
		if err != nil {
			return nil, err
		}
		if !readable {
			continue
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

// detail reads a run; readable is false for one that is gone or damaged.
func (w *Waiter) detail(ctx context.Context, id string) (d Detail, readable bool, err error) {
	d, err = New(w.Cluster.Store()).Show(ctx, id)
	if errors.Is(err, ErrNoRun) || errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer) {
		return d, false, nil
	}
	return d, true, err
}

// behind is text with something before it, or nothing.
func behind(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}
