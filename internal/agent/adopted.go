package agent

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// adoptable tells whether somebody may make the host a member by hand, whose
// part in runs nothing else does.
func (p *part) adoptable() bool {
	if p.conf.Member != nil {
		return false
	}
	for _, o := range p.outposts {
		if o.cluster.Name() == p.cluster.Name() {
			return false
		}
	}
	return true
}

// adopted does the host's part in runs once it is a member by hand: there is a
// record of it, although its configuration says nothing of that. What it has
// begun then goes on when it leaves. It returns ctx's error when that has ended.
func (p *part) adopted(ctx context.Context) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := p.cluster.WatchRecord(waiting, p.node, func(u kv.Update[cluster.Record]) {
		switch {
		case u.Err != nil:
			p.log.Debug("whether this host was joined by hand cannot be read", "error", u.Err)
		case u.Entry.Exists:
			cancel(errJoined)
		}
	})
	if !errors.Is(context.Cause(waiting), errJoined) {
		return err
	}
	p.log.Info("this host was joined by hand: it does its part in runs", "cluster", p.cluster.Name())
	g, ctx := errgroup.WithContext(ctx)
	if !belongs(p.conf) {
		g.Go(func() error { return p.holds.run(ctx) })
	}
	g.Go(func() error { return p.work(ctx) })
	return g.Wait()
}
