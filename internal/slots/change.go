package slots

import (
	"context"
	"errors"

	"github.com/jorc/jorc/internal/kv"
)

// Bounds of one transaction: each admission takes four of its operations, each
// claim whose absence it checks one, the document one, the key that tells of the
// queue one, and each of the two at most who are called two.
const (
	admitAtOnce = 11
	buryAtOnce  = 11
)

// leaveAtOnce is how many living claims may be taken out in one transaction.
const leaveAtOnce = 6

// alteration returns what is to become of a group. It may read, and must have
// no other effects: it is asked again when somebody else was faster.
type alteration func(ctx context.Context, now Group, c *changing) (Group, error)

// unaltered only lets those go for whom there is room.
func unaltered(_ context.Context, now Group, _ *changing) (Group, error) { return now, nil }

// changing is one attempt to change a group.
type changing struct {
	group  *group
	made   bool            // there was no document before it
	inside map[string]bool // who was in the group before it
	// tickets are of claims that come, or that wait: what their keys hold.
	tickets map[string]ticket
	// gone are the claims that are known to have no key. Of those in absent it
	// was so before the document was read: the transaction makes sure.
	gone, absent map[string]bool
	// orphans are gone, too, but have left their keys, or such that cannot be read.
	orphans  map[string]bool
	outside  map[string]bool // claims that had waited outside of the queue
	first    bool            // one of them becomes the queue; what follows from that is left to the next change
	called   []string        // those of them who are to look who is in front of them
	admitted int             // how many claims were let go
}

type ticket struct {
	Holding
	index uint64 // of the wait key; 0: there is none yet
}

// change reads the group, alters it, lets those go for whom there is room then,
// and writes all that in one transaction, again and again until nobody else
// wrote in between. It returns the group as it is now. Nothing is written when
// nothing changes.
func (g *group) change(ctx context.Context, alter alteration) (Group, error) {
	for {
		var result Group
		first, more, last := false, false, false
		_, err := g.doc.Change(ctx, func(old kv.Entry[Group], t *kv.Txn) (Group, bool, error) {
			now, err := g.present(ctx, old)
			if err != nil {
				return Group{}, false, err
			}
			c := newChanging(g, now)
			c.made = !old.Exists
			next, err := alter(ctx, now, c)
			if err == nil {
				next, err = c.settle(ctx, now, next)
			}
			if err != nil {
				return Group{}, false, err
			}
			c.write(t, now, next)
			result, first, more = next, c.first, len(next.Next(1)) > 0
			last = len(next.Queue) == 0 && (len(now.Queue) > 0 || c.tookIn(next) || c.buried(now, next))
			return next, !next.equal(now) || len(c.orphans) > 0, nil
		})
		switch {
		case errors.Is(err, kv.ErrDamaged):
			if err := g.repair(ctx); err != nil {
				return Group{}, err
			}
		case err != nil:
			return result, err
		case first:
			alter = lookOnce
		case more:
			alter = unaltered
		case last:
			// Whoever gave a slot back while somebody waited has left it to those,
			// and whoever came meanwhile relied on them; or waits outside, under the
			// name of one that was found dead.
			alter = lookOnce
		default:
			return result, nil
		}
	}
}

func newChanging(g *group, now Group) *changing {
	inside := set(now.Queue)
	for name := range now.Holders {
		inside[name] = true
	}
	return &changing{
		group: g, inside: inside, tickets: map[string]ticket{}, gone: map[string]bool{}, absent: map[string]bool{},
		orphans: map[string]bool{}, outside: map[string]bool{},
	}
}

// settle adds to an alteration what follows from it.
func (c *changing) settle(ctx context.Context, now, next Group) (Group, error) {
	if c.first {
		return next, nil
	}
	next, err := c.admit(ctx, next)
	if err == nil && len(now.Queue) > 0 && len(next.Queue) < len(now.Queue) {
		if next, err = fill(ctx, next, c); err == nil {
			next, err = c.admit(ctx, next)
		}
	}
	if err == nil {
		next, err = c.call(ctx, now, next)
	}
	return next, err
}

// lookOnce takes the dead out of the group and those outside in.
func lookOnce(ctx context.Context, now Group, c *changing) (Group, error) {
	next, err := bury(ctx, now, c)
	if err == nil {
		next, err = fill(ctx, next, c)
	}
	return next, err
}

// admit lets those go for whom there is room. Waiters without a key are gone.
func (c *changing) admit(ctx context.Context, next Group) (Group, error) {
	for {
		names := next.Next(admitAtOnce - c.admitted)
		if err := c.look(ctx, names); err != nil {
			return Group{}, err
		}
		var admissions []Holding
		for _, name := range names {
			if c.gone[name] {
				next = next.Leave(name)
				continue
			}
			h := c.tickets[name].Holding
			h.Since, h.Called = stamp(), false
			admissions = append(admissions, h)
		}
		if len(admissions) == len(names) {
			c.admitted += len(names)
			return next.Admit(admissions...), nil
		}
	}
}

// look reads the keys of waiters that are not known yet, in one request.
func (c *changing) look(ctx context.Context, names []string) error {
	t := c.group.store.Txn()
	var unknown []kv.Doc[Holding]
	var whose []string
	for _, name := range names {
		if _, known := c.tickets[name]; known || c.gone[name] {
			continue
		}
		doc := c.group.wait.At(name)
		t.Get(doc.Key())
		unknown, whose = append(unknown, doc), append(whose, name)
	}
	if len(unknown) == 0 {
		return nil
	}
	r, err := t.Commit(ctx)
	if err != nil {
		return err
	}
	for i, doc := range unknown {
		e, err := doc.From(r)
		switch {
		case errors.Is(err, kv.ErrDamaged), err == nil && orphan(e):
			c.gone[whose[i]], c.orphans[whose[i]] = true, true
		case err == nil && !e.Exists:
			c.gone[whose[i]] = true
		case err != nil:
			return err
		default:
			c.tickets[whose[i]] = ticket{Holding: e.Value.bounded(), index: e.Index}
		}
	}
	return nil
}
