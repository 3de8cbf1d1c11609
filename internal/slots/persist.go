package slots

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// Pauses between attempts while Consul does not answer.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// persist does something again and again until Consul has answered. What is
// done must be so that doing it twice is harmless.
func persist(ctx context.Context, do func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := do()
		passing := errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrOutcomeUnknown) || errors.Is(err, consul.ErrRateLimited)
		if !passing {
			return err
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			t.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-t.C:
		}
	}
}
