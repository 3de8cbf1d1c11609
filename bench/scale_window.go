package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// mark is how things stood at a moment.
type mark struct {
	at          time.Time
	raft, alone uint64 // entries of the Raft logs
	asked       tally
	agents      time.Duration // processor time of this process, where the agents are
	consul      time.Duration
}

// window is what happened between two moments.
type window struct {
	took   time.Duration // until what was waited for
	writes float64       // entries that were added to the Raft log, beyond those of a Consul alone
	own    float64       // those of the Consul alone
	asked  tally
	agents time.Duration // processor time
	consul time.Duration
}

func (f *fleet) mark(ctx context.Context) (m mark, err error) {
	m.at, m.asked = time.Now(), f.traffic.now()
	if m.raft, err = f.consul.raftIndex(ctx); err != nil {
		return m, err
	}
	if m.alone, err = f.alone.raftIndex(ctx); err != nil {
		return m, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return m, err
	}
	m.agents = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	m.consul, err = f.consul.proc.cpu()
	return m, err
}

// during carries out do, lets the fleet come to rest, and tells what all that took.
func (f *fleet) during(ctx context.Context, rest time.Duration, do func(context.Context) error) (w window, err error) {
	before, err := f.mark(ctx)
	if err != nil {
		return w, err
	}
	if err := do(ctx); err != nil {
		return w, err
	}
	w.took = time.Since(before.at)
	if err := calm(ctx, f.consul, rest); err != nil {
		return w, err
	}
	after, err := f.mark(ctx)
	if err != nil {
		return w, err
	}
	w.own = float64(after.alone - before.alone)
	w.writes = max(0, float64(after.raft-before.raft)-w.own)
	w.asked = after.asked.since(before.asked)
	w.agents, w.consul = after.agents-before.agents, after.consul-before.consul
	return w, nil
}

// ok is how many writes were carried out: a conflict goes through Raft, too.
func (w window) ok() float64 { return max(0, w.writes-w.asked.conflicts) }

// ownMemory is the resident set of this process, in MB, without what the garbage
// collector could give back.
func ownMemory() (float64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	self := &process{name: "bench", pid: syscall.Getpid()}
	rss, _, err := self.memory()
	return rss, err
}
