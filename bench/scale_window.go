package main

import (
	"context"
	"errors"
	"time"
)

// mark is how things stood at a moment.
type mark struct {
	at          time.Time
	raft, alone uint64 // entries of the Raft logs
	asked       tally
	operator    float64       // writes of this process
	agents      time.Duration // processor time of the host processes
	consul      time.Duration
	clients     time.Duration // of the Consul agents in front of the hosts
}

// window is what happened between two moments.
type window struct {
	took   time.Duration // until what was waited for
	span   time.Duration // that was counted: the fleet came to rest in it
	writes float64       // entries that were added to the Raft log, beyond those of a Consul alone
	own    float64       // those of the Consul alone
	asked  tally

	operator                float64       // of the writes, those of this process: a version is triggered
	agents, consul, clients time.Duration // processor time
}

func (f *simulated) mark(ctx context.Context) (m mark, err error) {
	m.at, m.operator = time.Now(), f.operator.now().Writes
	if m.asked, err = f.asked(ctx); err != nil {
		return m, err
	}
	if m.raft, err = f.consul.raftIndex(ctx); err != nil {
		return m, err
	}
	if m.alone, err = f.alone.raftIndex(ctx); err != nil {
		return m, err
	}
	used := func(p *process, sum *time.Duration) {
		t, failed := p.cpu()
		*sum += t
		err = errors.Join(err, failed)
	}
	for _, h := range f.hosts {
		used(h.proc, &m.agents)
	}
	for _, c := range f.clients {
		used(c.proc, &m.clients)
	}
	used(f.consul.proc, &m.consul)
	return m, err
}

// during carries out do, lets the fleet come to rest, and tells what all that took.
func (f *simulated) during(ctx context.Context, rest time.Duration, do func(context.Context) error) (w window, err error) {
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
	w.span = after.at.Sub(before.at)
	w.own = float64(after.alone - before.alone)
	w.writes = max(0, float64(after.raft-before.raft)-w.own)
	w.asked = after.asked.since(before.asked)
	w.agents, w.consul, w.clients = after.agents-before.agents, after.consul-before.consul, after.clients-before.clients
	w.operator = after.operator - before.operator
	return w, nil
}

// ok is how many writes were carried out, apart from those of this process: a conflict
// goes through Raft, too.
func (w window) ok() float64 { return max(0, w.writes-w.asked.Conflicts-w.operator) }
