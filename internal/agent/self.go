package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
)

// Pauses after questions that Consul did not answer, the first and the longest:
// there may be no news for a long time.
const (
	firstAsk = time.Second
	lastAsk  = 30 * time.Second
)

// WatchSelf calls handle with what this host knows of itself, and whenever that
// changes, until ctx ends: its member record and who leads, its checks, and the
// cluster's filter.
func (p *part) WatchSelf(ctx context.Context, handle func(rollout.Self)) error {
	news := make(chan struct{}, 1)
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	var profiles concurrency.Latest[kv.Update[profile.Document]]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.holds.self.Watch(ctx, func(rollout.Self) { tell() }) })
	g.Go(func() error { return p.checks.Watch(ctx, func([]string) { tell() }) })
	g.Go(func() error {
		return p.cluster.WatchProfile(ctx, func(u kv.Update[profile.Document]) { profiles.Set(u); tell() })
	})
	g.Go(func() error {
		var again <-chan time.Time
		wait := firstAsk
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-news:
			case <-again:
			}
			again = nil
			self, known := p.holds.self.Get()
			failing, seen := p.checks.failing.Get()
			u, read := profiles.Get()
			if !known || !seen || !read {
				continue
			}
			belongs, err := true, u.Err
			if err == nil {
				belongs, err = p.cluster.Belongs(ctx, u.Entry.Value, p.node)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, cluster.ErrNoMember) {
				p.log.Warn("cannot tell whether the cluster's filter leaves this host out", "error", err)
				var none *cluster.FilterError
				if u.Err == nil && !errors.As(err, &none) {
					again, wait = time.After(wait), min(2*wait, lastAsk)
				}
				continue
			}
			wait = firstAsk
			self.Outside, self.Sick = err == nil && !belongs, len(failing) > 0
			handle(self)
		}
	})
	return g.Wait()
}
