package watch

import (
	"cmp"
	"slices"
)

// plan is how the wanted dependencies are fetched within a budget of blocking
// queries.
type plan struct {
	groups []*group      // keys
	own    []*dependency // services and others that have a query of their own
	shared []*dependency // services that share a wake-up
}

// sharedCost is the number of queries that a shared wake-up blocks on.
const sharedCost = 3

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
	}
	return p
}

// shareable tells whether the checks and services of the own datacenter wake
// up a service's watcher.
func shareable(d *dependency) bool { return d.kind == kindService && d.scope == scope{} }
