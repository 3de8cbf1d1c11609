package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// CheckDeparted returns ErrAlive for a host that gossip hears, and otherwise nil,
// consul.ErrDenied or consul.ErrUnreachable.
func (c *Cluster) CheckDeparted(ctx context.Context, node string) error {
	if err := CheckNode(node); err != nil {
		return err
	}
	lives, err := c.conditions(ctx, []string{node})
	if err == nil && lives[node].Liveness == LivenessUp {
		err = fmt.Errorf("node %q: %w", node, ErrAlive)
	}
	return err
}

// Decommission removes all that node reported and frees its slots. It returns
// the keys that were removed: the node's document, the index keys that name it,
// also the ones that another process wrote, and its queue of runs; and, as <group>/<id>, the claims.
// Repeating it is not a failure. Its errors are those of ChangeReport.
func (c *Cluster) Decommission(ctx context.Context, node string) (removed, freed []string, err error) {
	if err := CheckNode(node); err != nil {
		return nil, nil, err
	}
	if freed, err = slots.New(c.store, slots.Options{}).RemoveNode(ctx, node); err != nil {
		return nil, freed, err
	}
	conflict := newConflictBackoff()
	for {
		keys, err := c.removeReport(ctx, node)
		removed = append(removed, keys...)
		if err == nil {
			keys, err = c.deleteOrders(ctx, node)
			removed = append(removed, keys...)
		}
		if !errors.Is(err, kv.ErrConflict) {
			return removed, freed, err
		}
		if err := conflict.Wait(ctx); err != nil {
			return removed, freed, err
		}
	}
}

// deleteOrders deletes what node was to run, and its grant.
func (c *Cluster) deleteOrders(ctx context.Context, node string) (deleted []string, err error) {
	for _, key := range []string{QueueKey(node), GrantKey(node)} {
		doc := kv.NewText(c.store, key)
		e, err := doc.Get(ctx)
		if err == nil && e.Exists {
			err = doc.Delete(ctx, e.Index)
			deleted = append(deleted, key)
		}
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// removeReport deletes the document together with its index keys, and then other index
// keys that name the node, as long as no new document appears.
func (c *Cluster) removeReport(ctx context.Context, node string) ([]string, error) {
	doc := c.reports.At(node)
	old, err := doc.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return nil, err
	}
	index, err := c.indexNames(ctx, node)
	if err != nil {
		return nil, err
	}
	own := indexOf(old.Value)
	places := slices.SortedFunc(maps.Keys(own), indexPlace.compare)
	places = slices.DeleteFunc(places, func(s indexPlace) bool { return !slices.Contains(index, s) })
	for _, s := range index {
		if _, ok := own[s]; !ok {
			places = append(places, s)
		}
	}
	txn := c.store.Txn().CheckIndex(doc.Key(), old.Index)
	var removed, pending []string
	if old.Exists {
		txn.Delete(doc.Key())
		pending = append(pending, doc.Key())
	}
	for {
		n := min(len(places), kv.MaxOps-txn.Len())
		for _, s := range places[:n] {
			txn.Delete(s.key(node))
			pending = append(pending, s.key(node))
		}
		places = places[n:]
		if len(pending) == 0 {
			return removed, nil
		}
		if _, err := txn.Commit(ctx); err != nil {
			return removed, err
		}
		removed, pending = append(removed, pending...), nil
		txn = c.store.Txn().CheckNotExists(doc.Key())
	}
}

// indexNames reads which index keys name node, in order.
func (c *Cluster) indexNames(ctx context.Context, node string) ([]indexPlace, error) {
	var found []indexPlace
	for _, prefix := range []string{PrefixRunning, PrefixStatus} {
		names, err := kv.NewTextTree(c.store, prefix).Names(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if s, of, ok := parseIndexKey(prefix + name); ok && of == node {
				found = append(found, s)
			}
		}
	}
	slices.SortFunc(found, indexPlace.compare)
	return found, nil
}
