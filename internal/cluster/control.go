package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// ended reports whether the hold has an end, and it is over.
func (h Hold) ended(now time.Time) bool { return !h.Until.IsZero() && !now.Before(h.Until) }

// At returns what holds the cluster at now: without holds that have ended, and without
// the exceptions from them. It is the only place that decides whether a hold has ended.
func (c Control) At(now time.Time) Control {
	if !c.anyEnded(now) {
		return c
	}
	over := func(h *Hold) *Hold {
		if h != nil && h.ended(now) {
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
	c.Roles = without(c.Roles, func(h Hold) bool { return h.ended(now) || h.Off && c.Hold == nil })
	c.Nodes = without(c.Nodes, func(h Hold) bool { return h.ended(now) || h.Off && c.Hold == nil && len(c.Roles) == 0 })
	return c
}

func (c Control) anyEnded(now time.Time) (any bool) {
	c.eachHold(func(h Hold) { any = any || h.ended(now) })
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

// Control reads what holds the cluster and its roles now, without holds of nodes.
func (c *Cluster) Control(ctx context.Context) (Control, error) {
	e, err := c.control.Get(ctx)
	e.Value.Nodes = nil
	return e.Value.At(time.Now()), err
}

// ControlOf is Control with the hold of one node, with one request.
func (c *Cluster) ControlOf(ctx context.Context, node string) (Control, error) {
	hold := c.holds.At(node)
	r, err := c.store.Txn().Get(KeyControl).Get(hold.Key()).Commit(ctx)
	if err != nil {
		return Control{}, err
	}
	return c.controlFrom(r, hold)
}

func (c *Cluster) controlFrom(r *kv.Result, hold kv.Doc[Hold]) (Control, error) {
	e, err := c.control.From(r)
	if err != nil {
		return Control{}, err
	}
	h, err := hold.From(r)
	if err != nil {
		return Control{}, err
	}
	return e.Value.with(hold.Key(), h).At(time.Now()), nil
}

// with returns v with the hold of one node, stored at key, and of no other.
func (v Control) with(key string, h kv.Entry[Hold]) Control {
	v.Nodes = nil
	if node, ok := NodeOf(key); ok && h.Exists {
		v.Nodes = map[string]Hold{node: h.Value}
	}
	return v
}

// WatchControl calls handle with what holds the cluster and its roles as it is stored,
// and whenever that changes, until ctx ends; see Control.At.
func (c *Cluster) WatchControl(ctx context.Context, handle func(kv.Update[Control])) error {
	return c.control.Watch(ctx, func(u kv.Update[Control]) {
		u.Entry.Value.Nodes = nil
		handle(u)
	})
}

// Pause pauses the cluster: nothing new starts. When it is paused already only another
// end, with its reason, takes the place of the one before; it reports whether it changed
// something.
func (c *Cluster) Pause(ctx context.Context, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return begin(&v.Paused, h) })
}

// Resume ends a pause.
func (c *Cluster) Resume(ctx context.Context) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool { return end(&v.Paused) })
}

// SetObserveOnly switches between deciding and only observing.
func (c *Cluster) SetObserveOnly(ctx context.Context, on bool, h Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool {
		if on {
			return begin(&v.ObserveOnly, h)
		}
		return end(&v.ObserveOnly)
	})
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

// CountMembers returns how many members the cluster has. It returns a class of package consul.
func (c *Cluster) CountMembers(ctx context.Context) (int, error) {
	names, err := c.members.Names(ctx)
	return len(names), err
}

// SetBudget sets how many hosts may be out of service at the same time; nil: any number.
// It changes nothing, not even the reason, when the limits are those.
func (c *Cluster) SetBudget(ctx context.Context, b *pace.Budget) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool {
		if v.Budget.Equal(b) {
			return false
		}
		v.Budget = b
		return true
	})
}

// AddFreeze adds a freeze, and returns it, or the one of the same times and roles that there
// is already. It returns pace.ErrFreeze.
func (c *Cluster) AddFreeze(ctx context.Context, f pace.Freeze) (added pace.Freeze, err error) {
	_, err = c.control.Update(ctx, func(old kv.Entry[Control]) (_ Control, _ bool, err error) {
		v := old.Value.At(time.Now()).clone()
		if i := slices.IndexFunc(v.Freezes, f.Same); i >= 0 {
			added = v.Freezes[i]
			return v, false, nil
		}
		added = f
		v.Freezes, err = v.Freezes.Add(f, time.Now())
		return v, true, err
	})
	return added, err
}

// RemoveFreeze removes a freeze; changed is false when there was none.
func (c *Cluster) RemoveFreeze(ctx context.Context, id string) (changed bool, err error) {
	return c.changeControl(ctx, func(v *Control) bool {
		n := len(v.Freezes)
		v.Freezes = slices.DeleteFunc(slices.Clone(v.Freezes), func(f pace.Freeze) bool { return f.ID == id })
		return len(v.Freezes) < n
	})
}

// EndHolds writes that holds have ended at now, as far as v, with holds of nodes, has such
// ones, and deletes exceptions from them.
func (c *Cluster) EndHolds(ctx context.Context, v Control, now time.Time) error {
	if !v.anyEnded(now) {
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(v.Nodes)) {
		if !v.Nodes[node].ended(now) {
			continue
		}
		doc := c.holds.At(node)
		old, err := doc.Get(ctx)
		if err == nil && old.Exists && old.Value.ended(now) {
			err = doc.Delete(ctx, old.Index)
		}
		if err != nil {
			return err
		}
	}
	_, err := c.control.Update(ctx, func(old kv.Entry[Control]) (Control, bool, error) {
		return old.Value.At(now).clone(), old.Value.anyEnded(now), nil
	})
	if err == nil {
		_, err = c.pruneHolds(ctx)
	}
	return err
}

// Hold stops convergence in a scope. A hold that is there already gets the end and the
// reason of h.
func (c *Cluster) Hold(ctx context.Context, s Scope, h Hold) (changed bool, err error) {
	if s.Node != "" {
		return c.setHold(ctx, s.Node, h)
	}
	control, err := c.control.Get(ctx)
	if err == nil {
		err = c.EndHolds(ctx, control.Value, time.Now()) // the exceptions from a hold end with it
	}
	if err != nil {
		return false, err
	}
	return c.changeControl(ctx, func(v *Control) bool { return v.hold(s.Role, h) })
}

// Unhold lets convergence continue in a scope. Where the scope is held because
// something more general is, it becomes an exception from that. Exceptions end
// with the last hold of the cluster and of roles.
func (c *Cluster) Unhold(ctx context.Context, s Scope, h Hold) (changed bool, err error) {
	if s.Node != "" {
		return c.unholdNode(ctx, s.Node, h)
	}
	changed, err = c.changeControl(ctx, func(v *Control) bool { return v.unhold(s.Role, h) })
	if err != nil {
		return changed, err
	}
	pruned, err := c.pruneHolds(ctx)
	return changed || pruned, err
}

// HeldBy describes what stops convergence on node: a pause, observe-only mode, a
// hold of the node, its roles or the cluster. The roles are read only if there is a
// hold.
func (c *Cluster) HeldBy(ctx context.Context, node string) ([]string, error) {
	control, err := c.ControlOf(ctx, node)
	if err != nil {
		return nil, err
	}
	if control.Hold == nil && len(control.Roles) == 0 && len(control.Nodes) == 0 {
		return control.HeldBy(node, nil), nil
	}
	view, err := c.View(ctx, node)
	if err != nil && !errors.Is(err, ErrNoCluster) {
		return nil, err
	}
	return control.HeldBy(node, view.Roles()), nil
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

// ForgetHold deletes the hold of node, or its exception from one: the node does
// not come back. changed is false when there was none.
func (c *Cluster) ForgetHold(ctx context.Context, node string) (changed bool, err error) {
	return c.endHold(ctx, node, func(Control) bool { return false }, Hold{})
}

// setHold writes the hold of a node, or its exception; changed is false when it
// has one of that kind already.
func (c *Cluster) setHold(ctx context.Context, node string, h Hold) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	doc := c.holds.At(node)
	err = kv.RetryConflicts(ctx, func() error {
		old, err := doc.Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return err
		}
		next := h
		if err == nil && old.Exists && old.Value.Off == h.Off {
			next, changed = old.Value.again(h)
		} else {
			changed = true
		}
		if !changed {
			return nil
		}
		_, err = doc.CompareAndSwap(ctx, old, next)
		return err
	})
	return changed && err == nil, err
}

// unholdNode ends the hold of a node; while the cluster or a role is held the
// node becomes an exception.
func (c *Cluster) unholdNode(ctx context.Context, node string, h Hold) (bool, error) {
	h.Off = true
	return c.endHold(ctx, node, func(v Control) bool { return v.Hold != nil || len(v.Roles) > 0 }, h)
}

// endHold deletes the hold of a node, or writes exception in its place where
// except asks for that, as long as what holds the cluster stays as it was read.
func (c *Cluster) endHold(ctx context.Context, node string, except func(Control) bool, exception Hold) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	doc := c.holds.At(node)
	err = kv.RetryConflicts(ctx, func() error {
		r, err := c.store.Txn().Get(KeyControl).Get(doc.Key()).Commit(ctx)
		if err != nil {
			return err
		}
		control, err := c.control.From(r)
		if err != nil {
			return err
		}
		old, err := doc.From(r)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return err
		}
		t := c.store.Txn().CheckIndex(KeyControl, control.Index)
		changed = true
		switch wanted := except(control.Value.At(time.Now())); {
		case wanted && err == nil && old.Exists && old.Value.Off, !wanted && !old.Exists:
			changed = false
			return nil
		case wanted:
			doc.SwapIn(t, old, exception)
		default:
			t.CheckIndex(doc.Key(), old.Index).Delete(doc.Key())
		}
		_, err = t.Commit(ctx)
		return err
	})
	return changed && err == nil, err
}

// prunedAtOnce is how many exceptions one transaction deletes: two operations
// each, beside the check of what holds the cluster.
const prunedAtOnce = (kv.MaxOps - 2) / 2

// pruneHolds deletes the exceptions of nodes when neither the cluster nor a role
// is held.
func (c *Cluster) pruneHolds(ctx context.Context) (changed bool, err error) {
	for more := true; more && err == nil; changed = changed || more && err == nil {
		err = kv.RetryConflicts(ctx, func() (err error) {
			more, err = c.pruneSomeHolds(ctx)
			return err
		})
	}
	return changed, err
}

// pruneSomeHolds deletes as many exceptions as a transaction takes, and reports
// whether there were any.
func (c *Cluster) pruneSomeHolds(ctx context.Context) (any bool, err error) {
	control, err := c.control.Get(ctx)
	if err != nil || control.Value.Hold != nil || len(control.Value.Roles) > 0 {
		return false, err
	}
	all, err := c.holds.List(ctx)
	if err != nil {
		return false, err
	}
	t, n := c.store.Txn().CheckIndex(KeyControl, control.Index), 0
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if h := all[node]; h.Err == nil && h.Value.Off && n < prunedAtOnce {
			t.CheckIndex(HoldKey(node), h.Index).Delete(HoldKey(node))
			n++
		}
	}
	if n == 0 {
		return false, nil
	}
	_, err = t.Commit(ctx)
	return true, err
}

func (v *Control) hold(role string, h Hold) bool {
	if role == "" {
		return begin(&v.Hold, h)
	}
	if old, ok := v.Roles[role]; ok && old.Off == h.Off {
		next, changed := old.again(h)
		v.Roles[role] = next
		return changed
	}
	if v.Roles == nil {
		v.Roles = map[string]Hold{}
	}
	v.Roles[role] = h
	return true
}

func (v *Control) unhold(role string, h Hold) bool {
	switch {
	case role == "":
		ended := end(&v.Hold)
		before := len(v.Roles)
		maps.DeleteFunc(v.Roles, func(_ string, h Hold) bool { return h.Off })
		return ended || len(v.Roles) < before
	case v.Hold != nil:
		h.Off = true
		return v.hold(role, h)
	}
	_, ok := v.Roles[role]
	delete(v.Roles, role)
	maps.DeleteFunc(v.Roles, func(_ string, h Hold) bool { return h.Off })
	return ok
}

func begin(p **Hold, h Hold) (changed bool) {
	if *p != nil {
		h, changed = (*p).again(h)
	} else {
		changed = true
	}
	*p = &h
	return changed
}

// again returns h with the end of next, and its reason and author. changed is false when
// the end is the same: then nothing is, not even the reason. One that has ended begins again.
func (h Hold) again(next Hold) (_ Hold, changed bool) {
	switch {
	case h.ended(next.Since):
		return next, true
	case h.Until.Equal(next.Until):
		return h, false
	}
	if next.Since = h.Since; next.Reason == "" {
		next.Reason = h.Reason
	}
	return next, true
}

func end(p **Hold) bool {
	was := *p != nil
	*p = nil
	return was
}

// changeControl writes what change made of the document when it says that it
// changed something.
func (c *Cluster) changeControl(ctx context.Context, change func(*Control) bool) (changed bool, err error) {
	_, err = c.control.Update(ctx, func(old kv.Entry[Control]) (Control, bool, error) {
		v := old.Value.At(time.Now()).clone()
		changed = change(&v)
		return v, changed, nil
	})
	return changed && err == nil, err
}

// clone returns a Control to be changed and stored: an Entry's value may be seen
// by others, and holds of nodes are stored elsewhere.
func (v Control) clone() Control {
	roles := make(map[string]Hold, len(v.Roles))
	maps.Copy(roles, v.Roles)
	v.Roles, v.Nodes = roles, nil
	return v
}
