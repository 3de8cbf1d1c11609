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

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// What a clean stop does with the services.
const (
	OnStopKeep        = "keep"
	OnStopDeregister  = "deregister"
	OnStopMaintenance = "maintenance"
)

// RegistrarOptions are what a Registrar needs besides the services.
type RegistrarOptions struct {
	Cluster  string   // default "default"; part of the id of jorc's own service
	OnStop   string   // one of the constants above; default OnStopKeep
	StateDir string   // where `jorc service register` leaves definitions; "" = nowhere
	Owner    string   // default Owner(StateDir)
	Env      []string // for script checks, beside jorc's own environment without secrets
	Logger   hclog.Logger
}

// Registrar publishes this host's services through the local agent and keeps
// them true: it registers again what the agent forgot or somebody removed,
// takes away what is no longer configured, runs script checks, and sends their
// heartbeats. What others registered it never touches.
type Registrar struct {
	client *consul.Client
	log    hclog.Logger
	o      RegistrarOptions

	leastTTL      time.Duration
	presenceEvery time.Duration

	attention  chan struct{} // there may be something to do
	registered chan struct{}
	first      sync.Once
	starts     *rate.Limiter // of first runs

	mu         sync.Mutex
	configured []config.Service
	stored     []config.Service
	storedOK   bool // the directory of stored definitions was read in full
	wanted     []*registration
	twice      []ServiceStatus        // left out: they want an id that is taken
	entries    map[string]*entry      // by service id
	checks     map[string]*checkState // by check id
	agentErr   error                  // the agent cannot be asked

	// Only Run's own goroutine uses these.
	runners   map[string]*runner // by check id
	wg        sync.WaitGroup     // of runners and watchers
	following string             // the node whose catalog entry is watched
	unfollow  context.CancelFunc
	pause     time.Duration // before the agent is asked again
}

// entry is how far one service has come.
type entry struct {
	registered bool
	since      time.Time
	err        error
	pause      time.Duration // grows with each failure
	nextTry    time.Time
}

// NewRegistrar returns a Registrar for services. It does no I/O but to find out
// the machine's identity when o.Owner is empty.
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
		attention: make(chan struct{}, 1), registered: make(chan struct{}),
		starts:   rate.NewLimiter(100, 8),
		storedOK: o.StateDir == "", configured: slices.Clone(services),
		entries: map[string]*entry{}, checks: map[string]*checkState{}, runners: map[string]*runner{},
	}
	return r
}

// Registered is closed when the agent has answered for every service for the
// first time: each is registered, or why it cannot be is in Status.
func (r *Registrar) Registered() <-chan struct{} { return r.registered }

// Reload replaces the configured services. What is the same stays untouched,
// its checks go on as they are. It returns at once; Run does the rest.
func (r *Registrar) Reload(services []config.Service) {
	r.mu.Lock()
	r.configured = slices.Clone(services)
	for _, e := range r.entries {
		e.nextTry = time.Time{}
	}
	r.mu.Unlock()
	r.loadStored()
	r.look()
}

// Run publishes the services until ctx ends, then does what on_stop says within
// a bounded time and returns nil. An error means that it could not even begin.
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

// look makes Run compare what is wanted with what the agent has.
func (r *Registrar) look() {
	select {
	case r.attention <- struct{}{}:
	default: // it is about to
	}
}

// leaving are the ids of services that are to go and have not gone; r.mu is held.
func (r *Registrar) leaving() []string {
	left := maps.Clone(r.entries)
	for _, w := range r.wanted {
		delete(left, w.id)
	}
	return slices.Sorted(maps.Keys(left))
}

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

// ServiceStatus is how one service of this host stands.
type ServiceStatus struct {
	ID, Name   string
	Registered bool      // the agent had it when last asked
	Stored     bool      // by `jorc service register`, not from the configuration
	Presence   bool      // jorc's own service
	Since      time.Time // of Registered or, when it is false, of Error
	Error      string    // what keeps it from being registered; "" when nothing does
	Checks     []CheckStatus
}

// CheckStatus is how one check of a service stands.
type CheckStatus struct {
	ID, Name string
	Kind     string // script, http, tcp, udp, grpc, h2ping, alias, ttl; presence for jorc's own
	State    string // passing, warning, critical; "" while nothing is known
	// Output is that of the last run. What Consul shows of a script check is the
	// output at the time its State last changed: anything else would be a write
	// to Raft for every run.
	Output     string
	Since      time.Time // of State, as far as this process knows
	LastRun    time.Time // script checks only, as the following
	Took       time.Duration
	Runs       uint64
	Heartbeats uint64
	Error      string // of the last heartbeat
}

// Status returns all wanted services in the order of the configuration,
// jorc's own first, then those that cannot be wanted because their id is taken,
// then those that are still to be removed.
func (r *Registrar) Status() []ServiceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]ServiceStatus, 0, len(r.entries))
	for _, w := range r.wanted {
		out = append(out, r.statusOf(w.id, w))
	}
	out = append(out, r.twice...)
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

// stopTimeout bounds what a clean stop does.
const stopTimeout = 5 * time.Second

// SetOnStop replaces what a clean stop does with services that do not say so
// themselves: one of the OnStop constants, OnStopKeep for "".
func (r *Registrar) SetOnStop(policy string) {
	if policy == "" {
		policy = OnStopKeep
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.OnStop = policy
	r.combine()
}

// stop does with each service what on_stop says. Nothing is asked of Consul for
// services that are kept.
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
			if have, err = askAgent(ctx, r.client); err != nil {
				r.log.Warn("services stay as they are: the agent does not answer", "error", err)
				return
			}
		}
		if s, ok := have.services[w.id]; !ok || s.Meta[MetaOwner] != r.o.Owner {
			continue
		}
		if err := r.stopOne(ctx, w.id, policy); err != nil && !errors.Is(err, consul.ErrNotFound) {
			r.log.Warn("service stays as it is", "id", w.id, "error", err)
		}
	}
}

// stopOne carries out a policy other than keep. A maintenance mode that is
// there already, whoever set it, stays as it is.
func (r *Registrar) stopOne(ctx context.Context, id, policy string) error {
	if policy == OnStopDeregister {
		return r.client.DeregisterService(ctx, id)
	}
	return r.client.SetMaintenance(ctx, id, true, stopNote)
}
