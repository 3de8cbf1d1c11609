package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// Shortest and longest pause before a request to an agent that does not answer,
// and before another attempt to register a service.
const (
	firstAsk, lastAsk = 200 * time.Millisecond, 2 * time.Second
	firstTry, lastTry = time.Second, 30 * time.Second
)

// reconcile compares the wanted registrations with the agent's and corrects
// them, each time something may have changed, until ctx ends.
func (r *Registrar) reconcile(ctx context.Context) {
	// Limits the requests if another program keeps changing a service.
	pace := rate.NewLimiter(5, 10)
	for {
		r.syncRunners(ctx)
		again := r.pass(ctx)
		var due <-chan time.Time
		if again > 0 {
			due = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake.C():
		case <-due:
		}
		if pace.Wait(ctx) != nil {
			return
		}
	}
}

// pass compares and corrects once. again is the time until the next pass at the
// latest; zero means that only a change requires one.
func (r *Registrar) pass(ctx context.Context) (again time.Duration) {
	have, err := readAgent(ctx, r.client)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		return r.agentFailed(err)
	}
	r.mu.Lock()
	want, mayRemove := r.wanted, r.storedOK
	r.mu.Unlock()
	r.adopt(ctx, want, have)

	changed := false
	seen := map[string]bool{}
	for _, a := range plan(want, have, r.o.Owner) {
		if a.verb == doRemove && !mayRemove {
			continue
		}
		seen[a.id] = true
		wait, did, err := r.apply(ctx, a, have)
		if ctx.Err() != nil {
			return 0
		}
		if err != nil {
			return r.agentFailed(err)
		}
		changed = changed || did
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	r.passed(seen)
	switch {
	case changed:
		r.wake.Notify() // to verify it at the agent
	case r.following == "":
		r.nodeChecks.Set(NodeChecks{}) // the agent has no check, and gets none
	}
	return again
}

// readAgent reads the agent's services and checks. It needs no servers.
func readAgent(ctx context.Context, client *consul.Client) (have atAgent, err error) {
	if have.services, err = client.AgentServices(ctx, ""); err != nil {
		return have, err
	}
	have.checks, err = client.AgentChecks(ctx, "")
	return have, err
}

// adopt takes over the agent's states of the checks of our services.
func (r *Registrar) adopt(ctx context.Context, want []*registration, have atAgent) {
	now := time.Now()
	for _, w := range want {
		s, ok := have.services[w.id]
		if !ok || s.Meta[MetaOwner] != r.o.Owner {
			continue
		}
		for _, spec := range w.checks {
			if at, ok := have.checks[spec.id]; ok {
				r.check(spec.id).adopt(at, now)
			}
		}
	}
	for _, at := range have.checks { // all are of the agent's node
		r.follow(ctx, at.Node)
		return
	}
}

// apply carries out a. did reports whether the agent was changed; wait is the
// rest of a pause after a failure. An error means that the agent does not answer.
func (r *Registrar) apply(ctx context.Context, a action, have atAgent) (wait time.Duration, did bool, err error) {
	now := time.Now()
	if a.verb == doRegister || a.verb == doRemove {
		if wait := r.pausing(a.id, now); wait > 0 {
			return wait, false, nil
		}
	}
	switch a.verb {
	case doRefuse:
		r.setLive(a.want, false)
		r.refused(a.id, conflictError(a), now)
		return 0, false, nil
	case doRemove:
		if err = r.client.DeregisterService(ctx, a.id); errors.Is(err, consul.ErrNotFound) {
			err = nil
		}
	case doRegister:
		err = put(ctx, r.client, a, r.currentStatus)
	}
	if err == nil && a.lift {
		err = r.client.SetMaintenance(ctx, a.id, false, "")
	}
	if err != nil {
		if concernsAgent(err) {
			return 0, false, err
		}
		return r.failed(a.id, explain(err, a), now), false, nil
	}
	r.done(a, now)
	if a.want != nil {
		r.setLive(a.want, true)
		r.beatDiffering(ctx, a.want, have)
	}
	return 0, a.verb != doNothing, nil
}

// put registers a's service and deregisters checks that are no longer part of it.
func put(ctx context.Context, client *consul.Client, a action, known func(checkID string) string) error {
	if err := client.AmendService(ctx, a.want.withStates(known)); err != nil {
		return err
	}
	for _, id := range a.stale {
		if err := client.DeregisterCheck(ctx, id); err != nil && !errors.Is(err, consul.ErrNotFound) {
			return err
		}
	}
	return nil
}

// beatDiffering sends heartbeats for the checks whose status at the agent
// differs from jorc's.
func (r *Registrar) beatDiffering(ctx context.Context, w *registration, have atAgent) {
	for _, spec := range w.checks {
		if !spec.runByJorc() {
			continue
		}
		c := r.check(spec.id)
		if at, ok := have.checks[spec.id]; !ok || at.Status != c.current() {
			r.beat(ctx, c)
		}
	}
}

// concernsAgent reports whether err concerns the agent rather than one service.
func concernsAgent(err error) bool {
	return errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrRateLimited) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// conflictError returns the error of a doRefuse.
func conflictError(a action) error {
	by := "another program than jorc"
	if a.owner != "" {
		by = "another jorc (" + a.owner + ")"
	}
	if a.check != "" {
		return fmt.Errorf("service %q: the id of its check %q is registered by %s, which jorc does not change; choose another id", a.id, a.check, by)
	}
	return fmt.Errorf("service %q: its id is registered by %s, which jorc does not change; "+
		"choose another id, or remove that registration with: jorc service deregister %s", a.id, by, a.id)
}

// explain adds the missing ACL right to err.
func explain(err error, a action) error {
	if a.want != nil && errors.Is(err, consul.ErrDenied) {
		return fmt.Errorf("service %q: the token lacks service:write on %q: %w", a.id, a.want.name, err)
	}
	if errors.Is(err, consul.ErrDenied) {
		return fmt.Errorf("service %q: the token lacks service:write on it: %w", a.id, err)
	}
	return err
}

// agentFailed records that the agent does not answer, and returns the pause
// before the next attempt.
func (r *Registrar) agentFailed(err error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agentErr == nil {
		r.log.Warn("cannot publish services, will retry", "error", err)
	}
	r.agentErr = err
	return r.backoff.Next()
}

// passed records that a pass is complete. It drops the entries of services that
// are neither wanted nor at the agent.
func (r *Registrar) passed(seen map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agentErr != nil {
		r.log.Info("the Consul agent answers again")
	}
	r.agentErr = nil
	r.backoff.Reset()
	for _, id := range r.leaving() {
		if !seen[id] {
			delete(r.entries, id)
		}
	}
	r.first.Do(func() { close(r.registered) })
}

// done records that a is complete.
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
		r.log.Info("maintenance mode of the last stop ended", "id", a.id)
	}
	if !e.registered || e.err != nil {
		e.since = now
	}
	e.registered, e.err, e.nextTry = true, nil, time.Time{}
	e.backoff.Reset()
}

// failed records why a service could not be registered or removed, and returns
// the pause before the next attempt.
func (r *Registrar) failed(id string, err error, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fault(id, err, now)
	wait := e.backoff.Next()
	e.nextTry = now.Add(wait)
	return wait
}

// refused records which registration is in the way of a service. The service is
// tried again as soon as that registration is gone.
func (r *Registrar) refused(id string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fault(id, err, now)
	e.backoff.Reset()
	e.nextTry = time.Time{}
}

// fault records an error of a service, and logs it once; r.mu is held.
func (r *Registrar) fault(id string, err error, now time.Time) *entry {
	e := r.entry(id)
	if e.err == nil || e.err.Error() != err.Error() {
		r.log.Error("service not registered as configured", "id", id, "error", err)
		e.since = now
	}
	e.registered, e.err = false, err
	return e
}

// pausing returns the rest of the pause of a service that failed.
func (r *Registrar) pausing(id string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok {
		return e.nextTry.Sub(now)
	}
	return 0
}

// entry returns the service's entry, a new one if it has none; r.mu is held.
func (r *Registrar) entry(id string) *entry {
	e, ok := r.entries[id]
	if !ok {
		e = &entry{backoff: concurrency.NewBackoff(firstTry, lastTry)}
		r.entries[id] = e
	}
	return e
}

// check returns the state of a check; for a check that is no longer wanted, a
// new state that is not stored.
func (r *Registrar) check(id string) *checkState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.checks[id]; ok {
		return c
	}
	return &checkState{}
}

func (r *Registrar) currentStatus(checkID string) string { return r.check(checkID).current() }

func (r *Registrar) setLive(w *registration, live bool) {
	for _, spec := range w.checks {
		r.check(spec.id).setLive(live)
	}
}

// follow watches the node's services and checks in the catalog, each with one
// blocking query, and wakes reconcile when something changed: a service was
// deregistered, or a check of Consul's has a new result. Both queries go through
// the local agent, so their connections break when it stops; after that, and
// while no server answers, each failed attempt wakes reconcile, which finds
// services that the agent lost in a restart. If the token may not read the
// catalog, a heartbeat that finds no check wakes it.
//
// It does nothing if it watches the node already.
func (r *Registrar) follow(ctx context.Context, node string) {
	if node == r.following {
		return
	}
	if r.unfollow != nil {
		r.unfollow()
	}
	ctx, r.unfollow = context.WithCancel(ctx)
	r.following = node
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (*consul.CatalogNode, consul.Meta, error) {
		return r.client.CatalogNode(ctx, node, q)
	}, nil)
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
		return r.client.HealthNode(ctx, node, q)
	}, func(all consul.HealthChecks) { r.nodeChecks.Set(NodeChecks{Node: node, Checks: all}) })
}

// watchFor wakes reconcile at each update of source, and passes complete answers
// to keep, if it is not nil.
func watchFor[T any](ctx context.Context, r *Registrar, source consul.Source[T], keep func(T)) {
	r.wg.Go(func() {
		// Watch returns only when ctx ends.
		_ = consul.Watch(ctx, r.client, consul.Query{}, source, func(u consul.Update[T]) {
			if keep != nil && u.Err == nil && !u.Meta.Filtered {
				keep(u.Value)
			}
			if !errors.Is(u.Err, consul.ErrDenied) {
				r.wake.Notify()
			}
		})
	})
}

// NodeChecks is the health of the node of the local Consul agent. Node is empty
// while the agent has no check by which Run learns the node's name.
type NodeChecks struct {
	Node   string
	Checks consul.HealthChecks
}

// NodeChecks returns the node's checks as the catalog last had them, kept current
// while Run runs. So other components need no query of their own.
func (r *Registrar) NodeChecks() *concurrency.Latest[NodeChecks] { return &r.nodeChecks }
