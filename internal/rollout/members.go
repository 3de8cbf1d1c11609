package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Observe reads what is known of all members, as no server that lost its
// leadership can answer, with requests whose number does not grow with theirs. It
// returns what cluster.Load returns, and a *cluster.FilterError.
func (r *Rollouts) Observe(ctx context.Context, stored Stored) (State, error) {
	s, err := r.cluster.Consistent().Load(ctx, cluster.NeedState)
	if err != nil {
		return State{}, err
	}
	state, err := StateOf(&s, stored)
	if err == nil && r.count != nil && s.Control.Budget != nil {
		state.Places, err = r.count(ctx, r.cluster, &s, state)
	}
	return state, err
}

// CheckState returns the error of StateOf.
func CheckState(s *cluster.State) error {
	if err := s.Damaged[cluster.KeyProfile]; err != nil {
		return err
	}
	_, err := s.Filter()
	return err
}

// StateOf is the cluster as a rollout sees it. A report or a grant that cannot be
// read counts as absent. It returns why the profile cannot be read, and a
// *cluster.FilterError for an invalid filter: then no member is left out by it.
func StateOf(s *cluster.State, stored Stored) (State, error) {
	if err := s.Damaged[cluster.KeyProfile]; err != nil {
		return State{}, err
	}
	filter, err := s.Filter()
	if err != nil {
		filter, _ = cluster.ParseFilter("") // it matches every member
	}
	state := State{Halted: s.Control.HaltedText(), AllHeld: s.Control.Hold != nil && !s.Control.Hold.Off, Control: s.Control, Quiet: stored.Ledger.Quiet, Session: stored.Session}
	if damaged := s.Damaged[cluster.KeyControl]; damaged != nil {
		state.Halted = "what holds the cluster, and its budget, cannot be read: " + damaged.Error()
	}
	nodes := s.Nodes()
	state.Members = make([]Member, 0, len(nodes))
	for _, node := range nodes {
		if s.DamagedMember(node) != nil {
			continue
		}
		host := s.Hosts[node]
		roles := s.Roles(host)
		one := Member{
			Node: node, Roles: roles, Zone: host.Record.Zone, Outside: !s.Matches(filter, host), Condition: host.Condition,
			Workflows: host.Record.Workflows, Static: host.Record.Static,
			Version: host.Report.Version, Arrived: host.Report.Since, Answer: host.Report.Answered(cluster.VersionChange), Grants: change.GrantsIn(host),
			Config: host.Report.States[cluster.CategoryConfig], Validation: host.Report.States[cluster.CategoryValidation],
		}
		one.Grant = one.Grants.Value.Of(cluster.VersionChange)
		one.Void = stored.void(one.Grant)
		if h, held := s.Control.Held(node, roles); held {
			one.Hold = h.String()
		}
		one.HoldFile = host.Kept()
		state.Members = append(state.Members, one)
	}
	for node, host := range s.Hosts {
		if host.Member {
			continue
		}
		if m := (&Member{Grant: change.GrantsIn(host).Value.Of(cluster.VersionChange), Answer: host.Report.Answered(cluster.VersionChange), Void: true}); m.granted() {
			state.Strangers = append(state.Strangers, node)
		}
	}
	slices.Sort(state.Strangers)
	state.Unreadable = slices.Sorted(maps.Keys(s.Damaged))
	return state, err
}

// void reports whether an offer of g can no longer be accepted.
func (s Stored) void(g change.Grant) bool {
	return g.State != pace.Offered || g.Spec != s.spec.Index || g.Tag != s.Desired || s.Session != "" && g.Session != s.Session
}

// State is what a plan is made of, beside the document.
type State struct {
	Members []Member
	// Strangers have an open grant and are not members.
	Strangers []string
	// Halted is why no host begins in the whole cluster; empty: it is not halted.
	Halted string
	// AllHeld: the whole cluster is held, but for exceptions.
	AllHeld bool
	// Control is what holds the cluster, with its freezes.
	Control cluster.Control
	// Unreadable are the keys of documents that cannot be read, sorted.
	Unreadable []string
	// Gate is what is known of the run that the document's gate asked for; nil:
	// nothing is.
	Gate *pace.GateRun
	// PlannedSince is since when the present orchestrator plans: what it did not see
	// counts from then. Zero: that is not known.
	PlannedSince time.Time
	// Quiet is until when nothing is granted, as Consul's KV was restored.
	Quiet time.Time
	// Session is that of the orchestrator's lock, where that is known: an offer of another one can no longer be accepted.
	Session string
	// Places is who is out of service for whatever reason, and what the budget of the
	// cluster leaves; nil: there is no budget.
	Places *pace.Account
}

// Open is how many members have an open grant.
func (s *State) Open() (n int) {
	for i := range s.Members {
		if s.Members[i].granted() {
			n++
		}
	}
	return n
}

// Member is one member as a rollout sees it.
type Member struct {
	Node    string
	Roles   []string // derived ones, too
	Zone    string
	Outside bool // the cluster's own filter leaves it out
	// Workflows are the workflows that its host defines, Static the ones that its static
	// block names; nil: unknown.
	Workflows, Static []string

	Version    string
	Arrived    time.Time // at Version
	Config     cluster.CategoryState
	Validation cluster.CategoryState

	Condition cluster.Condition
	// DownSince is since when it has not been up; zero: that is not known.
	DownSince time.Time
	// Away is since when it has been absent from the catalog; zero: it is not, or that is not known.
	Away     time.Time
	Hold     string // what holds its convergence, in words
	HoldFile string // what the file on the host says that holds it, in words

	Grants kv.Entry[change.Grants] // all that it was granted
	Grant  change.Grant            // for a version
	Answer cluster.Answer          // to that
	// Void: the grant, while it is only offered, can no longer be accepted.
	Void bool
}

// goneAfter is how long a member may be absent from the catalog before shares are no
// longer of it: what an autoscaler removed must neither raise a share nor use it up.
const goneAfter = 24 * time.Hour

// Gone reports whether shares are not of the member: it never had a host, or that has been absent from the
// catalog since then, a day ago or longer. Zero: since when is not known.
func (m *Member) Gone(since, now time.Time) bool {
	return m.logical() || m.Condition.Liveness == cluster.LivenessAbsent && !since.IsZero() && now.Sub(since) >= goneAfter
}

// takesPart reports whether the member takes part in the rollout.
func (m *Member) takesPart(p pace.Policy) bool { return m.apart(p) == "" }

// apart returns why the member takes no part in the rollout; empty: it takes part.
func (m *Member) apart(p pace.Policy) string {
	kept := p.KeepsBack(m.Roles)
	switch {
	case slices.Contains(m.Roles, cluster.RoleManager):
		return "managers take no part in a rollout"
	case m.logical():
		return "it is a logical member: no host of its name is in Consul's catalog"
	case m.Outside:
		return "the cluster's filter (param " + cluster.ParamFilter + ") leaves it out"
	case kept != "":
		return fmt.Sprintf("the policy keeps back role %q", kept)
	}
	return ""
}

// logical reports whether the member never had a host. One that ran a version and
// left the catalog counts as down.
func (m *Member) logical() bool {
	return m.Condition.Liveness == cluster.LivenessAbsent && m.Version == ""
}

// part returns the member's part of the rollout: its grant, and what it answered.
func (m *Member) part() pace.Part {
	p := change.PartOf(cluster.VersionChange, m.Grant, m.Answer, "")
	if m.Void && p.Offered() {
		p.Offer = pace.NotOffered
	}
	return p
}

// givenUp reports whether an operator gave up on the grant that the member holds.
func (m *Member) givenUp() bool { p := m.part(); return p.GivenUp() }

// offered reports whether the member can accept a grant.
func (m *Member) offered() bool { p := m.part(); return p.Offered() }

// granted reports whether the member has an open grant.
func (m *Member) granted() bool { p := m.part(); return p.Granted() }

// stranded reports whether the member is out of service between two versions,
// and can take another grant in the same place.
func (m *Member) stranded() bool { p := m.part(); return p.Stranded() }

// grantedSince is since when the member has its open grant.
func (m *Member) grantedSince() time.Time { p := m.part(); return p.GrantedSince() }

// Up reports whether the member's host and its agent are up.
func (m *Member) Up() bool { return m.Condition.Agent == cluster.AgentUp }

// out returns why the member is out of service. One that an operator gave up on does
// not count.
func (m *Member) out() pace.OutReason {
	if m.givenUp() {
		return pace.InService
	}
	return m.Condition.OutOfService(m.granted())
}

// reportedFailure returns why the member reports that it failed in the rollout; empty: it
// does not. A failure from before the rollout began does not count.
func (m *Member) reportedFailure(d Document) string {
	for _, s := range m.states() {
		if s.failedIn(d) {
			return strings.TrimSuffix(s.category+" failed: "+cluster.Brief(s.Detail), ": ")
		}
	}
	return ""
}

// held says what holds the member; empty: nothing does.
func (m *Member) held() string {
	h := pace.Host{Hold: shorten(m.Hold), HoldFile: shorten(m.HoldFile)}
	return h.Held()
}

// drained says that the member is in maintenance that jorc did not begin; empty: it is not.
func (m *Member) drained() string {
	if m.Condition.Drained() {
		return cluster.DrainedText
	}
	return ""
}

// aside says why steps leave the member out: it is held or drained. Empty: they do not.
func (m *Member) aside() string { return cmp.Or(m.held(), m.drained()) }

// failedSince is since when the member counts as failed, as far as it is known.
func (m *Member) failedSince(d Document) time.Time {
	for _, s := range m.states() {
		if s.failedIn(d) {
			return s.Since
		}
	}
	return m.grantedSince()
}

// reported is what a member reports of one category.
type reported struct {
	cluster.CategoryState
	category string
}

func (m *Member) states() [2]reported {
	return [2]reported{{m.Config, cluster.CategoryConfig}, {m.Validation, cluster.CategoryValidation}}
}

// failedIn reports whether the report is a failure of the rollout.
func (r reported) failedIn(d Document) bool {
	return r.State == cluster.StateFailed && r.Version == d.Version && (r.Since.IsZero() || !r.Since.Before(d.Started))
}
