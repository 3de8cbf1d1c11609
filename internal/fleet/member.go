package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Join makes node a member with the record that change returns, asked with
// what there is (the zero Record for a new member), and fills a vacancy among
// the leaders. It writes nothing when nothing changes, and reports whether it
// did. It returns change's error, cluster.ErrInvalid, or what kv.Doc.Update returns.
func (c *Cluster) Join(ctx context.Context, node string, change func(cluster.Record) (cluster.Record, error)) (changed bool, err error) {
	if changed, err = c.join(ctx, node, change); err != nil {
		return false, err
	}
	return changed, c.fillVacancies(ctx)
}

// join is Join without leaders.
func (c *Cluster) join(ctx context.Context, node string, change func(cluster.Record) (cluster.Record, error)) (changed bool, err error) {
	if err := cluster.CheckNode(node); err != nil {
		return false, err
	}
	_, changed, err = c.changeRecord(ctx, node, true, change)
	return changed, err
}

// changeRecord is Join without leaders; create says that a node which is no
// member becomes one, else it is cluster.ErrNoMember. Params that change are checked as
// those of the profile are.
func (c *Cluster) changeRecord(ctx context.Context, node string, create bool, change func(cluster.Record) (cluster.Record, error)) (cluster.Record, bool, error) {
	stored := sync.OnceValues(func() (profile.Document, error) {
		e, err := c.profile.Get(ctx)
		if errors.Is(err, kv.ErrDamaged) {
			err = nil // its schemas are lost, and joining is not
		}
		return e.Value, err
	})
	return c.changeRecordUnder(ctx, stored, node, create, change)
}

// changeRecordUnder is changeRecord with the schemas of the document that under
// returns.
func (c *Cluster) changeRecordUnder(ctx context.Context, under func() (profile.Document, error), node string, create bool,
	change func(cluster.Record) (cluster.Record, error),
) (cluster.Record, bool, error) {
	changed := false
	e, err := c.members.At(node).Update(ctx, func(old kv.Entry[cluster.Record]) (cluster.Record, bool, error) {
		if !old.Exists && !create {
			return cluster.Record{}, false, fmt.Errorf("node %q in cluster %q: %w: join it first", node, c.name, cluster.ErrNoMember)
		}
		next, err := change(old.Value)
		if err != nil {
			return cluster.Record{}, false, err
		}
		if err := next.Validate(); err != nil {
			return cluster.Record{}, false, err
		}
		if len(next.Params) > 0 && !next.Params.Equal(old.Value.Params) {
			d, err := under()
			if err != nil {
				return cluster.Record{}, false, err
			}
			if next.Params, err = c.editor.CheckOwn(d, node, old.Value.Params, next.Params); err != nil {
				return cluster.Record{}, false, err
			}
		}
		changed = !old.Exists || !next.Equal(old.Value)
		return next, changed, nil
	})
	return e.Value, changed && err == nil, err
}

// replaceDamaged writes r in place of a record that is damaged; it reports whether
// there was one.
func (c *Cluster) replaceDamaged(ctx context.Context, node string, r cluster.Record) (bool, error) {
	doc := c.members.At(node)
	old, err := doc.Get(ctx)
	if !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	if err := r.Validate(); err != nil {
		return false, err
	}
	p, err := c.profile.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	if r.Params, err = c.editor.CheckOwn(p.Value, node, nil, r.Params); err != nil {
		return false, err
	}
	_, err = doc.CompareAndSwap(ctx, old, r)
	return err == nil, err
}

// Leave ends node's membership: its record goes, and it leads and manages no
// more. believes says that the node itself may not know that yet, so that its
// place among the leaders stays empty for a while. It reports whether the node
// was a member.
func (c *Cluster) Leave(ctx context.Context, node string, believes bool) (left bool, err error) {
	err = kv.RetryConflicts(ctx, func() (err error) {
		left, err = c.leave(ctx, node, believes)
		return err
	})
	if err != nil || !left {
		return false, err
	}
	return true, c.fillVacancies(ctx)
}

func (c *Cluster) leave(ctx context.Context, node string, believes bool) (bool, error) {
	member := c.members.At(node)
	r, err := c.store.Txn().Get(cluster.KeyLeaders).Get(member.Key()).Commit(ctx)
	if err != nil {
		return false, err
	}
	leaders, err := c.leaders.From(r)
	damaged := errors.Is(err, kv.ErrDamaged)
	if err != nil && !damaged {
		return false, err
	}
	record, err := member.From(r)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	next, changed := leaders.Value.Without(node, believes)
	changed = changed && !damaged
	if !record.Exists && !changed {
		return false, nil
	}
	remove := func(t *kv.Txn) *kv.Txn {
		if record.Exists {
			t.CheckIndex(member.Key(), record.Index).Delete(member.Key())
		}
		return t
	}
	t := remove(c.store.Txn())
	if changed {
		c.leaders.SwapIn(t, leaders, next)
	}
	_, err = t.Commit(ctx)
	if changed && record.Exists && errors.Is(err, consul.ErrDenied) {
		_, err = remove(c.store.Txn()).Commit(ctx) // electors retire who is not a member
	}
	return err == nil, err
}

// SetMemberParam sets a param of a member's own if ref holds and the profile's
// schema takes it. It returns cluster.ErrNoMember for a node that is not a member.
func (c *Cluster) SetMemberParam(ctx context.Context, node, key string, v profile.Value, ref profile.Ref) error {
	d, err := c.profile.Get(ctx)
	if err != nil {
		return err
	}
	_, _, err = c.changeRecord(ctx, node, false, func(r cluster.Record) (_ cluster.Record, err error) {
		r.Params, err = c.editor.SetOwn(d.Value, node, r.Params, key, v, ref)
		return r, err
	})
	return err
}

// RemoveMemberParam removes a param of a member's own if ref holds.
func (c *Cluster) RemoveMemberParam(ctx context.Context, node, key string, ref profile.Ref) error {
	var d profile.Document // for the schema, which a reference alone needs
	if ref.Value != nil {
		e, err := c.profile.Get(ctx)
		if err != nil {
			return err
		}
		d = e.Value
	}
	_, _, err := c.changeRecord(ctx, node, false, func(r cluster.Record) (_ cluster.Record, err error) {
		r.Params, err = c.editor.RemoveOwn(d, r.Params, key, ref)
		return r, err
	})
	return err
}

// SetMemberMeta sets a member's meta; nil removes the key.
func (c *Cluster) SetMemberMeta(ctx context.Context, node, key string, v *profile.Value) error {
	_, _, err := c.changeRecord(ctx, node, false, func(r cluster.Record) (_ cluster.Record, err error) {
		if v == nil {
			r.Meta, err = r.Meta.Remove(key, profile.Ref{})
			return r, err
		}
		if err := profile.CheckMeta(key, *v); err != nil {
			return r, err
		}
		r.Meta, err = r.Meta.Set(key, *v, profile.Ref{})
		return r, err
	})
	return err
}

// Record reads what node says of itself. It returns cluster.ErrNoMember.
func (c *Cluster) Record(ctx context.Context, node string) (cluster.Record, error) {
	e, err := c.members.At(node).Get(ctx)
	if err == nil && !e.Exists {
		err = fmt.Errorf("node %q in cluster %q: %w", node, c.name, cluster.ErrNoMember)
	}
	return e.Value, err
}
