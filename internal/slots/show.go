package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// View is a group as commands show it.
type View struct {
	Group   string  `json:"group"`
	Max     int     `json:"max"`     // 0: any number
	Holders []Entry `json:"holders"` // the longest first
	Queue   []Entry `json:"queue"`   // the next first
}

// Entry is one claim of a View.
type Entry struct {
	Node   string    `json:"node"`
	ID     string    `json:"id"`
	Since  time.Time `json:"since"` // holds or waits; zero when that is not known
	Reason string    `json:"reason,omitempty"`
}

// Groups returns the names of all groups, in order. It returns
// consul.ErrDenied or consul.ErrUnreachable.
func (s *Slots) Groups(ctx context.Context) ([]string, error) {
	keys, err := s.keys.Names(ctx)
	return groupNames(keys), err
}

// groupNames are the groups among keys below slots/, in order.
func groupNames(keys []string) []string {
	names := map[string]bool{}
	for _, key := range keys {
		if name, ok := strings.CutPrefix(key, prefixGroup); ok {
			names[name] = true
		}
		if _, name, ok := parseClaim(key); ok {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Show returns a group; exists is false for one that no process has asked for. It
// returns text.ErrName, kv.ErrNewer, consul.ErrDenied or consul.ErrUnreachable.
func (s *Slots) Show(ctx context.Context, name string) (v View, exists bool, err error) {
	if err := checkGroup(name); err != nil {
		return View{}, false, err
	}
	leaves, err := s.keys.List(ctx)
	if err != nil {
		return View{}, false, wrap(name, err)
	}
	g, err := groupIn(leaves, name)
	if err != nil {
		return View{}, false, wrap(name, err)
	}
	return g.view(name), g.exists, nil
}

// MostGroups is how many groups an Overview lists: the token of any host may create
// groups, and readers show all that are listed.
const MostGroups = 1000

// Overview is the groups of a cluster.
type Overview struct {
	Groups []View // in order, at most MostGroups
	// Unlisted names the groups beyond MostGroups, in order. Groups with claims are
	// listed before groups without.
	Unlisted []string
	// Unreadable joins the errors of groups that a newer jorc wrote; nil: none.
	Unreadable error
}

// MoreText says which groups the overview does not list; empty: it lists all.
func (o Overview) MoreText() string {
	n := len(o.Unlisted)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d slot groups are not listed, from %q to %q: at most %d are; 'jorc cluster slots GROUP' shows one",
		n, o.Unlisted[0], o.Unlisted[n-1], MostGroups)
}

// ShowAll returns the groups with one request. It returns consul.ErrDenied or
// consul.ErrUnreachable.
func (s *Slots) ShowAll(ctx context.Context) (Overview, error) {
	leaves, err := s.keys.List(ctx)
	if err != nil {
		return Overview{}, err
	}
	all := groupsIn(leaves, func(string) bool { return true })
	o := Overview{Groups: []View{}}
	var unreadable []error
	var used, unused []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch g := all[name]; {
		case g.newer != nil && len(unreadable) < MostGroups:
			unreadable = append(unreadable, wrap(name, g.newer))
		case g.newer != nil:
			o.Unlisted = append(o.Unlisted, name)
		case len(g.claims) > 0:
			used = append(used, name)
		default:
			unused = append(unused, name)
		}
	}
	names := append(used, unused...)
	listed := names[:min(len(names), MostGroups)]
	o.Unlisted = append(o.Unlisted, names[len(listed):]...)
	slices.Sort(o.Unlisted)
	slices.Sort(listed)
	for _, name := range listed {
		o.Groups = append(o.Groups, all[name].view(name))
	}
	o.Unreadable = errors.Join(unreadable...)
	return o, nil
}

// OfNode describes the slots of all groups that node holds or waits for. What it
// can read it returns beside an error.
func (s *Slots) OfNode(ctx context.Context, node string) (claims []string, err error) {
	all, err := s.ShowAll(ctx)
	return ClaimsOf(all.Groups, node), errors.Join(err, all.Unreadable)
}

// ClaimsOf describes the slots of groups that node holds or waits for.
func ClaimsOf(groups []View, node string) (claims []string) {
	describe := func(verb, group string, entries []Entry) {
		for _, e := range entries {
			if e.Node != node {
				continue
			}
			text := fmt.Sprintf("it %s a slot of group %q since %s", verb, group, e.Since.UTC().Format(time.RFC3339))
			if e.Reason != "" {
				text += ": " + e.Reason
			}
			claims = append(claims, text)
		}
	}
	for _, v := range groups {
		describe("holds", v.Group, v.Holders)
		describe("waits for", v.Group, v.Queue)
	}
	return claims
}

// view is the group as commands show it.
func (g group) view(name string) View {
	v := View{Group: name, Max: g.max, Holders: []Entry{}, Queue: []Entry{}}
	for _, c := range g.claims {
		e := Entry{Node: c.node, ID: c.id, Since: c.Since, Reason: c.Reason}
		if c.Holds {
			v.Holders = append(v.Holders, e)
		} else {
			v.Queue = append(v.Queue, e)
		}
	}
	return v
}

// Unlock removes claims of a node from a group by hand: the one with the id, or
// all when id is empty, waiting ones included. Living holders are notified. It
// returns the names of the claims, <node>/<id>, the latest first; that there are
// none is not an error. Its other errors are those of Show and
// consul.ErrOutcomeUnknown.
func (s *Slots) Unlock(ctx context.Context, name, node, id string) (removed []string, err error) {
	if err := checkGroup(name); err != nil {
		return nil, err
	}
	claims, err := s.remove(ctx, func(c claim, group string) bool {
		return group == name && c.node == node && (id == "" || c.id == id)
	})
	for _, c := range claims {
		removed = append(removed, c.node+"/"+c.id)
	}
	return removed, wrap(name, err)
}

// RemoveNode is Unlock of all claims of a node, whose names it returns as
// <group>/<id>, in order.
func (s *Slots) RemoveNode(ctx context.Context, node string) (removed []string, err error) {
	claims, err := s.remove(ctx, func(c claim, _ string) bool { return c.node == node })
	for _, c := range claims {
		_, group, _ := parseClaim(c.key)
		removed = append(removed, group+"/"+c.id)
	}
	slices.Sort(removed)
	return removed, err
}

// remove deletes claims, the latest first, so that no slot passes to a claim that
// is deleted next; keys that no session locks, too.
func (s *Slots) remove(ctx context.Context, matches func(c claim, group string) bool) (removed []claim, err error) {
	leaves, err := s.keys.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []claim
	for key, leaf := range leaves {
		if c, group, ok := parseClaim(key); ok && matches(c, group) {
			c.created = leaf.Created
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b claim) int { return cmp.Compare(b.created, a.created) })
	for chunk := range slices.Chunk(all, kv.MaxOps) {
		txn := s.store.Txn()
		for _, c := range chunk {
			txn.Delete(prefix + c.key)
		}
		if _, err := txn.Commit(ctx); err != nil {
			return removed, err
		}
		removed = append(removed, chunk...)
	}
	return removed, nil
}
