package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/jorc/jorc/internal/consul"
)

// Bounds of the pauses before an agent that does not answer is asked again,
// and before a service that was refused is tried again.
const (
	firstAsk, lastAsk = 200 * time.Millisecond, 2 * time.Second
	firstTry, lastTry = time.Second, 30 * time.Second
)

// reconcile compares what is wanted with what the agent has, and acts, each
// time there is a reason to, until ctx ends.
func (r *Registrar) reconcile(ctx context.Context) {
	// Whoever fights with jorc over a service does not make it hammer the agent.
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
		case <-r.attention:
		case <-due:
		}
		if pace.Wait(ctx) != nil {
			return
		}
	}
}

// pass is one comparison. again is when there must be another one at the
// latest; zero leaves it to what happens.
func (r *Registrar) pass(ctx context.Context) (again time.Duration) {
	have, err := askAgent(ctx, r.client)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		return r.unanswered(err)
	}
	r.mu.Lock()
	want, mayRemove := r.wanted, r.storedOK
	r.mu.Unlock()
	r.learn(ctx, want, have)

	changed := false
	seen := map[string]bool{}
	for _, a := range plan(want, have, r.o.Owner) {
		if a.verb == doRemove && !mayRemove {
			continue
		}
		seen[a.id] = true
		wait, did, err := r.attend(ctx, a, have)
		if ctx.Err() != nil {
			return 0
		}
		if err != nil {
			return r.unanswered(err)
		}
		changed = changed || did
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	r.answered(seen)
	if changed {
		r.look() // to see it with the agent's eyes
	}
	return again
}

// askAgent reads what the agent has: from the agent alone, servers need not
// answer.
func askAgent(ctx context.Context, client *consul.Client) (have atAgent, err error) {
	if have.services, err = client.AgentServices(ctx, ""); err != nil {
		return have, err
	}
	have.checks, err = client.AgentChecks(ctx, "")
	return have, err
}

// learn takes what the agent says of the checks of our services.
func (r *Registrar) learn(ctx context.Context, want []*registration, have atAgent) {
	now := time.Now()
	node := ""
	for _, w := range want {
		s, ok := have.services[w.id]
		if !ok || s.Meta[MetaOwner] != r.o.Owner {
			continue
		}
		for _, spec := range w.checks {
			if at, ok := have.checks[spec.id]; ok {
				node = at.Node
				r.check(spec.id).learn(at, now)
			}
		}
	}
	if node != "" {
		r.follow(ctx, node)
	}
}

// attend carries out a. did tells that the agent was changed; wait is the rest
// of a pause after a failure. An error means that the agent does not answer.
func (r *Registrar) attend(ctx context.Context, a action, have atAgent) (wait time.Duration, did bool, err error) {
	now := time.Now()
	if a.verb == doRegister || a.verb == doRemove {
		if wait := r.pausing(a.id, now); wait > 0 {
			return wait, false, nil
		}
	}
	switch a.verb {
	case doRefuse:
		r.setLive(a.want, false)
		r.refused(a.id, foreign(a), now)
		return 0, false, nil
	case doRemove:
		if err = r.client.DeregisterService(ctx, a.id); errors.Is(err, consul.ErrNotFound) {
			err = nil
		}
	case doRegister:
		err = put(ctx, r.client, a, r.present)
	}
	if err == nil && a.lift {
		err = r.client.SetMaintenance(ctx, a.id, false, "")
	}
	if err != nil {
		if unanswered(err) {
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

// put registers a's service and takes away checks that are no longer part of it.
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

// beatDiffering sends heartbeats for the checks of which the agent thinks
// otherwise than jorc.
func (r *Registrar) beatDiffering(ctx context.Context, w *registration, have atAgent) {
	for _, spec := range w.checks {
		if !spec.runByJorc() {
			continue
		}
		c := r.check(spec.id)
		if at, ok := have.checks[spec.id]; !ok || at.Status != c.present() {
			r.beat(ctx, c)
		}
	}
}

// unanswered tells failures that concern the agent from those of one service.
func unanswered(err error) bool {
	return errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrRateLimited) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// foreign says who is in the way.
func foreign(a action) error {
	by := "somebody else than jorc"
	if a.owner != "" {
		by = "another jorc (" + a.owner + ")"
	}
	if a.check != "" {
		return fmt.Errorf("service %q: the id of its check %q is registered by %s and left alone; give this one another id", a.id, a.check, by)
	}
	return fmt.Errorf("service %q: its id is registered by %s and left alone; "+
		"give this one another id, or remove that one with: jorc service deregister %s", a.id, by, a.id)
}

// explain names the right that is missing.
func explain(err error, a action) error {
	if a.want != nil && errors.Is(err, consul.ErrDenied) {
		return fmt.Errorf("service %q: the token lacks service:write on %q: %w", a.id, a.want.name, err)
	}
	if errors.Is(err, consul.ErrDenied) {
		return fmt.Errorf("service %q: the token lacks service:write on it: %w", a.id, err)
	}
	return err
}

// nextPause doubles pause between two bounds.
func nextPause(pause, first, last time.Duration) time.Duration {
	return min(max(2*pause, first), last)
}

// jitter is between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

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

// follow watches everything from which it shows that the agent's services are
// no longer what they were, each by a blocking query that only ever wakes
// reconcile:
//
//   - jorc's own service at the agent: the connection breaks when the agent
//     goes, and the service is unknown when it came back empty. This needs no
//     servers.
//   - the node's services in the catalog: somebody deregistered one.
//   - the node's checks in the catalog: what Consul's own checks found.
//
// A node that is followed already stays so.
func (r *Registrar) follow(ctx context.Context, node string) {
	if node == r.following {
		return
	}
	if r.unfollow != nil {
		r.unfollow()
	}
	ctx, r.unfollow = context.WithCancel(ctx)
	r.following = node
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (*consul.AgentService, consul.Meta, error) {
		return r.client.AgentService(ctx, PresenceID(r.o.Cluster), q)
	})
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (*consul.CatalogNode, consul.Meta, error) {
		return r.client.CatalogNode(ctx, node, q)
	})
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
		return r.client.HealthNode(ctx, node, q)
	})
}

func watchFor[T any](ctx context.Context, r *Registrar, source consul.Source[T]) {
	r.wg.Go(func() {
		// It ends with ctx only, and has nothing to add then.
		_ = consul.Watch(ctx, r.client, consul.Query{}, source, func(u consul.Update[T]) {
			if !errors.Is(u.Err, consul.ErrDenied) {
				r.look()
			}
		})
	})
}
