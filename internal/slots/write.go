package slots

import (
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// write adds to t what happens to the other keys of the group.
func (c *changing) write(t *kv.Txn, now, next Group) {
	was, is := len(now.Queue) > 0, len(next.Queue) > 0
	if was != is || c.made || !was && len(c.outside) > 0 { // who wait outside may have been misled
		c.group.mark(t, next)
	}
	all := moves(now, next)
	for _, name := range inOrder(all) {
		wait, held := c.group.wait.At(name), c.group.held.At(name)
		what := all[name]
		if what == entered && c.outside[name] {
			what = admitted
		}
		switch what {
		case queued:
			if !c.outside[name] {
				c.put(t, wait, c.tickets[name].Holding)
			} else if c.first {
				t.CheckIndex(wait.Key(), c.tickets[name].index)
			}
		case entered:
			c.put(t, held, next.Holders[name])
		case admitted:
			t.CheckIndex(wait.Key(), c.tickets[name].index).Delete(wait.Key())
			c.put(t, held, next.Holders[name])
		case dropped:
			c.remove(t, wait, name)
		case released:
			c.remove(t, held, name)
		}
	}
	for name := range c.orphans {
		if _, moved := all[name]; !moved { // it came from outside
			t.Delete(c.group.wait.At(name).Key())
		}
	}
	for _, name := range c.called {
		doc, ticket := c.group.wait.At(name), c.tickets[name]
		ticket.Called = true
		t.CheckIndex(doc.Key(), ticket.index)
		doc.SetIn(t, ticket.Holding)
	}
}

// remove deletes the key of a claim that leaves, if it has one.
func (c *changing) remove(t *kv.Txn, doc kv.Doc[Holding], name string) {
	switch {
	case c.absent[name]:
		t.CheckNotExists(doc.Key())
	case !c.gone[name], c.orphans[name]:
		t.Delete(doc.Key())
	}
}

// put makes a key, whatever was there, and ties it to the holding's session.
func (c *changing) put(t *kv.Txn, doc kv.Doc[Holding], h Holding) {
	t.Delete(doc.Key())
	if h.Session == "" {
		doc.SetIn(t, h)
		return
	}
	doc.LockIn(t, h, h.Session)
}

// stamp is the time as documents have it.
func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
