package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// waiter is one way to wait for a service.
type waiter struct {
	argv   []string      // without the service
	each   int           // it takes part in every so many rounds
	pause  time.Duration // between its polls
	took   samples       // ms
	asking samples       // DNS queries per second while idle
}

// The registration and the end of a process are in both times. What remains above the
// floor is the query of Consul's DNS, whose answer the wait is for.
const (
	maxWaitRatio  = 1.15
	waitFloorNote = "The peer is bench/testdata/waitfloor, built in this run: it makes one blocking query with consul/api and exits when the service " +
		"has a passing instance. The programs take turns."
)

const waitNote = "wait4x is not built here; its loop is `jorc wait --tries --try-sleep`, which asks, sleeps and asks again. The clock runs from the " +
	"request that registers the service to the end of the process. wait4x itself was once measured with 354 ms at 1 s and 8.6 ms at 10 ms."

// waitForService measures how soon `jorc wait` leaves, and what it asks
// meanwhile, beside plain polling.
func waitForService(ctx context.Context, b *bench) error {
	c, err := b.startConsul(ctx, 0)
	if err != nil {
		return err
	}
	defer c.proc.kill()
	f, err := newFloor(ctx, b, c)
	if err != nil {
		return err
	}
	dir, err := b.place("waitfloor")
	if err != nil {
		return err
	}
	program, err := buildFloor(ctx, dir, "waitfloor")
	if err != nil {
		return err
	}
	floor := &waiter{argv: []string{program, c.http}, each: 1}
	slow := max(1, b.size.few/20)
	waiters := []*waiter{
		b.waiter(c, c.dns, 1, 0),
		b.waiter(c, c.dns, 2, 10*time.Millisecond),
		b.waiter(c, c.dns, slow, time.Second),
		floor,
	}
	for n := range b.size.few {
		for i, w := range waiters {
			if n%w.each != 0 {
				continue
			}
			if err := w.sample(ctx, b, c, fmt.Sprintf("bench-wait-%d-%d", n, i)); err != nil {
				return err
			}
		}
		if err := f.sample(ctx, 1); err != nil {
			return err
		}
	}
	own, polling := waiters[0], waiters[1:3]
	for _, w := range waiters[:3] {
		if err := w.idle(ctx, b, c); err != nil {
			return err
		}
	}
	var ratio samples
	for i, took := range own.took {
		ratio = append(ratio, took/floor.took[i])
	}
	b.report.Rows = append(b.report.Rows, row{
		what: "`jorc wait`: registered → exit; peer: a program that makes one blocking query", unit: "ms",
		jorc: own.took, peer: floor.took, limit: noTarget, floor: number(f.query.quantile(0.5)), note: waitFloorNote,
	}, row{
		what: "`jorc wait`: registered → exit, of that of a program that makes one blocking query", unit: "×",
		jorc: ratio, limit: maxWaitRatio, note: waitFloorNote,
	})
	for _, w := range polling {
		b.report.Rows = append(b.report.Rows, row{
			what: fmt.Sprintf("`jorc wait`: registered → exit; peer: polling every %s", w.pause), unit: "ms",
			jorc: own.took, peer: w.took, limit: noTarget, floor: number(f.query.quantile(0.5)), note: waitNote,
		}, row{
			what: fmt.Sprintf("`jorc wait`: DNS queries while idle; peer: polling every %s", w.pause), unit: "/s",
			jorc: own.asking, peer: w.asking, limit: 1, note: "Counted by a proxy before Consul's DNS, UDP and TCP, from the third second on.",
		})
	}
	return nil
}

// waiter is `jorc wait`; with a pause it polls.
func (b *bench) waiter(c *consul, dns string, each int, pause time.Duration) *waiter {
	w := &waiter{each: each, pause: pause, argv: []string{b.programs.jorc, "wait", "--http-addr", c.http, "--dns-addr", dns, "--timeout", "60s"}}
	if pause > 0 {
		w.argv = append(w.argv, "--tries", "100000", "--try-sleep", pause.String())
	}
	return w
}

func (w *waiter) start(b *bench, service string) (*process, error) {
	return start(b.dir, filepath.Base(w.argv[0])+"-wait", append(slices.Clip(w.argv), service))
}

// sample starts a waiter and, when it waits, registers the service.
func (w *waiter) sample(ctx context.Context, b *bench, c *consul, service string) error {
	p, err := w.start(b, service)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := connected(ctx, p, c.http); err != nil {
		return err
	}
	sleep(ctx, 60*time.Millisecond+rand.N(w.pause+1)) // it has asked once, and is anywhere in its pause
	begin := time.Now()
	in := instance{node: "bench", service: service, id: service, address: "10.0.0.3", port: 80, status: "passing"}
	if err := c.register(ctx, in); err != nil {
		return err
	}
	end, err := p.wait(ctx)
	w.took.addMillis(end.Sub(begin))
	return err
}

// connected returns when p has a connection to address.
func connected(ctx context.Context, p *process, address string) error {
	for {
		n, err := p.sockets(address)
		if err != nil || n > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return p.died()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// idle counts what a waiter asks while there is nothing.
func (w *waiter) idle(ctx context.Context, b *bench, c *consul) error {
	proxy, err := newDNSProxy(c.dns)
	if err != nil {
		return err
	}
	defer proxy.close()
	p, err := b.waiter(c, proxy.address, 1, w.pause).start(b, "bench-absent")
	if err != nil {
		return err
	}
	defer p.kill()
	sleep(ctx, 2*time.Second)
	begin := time.Now()
	sleep(ctx, b.size.idle)
	w.asking = samples{proxy.rate(begin)}
	_, err = p.proc("stat") // it must still be there
	return err
}
