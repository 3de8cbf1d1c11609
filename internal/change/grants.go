// Package change has the protocol by which changes reach hosts. The orchestrator offers a host a grant, in
// transactions that swap one ledger; the host accepts or declines it in its own report, which is fenced by what
// the offer was made of. Package pace decides who is offered what; the kinds of changes know what a grant is for.
package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Grant is the permission for one host to do its part of one change, or what it waits for. The
// orchestrator and operators write it, the host reads it and needs nothing else to finish.
type Grant struct {
	Change string        `json:"change"`
	Tag    string        `json:"tag,omitempty"` // of what it is
	ID     string        `json:"id,omitempty"`
	State  pace.Offering `json:"state,omitempty"`
	Since  time.Time     `json:"since,omitzero"` // of State
	// Session is that of the orchestrator's lock, and Spec the index of what the change asks for, where that has
	// a key: the offer is void as soon as one of them is another.
	Session string `json:"session,omitempty"`
	Spec    uint64 `json:"spec,omitempty"`
	// Until is the end of a window, or the beginning of a freeze; the host does not accept it from then on. Zero: none.
	Until time.Time `json:"until,omitzero"`
	// DuringFreeze: the host may accept it although it is frozen.
	DuringFreeze bool `json:"during_freeze,omitempty"`
	// Tries is how many offers in a row the host did not answer.
	Tries  int    `json:"tries,omitempty"`
	By     string `json:"by,omitempty"` // who gave it up
	Reason string `json:"reason,omitempty"`
	// Waits is why the host is not offered it; nil: it is, or that is not known.
	Waits *Waited `json:"waits,omitempty"`
	// Retry is when the host was last asked to try again at once.
	Retry time.Time `json:"retry,omitzero"`
	// FromStart: with Retry, an interrupted attempt begins with its first task.
	FromStart bool `json:"from_start,omitempty"`

	Job *JobGrant `json:"job,omitempty"` // of a run; nil: the grant is of another kind
}

// JobGrant is what a grant of a run says beside what all do. The tag is the job's ID on the host.
type JobGrant struct {
	Manager bool   `json:"manager,omitempty"`
	Gate    bool   `json:"gate,omitempty"`   // with Manager: of a gate, which waits for no other run
	Cancel  string `json:"cancel,omitempty"` // who cancelled it
	Kill    bool   `json:"kill,omitempty"`   // with Cancel: its running task is ended, too
	// Disturbs: the host is out of service for it, from the moment at which it is granted until the grant is taken out.
	Disturbs bool `json:"disturbs,omitempty"`
}

// Withdrawn is the grant as an orchestrator withdraws it. An offer that had its time was not
// answered; one that is withdrawn before, for a freeze or a hold, says nothing of the host.
func (g Grant) Withdrawn(now time.Time) Grant {
	if now.Sub(g.Since) >= pace.AnswerWithin {
		g.Tries++
	}
	g.State, g.Since = pace.Withdrawn, now
	return g
}

// Waited is why a host waits for a grant.
type Waited struct {
	Code   pace.Code `json:"code"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"` // when it may change by itself; zero: that is not known
}

// Answered reports whether the host accepted or declined the grant.
func (g Grant) Answered(a cluster.Answer) bool { return g.ID == a.ID || g.ID == a.Declined }

// Grants is the document at host/<node>/grants.
type Grants struct {
	All []Grant `json:"grants"`
}

// Bounds of a Grants: what is beyond them was not written by jorc.
const (
	mostGrantsBytes = 16 << 10
	grantsFormat    = 1
)

func (g Grants) bounded() error {
	if len(g.All) > pace.MostGrants {
		return fmt.Errorf("it has %d grants, at most %d are read", len(g.All), pace.MostGrants)
	}
	return nil
}

// Of returns the grant of a change; the zero Grant if nothing was granted.
func (g Grants) Of(change string) Grant {
	for _, one := range g.All {
		if one.Change == change {
			return one
		}
	}
	return Grant{}
}

// With returns the grants with another one of next.Change. The first ones of stages are left out where there are too
// many: those of stages that the host had.
func (g Grants) With(next Grant) Grants {
	all := slices.DeleteFunc(slices.Clone(g.All), func(o Grant) bool { return o.Change == next.Change })
	if len(all) >= pace.MostGrants {
		i := max(0, slices.IndexFunc(all, func(o Grant) bool { _, files := cluster.StageOf(o.Change); return files }))
		all = slices.Delete(all, i, i+1)
	}
	return Grants{append(all, next)}
}

// Jobs are the grants of runs, in the order in which they were granted.
func (g Grants) Jobs() (all []Grant) {
	for _, one := range g.All {
		if one.Job != nil {
			all = append(all, one)
		}
	}
	return all
}

// Job returns the grant of a job by its ID; ok is false without one.
func (g Grants) Job(id string) (job Grant, ok bool) {
	if i := slices.IndexFunc(g.All, func(o Grant) bool { return o.Job != nil && o.Tag == id }); i >= 0 {
		return g.All[i], true
	}
	return job, false
}

// WithJobs returns the grants with other ones of runs.
func (g Grants) WithJobs(jobs []Grant) Grants {
	return Grants{append(slices.DeleteFunc(slices.Clone(g.All), func(o Grant) bool { return o.Job != nil }), jobs...)}
}

// GrantsAt is the document with what is granted to node.
func GrantsAt(s *kv.Store, node string) kv.Doc[Grants] {
	return kv.NewTree[Grants](s, cluster.PrefixHosts, grantsFormat).Ending(cluster.EndGrants).Checked(mostGrantsBytes, Grants.bounded).At(node)
}

// GrantsIn decodes what is granted to a host, as a state of the cluster has it. A document that is
// damaged counts as none: the next grant replaces it.
func GrantsIn(h *cluster.Host) kv.Entry[Grants] {
	e, _ := ReadGrants(h) // what is damaged is empty
	return e
}

// ReadGrants is GrantsIn that says whether the document is damaged; ok is false if it is.
func ReadGrants(h *cluster.Host) (e kv.Entry[Grants], ok bool) {
	e = kv.Entry[Grants]{Index: h.Grants.Index, Exists: h.Grants.Exists}
	if e.Exists && (json.Unmarshal([]byte(h.Grants.Value), &e.Value) != nil || e.Value.bounded() != nil) {
		e.Value = Grants{}
		return e, false
	}
	return e, true
}

// PartOf is a host's part of a change as plans see it. session is that of the lock whose holder plans;
// empty: any offer counts.
func PartOf(id string, g Grant, a cluster.Answer, session string) pace.Part {
	p := pace.Part{
		Change: id, Since: g.Since, Until: g.Until, Unanswered: g.Tries, Tag: a.Tag, Accepted: a.Since,
		Declined: g.ID != "" && g.ID == a.Declined, Ready: a.Ready, Reason: cluster.Brief(a.Reason),
	}
	switch {
	case g.State == pace.Offered && (session == "" || g.Session == session) && !g.Answered(a):
		p.Offer = pace.Offered
	case g.State == pace.Withdrawn:
		p.Offer = pace.Withdrawn
	case g.State == pace.GivenUp && a.Open() && g.ID == a.ID:
		p.Offer = pace.GivenUp
	}
	if a.Open() {
		p.Answer = pace.Accepted
		switch a.State {
		case cluster.GrantFailed:
			p.Answer = pace.GrantFailed
		case cluster.GrantStranded:
			p.Answer = pace.GrantStrands
		}
	}
	return p
}

// Lease is what a host asks for by itself, what it was granted for that, and its answer.
type Lease struct {
	Node   string
	Wish   cluster.Wish
	Grant  Grant // the zero Grant: nothing was granted for this lease
	Answer cluster.Answer
}

// LeaseOf returns the lease of a host with a report and grants; ok is false if it neither asks for one nor has one.
func LeaseOf(node string, r cluster.Report, g Grants) (l Lease, ok bool) {
	id := cluster.LeaseChange(node)
	wish, wishes := r.Wish()
	l = Lease{Node: node, Wish: wish, Grant: g.Of(id), Answer: r.Answered(id)}
	if !wishes && !l.Answer.Open() {
		return Lease{}, false
	}
	if !wishes { // its wish was lost
		l.Wish = cluster.Wish{ID: l.Answer.Tag, Since: l.Answer.Since}
	}
	if l.Grant.Tag != l.Wish.ID {
		l.Grant = Grant{} // of a lease before
	}
	return l, true
}

// LeaseIn is LeaseOf of a host as a state of the cluster has it, with what it was granted. It decodes that only if
// the host asks.
func LeaseIn(h *cluster.Host) (l Lease, grants kv.Entry[Grants], ok bool) {
	if _, asks := LeaseOf(h.Node, h.Report, Grants{}); !asks {
		return Lease{}, grants, false
	}
	grants = GrantsIn(h)
	l, ok = LeaseOf(h.Node, h.Report, grants.Value)
	return l, grants, ok
}

// Part is the lease as plans see it. session is as in PartOf.
func (l Lease) Part(session string) pace.Part {
	return PartOf(cluster.LeaseChange(l.Node), l.Grant, l.Answer, session)
}

// Next is what a host's document of grants is to be replaced by.
type Next struct {
	Node string
	Old  kv.Entry[Grants]
	// Grants are the ones that change. An offer gets its ID and session when it is written.
	Grants []Grant
}

// next is the document; offers are of the session, and named id.
func (n Next) next(id, session string) Grants {
	g := n.Old.Value
	for _, one := range n.Grants {
		if one.State == pace.Offered {
			one.ID, one.Session = id, session
		}
		g = g.With(one)
	}
	return g
}

// PerTransaction is how many hosts one transaction grants something: with the checks beside them it
// stays below Consul's 64 operations, and below its 512 KB.
const PerTransaction = 40

// Offers writes what is granted to hosts, while an orchestrator's lock is held.
type Offers struct {
	Ledgers

	held *kv.Lease
}

// NewOffers returns the offers of the holder of a lock. It does no I/O.
func NewOffers(held *kv.Lease) *Offers { return &Offers{NewLedgers(held.Store()), held} }

// Offering is a transaction that grants hosts something.
type Offering struct {
	ledger Ledger
	grants map[string]Grants // by node
}

// Add adds to t the swap of the ledger, and what is granted to at most PerTransaction hosts.
func (o *Offers) Add(t *kv.Txn, ledger kv.Entry[Ledger], all []Next) Offering {
	a, session := Offering{o.Swap(t, ledger), make(map[string]Grants, len(all))}, o.held.Session()
	for _, n := range all {
		next := n.next(a.ledger.ID(session), session)
		a.grants[n.Node] = next
		GrantsAt(o.held.Store(), n.Node).SwapIn(t, n.Old, next)
	}
	return a
}

// Written returns what the transaction left once it was carried out: the ledger, and the documents of the hosts as
// a state of the cluster has them.
func (a Offering) Written(done *kv.Result) (ledger kv.Entry[Ledger], grants map[string]kv.Entry[string]) {
	grants = make(map[string]kv.Entry[string], len(a.grants))
	for node, all := range a.grants {
		raw, _ := json.Marshal(all) // it was written
		grants[node] = kv.Entry[string]{Value: string(raw), Index: done.Index(cluster.GrantsKey(node)), Exists: true}
	}
	return kv.Entry[Ledger]{Value: a.ledger, Index: done.Index(cluster.KeyGrantLedger), Exists: true}, grants
}

// Accept adds to t what the acceptance of a grant depends on: the lock of the orchestrator that
// offered it, and that neither the grants of node nor what holds the cluster have changed.
func Accept(t *kv.Txn, node string, g Grant, grants, control uint64) {
	t.CheckSession(cluster.OrchestratorLock, g.Session).CheckIndex(cluster.GrantsKey(node), grants).CheckIndex(cluster.KeyControl, control)
}

// ErrNoGrant: the host has no grant that could be given up.
var ErrNoGrant = errors.New("no open grant")

// GiveUp gives up on the grant of a host of which answer is what the host says: it no longer counts as out of service,
// and its place is free. by is who does, and reason why. It writes nothing if that was done before, and returns the
// grant as it is then, ErrNoGrant, or what kv.Doc.Update returns.
func GiveUp(ctx context.Context, s *kv.Store, node string, answer cluster.Answer, by, reason string, now time.Time) (given Grant, err error) {
	_, err = GrantsAt(s, node).Update(ctx, func(old kv.Entry[Grants]) (Grants, bool, error) {
		g := old.Value.Of(answer.Change)
		switch {
		case answer.Open() && g.State == pace.GivenUp && g.ID == answer.ID:
			given = g
			return old.Value, false, nil
		case answer.Open():
			g.ID, g.Tag = answer.ID, answer.Tag
		case g.State == pace.Offered && !g.Answered(answer):
		default:
			return old.Value, false, ErrNoGrant
		}
		g.Change, g.State, g.Since, g.By, g.Reason, g.Tries, g.Waits = answer.Change, pace.GivenUp, now.UTC().Truncate(time.Second), by, reason, 1, nil
		given = g
		return old.Value.With(g), true, nil
	})
	return given, err
}
