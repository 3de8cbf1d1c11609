package schedule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait implements Clock with one timer of the kernel, which follows the wall clock
// through sleep, and ends early when the clock is set.
func (SystemClock) Wait(ctx context.Context, t time.Time) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create a timer: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timer")
	defer func() { _ = f.Close() }() // it is only read
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(t.UnixNano(), 1))}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &spec, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	_, err = f.Read(make([]byte, 8))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, unix.ECANCELED):
		return nil
	}
	return err
}
