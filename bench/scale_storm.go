package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	jorcconsul "github.com/jorc/jorc/internal/consul"
)

// Targets of the return of Consul's servers to a fleet.
const (
	stormWindow    = 10 * time.Second
	maxStormAsked  = 5    // requests per agent within stormWindow
	maxStormAnswer = 1000 // ms, an answer to another
	maxStorm       = 30   // s until all agents are current
)

// stormResult is what happened when Consul's servers came back.
type stormResult struct {
	asked   tally         // of all agents within stormWindow
	answers samples       // ms, of another that asks all the time until all are current
	took    time.Duration // from the return until all agents ran the version that was triggered after stormWindow
}

// storm freezes the Consul server for as long as b.scale.away, lets it return, counts the requests, and
// triggers a version.
func (b *bench) storm(ctx context.Context, f *simulated) (r stormResult, err error) {
	if err := syscall.Kill(f.consul.proc.pid, syscall.SIGSTOP); err != nil {
		return r, fmt.Errorf("freeze Consul: %w", err)
	}
	sleep(ctx, b.scale.away)
	before, err := f.asked(ctx)
	if err == nil {
		err = b.printKinds(ctx, f, "Consul away")
	}
	if err := errors.Join(err, syscall.Kill(f.consul.proc.pid, syscall.SIGCONT)); err != nil {
		return r, fmt.Errorf("thaw Consul: %w", err)
	}
	begin := time.Now()
	others, current := context.WithCancel(ctx)
	defer current()
	var g errgroup.Group
	g.Go(func() error { return r.others(others, f.client) })
	sleep(ctx, b.scale.storm)
	after, err := f.asked(ctx)
	r.asked = after.since(before)
	if err == nil {
		err = b.printKinds(ctx, f, "Consul's return")
	}
	if err == nil {
		err = f.trigger("storm", nil)(ctx)
	}
	r.took = time.Since(begin)
	current()
	return r, errors.Join(err, g.Wait())
}

// others asks Consul all the time, as other programs do, until ctx ends. What is not answered at
// all is an error.
func (r *stormResult) others(ctx context.Context, client *jorcconsul.Client) error {
	for ctx.Err() == nil {
		begin := time.Now()
		if _, _, err := client.KVGet(ctx, "other", jorcconsul.Query{Consistent: true}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("another's request after the return: %w", err)
		}
		r.answers.addMillis(time.Since(begin))
		sleep(ctx, 20*time.Millisecond)
	}
	return nil
}
