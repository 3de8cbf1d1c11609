package watch

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/profile"
)

// watchParams follows the params of this host's member, once for all templates.
func (s *sources) watchParams(ctx context.Context, d *dependency) {
	_ = s.params.Watch(ctx, func(p profile.Params, err error) { // it ends with ctx's error only
		s.send(ctx, []change{{id: d.id, value: p, err: err, at: time.Now()}})
	})
}
