package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Control reads what holds the cluster and its roles now, without holds of nodes.
func (c *Cluster) Control(ctx context.Context) (cluster.Control, error) {
	e, err := c.control.Get(ctx)
	e.Value.Nodes = nil
	return e.Value.At(time.Now()), err
}

// ControlOf is Control with the hold of one node, with one request.
func (c *Cluster) ControlOf(ctx context.Context, node string) (cluster.Control, error) {
	hold := c.holds.At(node)
	r, err := c.store.Txn().Get(cluster.KeyControl).Get(hold.Key()).Commit(ctx)
	if err != nil {
		return cluster.Control{}, err
	}
	return c.controlFrom(r, hold)
}

func (c *Cluster) controlFrom(r *kv.Result, hold kv.Doc[cluster.Hold]) (cluster.Control, error) {
	e, err := c.control.From(r)
	if err != nil {
		return cluster.Control{}, err
	}
	h, err := hold.From(r)
	if err != nil {
		return cluster.Control{}, err
	}
	return e.Value.WithHold(hold.Key(), h).At(time.Now()), nil
}

// WatchControl calls handle with what holds the cluster and its roles as it is stored,
// and whenever that changes, until ctx ends; see Control.At.
func (c *Cluster) WatchControl(ctx context.Context, handle func(kv.Update[cluster.Control])) error {
	return c.control.Watch(ctx, func(u kv.Update[cluster.Control]) {
		u.Entry.Value.Nodes = nil
		handle(u)
	})
}

// Pause pauses the cluster: nothing new starts. When it is paused already only another
// end, with its reason, takes the place of the one before; it reports whether it changed
// something.
func (c *Cluster) Pause(ctx context.Context, h cluster.Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *cluster.Control) bool { return cluster.Impose(&v.Paused, h) })
}

// Resume ends a pause.
func (c *Cluster) Resume(ctx context.Context) (changed bool, err error) {
	return c.changeControl(ctx, func(v *cluster.Control) bool { return cluster.Lift(&v.Paused) })
}

// SetObserveOnly switches between deciding and only observing.
func (c *Cluster) SetObserveOnly(ctx context.Context, on bool, h cluster.Hold) (changed bool, err error) {
	return c.changeControl(ctx, func(v *cluster.Control) bool {
		if on {
			return cluster.Impose(&v.ObserveOnly, h)
		}
		return cluster.Lift(&v.ObserveOnly)
	})
}

// CountMembers returns how many members the cluster has. It returns a class of package consul.
func (c *Cluster) CountMembers(ctx context.Context) (int, error) {
	names, err := c.members.Names(ctx)
	return len(names), err
}

// SetBudget sets how many hosts may be out of service at the same time; nil: any number.
// It changes nothing, not even the reason, when the limits are those.
func (c *Cluster) SetBudget(ctx context.Context, b *pace.Budget) (changed bool, err error) {
	return c.changeControl(ctx, func(v *cluster.Control) bool {
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
	_, err = c.control.Update(ctx, func(old kv.Entry[cluster.Control]) (_ cluster.Control, _ bool, err error) {
		v := old.Value.At(time.Now()).Clone()
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
	return c.changeControl(ctx, func(v *cluster.Control) bool {
		n := len(v.Freezes)
		v.Freezes = slices.DeleteFunc(slices.Clone(v.Freezes), func(f pace.Freeze) bool { return f.ID == id })
		return len(v.Freezes) < n
	})
}

// EndHolds writes that holds have ended at now, as far as v, with holds of nodes, has such
// ones, and deletes exceptions from them.
func (c *Cluster) EndHolds(ctx context.Context, v cluster.Control, now time.Time) error {
	if !v.AnyEnded(now) {
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(v.Nodes)) {
		if !v.Nodes[node].Ended(now) {
			continue
		}
		doc := c.holds.At(node)
		old, err := doc.Get(ctx)
		if err == nil && old.Exists && old.Value.Ended(now) {
			err = doc.Delete(ctx, old.Index)
		}
		if err != nil {
			return err
		}
	}
	_, err := c.control.Update(ctx, func(old kv.Entry[cluster.Control]) (cluster.Control, bool, error) {
		return old.Value.At(now).Clone(), old.Value.AnyEnded(now), nil
	})
	if err == nil {
		_, err = c.pruneHolds(ctx)
	}
	return err
}

// Hold stops convergence in a scope. A hold that is there already gets the end and the
// reason of h.
func (c *Cluster) Hold(ctx context.Context, s cluster.Scope, h cluster.Hold) (changed bool, err error) {
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
	return c.changeControl(ctx, func(v *cluster.Control) bool { return v.SetHold(s.Role, h) })
}

// Unhold lets convergence continue in a scope. Where the scope is held because
// something more general is, it becomes an exception from that. Exceptions end
// with the last hold of the cluster and of roles.
func (c *Cluster) Unhold(ctx context.Context, s cluster.Scope, h cluster.Hold) (changed bool, err error) {
	if s.Node != "" {
		return c.unholdNode(ctx, s.Node, h)
	}
	changed, err = c.changeControl(ctx, func(v *cluster.Control) bool { return v.LiftHold(s.Role, h) })
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
	if err != nil && !errors.Is(err, cluster.ErrNoCluster) {
		return nil, err
	}
	return control.HeldBy(node, view.Roles()), nil
}

// ForgetHold deletes the hold of node, or its exception from one: the node does
// not come back. changed is false when there was none.
func (c *Cluster) ForgetHold(ctx context.Context, node string) (changed bool, err error) {
	return c.endHold(ctx, node, func(cluster.Control) bool { return false }, cluster.Hold{})
}

// setHold writes the hold of a node, or its exception; changed is false when it
// has one of that kind already.
func (c *Cluster) setHold(ctx context.Context, node string, h cluster.Hold) (changed bool, err error) {
	if err := cluster.CheckNode(node); err != nil {
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
			next, changed = old.Value.Again(h)
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
func (c *Cluster) unholdNode(ctx context.Context, node string, h cluster.Hold) (bool, error) {
	h.Off = true
	return c.endHold(ctx, node, func(v cluster.Control) bool { return v.Hold != nil || len(v.Roles) > 0 }, h)
}

// endHold deletes the hold of a node, or writes exception in its place where
// except asks for that, as long as what holds the cluster stays as it was read.
func (c *Cluster) endHold(ctx context.Context, node string, except func(cluster.Control) bool, exception cluster.Hold) (changed bool, err error) {
	if err := cluster.CheckNode(node); err != nil {
		return false, err
	}
	doc := c.holds.At(node)
	err = kv.RetryConflicts(ctx, func() error {
		r, err := c.store.Txn().Get(cluster.KeyControl).Get(doc.Key()).Commit(ctx)
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
		t := c.store.Txn().CheckIndex(cluster.KeyControl, control.Index)
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
	t, n := c.store.Txn().CheckIndex(cluster.KeyControl, control.Index), 0
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if h := all[node]; h.Err == nil && h.Value.Off && n < prunedAtOnce {
			t.CheckIndex(cluster.HoldKey(node), h.Index).Delete(cluster.HoldKey(node))
			n++
		}
	}
	if n == 0 {
		return false, nil
	}
	_, err = t.Commit(ctx)
	return true, err
}

// changeControl writes what change made of the document when it says that it
// changed something.
func (c *Cluster) changeControl(ctx context.Context, change func(*cluster.Control) bool) (changed bool, err error) {
	_, err = c.control.Update(ctx, func(old kv.Entry[cluster.Control]) (cluster.Control, bool, error) {
		v := old.Value.At(time.Now()).Clone()
		changed = change(&v)
		return v, changed, nil
	})
	return changed && err == nil, err
}
