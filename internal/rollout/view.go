package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/nodes"
)

// View is what is known of all members at one moment.
type View struct {
	Desired string // version; as current_version has it
	Members []Member
	// Strangers hold a slot of the rollout and are no members.
	Strangers []string
	// Halted says why nobody begins, or is admitted, in the whole cluster; empty: it is not so.
	Halted string
}

// Member is one member as a rollout sees it.
type Member struct {
	Node    string
	Roles   []string // derived ones, too
	Zone    string
	Outside bool // the cluster's own filter leaves it out

	Version    string
	Arrived    time.Time // at Version
	Config     nodes.State
	Validation nodes.State

	Up bool // its host and its agent are there
	// DownSince is since when it has not been Up; zero: that is not known.
	DownSince time.Time
	// Sick: a check is critical, or it is in maintenance that jorc did not set.
	Sick bool
	// Drained: jorc itself put it into maintenance.
	Drained bool

	Holds     bool // a slot of the rollout
	HeldSince time.Time
	Hold      string // what holds its convergence, in words
}

// part tells whether the rollout is about the member.
func (m Member) part(p Policy) bool {
	return !m.Outside && !slices.Contains(m.Roles, cluster.RoleManager) && p.KeepsBack(m.Roles) == ""
}

// out tells whether the member is out of service without a slot to be so.
func (m Member) out() bool { return !m.Holds && (!m.Up || m.Sick) }

// outWhy says why the member is out of service without a slot to be so; empty:
// it is not.
func (m Member) outWhy() string {
	switch {
	case m.Holds:
		return ""
	case !m.Up:
		return "its host or its agent is down"
	case m.Sick:
		return "a check is critical, or somebody put it into maintenance"
	case m.Drained:
		return "its slot was taken away; it is in maintenance until it has converged, and does not count"
	}
	return ""
}

// downGrace is how long a member that holds a slot may be down, as one that
// reboots, before that is a failure.
const downGrace = 5 * time.Minute

// failure says why the member counts as failed in the rollout; empty: it does
// not. A failure from before the rollout began is none of it.
func (m Member) failure(d Document, now time.Time) string {
	for _, s := range m.states() {
		if s.failedIn(d) {
			return strings.TrimSuffix(s.category+" failed: "+nodes.Brief(s.Detail), ": ")
		}
	}
	if !m.Holds || !d.UsesSlots() {
		return ""
	}
	held := latest(m.HeldSince, d.Started)
	switch {
	case !m.Up && !m.DownSince.IsZero() && now.Sub(m.DownSince) > downGrace:
		return "it holds a slot and is down since " + m.DownSince.UTC().Format(time.RFC3339)
	case d.Policy.NodeDeadline > 0 && now.Sub(held) > time.Duration(d.Policy.NodeDeadline):
		return fmt.Sprintf("it holds its slot since %s, longer than %v", held.UTC().Format(time.RFC3339), d.Policy.NodeDeadline)
	}
	return ""
}

// reported is what a member reports of one category.
type reported struct {
	nodes.State
	category string
}

func (m Member) states() [2]reported {
	return [2]reported{{m.Config, nodes.Config}, {m.Validation, nodes.Validation}}
}

// failedIn tells whether the report is a failure of the rollout.
func (r reported) failedIn(d Document) bool {
	return r.State.State == nodes.Failed && r.Version == d.Version && (r.Since.IsZero() || !r.Since.Before(d.Started))
}

// standing is where a member is on its way to the version.
type standing int

const (
	pending standing = iota
	working          // holds a slot
	failed
	down // and holds no slot
	done
)

func (m Member) standing(d Document, now time.Time) standing {
	switch {
	case m.failure(d, now) != "":
		return failed
	case m.Holds && d.UsesSlots():
		return working
	case m.Version == d.Version:
		return done
	case !m.Up:
		return down
	}
	return pending
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
