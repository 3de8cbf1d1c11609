package cluster

import (
	"fmt"
	"maps"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Control is what holds a cluster still.
type Control struct {
	Paused      *Hold           `json:"paused,omitempty"`
	ObserveOnly *Hold           `json:"observe_only,omitempty"`
	Hold        *Hold           `json:"hold,omitempty"`  // of the whole cluster
	Roles       map[string]Hold `json:"roles,omitempty"` // by role
	// Budget is how many hosts may be out of service; nil: no limit.
	Budget *pace.Budget `json:"budget,omitempty"`
	// Freezes are times in which nothing begins that takes hosts out of service.
	Freezes pace.Freezes `json:"freezes,omitempty"`
	// Nodes are the holds of nodes. They are documents of their own, at
	// host/<node>/hold.
	Nodes map[string]Hold `json:"nodes,omitempty"`
}

// Hold says since when, until when, why and by which author. Off lifts, for one role or
// node, what is held more generally.
type Hold struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // it ends by itself; zero: it does not
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	Off    bool      `json:"off,omitempty"`
}

// String returns the hold as one text: "since 2026-11-22T10:00:00Z by ann: disks". One
// that cannot be read has neither time nor author: only its reason.
func (h Hold) String() string {
	if h.Since.IsZero() && h.By == "" && h.Reason != "" {
		return h.Reason
	}
	text := "since " + h.Since.UTC().Format(time.RFC3339)
	if h.By != "" {
		text += " by " + h.By
	}
	if !h.Until.IsZero() {
		text += " until " + h.Until.UTC().Format(time.RFC3339)
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// Left says how long the hold lasts at now; empty: it has no end.
func (h Hold) Left(now time.Time) string {
	if h.Until.IsZero() {
		return ""
	}
	return max(0, h.Until.Sub(now)).Round(time.Second).String() + " left"
}

// TextAt is the hold in words, with how long it lasts at now.
func (h Hold) TextAt(now time.Time) string {
	text := h.String()
	if left := h.Left(now); left != "" {
		text += " (" + left + ")"
	}
	return text
}

// Ended reports whether the hold has an end, and it is over.
func (h Hold) Ended(now time.Time) bool { return !h.Until.IsZero() && !now.Before(h.Until) }

// At returns what holds the cluster at now: without holds that have ended, and without
// the exceptions from them. It is the only place that decides whether a hold has ended.
func (c Control) At(now time.Time) Control {
	if !c.AnyEnded(now) {
		return c
	}
	over := func(h *Hold) *Hold {
		if h != nil && h.Ended(now) {
			return nil
		}
		return h
	}
	c.Paused, c.ObserveOnly, c.Hold = over(c.Paused), over(c.ObserveOnly), over(c.Hold)
	without := func(all map[string]Hold, gone func(Hold) bool) map[string]Hold {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(_ string, h Hold) bool { return gone(h) })
		return all
	}
	c.Roles = without(c.Roles, func(h Hold) bool { return h.Ended(now) || h.Off && c.Hold == nil })
	c.Nodes = without(c.Nodes, func(h Hold) bool { return h.Ended(now) || h.Off && c.Hold == nil && len(c.Roles) == 0 })
	return c
}

// AnyEnded reports whether a pause or a hold has ended at now.
func (c Control) AnyEnded(now time.Time) (any bool) {
	c.eachHold(func(h Hold) { any = any || h.Ended(now) })
	return any
}

// eachHold calls do with the pause, observe-only mode and all holds.
func (c Control) eachHold(do func(Hold)) {
	for _, h := range []*Hold{c.Paused, c.ObserveOnly, c.Hold} {
		if h != nil {
			do(*h)
		}
	}
	for _, all := range []map[string]Hold{c.Roles, c.Nodes} {
		for _, h := range all {
			do(h)
		}
	}
}

// Change returns when time alone changes what holds the cluster: a hold ends, or a freeze
// begins or ends; zero: never.
func (c Control) Change(now time.Time) time.Time {
	at := c.Freezes.Change(now)
	c.eachHold(func(h Hold) {
		if h.Until.After(now) {
			at = pace.Earliest(at, h.Until)
		}
	})
	return at
}

// Halted returns what halts the whole cluster, with the command that ends it, and since when and why; ok is false
// if nothing does.
func (c Control) Halted() (what string, h Hold, ok bool) {
	switch {
	case c.Paused != nil:
		return "'jorc cluster resume': the cluster is paused", *c.Paused, true
	case c.ObserveOnly != nil:
		return "'jorc cluster observe-only off': the orchestrator only observes", *c.ObserveOnly, true
	}
	return "", Hold{}, false
}

// HaltedText says what halts the whole cluster, since when and why; empty: nothing does.
func (c Control) HaltedText() string {
	if what, h, is := c.Halted(); is {
		return what + ": " + text.Line(h.String(), mostHaltedText)
	}
	return ""
}

// mostHaltedText bounds what is said of a pause, in bytes.
const mostHaltedText = 200

// Frozen returns the freeze that is in force for a member with roles, and its end. What
// restores is not frozen: ask it only for what disturbs.
func (c Control) Frozen(roles []string, now time.Time) (pace.Frozen, bool) {
	return c.Freezes.At(roles, now)
}

// Scope is what a hold is of: a node, a role, or, when both are empty, the
// cluster.
type Scope struct {
	Role string
	Node string
}

func (s Scope) String() string {
	switch {
	case s.Node != "":
		return fmt.Sprintf("node %q", s.Node)
	case s.Role != "":
		return fmt.Sprintf("role %q", s.Role)
	}
	return "the cluster"
}

// Held reports whether convergence is held on node with roles: a hold of the
// node counts before those of its roles, in the order of roles, and these before
// that of the cluster.
func (c Control) Held(node string, roles []string) (Hold, bool) {
	if h, ok := c.Nodes[node]; ok {
		return h, !h.Off
	}
	for _, r := range roles {
		if h, ok := c.Roles[r]; ok {
			return h, !h.Off
		}
	}
	if c.Hold != nil {
		return *c.Hold, !c.Hold.Off
	}
	return Hold{}, false
}

// WithHold returns v with the hold of one node, stored at key, and of no other.
func (v Control) WithHold(key string, h kv.Entry[Hold]) Control {
	v.Nodes = nil
	if node, ok := NodeOf(key); ok && h.Exists {
		v.Nodes = map[string]Hold{node: h.Value}
	}
	return v
}

// enoughForBudget is how many members a cluster has that is advised to have a budget.
const enoughForBudget = 5

// Advice is what is recommended although nothing is wrong.
type Advice struct {
	Kind    string `json:"kind"` // budget
	Text    string `json:"text"`
	Command string `json:"command"` // that follows it
}

// Advice returns what is recommended for a cluster with so many members.
func (c Control) Advice(members int) []Advice {
	if c.Budget != nil || members < enoughForBudget {
		return nil
	}
	return []Advice{{
		Kind: "budget", Command: "jorc cluster budget set --max-out 10%",
		Text: fmt.Sprintf("the cluster has %d members and no budget: each version, stage and run has its own limit, and nothing limits how many hosts they take out of service together", members),
	}}
}

// HeldBy describes what stops convergence on node with roles.
func (c Control) HeldBy(node string, roles []string) (all []string) {
	if c.Paused != nil {
		all = append(all, "the cluster is paused "+c.Paused.String())
	}
	if c.ObserveOnly != nil {
		all = append(all, "the cluster is only observed "+c.ObserveOnly.String())
	}
	if h, ok := c.Held(node, roles); ok {
		all = append(all, "convergence is held "+h.String())
	}
	return all
}

// SetHold holds a role, or the whole cluster if role is empty. It reports whether that changes anything.
func (v *Control) SetHold(role string, h Hold) bool {
	if role == "" {
		return Impose(&v.Hold, h)
	}
	if old, ok := v.Roles[role]; ok && old.Off == h.Off {
		next, changed := old.Again(h)
		v.Roles[role] = next
		return changed
	}
	if v.Roles == nil {
		v.Roles = map[string]Hold{}
	}
	v.Roles[role] = h
	return true
}

// LiftHold ends the hold of a role, or of the whole cluster if role is empty; h is the exception of a role while the cluster is
// held. It reports whether that changes anything.
func (v *Control) LiftHold(role string, h Hold) bool {
	switch {
	case role == "":
		ended := Lift(&v.Hold)
		before := len(v.Roles)
		maps.DeleteFunc(v.Roles, func(_ string, h Hold) bool { return h.Off })
		return ended || len(v.Roles) < before
	case v.Hold != nil:
		h.Off = true
		return v.SetHold(role, h)
	}
	_, ok := v.Roles[role]
	delete(v.Roles, role)
	maps.DeleteFunc(v.Roles, func(_ string, h Hold) bool { return h.Off })
	return ok
}

// Impose sets a hold, or changes the one that is there: see Hold.Again.
func Impose(p **Hold, h Hold) (changed bool) {
	if *p != nil {
		h, changed = (*p).Again(h)
	} else {
		changed = true
	}
	*p = &h
	return changed
}

// Again returns h with the end of next, and its reason and author. changed is false when
// the end is the same: then nothing is, not even the reason. One that has ended begins again.
func (h Hold) Again(next Hold) (_ Hold, changed bool) {
	switch {
	case h.Ended(next.Since):
		return next, true
	case h.Until.Equal(next.Until):
		return h, false
	}
	if next.Since = h.Since; next.Reason == "" {
		next.Reason = h.Reason
	}
	return next, true
}

// Lift ends a hold. It reports whether there was one.
func Lift(p **Hold) bool {
	was := *p != nil
	*p = nil
	return was
}

// Clone returns a Control to be changed and stored: an Entry's value may be seen
// by others, and holds of nodes are stored elsewhere.
func (v Control) Clone() Control {
	roles := make(map[string]Hold, len(v.Roles))
	maps.Copy(roles, v.Roles)
	v.Roles, v.Nodes = roles, nil
	return v
}
