package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// What a clean stop does with the services.
const (
	OnStopKeep        = "keep"
	OnStopDeregister  = "deregister"
	OnStopMaintenance = "maintenance"
)

// RegistrarOptions configure a Registrar.
type RegistrarOptions struct {
	Cluster  string   // default "default"; part of the id of jorc's own service
	OnStop   string   // one of the constants above; default OnStopKeep
	StateDir string   // where `jorc service register` stores definitions; "" = nowhere
	Owner    string   // default Owner(StateDir)
	Env      []string // for script checks, in addition to jorc's environment without secrets
	Logger   hclog.Logger
}

// Registrar registers this host's services with the local agent and keeps the
// registrations accurate: it restores missing ones, removes unconfigured ones,
// runs script checks, and sends their heartbeats. It never changes registrations
// of other owners.
type Registrar struct {
	client *consul.Client
	log    hclog.Logger
	o      RegistrarOptions

	leastTTL      time.Duration
	presenceEvery time.Duration

	wake       concurrency.Signal // something may have changed
	registered chan struct{}
	first      sync.Once
	starts     *rate.Limiter // of first runs
	nodeChecks concurrency.Latest[NodeChecks]

	mu         sync.Mutex
	configured []config.Service
	stored     []config.Service
	storedOK   bool // the directory of stored definitions was read in full
	wanted     []*registration
	rejected   []ServiceStatus        // their ids are in use
	entries    map[string]*entry      // by service id
	checks     map[string]*checkState // by check id
	agentErr   error                  // why the agent does not answer

	// Only Run's own goroutine uses these.
	runners   map[string]*runner // by check id
	wg        sync.WaitGroup     // of runners and watchers
	following string             // the node whose catalog entry is watched
	unfollow  context.CancelFunc
	backoff   *concurrency.Backoff // while the agent does not answer
}

// entry is the state of one service's registration.
type entry struct {
	registered bool
	since      time.Time
	err        error
	backoff    *concurrency.Backoff
	nextTry    time.Time
}

// NewRegistrar returns a Registrar for services. It does no I/O except that it
// reads the machine's identity if o.Owner is empty.
func NewRegistrar(client *consul.Client, services []config.Service, o RegistrarOptions) *Registrar {
	if o.OnStop == "" {
		o.OnStop = OnStopKeep
	}
	if o.Owner == "" {
		o.Owner = Owner(o.StateDir)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	r := &Registrar{
		client: client, log: o.Logger, o: o,
		leastTTL: leastTTL, presenceEvery: presenceEvery,
		wake: concurrency.NewSignal(), registered: make(chan struct{}), backoff: concurrency.NewBackoff(firstAsk, lastAsk),
		starts:   rate.NewLimiter(100, 8),
		storedOK: o.StateDir == "", configured: slices.Clone(services),
		entries: map[string]*entry{}, checks: map[string]*checkState{}, runners: map[string]*runner{},
	}
	return r
}

// Registered is closed when the first pass is complete: each service is
// registered, or its error is in Status.
func (r *Registrar) Registered() <-chan struct{} { return r.registered }

// Reload replaces the configured services. Unchanged services are not touched,
// and their checks continue. It returns at once; Run applies the change.
func (r *Registrar) Reload(services []config.Service) {
	r.mu.Lock()
	r.configured = slices.Clone(services)
	for _, e := range r.entries {
		e.nextTry = time.Time{}
	}
	r.mu.Unlock()
	r.loadStored()
	r.wake.Notify()
}

// Run publishes the services until ctx ends, then applies on_stop within a
// bounded time and returns nil. An error means that it could not start.
func (r *Registrar) Run(ctx context.Context) error {
	r.loadStored()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.watchStored(ctx) })
	g.Go(func() error {
		r.reconcile(ctx)
		r.wg.Wait()
		return nil
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("publish services: %w", err)
	}
	r.stop(context.WithoutCancel(ctx))
	return nil
}

// leaving returns the ids of unwanted services that are still registered; r.mu
// is held.
func (r *Registrar) leaving() []string {
	left := maps.Clone(r.entries)
	for _, w := range r.wanted {
		delete(left, w.id)
	}
	return slices.Sorted(maps.Keys(left))
}

// combine computes the wanted registrations: jorc's own service, the configured
// and the stored ones. A service whose id an earlier one uses is rejected. r.mu
// is held.
func (r *Registrar) combine() {
	r.wanted, r.rejected = nil, nil
	services, checks := map[string]string{}, map[string]string{} // id → its user
	add := func(w *registration, from string) {
		if err := requireFreeIDs(w, services, checks); err != nil {
			r.log.Error("service not registered", "id", w.id, "error", err)
			r.rejected = append(r.rejected, ServiceStatus{ID: w.id, Name: w.name, Stored: w.stored, Error: err.Error()})
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

// requireFreeIDs returns an error if an id of w is in use. The agent has each id
// once: two services with one id would replace each other endlessly.
func requireFreeIDs(w *registration, services, checks map[string]string) error {
	if by, ok := services[w.id]; ok {
		return fmt.Errorf("service %q: its id is already used by %s", w.id, by)
	}
	own := map[string]bool{}
	for _, c := range w.checks {
		by, ok := checks[c.id]
		if own[c.id] {
			by, ok = "another check of this service", true
		}
		if ok {
			return fmt.Errorf("service %q: the id of its check %q is already used by %s", w.id, c.id, by)
		}
		own[c.id] = true
	}
	return nil
}

// keepStates reduces the known checks to the wanted ones; r.mu is held.
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

// ServiceStatus is the status of one service of this host.
type ServiceStatus struct {
	ID, Name   string
	Registered bool      // the agent had it at the last pass
	Stored     bool      // by `jorc service register`, not from the configuration
	Presence   bool      // jorc's own service
	Since      time.Time // of Registered or, when it is false, of Error
	Error      string    // why it is not registered; "" if it is
	Checks     []CheckStatus
}

// CheckStatus is the status of one check of a service.
type CheckStatus struct {
	ID, Name string
	Kind     string // script, http, tcp, udp, grpc, h2ping, alias, ttl; presence for jorc's own
	State    string // passing, warning, critical; "" until the first result
	// Output is that of the last run. Consul shows the output of the last change
	// of State: otherwise every run would be a write to Raft.
	Output     string
	Since      time.Time // of State, since the start of this process
	LastRun    time.Time // this and the following: script checks only
	Took       time.Duration
	Runs       uint64
	Heartbeats uint64
	Error      string // of the last heartbeat
}

// Status returns jorc's own service, the wanted services in the order of the
// configuration, the services whose id is in use, and the services that are
// still to be removed.
func (r *Registrar) Status() []ServiceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]ServiceStatus, 0, len(r.entries))
	for _, w := range r.wanted {
		out = append(out, r.statusOf(w.id, w))
	}
	out = append(out, r.rejected...)
	for _, id := range r.leaving() {
		out = append(out, r.statusOf(id, nil))
	}
	return out
}

func (r *Registrar) statusOf(id string, w *registration) ServiceStatus {
	s := ServiceStatus{ID: id, Name: id}
	if w != nil {
		s.Name, s.Stored, s.Presence = w.name, w.stored, w.presence
		for _, c := range w.checks {
			if state, ok := r.checks[c.id]; ok {
				s.Checks = append(s.Checks, state.report())
			}
		}
	}
	if e, ok := r.entries[id]; ok {
		s.Registered, s.Since = e.registered, e.since
		if e.err != nil {
			s.Error = e.err.Error()
		}
	}
	if s.Error == "" && r.agentErr != nil {
		s.Error = r.agentErr.Error()
	}
	return s
}

// stopTimeout limits a clean stop.
const stopTimeout = 5 * time.Second

// SetOnStop replaces the policy for services without an on_stop of their own: one
// of the OnStop constants, OnStopKeep for "".
func (r *Registrar) SetOnStop(policy string) {
	if policy == "" {
		policy = OnStopKeep
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.OnStop = policy
	r.combine()
}

// stop applies on_stop to each service. It sends no request if all are kept.
func (r *Registrar) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	r.mu.Lock()
	want, usual := r.wanted, r.o.OnStop
	r.mu.Unlock()
	var have atAgent
	for _, w := range want {
		policy := w.onStop
		if policy == "" {
			policy = usual
		}
		if policy == OnStopKeep {
			continue
		}
		if have.services == nil {
			var err error
			if have, err = readAgent(ctx, r.client); err != nil {
				r.log.Warn("cannot apply on_stop: services unchanged", "error", err)
				return
			}
		}
		if s, ok := have.services[w.id]; !ok || s.Meta[MetaOwner] != r.o.Owner {
			continue
		}
		if err := r.stopOne(ctx, w.id, policy); err != nil && !errors.Is(err, consul.ErrNotFound) {
			r.log.Warn("cannot apply on_stop: service unchanged", "id", w.id, "error", err)
		}
	}
}

// stopOne applies a policy other than keep. It does not change an existing
// maintenance mode.
func (r *Registrar) stopOne(ctx context.Context, id, policy string) error {
	if policy == OnStopDeregister {
		return r.client.DeregisterService(ctx, id)
	}
	return r.client.SetMaintenance(ctx, id, true, stopNote)
}
