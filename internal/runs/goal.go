package runs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
)

// Goal is what a cluster is waited for to reach; one field is set.
type Goal struct {
	Idle    bool   // nothing is in progress
	Except  Caller // left out with Idle
	Version string // all members run it
	Members int    // so many have joined
	Run     string // the run has come to its end
}

// Caller is a job that waits: its own work is not waited for.
type Caller struct {
	Run  string // that the job belongs to; empty: none
	Node string // on which it runs; empty: none
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

// look is a cluster as a waiter sees it.
type look struct {
	members []cluster.Member // that are waited for
	reports map[string]cluster.Report
	some    bool             // not all members are waited for
	rollout rollout.Document // for idle
	runs    []Run            // for idle
	caller  Caller           // for idle
	own     map[string]bool  // for idle: runs in progress that wait for nothing but the caller
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

// judge tells how far l is from the goal.
func (g Goal) judge(l look) Verdict {
	switch {
	case g.Run != "":
		return judgeRun(l.run)
	case g.Members > 0:
		if n := len(l.members); n < g.Members {
			return Verdict{Missing: fmt.Sprintf("%d of %d members", n, g.Members)}
		}
		return Verdict{Over: true}
	case g.Version != "":
		return judgeVersion(g.Version, l)
	}
	return judgeIdle(l)
}

func judgeRun(d Detail) Verdict {
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

func judgeVersion(version string, l look) Verdict {
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

// failure says why a node failed on its way to a version.
func failure(d cluster.Report, version string) string {
	for _, category := range sorted(d.States) {
		if s := d.States[category]; s.State == "failed" && (version == "" || s.Version == version) {
			return strings.TrimSuffix(fmt.Sprintf("%s failed: %s", category, cluster.Brief(s.Detail)), ": ")
		}
	}
	return ""
}
