package orchestrator

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// AskFor is Ask with a patience of its own.
func AskFor(ctx context.Context, s *kv.Store, by string, patience time.Duration) (*Report, error) {
	return ask(ctx, s, by, patience)
}
