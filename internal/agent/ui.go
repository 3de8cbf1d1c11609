package agent

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/ui"
)

// fleetUI shows the clusters that this host orchestrates to a team. A nil fleetUI does
// nothing.
type fleetUI struct {
	fleets *ui.Fleets
	server *ui.Server
	// watchers are those of the orchestrators, by cluster.
	watchers map[string]*concurrency.Latest[*fleet.Watcher]
}

// newFleetUI is nil without a ui block.
func newFleetUI(c *config.Config, client *consul.Client, pages ui.Pages, log hclog.Logger) (*fleetUI, error) {
	clusters := orchestratedClusters(c)
	if c.UI == nil || len(clusters) == 0 {
		return nil, nil
	}
	u := &fleetUI{watchers: map[string]*concurrency.Latest[*fleet.Watcher]{}}
	for _, name := range clusters {
		u.watchers[name] = new(concurrency.Latest[*fleet.Watcher])
	}
	u.fleets = ui.NewFleets(ui.FleetOptions{
		Client: client, Prefix: c.Prefix, Default: clusters[0], Only: clusters, Watchers: u.watchers, Log: log,
	})
	var err error
	u.server, err = ui.New(ui.Options{Addr: c.UI.Address, Fleets: u.fleets, Pages: pages, Consul: c.Consul, TLS: c.UI.TLS, Log: log})
	return u, err
}

// watcher is what an orchestrator shares its watcher of a cluster through; nil: it is not
// shown.
func (u *fleetUI) watcher(name string) *concurrency.Latest[*fleet.Watcher] {
	if u == nil {
		return nil
	}
	return u.watchers[name]
}

func (u *fleetUI) listen(ctx context.Context) error {
	if u == nil {
		return nil
	}
	return u.server.Listen(ctx)
}

// run shows the fleet until ctx ends.
func (u *fleetUI) run(ctx context.Context) error {
	if u == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return u.fleets.Run(ctx) })
	g.Go(func() error { return u.server.Run(ctx) })
	return g.Wait()
}
