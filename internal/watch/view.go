package watch

import (
	"sort"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
)

// hold is a service that a template's guard keeps as it was.
type hold struct {
	since time.Time
	verdict
}

// guarded is the data as one template may see it.
type guarded struct {
	store    *store
	guard    guard
	now      time.Time
	accepted map[string]any  // what the file is made of: services only
	holds    map[string]hold // of the last execution
	fileHas  bool            // the destination holds something, though nobody knows of what
	snapshot map[string]any  // last good data of an earlier process; nil unless it may be used
	next     map[string]hold // of this one
}

// recall implements view.
func (v *guarded) recall(d *dependency) (any, bool) {
	datum := v.store.get(d.id)
	if !datum.known {
		value, ok := v.snapshot[d.id]
		if past, known := v.accepted[d.id]; ok && known {
			return past, true // the guard did not let go of it
		}
		return value, ok
	}
	switch next := datum.value.(type) {
	case []*dep.HealthService:
		return v.recallService(d, next)
	case []*dep.CatalogSnippet:
		return v.recallNames(d, next), true
	}
	return datum.value, true
}

// recallService keeps the instances of a service as they were while the guard
// says so.
func (v *guarded) recallService(d *dependency, next []*dep.HealthService) (any, bool) {
	past, known := v.accepted[d.id]
	had, _ := past.([]*dep.HealthService)
	since := v.now
	if h, ok := v.holds[d.id]; ok {
		since = h.since
	}
	verdict := v.guard.judge(d, had, next, known || !v.fileHas, since)
	if !verdict.hold || !verdict.until.IsZero() && !v.now.Before(verdict.until) {
		return next, true
	}
	v.next[d.id] = hold{since: since, verdict: verdict}
	return past, known
}

// recallNames keeps the name of a service that has vanished in the list of all
// services for as long as a list of its instances would be kept: templates
// range over the names.
func (v *guarded) recallNames(d *dependency, next []*dep.CatalogSnippet) []*dep.CatalogSnippet {
	had, _ := v.accepted[d.id].([]*dep.CatalogSnippet)
	there := make(map[string]bool, len(next))
	for _, s := range next {
		there[s.Name] = true
	}
	var kept []*dep.CatalogSnippet
	for _, s := range had {
		if there[s.Name] {
			continue
		}
		id := d.id + "\x00" + s.Name
		since := v.now
		if h, ok := v.holds[id]; ok {
			since = h.since
		}
		verdict := v.guard.judgeName(s.Name, since)
		if verdict.hold && (verdict.until.IsZero() || v.now.Before(verdict.until)) {
			v.next[id] = hold{since: since, verdict: verdict}
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		return next
	}
	all := append(kept, next...)
	sort.Stable(dep.ByName(all))
	return all
}

// wake is the earliest time at which a hold would end; zero if none will.
func wake(holds map[string]hold) time.Time {
	var first time.Time
	for _, h := range holds {
		if !h.until.IsZero() && (first.IsZero() || h.until.Before(first)) {
			first = h.until
		}
	}
	return first
}
