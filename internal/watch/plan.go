package watch

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"
	"strings"
)

// plan is how the wanted dependencies are fetched within a budget of blocking
// queries.
type plan struct {
	groups   []*group      // keys
	families []*family     // of groups
	own      []*dependency // services and others that have a query of their own
	shared   []*dependency // services that share a wake-up
}

// sharedCost is the number of queries that a shared wake-up blocks on.
const sharedCost = 5 + maxFollowed

// paramsCost is the number of queries that the member's params take.
const paramsCost = 3

// leastGroups is what keys get however many services there are.
const leastGroups = 8

// makePlan divides places among what is wanted. The order of the result does
// not depend on the order of deps.
func makePlan(wanted map[string]*dependency, places int) plan {
	var p plan
	var keys, services, others []*dependency
	for _, d := range wanted {
		switch d.kind {
		case kindKey, kindPrefix:
			keys = append(keys, d)
		case kindService, kindConnect:
			services = append(services, d)
		default:
			others = append(others, d)
		}
	}
	byID := func(a, b *dependency) int { return cmp.Compare(a.id, b.id) }
	slices.SortFunc(services, byID)
	slices.SortFunc(others, byID)
	p.own = others
	free := places
	for _, d := range others {
		switch d.kind {
		case kindFile, kindDatacenter: // they do not block at Consul
		case kindParams:
			free -= paramsCost
		default:
			free--
		}
	}
	forKeys := min(len(keys), max(leastGroups, free-len(services)))
	own := min(len(services), max(0, free-forKeys))
	if own < len(services) {
		own = max(0, own-sharedCost)
	}
	p.own = append(p.own, services[:own]...)
	for _, d := range services[own:] {
		if shareable(d) {
			p.shared = append(p.shared, d)
		} else {
			p.own = append(p.own, d)
		}
	}
	if len(keys) > 0 {
		p.groups = groupKeys(keys, forKeys)
		p.families = families(p.groups)
		if len(p.groups)+len(p.families) > forKeys {
			p.groups = groupKeys(keys, forKeys-mostFamilies)
			p.families = families(p.groups)
		}
	}
	return p
}

// shareable reports whether the checks and services of the own datacenter wake
// up a service's watcher.
func shareable(d *dependency) bool { return d.kind == kindService && d.scope == scope{} }

// group is a set of keys and key prefixes that one blocking query watches.
type group struct {
	scope  scope
	prefix string // all names begin with it
	deps   []*dependency
}

// exact reports whether the group is one key, which is read without its siblings.
func (g *group) exact() bool { return len(g.deps) == 1 && g.deps[0].kind == kindKey }

// id names the group by its mode, scope and prefix, so that a plan can be compared with
// what runs already.
func (g *group) id() string {
	mode := "prefix "
	if g.exact() {
		mode = "key "
	}
	s := g.scope
	return strings.Join([]string{mode, s.datacenter, s.namespace, s.partition, g.prefix}, "\x00")
}

// groupKeys divides keys and prefixes into at most n groups (more when there
// are more scopes than that), each with the longest prefix that its members
// share, so that the largest group is as small as the names allow: the largest
// is divided at the byte behind its prefix as long as there is room. A KV
// prefix need not end at a slash.
func groupKeys(deps []*dependency, n int) []*group {
	var done []*group
	todo := &groupHeap{}
	for _, g := range byScope(deps) {
		heap.Push(todo, g)
	}
	for todo.Len() > 0 {
		g := heap.Pop(todo).(*group)
		room := n - len(done) - todo.Len()
		parts := divide(g)
		if len(parts) < 2 || len(parts) > room {
			done = append(done, g)
			continue
		}
		for _, p := range parts {
			heap.Push(todo, p)
		}
	}
	slices.SortFunc(done, func(a, b *group) int { return cmp.Compare(a.id(), b.id()) })
	return done
}

func byScope(deps []*dependency) []*group {
	scopes := map[scope]*group{}
	for _, d := range deps {
		g := scopes[d.scope]
		if g == nil {
			g = &group{scope: d.scope}
			scopes[d.scope] = g
		}
		g.deps = append(g.deps, d)
	}
	groups := make([]*group, 0, len(scopes))
	for _, g := range scopes {
		slices.SortFunc(g.deps, func(a, b *dependency) int {
			// Of one name, the prefix comes first: divide looks there.
			return cmp.Or(cmp.Compare(a.name, b.name), -cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
		})
		g.prefix = shared(g.deps)
		groups = append(groups, g)
	}
	return groups
}

// shared is the longest prefix of all names; deps are sorted by name.
func shared(deps []*dependency) string {
	return common(deps[0].name, deps[len(deps)-1].name)
}

// common is the longest prefix of two names.
func common(first, last string) string {
	i := 0
	for i < len(first) && i < len(last) && first[i] == last[i] {
		i++
	}
	return first[:i]
}

// divide splits a group by the byte behind its prefix. A wanted prefix that
// is the group's own cannot be divided: what it watches is all of the group.
func divide(g *group) []*group {
	if len(g.deps) < 2 {
		return nil
	}
	var parts []*group
	start := 0
	for i := 1; i <= len(g.deps); i++ {
		if i < len(g.deps) && at(g.deps[i], len(g.prefix)) == at(g.deps[start], len(g.prefix)) {
			continue
		}
		members := g.deps[start:i]
		if len(members[0].name) == len(g.prefix) && members[0].kind == kindPrefix {
			return nil
		}
		parts = append(parts, &group{scope: g.scope, prefix: shared(members), deps: members})
		start = i
	}
	return parts
}

func at(d *dependency, i int) int {
	if i < len(d.name) {
		return int(d.name[i])
	}
	return -1
}

// mostFamilies is how many queries the families of groups take at most.
const mostFamilies = 2

// family is groups of more than one key whose prefixes begin with the same segment. The groups that
// hold no key share a query; see emptyGroups.
type family struct {
	scope  scope
	prefix string // those of the groups begin with it
	groups int
}

func (f *family) id() string {
	s := f.scope
	return strings.Join([]string{"names", s.datacenter, s.namespace, s.partition, f.prefix, strconv.Itoa(f.groups)}, "\x00")
}

// families returns the largest families of the groups.
func families(groups []*group) []*family {
	type segment struct {
		scope scope
		name  string
	}
	of := map[segment]*family{}
	var all []*family
	for _, g := range groups {
		if g.exact() {
			continue
		}
		s := segment{g.scope, g.prefix[:strings.IndexByte(g.prefix, '/')+1]}
		f := of[s]
		if f == nil {
			f = &family{scope: g.scope, prefix: g.prefix}
			of[s] = f
			all = append(all, f)
		}
		f.prefix = common(f.prefix, g.prefix)
		f.groups++
	}
	all = slices.DeleteFunc(all, func(f *family) bool {
		f.prefix = readable(f.prefix)
		return f.groups < 2 || f.prefix == ""
	})
	slices.SortStableFunc(all, func(a, b *family) int { return cmp.Compare(b.groups, a.groups) })
	return all[:min(len(all), mostFamilies)]
}

// groupHeap gives out the largest group first, and of equals always the same.
type groupHeap []*group

func (h groupHeap) Len() int { return len(h) }
func (h groupHeap) Less(i, j int) bool {
	if a, b := len(h[i].deps), len(h[j].deps); a != b {
		return a > b
	}
	return h[i].id() < h[j].id()
}
func (h groupHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *groupHeap) Push(x any)   { *h = append(*h, x.(*group)) }
func (h *groupHeap) Pop() any {
	old := *h
	g := old[len(old)-1]
	*h = old[:len(old)-1]
	return g
}
