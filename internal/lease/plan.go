package lease

import (
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// Asking is a host that asks for a lease or has one, and what it was granted.
type Asking struct {
	change.Lease
	Grants kv.Entry[change.Grants]
	member *rollout.Member
}

// AskingIn returns the hosts of a state that ask for a lease or have one, in the order of members.
func AskingIn(s *cluster.State, members *rollout.State) (all []Asking) {
	for i := range members.Members {
		m := &members.Members[i]
		if l, grants, asks := change.LeaseIn(s.Hosts[m.Node]); asks {
			all = append(all, Asking{l, grants, m})
		}
	}
	return all
}

// Demand is what hosts that ask for a lease want of the budget; waits is false if all have their places. Leases count as one
// change: no host has two, and none waits for one of another while there is room.
func Demand(all []Asking) (d pace.Demand, waits bool) {
	d.Change = "leases"
	for i := range all {
		a := &all[i]
		if !a.Answer.Open() && (d.Created.IsZero() || a.Wish.Since.Before(d.Created)) {
			d.Created = a.Wish.Since
		}
	}
	return d, !d.Created.IsZero()
}

// Plan decides which of the hosts that ask get a place, and what the others wait for. members is the cluster
// with what halts it and its account, session that of the orchestrator's lock. It returns what is to be
// written, the hosts that only the budget keeps back, and when time alone changes that; it is a pure
// function.
func Plan(all []Asking, members *rollout.State, session string, now time.Time) (next []change.Next, denied []string, again time.Time) {
	s := pace.Situation{
		Places: members.Places, Freezes: members.Control.Freezes, Halted: members.Halted, AllHeld: members.AllHeld,
		Quiet: members.Quiet, PlannedSince: members.PlannedSince, Turns: members.Control.Change(now),
	}
	asks := make(map[string]*Asking, len(all))
	for i := range all {
		a := &all[i]
		asks[cluster.LeaseChange(a.Node)] = a
		h := a.member.Host(now)
		h.Parts = []pace.Part{a.Part(session)}
		s.Hosts, s.Changes = append(s.Hosts, h), append(s.Changes, a.change())
	}
	again = s.Turns
	explained := pace.PlanExplained(s, now)
	for _, c := range s.Changes {
		id, p := c.ID, explained[c.ID]
		a := asks[id]
		g := a.Grant
		write := func(n change.Grant) {
			n.Change, n.Tag = id, a.Wish.ID
			next = append(next, change.Next{Node: a.Node, Old: a.Grants, Grants: []change.Grant{n}})
		}
		for _, d := range p.Denied {
			denied = append(denied, d.Node)
		}
		switch {
		case len(p.Offers) > 0:
			o := p.Offers[0]
			write(change.Grant{State: pace.Offered, Since: now, Until: o.Until, Tries: o.Tries})
		case len(p.Withdrawals) > 0:
			write(g.Withdrawn(now))
		case p.Why.None() || p.Why.Code == pace.BecauseGranted || a.Answer.Open():
		case g.Waits == nil || g.Waits.Code != p.Why.Code || !g.Waits.At.Equal(p.Why.At):
			if g.State == pace.Offered { // void, or declined: written as it is it would be a new offer
				g.State, g.Since = pace.Withdrawn, now
			}
			g.Waits = &change.Waited{Code: p.Why.Code, Reason: p.Why.Text(c.Words.Noun), At: p.Why.At}
			write(g)
		}
		again = pace.Earliest(again, p.Again)
	}
	return next, denied, again
}

// change is the lease as package pace sees it: one host, which gets a place or waits.
func (a *Asking) change() pace.Change {
	return pace.Change{
		ID: cluster.LeaseChange(a.Node), Tag: a.Wish.ID, Policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, MaxFailures: 1}, Created: a.Wish.Since,
		Disturbs: true, Final: true, Lease: true,
		Progress: pace.Progress{Phase: pace.Batch, Batch: 1, Steps: 1, Since: a.Wish.Since, Counts: pace.Counts{Members: 1}},
		Wants:    []pace.Want{{Node: a.Node, Granted: a.Grant.State != pace.NotOffered}},
		Words: pace.Words{
			Change: "the lease of " + a.Node, Noun: "the lease", Have: "are healthy again", Noted: "the host did not come back",
			Resume: "jorc cluster resume", GiveUp: "jorc change give-up",
		},
	}
}
