package blocker

import (
	"errors"
	"fmt"

	"github.com/jorc/jorc/internal/consul"
)

// ErrTimedOut is wrapped by a TimeoutError.
var ErrTimedOut = errors.New("timed out")

// TimeoutError ends a wait whose time, or tries, ran out. It is ErrTimedOut,
// and consul.ErrUnreachable too when Consul never answered.
type TimeoutError struct {
	States []State // of all needs
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("timed out: %s", summary(e.States)) }

// Answered tells whether Consul answered at all.
func (e *TimeoutError) Answered() bool {
	for _, s := range e.States {
		if s.Answered {
			return true
		}
	}
	return false
}

// Is makes errors.Is see what the error means.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimedOut || target == consul.ErrUnreachable && !e.Answered()
}

// DeniedError ends a wait for services that the token may not read. It is
// consul.ErrDenied.
type DeniedError struct {
	States []State // of all needs
}

func (e *DeniedError) Error() string { return fmt.Sprintf("denied by ACLs: %s", summary(e.States)) }

// Unwrap makes errors.Is find consul.ErrDenied.
func (e *DeniedError) Unwrap() error { return consul.ErrDenied }
