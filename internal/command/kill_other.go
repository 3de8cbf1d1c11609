//go:build !linux

package command

import (
	"errors"
	"time"
)

// StartTime is not known outside Linux.
func StartTime(int) string { return "" }

// Kill is not supported outside Linux: without pidfds another process may get the number.
func Kill(int, func() bool, time.Duration) error { return errors.ErrUnsupported }
