package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// InitOptions say how a cluster begins.
type InitOptions struct {
	Leaders   int    // how many members lead; default 1
	NoLeaders bool   // no member leads until SetCount changes that
	Manager   string // a node, or a logical member without a host
}

// MaxLeaders bounds how many members can lead one cluster.
const MaxLeaders = 100

// Init creates the cluster's profile by compare-and-swap on its absence, and with
// it the number of leaders and the manager. If the profile exists it changes
// nothing, and created is false. Nodes that joined before stay members.
func (c *Cluster) Init(ctx context.Context, o InitOptions) (created bool, err error) {
	switch {
	case o.NoLeaders:
		o.Leaders = 0
	case o.Leaders == 0:
		o.Leaders = 1
	}
	d, err := profile.New(c.name)
	if err != nil {
		return false, err
	}
	if o.Leaders < 0 || o.Leaders > MaxLeaders {
		return false, fmt.Errorf("%d leaders: %w: there can be up to %d", o.Leaders, ErrInvalid, MaxLeaders)
	}
	if o.Manager != "" {
		if err := CheckNode(o.Manager); err != nil {
			return false, err
		}
	}
	for {
		created, err = c.create(ctx, d, o)
		if !errors.Is(err, kv.ErrConflict) {
			break // else another process created it, or a manager joined: read again
		}
	}
	if err != nil || !created {
		return false, err
	}
	return true, c.fillVacancies(ctx)
}

func (c *Cluster) create(ctx context.Context, d profile.Document, o InitOptions) (bool, error) {
	manager := c.members.At(o.Manager)
	read := c.store.Txn().Get(KeyProfile).Get(KeyLeaders).Get(KeyControl).Get(KeyLayout)
	if o.Manager != "" {
		read.Get(manager.Key())
	}
	r, err := read.Commit(ctx)
	if err != nil {
		return false, err
	}
	if err := c.layoutOf(r); err != nil {
		return false, err
	}
	old, err := c.profile.From(r)
	if old.Exists || err != nil {
		return false, err
	}
	leaders, err := c.leaders.From(r)
	if err != nil {
		return false, err
	}
	next := leaders.Value.clone()
	next.Count = o.Leaders
	t := c.store.Txn()
	c.profile.SwapIn(t, old, d)
	t.Set(KeyLayout, []byte(strconv.Itoa(Layout)))
	if o.Manager != "" {
		next.setManager(o.Manager)
		record, err := manager.From(r)
		if err != nil {
			return false, err
		}
		if !record.Exists {
			manager.SwapIn(t, record, Record{})
		}
	}
	c.leaders.SwapIn(t, leaders, next)
	// All agents watch it, and a watch of a key that does not exist wakes for
	// every other.
	if control, err := c.control.From(r); !control.Exists && !unreadable(err) {
		if err != nil {
			return false, err
		}
		c.control.SwapIn(t, control, Control{})
	}
	_, err = t.Commit(ctx)
	return err == nil, err
}

// AddManager makes node a manager and, if it is not a member, a member. It
// reports whether that changed something.
func (c *Cluster) AddManager(ctx context.Context, node string) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	if _, err := c.Profile(ctx); err != nil {
		return false, err
	}
	member := c.members.At(node)
	_, err = c.leaders.Change(ctx, func(old kv.Entry[Leaders], t *kv.Txn) (Leaders, bool, error) {
		record, err := member.Get(ctx)
		if err != nil {
			return Leaders{}, false, err
		}
		next := old.Value.clone()
		next.setManager(node)
		if !record.Exists {
			member.SwapIn(t, record, Record{})
		}
		changed = !record.Exists || !next.equal(old.Value)
		return next, changed, nil
	})
	return changed && err == nil, err
}
