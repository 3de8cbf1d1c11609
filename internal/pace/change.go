package pace

import (
	"cmp"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// Situation is everything that a plan is made of, at one moment, and not older than what
// its maker wrote last.
type Situation struct {
	Hosts   []Host // by name
	Changes []Change
	// Places is who is out of service for whatever reason, and what the budget leaves; nil:
	// there is no budget.
	Places  *Account
	Freezes Freezes
	// Halted is why nothing begins in the whole cluster; empty: it is not halted.
	Halted string
	// AllHeld: the whole cluster is held, but for exceptions.
	AllHeld bool
	// Quiet is until when nothing is offered, as Consul's KV was restored.
	Quiet time.Time
	// PlannedSince is since when plans are made without interruption: what was not seen
	// before counts from then. Zero: that is not known.
	PlannedSince time.Time
	// Turns is when a hold, a pause or a freeze next begins or ends; zero: none does.
	Turns time.Time

	freezing *freezing // of Freezes, for all changes
}

// host returns the index of the host of that name, which may be guess; below zero: it is not
// known.
func (s *Situation) host(node string, guess int) int {
	if guess < len(s.Hosts) && s.Hosts[guess].Node == node {
		return guess
	}
	i, known := slices.BinarySearchFunc(s.Hosts, node, func(h Host, node string) int { return cmp.Compare(h.Node, node) })
	if !known {
		return -1
	}
	return i
}

// OutReason says why a host is out of service.
type OutReason string

// Values of OutReason, in the order in which they count.
const (
	InService      OutReason = ""
	OutGrant       OutReason = "grant"       // it has an open grant
	OutDown        OutReason = "down"        // its host or its jorc agent is
	OutCritical    OutReason = "critical"    // one of its checks is
	OutMaintenance OutReason = "maintenance" // jorc or another program set it
	OutFailed      OutReason = "failed"      // what a change brought to it did; of that change alone
)

// Text says in words why a host is out of service without a grant; empty for the other
// values.
func (r OutReason) Text() string {
	switch r {
	case OutDown:
		return "its host or its agent is down"
	case OutCritical:
		return "a check is critical"
	case OutMaintenance:
		return "it is in maintenance"
	case OutFailed:
		return "the change failed on it"
	}
	return ""
}

// Part is a host's part of a change: what the orchestrator wrote, and what the host
// answered. The zero Part is that of a host which was never offered anything.
type Part struct {
	Change string // its id
	// Offer is what the orchestrator wrote last, and Since is of that.
	Offer Offering
	Since time.Time
	Until time.Time // the host declines from then on; zero: never
	// Unanswered is how many offers in a row the host did not answer.
	Unanswered int

	// Answer is what the host made of a grant, and Tag what that was of. Accepted is since
	// when.
	Answer   Answer
	Tag      string
	Accepted time.Time
	// Declined: it declined the last offer. Ready: it could begin now.
	Declined, Ready bool
	Reason          string // why it declined or failed
}

// Bounds of what one host is granted at a time: a version, a lease, new content of each of its stages, and jobs of runs.
const (
	MostStages = 22
	MostJobs   = 8
	MostGrants = MostStages + MostJobs + 2
)

// Offering is what the orchestrator last wrote of a grant.
type Offering string

// Values of Offering.
const (
	NotOffered Offering = ""
	Offered    Offering = "offered"   // and the host can accept it
	Withdrawn  Offering = "withdrawn" // the host did not answer
	GivenUp    Offering = "given up"  // by an operator: what the host accepted no longer counts
)

// Answer is what a host made of a grant that it accepted.
type Answer string

// Values of Answer.
const (
	Unaccepted   Answer = ""
	Accepted     Answer = "accepted"
	GrantFailed  Answer = "failed"
	GrantStrands Answer = "stranded" // it ended its task for what is no longer asked for
)

// Open reports whether the host accepted a grant that has not ended.
func (p *Part) Open() bool { return p.Answer != Unaccepted }

// GivenUp reports whether an operator gave up on the grant that the host holds.
func (p *Part) GivenUp() bool { return p.Offer == GivenUp }

// Offered reports whether the host can accept an offer.
func (p *Part) Offered() bool { return p.Offer == Offered }

// Granted reports whether the host counts as having a grant.
func (p *Part) Granted() bool { return p.Offered() || p.Open() && !p.GivenUp() }

// Stranded reports whether the host is out of service between two tags, and can take
// another grant in the same place.
func (p *Part) Stranded() bool { return p.Answer == GrantStrands && !p.GivenUp() && !p.Offered() }

// Silent reports whether the host did not answer its last offers.
func (p *Part) Silent() bool { return p.Offer == Withdrawn && p.Unanswered > 0 }

// Tries is how many offers in a row the host did not answer.
func (p *Part) Tries() int {
	if p.Silent() {
		return p.Unanswered
	}
	return 0
}

// GrantedSince is since when the host has its grant.
func (p *Part) GrantedSince() time.Time {
	if p.Open() {
		return p.Accepted
	}
	return p.Since
}

const (
	// AnswerWithin is how long an offer stays without an answer.
	AnswerWithin = 30 * time.Second
	// longestRest is the longest pause between offers to a host that does not answer.
	longestRest = 10 * time.Minute
	// downGrace is how long a host with a grant may be down, as one that reboots,
	// before that is a failure.
	downGrace = 5 * time.Minute
)

// Rested returns when a host that did not answer is offered a grant again.
func (p *Part) Rested() time.Time {
	rest := AnswerWithin
	for n := 1; n < p.Unanswered && rest < longestRest; n++ {
		rest *= 2
	}
	return p.Since.Add(min(rest, longestRest))
}

// declined reports whether the host declined its last offer and did not become ready
// since. One whose time was over was declined for that.
func (p *Part) declined(now time.Time) bool {
	return p.Declined && !p.Ready && (p.Until.IsZero() || now.Before(p.Until))
}

// Want is what a kind of change says of one host.
type Want struct {
	Node string
	// Apart is why the host takes no part; empty: it takes part.
	Apart string
	// Has: the host has what the change brings, since Arrived.
	Has     bool
	Arrived time.Time
	// Granted: it was offered a grant in this change.
	Granted bool
	// Works: it is at work without a grant.
	Works bool
	// Failure is why the host failed, as it reports; empty: it did not.
	Failure string

	// Of a change with Change.ByTag: Tags is what the host would take, or takes with the grant that it has, MoreTags that
	// this is not all, and Proven what it has, with checks that have passed since.
	Tags, Proven []string
	MoreTags     bool
	// Barred is why the kind of the change keeps the host from a grant, and Later why its step has not come yet; empty: they
	// do not.
	Barred, Later string
	// Failing: what the change brought to the host failed. It counts as out of service, whatever its checks say. Broken: the
	// last change that came to the host failed, also where that was taken back, or an operator approved it.
	Failing, Broken bool
	// Stale: the host can no longer accept what it was offered.
	Stale bool
	// Undisturbed: what a change that disturbs brings does not take this host out of service. It needs no place of the
	// budget, and freezes do not hold it.
	Undisturbed bool
	// Exceptions are the rules of the cluster that the host need not follow.
	Exceptions
}

// freezes reports whether a freeze holds the host.
func (w *Want) freezes() bool { return w.DuringFreeze == "" && !w.Undisturbed }

// places returns the account as the host sees it; nil: it needs no place.
func (w *Want) places(a *Account) *Account {
	return placesOf(a, !w.Undisturbed, w.OverBudget != "")
}

// Phase says how far a change has come.
type Phase string

// Phases.
const (
	Waiting     Phase = "waiting" // no host is admitted yet
	Canary      Phase = "canary"
	Batch       Phase = "batch" // see Progress.Batch
	RollingBack Phase = "rolling back"
	Done        Phase = "done"
	Aborted     Phase = "aborted"
)

// Progress is the orchestrator's own book of a change; no host reads it.
type Progress struct {
	Phase  Phase     `json:"phase"`
	Batch  int       `json:"batch,omitempty"` // in phase Batch: which, from 1
	Since  time.Time `json:"since"`           // of the phase
	Group  *Group    `json:"group,omitempty"` // the group that is admitted, with an order or zone by zone
	Counts Counts    `json:"counts"`          // at the last change of phase

	// Steps is how many steps were admitted, the present one included.
	Steps int `json:"steps,omitempty"`
	// Gate is that of the present step, once it is done; PassedGate the one before.
	Gate       *GateProgress `json:"gate,omitempty"`
	PassedGate *PassedGate   `json:"passed_gate,omitempty"`
	// Gated is until when the last gate held the change; Asks how many runs gates
	// asked for.
	Gated time.Time `json:"gated,omitzero"`
	Asks  int       `json:"asks,omitempty"`
	// Approval is the last consent of an operator.
	Approval *Approval `json:"approval,omitempty"`
	// Promoted: the change needs no consent to continue after the canary.
	Promoted bool `json:"promoted,omitempty"`
	// Forgiven is how many failures were accepted by a resume; Forgive requests
	// that for the present ones.
	Forgiven int  `json:"forgiven,omitempty"`
	Forgive  bool `json:"forgive,omitempty"`
}

// equal reports whether both have the same stored form.
func (p *Progress) equal(o Progress) bool { return text.SameJSON(p, o) }

// Over reports whether the change has ended.
func (p *Progress) Over() bool { return p.Phase == Done || p.Phase == Aborted }

// Approved reports whether an operator consents to what follows the present step.
func (p *Progress) Approved() bool { return p.Approval != nil && p.Approval.Step == p.Steps }

// Counts are numbers of hosts. Members is all that take part; each of them is
// in one of the others.
type Counts struct {
	Members int `json:"members"`
	Done    int `json:"done"`           // have what the change brings, without an open grant
	Failed  int `json:"failed"`         // in this change
	Working int `json:"working"`        // with an open grant; without a policy: at work
	Down    int `json:"down"`           // they follow when they are back
	Waiting int `json:"waiting"`        // for their grant, or they have not begun
	GivenUp int `json:"given_up"`       // by an operator
	Held    int `json:"held,omitempty"` // held or drained by an operator; they follow when that ends
}

// Add counts a host that takes part.
func (c *Counts) Add(s State) {
	c.Members++
	switch s {
	case HasIt:
		c.Done++
	case Failed:
		c.Failed++
	case Working:
		c.Working++
	case Down:
		c.Down++
	case Left:
		c.GivenUp++
	case Held:
		c.Held++
	case Pending:
		c.Waiting++
	}
}

// Reached is how many hosts nothing more is expected of.
func (c Counts) Reached() int { return c.Done + c.Failed + c.GivenUp }

// Change is one change with all that a plan needs beside the hosts.
type Change struct {
	ID string
	// Tag is what reaches the hosts. It also decides the order of hosts within a group, and
	// names the runs of gates.
	Tag     string
	Policy  Policy
	Created time.Time
	// Disturbs: its hosts are out of service while it is at work on them. Otherwise it needs no place of the
	// budget, freezes do not hold it, and a limit of its policy is of hosts that are at work.
	Disturbs bool
	// Final: a host that failed is not offered another grant, as in a run. Otherwise it tries again.
	Final bool
	// CrowdedSince is since when plans say Planned.Crowded; zero: they do not.
	CrowdedSince time.Time
	// ByTag: hosts take different things of it (Want.Tags), which reach them beside one another. The canary and the order of
	// zones are of each tag, and its kind moves its steps, unless it is InOrder.
	ByTag bool
	// InOrder: hosts of a group come in the order of Wants, and the present step follows from how far they are. It is not
	// stored, as nothing comes between two steps.
	InOrder bool
	// Newcomers is how many hosts without Want.Granted may be offered a grant; below zero: there is no limit.
	Newcomers int
	// Windows are lists beside the windows of the policy: one window of each list has to be open.
	Windows [][]Window
	// Lease: a host asked for it by itself. Leases together get at most half of the budget.
	Lease bool
	// Restores: it takes something back. Unfrozen: freezes do not hold it. OverBudget: nor do the
	// limits of the cluster, of roles and zones.
	Restores, Unfrozen, OverBudget bool
	// NoWayBack is why it cannot be taken back; empty: it can.
	NoWayBack string
	// Stopped is the pause of an operator, or of jorc, in words; empty: it is not paused.
	Stopped string
	Progress
	Wants []Want
	// Asked is what is known of the run that its gate asked for; nil: nothing is.
	Asked *GateRun
	Words Words

	paced *bool // as Paced says, for all hosts; nil: not asked yet
}

// Words are how texts name a change of one kind.
type Words struct {
	Change  string // "the rollout of v2"
	Noun    string // "the rollout"
	Have    string // what hosts do that have it: "run v2"
	Noted   string // how people see that it is there: "no member arrived"
	Resume  string // the command that ends a pause
	Approve string // the command that consents to the next step
	GiveUp  string // the command that gives up on a host
}

// Paced reports whether hosts need a grant to begin.
func (c *Change) Paced() bool {
	if c.paced != nil {
		return *c.paced
	}
	return !c.Policy.Plain()
}

// places returns the account as the change sees it; nil: it needs no place.
func (c *Change) places(a *Account) *Account {
	return placesOf(a, c.Disturbs, c.OverBudget)
}

// placesOf returns an account as what disturbs sees it, or what does not, with or without the limits of the budget.
func placesOf(a *Account, disturbs, overBudget bool) *Account {
	switch {
	case !disturbs:
		return nil
	case overBudget:
		return a.Over()
	}
	return a
}

// State is how far a host is on its way to what a change brings.
type State int

// Values of State.
const (
	Pending State = iota
	Working       // has a grant; without a policy: is at work
	Failed
	Down  // without a grant
	Left  // an operator gave up on it
	Held  // or drained, by an operator: steps leave it out
	HasIt // without an open grant
	Apart // takes no part in it
)

// Member is a host in one change.
type Member struct {
	*Host
	Want  *Want
	Part  *Part // never nil
	Key   Key
	State State
}

// noPart is the part of a host that was never offered anything. It is never changed.
var noPart Part

// part returns the host's part of a change.
func (h *Host) part(change string) *Part {
	for i := range h.Parts {
		if h.Parts[i].Change == change {
			return &h.Parts[i]
		}
	}
	return &noPart
}

// Settled reports whether nothing more is expected of the host now.
func (m Member) Settled() bool { return m.State != Pending && m.State != Working }

// Alive reports whether steps are made of the host.
func (m Member) Alive() bool { return m.State != Down && m.State != Held }

// Out returns why the host is out of service. One that an operator gave up on does not
// count.
func (m Member) Out() OutReason {
	switch {
	case m.Part.GivenUp():
		return InService
	case m.Part.Granted():
		return OutGrant
	case m.Want.Failing && m.Service == InService:
		return OutFailed
	}
	return m.Service
}

// Aside says why steps leave the host out: it is held or drained. Empty: they do not.
func (m Member) Aside() string { return cmp.Or(m.Held(), m.Drained) }

// atWork reports whether the host has a grant on which something is expected. One that
// is down with a grant of something else is only out of service.
func (m Member) atWork(c *Change) bool {
	return m.Part.Granted() && c.Paced() && !m.Part.Stranded() && (m.Up || m.Part.Offered() || m.Part.Tag == c.Tag)
}

// Failure returns why the host counts as failed in the change; empty: it does not. A
// grant of something else does not count.
func (m Member) Failure(c *Change, now time.Time) string {
	if m.Want.Failure != "" {
		return m.Want.Failure
	}
	if why := m.bakeFailure(c, now); why != "" {
		return why
	}
	p := m.Part
	if !p.Open() || p.GivenUp() || p.Tag != c.Tag || !c.Paced() {
		return ""
	}
	since := Latest(p.Accepted, c.Created)
	switch {
	case p.Answer == GrantFailed:
		return cmp.Or(p.Reason, "its grant failed")
	case !m.Up && !m.DownSince.IsZero() && now.Sub(Latest(m.DownSince, c.Created)) > downGrace:
		return "it has a grant and is down since " + Stamp(m.DownSince)
	case c.Policy.NodeDeadline > 0 && now.Sub(since) > time.Duration(c.Policy.NodeDeadline):
		return "it has its grant since " + Stamp(since) + ", longer than " + c.Policy.NodeDeadline.String()
	}
	return ""
}

func (m Member) state(c *Change, now time.Time) State {
	switch {
	case m.Failure(c, now) != "":
		return Failed
	case m.atWork(c) && (m.Held() == "" || m.Part.Offered()): // a host at work finishes what runs when it is drained
		return Working
	case m.Want.Has && !m.Part.Granted():
		return HasIt
	case m.Part.GivenUp() && m.Part.Tag == c.Tag:
		return Left
	case m.Held() != "":
		return Held
	case m.Up && !c.Paced() && m.Want.Works:
		return Working
	case m.Drained != "":
		return Held
	case !m.Up:
		return Down
	}
	return Pending
}

// Latest returns the last of times.
func Latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Stamp is a time as texts have it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
