package agent

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// convergeOnce makes one pass of the host's part in its cluster, with the errors
// of converge.Converger.Once. A host without static configuration only joins; the
// hold file holds it, too.
func (a *Agent) convergeOnce(ctx context.Context) error {
	c := a.generation().conf
	if !belongs(c) {
		return stopped(c.StateDir)
	}
	node, err := a.awaitClaim(ctx)
	if err != nil {
		return fmt.Errorf("this node's name could not be learned: %w", err)
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
