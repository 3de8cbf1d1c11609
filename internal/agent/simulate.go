package agent

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
)

// SimulatedOptions are what a Simulated host needs.
type SimulatedOptions struct {
	// Config is the host's. Node must be set and the state directory must exist.
	Config *config.Config
	// Client replaces the host's own Consul agent.
	Client *consul.Client
	// Maintenance replaces the maintenance mode of the host's Consul agent.
	Maintenance converge.Maintenance
	Log         hclog.Logger
}

// Simulated is a host's part in its cluster without the rest of an agent: no
// services, templates or status API, and nothing that needs a Consul agent of its
// own. Many of them in one process simulate a fleet.
type Simulated struct {
	part *part
}

// Simulate returns a host. It does no I/O and has the errors of New.
func Simulate(o SimulatedOptions) (*Simulated, error) {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	a := &Agent{o: Options{Log: o.Log}, client: o.Client, slots: newSlots(o.Client, o.Config), maintenance: o.Maintenance}
	p, err := a.newPart(o.Config, o.Config.Node)
	if err != nil {
		return nil, err
	}
	return &Simulated{part: p}, nil
}

// Run runs the host's part in its cluster until ctx ends; then it returns nil.
func (s *Simulated) Run(ctx context.Context) error { return s.part.run(ctx, false) }

// Convergence returns the state of the host's convergence; the zero Status if the
// host has no static configuration.
func (s *Simulated) Convergence() converge.Status {
	if s.part.converge == nil {
		return converge.Status{}
	}
	return s.part.converge.Status()
}
