package watch

import (
	"errors"
	"fmt"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
)

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
