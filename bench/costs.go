package main

import (
	"context"
	"fmt"
	"time"
)

// maxSockets is the standard of consul.max_connections.
const maxSockets = 64

// idleness measures the processor time of all sides while nothing changes.
func (w *work) idleness(ctx context.Context, b *bench, sides []*side) error {
	sleep(ctx, b.size.rest)
	before := make([]time.Duration, len(sides))
	begin := time.Now()
	for i, s := range sides {
		var err error
		if before[i], err = s.proc.cpu(); err != nil {
			return err
		}
	}
	sleep(ctx, b.size.idle)
	r := row{what: fmt.Sprintf("idle CPU, %s", w.name), unit: "% of a core", limit: orNone(w.maxIdle), note: w.own}
	for i, s := range sides {
		used, err := s.proc.cpu()
		if err != nil {
			return err
		}
		s.into(&r, samples{100 * float64(used-before[i]) / float64(time.Since(begin))})
	}
	b.report.Rows = append(b.report.Rows, r)
	return nil
}

// costs reports memory, sockets and the time of the start.
func (w *work) costs(b *bench, sides []*side) error {
	rss := row{what: "RSS, " + w.name, unit: "MB", limit: orNone(w.maxRSS), note: joinNotes(w.alone, w.own)}
	sockets := row{what: "sockets to Consul, " + w.name, limit: maxSockets, note: rss.note}
	for _, s := range sides {
		if err := s.measure(); err != nil {
			return err
		}
		s.into(&rss, samples{s.cost.rss})
		s.into(&sockets, samples{float64(s.cost.sockets)})
		b.report.Processes = append(b.report.Processes, s.cost)
	}
	if w.memory {
		b.report.Rows = append(b.report.Rows, rss, sockets)
	}
	return nil
}

// orNone returns limit, or noTarget for zero.
func orNone(limit float64) float64 {
	if limit == 0 {
		return noTarget
	}
	return limit
}

// startUp starts both programs n times in turn, each time with everything
// fresh, and measures until the last file is there.
func (w *work) startUp(ctx context.Context, b *bench) error {
	r := row{what: "start → all files, " + w.name, unit: "s", limit: noTarget, note: w.own}
	for range b.size.starts {
		took, err := w.startOnce(ctx, b)
		if err != nil {
			return err
		}
		r.jorc = append(r.jorc, took[jorc].Seconds())
		if t, ok := took[peer]; ok {
			r.peer = append(r.peer, t.Seconds())
		}
	}
	b.report.Rows = append(b.report.Rows, r)
	return nil
}

func (w *work) startOnce(ctx context.Context, b *bench) (map[string]time.Duration, error) {
	sides, stop, err := w.prepare(ctx, b)
	defer stop()
	if err != nil {
		return nil, err
	}
	took := map[string]time.Duration{}
	for _, s := range sides {
		if err := w.begin(ctx, b, s); err != nil {
			return nil, err
		}
		took[s.program] = s.cost.start
	}
	return took, nil
}
