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
	Leaders int    // how many members lead; default 1
	Manager string // a node, or a logical member without a host
}

// MaxLeaders bounds how many members can lead one cluster.
const MaxLeaders = 100

// Init creates the cluster's profile by compare-and-swap on its absence, and
// with it who leads and manages. Where there is a profile already it changes
// nothing; created then is false. Members that joined before are taken over.
func (c *Cluster) Init(ctx context.Context, o InitOptions) (created bool, err error) {
	if o.Leaders == 0 {
		o.Leaders = 1
	}
	d, err := profile.New(c.name)
	if err != nil {
		return false, err
	}
	if o.Leaders < 0 || o.Leaders > MaxLeaders {
		return false, fmt.Errorf("%d leaders: %w: there can be 1 to %d", o.Leaders, ErrInvalid, MaxLeaders)
	}
	if o.Manager != "" {
		if err := checkNode(o.Manager); err != nil {
			return false, err
		}
	}
	for {
		created, err = c.create(ctx, d, o)
		if !errors.Is(err, kv.ErrConflict) {
			break // else somebody else did, or a manager joined: look again
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
