package agent

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// convergeOnce makes one pass of convergence and returns the errors of
// converge.Converger.Once. A host without static configuration only joins its
// cluster; the hold file prevents that, too.
func (a *Agent) convergeOnce(ctx context.Context) error {
	c := a.generation().conf
	if !participates(c) {
		return heldByFile(c.StateDir)
	}
	node, err := a.awaitClaim(ctx)
	if err != nil {
		return fmt.Errorf("cannot find out this node's name: %w", err)
	}
	p, err := a.newPart(c, node)
	if err != nil {
		return err
	}
	a.setPart(p)
	running, stop := context.WithCancel(ctx)
	g, running := errgroup.WithContext(running)
	g.Go(func() error { return p.run(running, true) })
	g.Go(func() error {
		defer stop()
		if p.converge == nil {
			return p.joinOnce(running)
		}
		_, err := p.converge.Once(running)
		return err
	})
	return g.Wait()
}
