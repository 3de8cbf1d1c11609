package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// WatchSnapshot calls handle with what Read returns, now and whenever the
// document changes, until ctx ends; then it returns ctx's error. A desired
// version that is written past the document is not seen by it.
func (r *Rollouts) WatchSnapshot(ctx context.Context, handle func(Snapshot, error)) error {
	desired := "" // by the last snapshot, which was about it
	return r.Watch(ctx, func(u kv.Update[Document]) {
		if d := u.Entry.Value; u.Err == nil && u.Entry.Exists && d.Version == desired && desired != "" {
			handle(Snapshot{Desired: desired, Document: d, Exists: true}, nil) // it goes on
			return
		}
		desired = ""
		if u.Err != nil && !errors.Is(u.Err, kv.ErrDamaged) {
			handle(Snapshot{}, u.Err) // the watch tries again
			return
		}
		for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
			s, err := r.Read(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil && s.Exists && s.Desired == s.Document.Version {
				desired = s.Desired
			}
			handle(s, err)
			if !errors.Is(err, consul.ErrUnreachable) && !errors.Is(err, consul.ErrRateLimited) {
				return
			}
			if concurrency.Sleep(ctx, wait) != nil {
				return
			}
		}
	})
}
