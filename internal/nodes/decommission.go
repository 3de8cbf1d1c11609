package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/kv"
)

// Decommission removes all that node reported, and returns the keys that were
// removed: its document, the index keys that name it, also those that somebody
// else wrote. It refuses a host that gossip hears, with ErrAlive, unless force
// is set. Repeating it is no failure. Other errors are those of Move.
func (l *Ledger) Decommission(ctx context.Context, node string, force bool) (removed []string, err error) {
	if err := CheckNode(node); err != nil {
		return nil, err
	}
	if !force {
		lives, err := l.lives(ctx, []string{node})
		if err != nil {
			return nil, err
		}
		if lives[node] == Alive {
			return nil, fmt.Errorf("node %q: %w", node, ErrAlive)
		}
	}
	for {
		t, err := l.trace(ctx, node)
		if err != nil {
			return nil, err
		}
		removed, err = l.remove(ctx, node, t)
		if !errors.Is(err, kv.ErrConflict) {
			return removed, err
		}
		if err := pause(ctx, conflictPause); err != nil {
			return nil, err
		}
	}
}

// remove deletes the document together with its index keys, and then the rest
// as long as no new document appears.
func (l *Ledger) remove(ctx context.Context, node string, t traces) ([]string, error) {
	doc := l.docs.At(node).Key()
	own := t.doc.Value.wanted()
	slots := slices.SortedFunc(maps.Keys(t.index), slot.compare)
	slices.SortStableFunc(slots, func(a, b slot) int {
		_, ownA := own[a]
		_, ownB := own[b]
		return order(ownA) - order(ownB)
	})
	txn := l.store.Txn().CheckIndex(doc, t.doc.Index)
	var removed, pending []string
	if t.doc.Exists {
		txn.Delete(doc)
		pending = append(pending, doc)
	}
	for {
		n := min(len(slots), kv.MaxOps-txn.Len())
		for _, s := range slots[:n] {
			txn.Delete(s.key(node))
			pending = append(pending, s.key(node))
		}
		slots = slots[n:]
		if len(pending) == 0 {
			return removed, nil
		}
		if _, err := txn.Commit(ctx); err != nil {
			return removed, err
		}
		removed, pending = append(removed, pending...), nil
		txn = l.store.Txn().CheckNotExists(doc)
	}
}

// order puts what is true first.
func order(first bool) int {
	if first {
		return 0
	}
	return 1
}
