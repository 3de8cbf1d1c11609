package catalog

import (
	"context"
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
