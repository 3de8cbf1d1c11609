package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignal returns a context that SIGINT or SIGTERM ends, with the signal as its
// cause. The second signal ends the process the hard way.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &signalContext{Context: ctx, cancel: cancel}
}

// signalContext listens for signals from the first use on. A command that waits for
// nothing does without the threads that this takes, and a signal ends it as it ends any
// program.
type signalContext struct {
	context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
}

func (c *signalContext) Done() <-chan struct{} {
	c.once.Do(c.listen)
	return c.Context.Done()
}

func (c *signalContext) Err() error {
	c.once.Do(c.listen)
	return c.Context.Err()
}

func (c *signalContext) listen() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // libraries may write to os.Stderr; see keepWriteErrors
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		if s, ok := (<-signals).(syscall.Signal); ok {
			c.cancel(signalError{s})
		}
	}()
}

// hangups delivers SIGHUPs until ctx ends. Without a call a SIGHUP ends the process.
func hangups(ctx context.Context) <-chan struct{} {
	signals, out := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
