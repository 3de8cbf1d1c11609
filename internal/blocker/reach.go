package blocker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	dialTimeout  = time.Second
	dialsAtATime = 64
	firstRedial  = 20 * time.Millisecond
	slowRedial   = time.Second
)

// reached is the outcome of dialing endpoints.
type reached struct {
	count  int     // accepted a connection
	failed []error // of those that did not, in the order in which they failed
}

// reach dials endpoints until want of them have accepted a connection.
func reach(ctx context.Context, d *net.Dialer, endpoints []endpoint, want int) reached {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	var r reached
	var g errgroup.Group
	g.SetLimit(dialsAtATime)
	for _, e := range endpoints {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := dial(ctx, d, e)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.count++
				if r.count >= want {
					enough()
				}
			case ctx.Err() == nil:
				r.failed = append(r.failed, err)
			}
			return nil
		})
	}
	_ = g.Wait() // the outcome of each is in r
	return r
}

func dial(ctx context.Context, d *net.Dialer, e endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", e.String())
	if err != nil {
		return fmt.Errorf("%v: %w", e, cause(err))
	}
	return conn.Close()
}

// cause drops the address that net puts in front of what happened.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		if op.Timeout() {
			return errors.New("no answer")
		}
		return op.Err
	}
	return err
}
