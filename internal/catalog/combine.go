package catalog

import (
	"fmt"
)

// combine works out what is wanted: jorc's own service, the configured and the
// stored ones. One that wants an id which an earlier one has is left out. r.mu
// is held.
func (r *Registrar) combine() {
	r.wanted, r.twice = nil, nil
	services, checks := map[string]string{}, map[string]string{} // id → who has it
	add := func(w *registration, from string) {
		if err := taken(w, services, checks); err != nil {
			r.log.Error("service left out", "id", w.id, "error", err)
			r.twice = append(r.twice, ServiceStatus{ID: w.id, Name: w.name, Stored: w.stored, Error: err.Error()})
			return
		}
		services[w.id] = from
		for _, c := range w.checks {
			checks[c.id] = fmt.Sprintf("service %q", w.id)
		}
		r.wanted = append(r.wanted, w)
	}
	add(r.presence(), "jorc itself")
	for _, s := range r.configured {
		add(newRegistration(s, r.o.Owner, r.leastTTL), "the configuration")
	}
	for _, s := range r.stored {
		w := newRegistration(s, r.o.Owner, r.leastTTL)
		w.stored = true
		add(w, "jorc service register")
	}
	r.keepStates()
}

// taken says which id of w somebody has: the agent knows each id once, and two
// who want it would take it from each other for ever.
func taken(w *registration, services, checks map[string]string) error {
	if by, ok := services[w.id]; ok {
		return fmt.Errorf("service %q: its id is used by %s already", w.id, by)
	}
	own := map[string]bool{}
	for _, c := range w.checks {
		by, ok := checks[c.id]
		if own[c.id] {
			by, ok = "another check of it", true
		}
		if ok {
			return fmt.Errorf("service %q: the id of its check %q is used by %s already", w.id, c.id, by)
		}
		own[c.id] = true
	}
	return nil
}

// keepStates makes the known checks those that are wanted; r.mu is held.
func (r *Registrar) keepStates() {
	checks := make(map[string]*checkState, len(r.checks))
	for _, w := range r.wanted {
		for _, spec := range w.checks {
			c, ok := r.checks[spec.id]
			if !ok {
				c = &checkState{}
			}
			c.mu.Lock()
			c.spec = spec
			c.mu.Unlock()
			checks[spec.id] = c
		}
	}
	r.checks = checks
}
