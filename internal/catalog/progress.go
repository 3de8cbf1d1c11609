package catalog

import "time"

// unanswered takes that the agent could not be asked, and returns when to try
// again.
func (r *Registrar) unanswered(err error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agentErr == nil {
		r.log.Warn("services cannot be published for now", "error", err)
	}
	r.agentErr = err
	r.pause = nextPause(r.pause, firstAsk, lastAsk)
	return jitter(r.pause)
}

// answered takes that a pass came to its end. What is neither wanted nor
// anything to act on is forgotten.
func (r *Registrar) answered(seen map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agentErr != nil {
		r.log.Info("the Consul agent answers again")
	}
	r.agentErr, r.pause = nil, 0
	for _, id := range r.leaving() {
		if !seen[id] {
			delete(r.entries, id)
		}
	}
	r.first.Do(func() { close(r.registered) })
}

// done takes that a is carried out, or that there was nothing to do.
func (r *Registrar) done(a action, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.verb == doRemove {
		r.log.Info("service deregistered", "id", a.id)
		delete(r.entries, a.id)
		return
	}
	e := r.entry(a.id)
	if a.verb == doRegister {
		r.log.Info("service registered", "id", a.id, "name", a.want.name)
	}
	if a.lift {
		r.log.Info("maintenance mode of the last stop lifted", "id", a.id)
	}
	if !e.registered || e.err != nil {
		e.since = now
	}
	e.registered, e.err, e.pause, e.nextTry = true, nil, 0, time.Time{}
}

// failed takes why a service could not be brought to where it should be, and
// returns after how long to try again.
func (r *Registrar) failed(id string, err error, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fault(id, err, now)
	e.pause = nextPause(e.pause, firstTry, lastTry)
	wait := jitter(e.pause)
	e.nextTry = now.Add(wait)
	return wait
}

// refused takes who is in the way of a service. It is tried again as soon as
// that one has gone.
func (r *Registrar) refused(id string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fault(id, err, now)
	e.pause, e.nextTry = 0, time.Time{}
}

// fault notes an error of a service, and says so once; r.mu is held.
func (r *Registrar) fault(id string, err error, now time.Time) *entry {
	e := r.entry(id)
	if e.err == nil || e.err.Error() != err.Error() {
		r.log.Error("service not as it should be", "id", id, "error", err)
		e.since = now
	}
	e.registered, e.err = false, err
	return e
}

// pausing is how long a service that failed still has to wait.
func (r *Registrar) pausing(id string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok {
		return e.nextTry.Sub(now)
	}
	return 0
}

// entry returns the service's entry, made when there is none; r.mu is held.
func (r *Registrar) entry(id string) *entry {
	e, ok := r.entries[id]
	if !ok {
		e = &entry{}
		r.entries[id] = e
	}
	return e
}

// check returns what is known of a check. One that is no longer wanted gets a
// state of its own that nobody looks at.
func (r *Registrar) check(id string) *checkState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.checks[id]; ok {
		return c
	}
	return &checkState{}
}

func (r *Registrar) present(checkID string) string { return r.check(checkID).present() }

func (r *Registrar) setLive(w *registration, live bool) {
	for _, spec := range w.checks {
		r.check(spec.id).setLive(live)
	}
}
