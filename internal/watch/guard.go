package watch

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

// guard keeps a service in a file as it was, rather than let it lose more
// instances than the template's configuration allows. It holds back one
// service; the rest of the file keeps changing.
type guard struct {
	least       map[string]int // service → instances
	shrink      int            // most instances lost at once, or per cent of them; 0 = no limit
	percent     bool
	shrinkAfter time.Duration // 0 = never believed
	emptyAfter  time.Duration
	allowEmpty  bool
}

func newGuard(c *config.Template) (guard, error) {
	g := guard{
		least: c.MinInstances, shrinkAfter: c.ShrinkAfter,
		emptyAfter: c.EmptyAfter, allowEmpty: c.AllowEmpty,
	}
	if c.MaxShrink == "" {
		return g, nil
	}
	digits, percent := strings.CutSuffix(c.MaxShrink, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 {
		return g, fmt.Errorf("template %q: max_shrink %q is neither a count nor a percentage", c.Name, c.MaxShrink)
	}
	g.shrink, g.percent = n, percent
	return g, nil
}

// verdict says whether a service's new list is held back.
type verdict struct {
	hold  bool
	why   string
	until time.Time // when it would be believed; zero: not before it changes
}

// check decides about the instances of service d. had is what the file is made
// of now; known is false when that is unknown. since is when the present hold
// began, or now.
func (g guard) check(d *dependency, had, next []*dep.HealthService, known bool, since time.Time) verdict {
	if least := g.least[d.name]; len(next) < least {
		return verdict{hold: true, why: fmt.Sprintf("%s has %s, min_instances is %d", d.shownName(), text.Count(len(next), "instance", "instances"), least)}
	}
	if g.allowEmpty && len(next) == 0 {
		return verdict{}
	}
	if len(next) == 0 && (len(had) > 0 || !known) {
		return verdict{
			hold: true, until: since.Add(g.emptyAfter),
			why: fmt.Sprintf("%s has no instance left, empty_after is %s", d.shownName(), g.emptyAfter),
		}
	}
	gone := countGone(had, next)
	if g.shrink > 0 && gone > g.mostGone(len(had)) {
		v := verdict{hold: true, why: fmt.Sprintf("%s would lose %d of %d instances, max_shrink is %s", d.shownName(), gone, len(had), g.limit())}
		if g.shrinkAfter > 0 {
			v.until = since.Add(g.shrinkAfter)
		}
		return v
	}
	return verdict{}
}

// checkName decides about a service that is no longer in the list of all
// services.
func (g guard) checkName(name string, since time.Time) verdict {
	if g.least[name] > 0 {
		return verdict{hold: true, why: fmt.Sprintf("%s is no longer registered, min_instances is %d", name, g.least[name])}
	}
	if g.allowEmpty {
		return verdict{}
	}
	return verdict{
		hold: true, until: since.Add(g.emptyAfter),
		why: fmt.Sprintf("%s is no longer registered, empty_after is %s", name, g.emptyAfter),
	}
}

func (g guard) mostGone(had int) int {
	if g.percent {
		return had * g.shrink / 100
	}
	return g.shrink
}

func (g guard) limit() string {
	if g.percent {
		return fmt.Sprintf("%d%%", g.shrink)
	}
	return strconv.Itoa(g.shrink)
}

func countGone(had, next []*dep.HealthService) int {
	there := make(map[string]bool, len(next))
	for _, s := range next {
		there[instanceKey(s)] = true
	}
	gone := 0
	for _, s := range had {
		if !there[instanceKey(s)] {
			gone++
		}
	}
	return gone
}

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
	fileHas  bool            // the destination is not empty, and it is unknown what it is made of
	snapshot map[string]any  // last good data of an earlier process; nil unless it may be used
	next     map[string]hold // of this one; nil: none
	tooMuch  *dependency     // whose data cannot be read as there is too much of it; nil: none
}

func (v *guarded) hold(id string, since time.Time, verdict verdict) {
	if v.next == nil {
		v.next = map[string]hold{}
	}
	v.next[id] = hold{since: since, verdict: verdict}
}

// recall implements view.
func (v *guarded) recall(d *dependency) (any, bool) {
	datum := v.store.get(d.id)
	if errors.Is(datum.err, consul.ErrTooLong) {
		v.tooMuch = d
		return nil, false
	}
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
	verdict := v.guard.check(d, had, next, known || !v.fileHas, since)
	if !verdict.hold || !verdict.until.IsZero() && !v.now.Before(verdict.until) {
		return next, true
	}
	v.hold(d.id, since, verdict)
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
		verdict := v.guard.checkName(s.Name, since)
		if verdict.hold && (verdict.until.IsZero() || v.now.Before(verdict.until)) {
			v.hold(id, since, verdict)
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

// What the parts of lists count in addition to their texts: the memory that they take.
const (
	pairCost     = 128 // of a list of keys
	instanceCost = 512 // of a service; nodes are alike
)

// sizeOf is how many bytes of template_options { max_data } a value takes.
func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case []*dep.KeyPair:
		n := pairCost * len(v)
		for _, p := range v {
			n += len(p.Path) + len(p.Value)
		}
		return n
	case []*dep.HealthService:
		return instanceCost * len(v)
	case []*dep.CatalogSnippet:
		return pairCost * len(v)
	case []*dep.Node:
		return instanceCost * len(v)
	}
	return 0
}

// answerOf is how long an answer of Consul may be that holds size bytes for templates:
// values are base64 in it, and what sizeOf adds for each pair covers the rest.
func answerOf(size int) int64 { return int64(size)*4/3 + 64<<10 }

// tooMuchError holds a template's file: it reads more than it may.
type tooMuchError struct {
	data  *dependency // with which it is too much
	limit int
}

func (e *tooMuchError) Error() string {
	return fmt.Sprintf("the template reads more than template_options { max_data = %d } allows, with %s: let it read less, or raise the limit", e.limit, e.data)
}

func isTooMuch(err error) bool {
	var e *tooMuchError
	return errors.As(err, &e)
}

// leastRefused is the size from which a value is refused. Smaller ones are in the store
// before the next execution finds that they are too much.
const leastRefused = 4 << 10

// refuse returns c, or an error in its place when the value is too much for all templates
// that use it: together with what else they have read it is more than one template may
// read. It is not kept.
func (e *Engine) refuse(c change) change {
	delete(e.refused, c.id)
	size := sizeOf(c.value)
	if c.err != nil || size < leastRefused {
		return c
	}
	had := e.store.size(c.id)
	for _, u := range e.index[c.id] {
		for _, t := range u.templates {
			if t.used.has(c.id) && t.size-had+size <= e.o.Allow.MaxData {
				return c
			}
		}
	}
	e.refused[c.id] = size
	return change{id: c.id, at: c.at, err: fmt.Errorf("%w: %d bytes, with what else its templates read", consul.ErrTooLong, size)}
}

// count brings the sizes of templates in line with the store after a change.
func (e *Engine) count(id string) {
	added := e.store.recount(id)
	if added == 0 {
		return
	}
	for _, u := range e.index[id] {
		for _, t := range u.templates {
			if !t.used.has(id) {
				continue
			}
			t.size += added
			if added < 0 {
				e.readRefused(t)
			}
		}
	}
}

// fit counts the data of a template that uses other data than before.
func (e *Engine) fit(t *tmpl) {
	t.size = 0
	for _, d := range t.used {
		t.size += e.store.size(d.id)
	}
	e.readRefused(t)
}

// readRefused reads again what was refused and would now be accepted for t.
func (e *Engine) readRefused(t *tmpl) {
	for id, size := range e.refused {
		if t.used.has(id) && t.size-e.store.size(id)+size <= e.o.Allow.MaxData {
			delete(e.refused, id)
			e.sources.restart(id)
			e.replan = time.Now()
		}
	}
}

// users counts the templates that use any of deps.
func (e *Engine) users(deps []*dependency) int {
	units := map[*unit]bool{}
	n := 0
	for _, d := range deps {
		for _, u := range e.index[d.id] {
			if !units[u] {
				units[u] = true
				n += len(u.templates)
			}
		}
	}
	return n
}
