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
	// Config is that of the host; Node must be set, and its state directory be there.
	Config *config.Config
	// Client reaches Consul in place of the host's own Consul agent.
	Client *consul.Client
	// Maintenance takes the place of the one that the host's Consul agent keeps.
	Maintenance converge.Maintenance
	Log         hclog.Logger
}

// Simulated is a host's part in its cluster without the rest of an agent: no
// services, templates or status API, and nothing that only a Consul agent of
// its own can do. Many of them in one process stand for a fleet.
type Simulated struct {
	part *part
}

// Simulate returns a host; it does no I/O. It fails as New does.
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

// Run does the host's part until ctx ends; then it returns nil.
func (s *Simulated) Run(ctx context.Context) error { return s.part.run(ctx, false) }

// Convergence is how the host converges; the zero Status where it has no static
// configuration.
func (s *Simulated) Convergence() converge.Status {
	if s.part.converge == nil {
		return converge.Status{}
	}
	return s.part.converge.Status()
}
