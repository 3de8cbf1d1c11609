package nodes

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// places remembers which places of index keys there are. Consul answers the
// question by walking all index keys of all nodes: asked for each report it
// costs a fleet the square of its size.
type places struct {
	keep time.Duration

	mu    sync.Mutex
	all   map[slot]bool
	until time.Time
}

// Remembering returns the same ledger, which asks no more than once in d which
// index keys there are at all. What its own nodes do is right all the same: that
// follows from their documents. What somebody else wrote past these is put right
// by up to d later. It is for agents, which report one node for a long time.
func (l *Ledger) Remembering(d time.Duration) *Ledger {
	other := *l
	other.places = &places{keep: d}
	return &other
}

// slots returns which places of index keys there are, for any node.
func (l *Ledger) slots(ctx context.Context) ([]slot, error) {
	p := l.places
	if p == nil {
		return l.listSlots(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || time.Now().After(p.until) {
		list, err := l.listSlots(ctx)
		if err != nil {
			return nil, err
		}
		p.all, p.until = set(slices.Values(list)), time.Now().Add(p.keep)
	}
	return slices.Collect(maps.Keys(p.all)), nil
}

// wrote remembers the places of a document that was written.
func (l *Ledger) wrote(d Document) {
	if l.places == nil {
		return
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	for s := range wanted(d) {
		if l.places.all != nil {
			l.places.all[s] = true
		}
	}
}
