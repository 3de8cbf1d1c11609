package slots

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// View is a group as people and scripts see it.
type View struct {
	Group   string  `json:"group"`
	Max     int     `json:"max"`     // 0: any number
	Holders []Entry `json:"holders"` // the longest first
	Queue   []Entry `json:"queue"`   // the next first; behind them those whose turn is not known yet
}

// Entry is one claim of a View.
type Entry struct {
	Node    string    `json:"node"`
	ID      string    `json:"id"`
	Since   time.Time `json:"since"` // holds or waits; zero when that is not known
	Reason  string    `json:"reason,omitempty"`
	Durable bool      `json:"durable"` // does not end with its process
	// Gone: its process or host is dead; the next who wants the slot takes it out.
	Gone bool `json:"gone,omitempty"`
}

// Groups returns the names of all groups, in order. It returns
// consul.ErrDenied or consul.ErrUnreachable.
func (s *Slots) Groups(ctx context.Context) ([]string, error) {
	names, err := kv.NewTextTree(s.store, "slots/").Names(ctx)
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, "/")
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == Reserved })
	slices.Sort(names) // "a-b" comes between "a" and "a/"
	return slices.Compact(names), err
}

// Show returns a group; one that nobody has asked for is empty, and exists is
// false. It returns ErrName, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (s *Slots) Show(ctx context.Context, name string) (v View, exists bool, err error) {
	g, err := s.group(name, Keep)
	if err != nil {
		return View{}, false, err
	}
	e, err := g.doc.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return View{}, false, g.wrap(err)
	}
	held, err := g.held.List(ctx)
	if err != nil {
		return View{}, false, g.wrap(err)
	}
	wait, err := g.wait.List(ctx)
	if err != nil {
		return View{}, false, g.wrap(err)
	}
	now := e.Value.sound()
	v = View{Group: name, Max: now.Max, Holders: []Entry{}, Queue: []Entry{}}
	for holder, h := range now.Holders {
		leaf, alive := held[holder]
		v.Holders = append(v.Holders, entry(holder, h, h.Session == "", !alive || orphan(leaf.Entry)))
	}
	slices.SortFunc(v.Holders, func(a, b Entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	dead := now.Without(slices.Collect(maps.Keys(held)))
	for _, waiter := range append(slices.Clone(now.Queue), now.Leave(dead...).outside(wait)...) {
		leaf, alive := wait[waiter]
		v.Queue = append(v.Queue, entry(waiter, leaf.Value, alive && leaf.Value.Session == "", !alive))
	}
	return v, e.Exists, nil
}

func entry(name string, h Holding, durable, gone bool) Entry {
	node, id, _ := strings.Cut(name, "/")
	return Entry{Node: node, ID: id, Since: h.Since, Reason: h.Reason, Durable: durable, Gone: gone}
}

// Resize changes how many slots the group has: 0 is any number. Those who hold
// one keep theirs; those who wait go at once if there is room now. It returns
// what Show does, or consul.ErrOutcomeUnknown.
func (s *Slots) Resize(ctx context.Context, name string, limit int) error {
	g, err := s.group(name, limit)
	if err != nil {
		return err
	}
	_, err = g.change(ctx, func(ctx context.Context, now Group, c *changing) (Group, error) {
		return lookOnce(ctx, now.Resize(limit), c)
	})
	return g.wrap(err)
}

// Unlock takes claims away by hand: of a node the one with the id, or all when
// id is empty, those who wait included. Living holders are told at once. It
// returns the names that it took out; that there were none is no error. The
// errors are those of Resize.
func (s *Slots) Unlock(ctx context.Context, name, node, id string) (out []string, err error) {
	g, err := s.group(name, Keep)
	if err != nil {
		return nil, err
	}
	var now Group
	for {
		var waiters []string
		now, err = g.change(ctx, func(_ context.Context, group Group, _ *changing) (Group, error) {
			waiters, _ = group.of(node, id)
			waiters = waiters[:min(len(waiters), leaveAtOnce)]
			return group.Leave(waiters...), nil
		})
		if err != nil {
			return out, g.wrap(err)
		}
		if len(waiters) == 0 {
			break
		}
		out = append(out, waiters...)
	}
	wait, err := g.wait.List(ctx)
	if err != nil {
		return out, g.wrap(err)
	}
	outside, _ := Group{Queue: now.outside(wait)}.of(node, id)
	for _, name := range outside {
		if err := g.leaveOutside(ctx, name); err != nil {
			return out, g.wrap(err)
		}
		out = append(out, name)
	}
	_, holders := now.of(node, id)
	for _, name := range holders {
		if err := g.release(ctx, name, leave(name), func(*kv.Txn) {}); err != nil {
			return out, g.wrap(err)
		}
		out = append(out, name)
	}
	return out, nil
}

// outside are the names of those keys whose claims wait outside of the queue, who
// came first first.
func (g Group) outside(wait map[string]kv.Leaf[Holding]) []string {
	inside := set(g.Queue)
	var names []string
	for name := range wait {
		if !inside[name] && !g.Holds(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(wait[a].Value.Since.Compare(wait[b].Value.Since), cmp.Compare(a, b))
	})
	return names
}

// of returns the names of a node's claims, of which an id was asked for or all.
func (g Group) of(node, id string) (waiters, holders []string) {
	matches := func(name string) bool {
		n, i, _ := strings.Cut(name, "/")
		return n == node && (id == "" || i == id)
	}
	for _, name := range g.Queue {
		if matches(name) {
			waiters = append(waiters, name)
		}
	}
	for name := range g.Holders {
		if matches(name) {
			holders = append(holders, name)
		}
	}
	slices.Sort(holders)
	return waiters, holders
}
