package converge

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is how a single pass ends.
type Outcome string

// Outcomes.
const (
	Converged Outcome = "converged" // or nothing is desired
	Failed    Outcome = "failed"
	Held      Outcome = "held"    // or paused
	Pending   Outcome = "pending" // something was missing until ctx ended, or a reboot is needed
)

// Errors of Once; compare with errors.Is.
var (
	ErrFailed  = errors.New("did not converge")
	ErrHeld    = errors.New("convergence is stopped")
	ErrPending = errors.New("not converged yet")
)

// Once makes one pass: this host converges, fails, or is held; what is missing
// is waited for until ctx ends. The error is nil when it converged, and else
// ErrFailed, ErrHeld or ErrPending with what is the matter.
func (c *Converger) Once(ctx context.Context) (Status, error) {
	c.once = true
	err := c.run(ctx)
	s := c.Status()
	if s.Outcome == "" {
		s.Outcome = Pending
	}
	if s.Detail == "" {
		s.Detail = "nothing could be found out in time"
	}
	switch s.Outcome {
	case Converged:
		return s, nil
	case Failed:
		return s, fmt.Errorf("%w: %s", ErrFailed, s.Detail)
	case Held:
		return s, fmt.Errorf("%w: %s", ErrHeld, s.Detail)
	case Pending:
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return s, fmt.Errorf("%w: %s: %w", ErrPending, s.Detail, err)
	}
	return s, fmt.Errorf("%w: %s", ErrPending, s.Detail)
}
