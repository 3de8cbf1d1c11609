package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// absentSpace is many keys in one template that do not exist, until they appear.
type absentSpace struct {
	consul *consul
	prefix string
	values []string
}

func newAbsentSpace(n int) func(string, *consul) space {
	return func(name string, c *consul) space {
		s := &absentSpace{consul: c, prefix: name + "/", values: make([]string, n)}
		for i := range s.values {
			s.values[i] = "none"
		}
		return s
	}
}

func (s *absentSpace) key(i int) string { return fmt.Sprintf("%sabsent-%05d", s.prefix, i) }

// fill writes nothing: the keys are absent.
func (s *absentSpace) fill(context.Context) error { return nil }

func (s *absentSpace) template(int) string {
	var b strings.Builder
	for i := range s.values {
		fmt.Fprintf(&b, "{{ keyOrDefault %q \"none\" }}\n", s.key(i))
	}
	return b.String()
}

func (s *absentSpace) content(int) string { return strings.Join(s.values, "\n") + "\n" }

// appear makes the next key exist.
func (s *absentSpace) appear(ctx context.Context, n int) error {
	i := n * stride % len(s.values)
	s.values[i] = fmt.Sprintf("appeared-%d", n)
	return s.consul.putKey(ctx, s.key(i), s.values[i])
}

// busyWrites is how many keys others write in a second.
const busyWrites = 100

// busy writes keys that nothing reads until ctx ends.
func (c *consul) busy(ctx context.Context) error {
	tick := time.NewTicker(time.Second / busyWrites)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.putKey(ctx, fmt.Sprintf("busy/%d", i%busyWrites), fmt.Sprint(i)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// absentKeys measures a template of many keys that do not exist, while others write: Consul wakes
// each query for an absent key at each write of any key. A third Consul, without a program,
// shows what the writes alone cost.
func absentKeys(ctx context.Context, b *bench) error {
	w := &work{
		name: fmt.Sprintf("%d absent keys", b.size.absent), templates: 1, space: newAbsentSpace(b.size.absent), memory: true,
		own: "Each program has a Consul of its own, whose processor time is counted: consul-template's has http_max_conns_per_client raised.",
	}
	sides, stop, err := w.prepare(ctx, b)
	defer stop()
	if err != nil {
		return err
	}
	alone, err := b.startConsul(ctx, 0)
	if err != nil {
		return err
	}
	defer alone.proc.kill()
	for _, s := range sides {
		if err := w.begin(ctx, b, s); err != nil {
			return err
		}
	}
	sleep(ctx, b.size.rest)
	writing, end := context.WithCancel(ctx)
	var writers errgroup.Group
	for _, c := range append([]*consul{alone}, consuls(sides)...) {
		writers.Go(func() error { return c.busy(writing) })
	}
	err = errors.Join(w.busyCosts(ctx, b, sides, alone), w.appearing(ctx, b, sides))
	end()
	if err := errors.Join(err, writers.Wait()); err != nil {
		return err
	}
	return w.costs(b, sides)
}

func consuls(sides []*side) (all []*consul) {
	for _, s := range sides {
		all = append(all, s.consul)
	}
	return all
}

// busyCosts measures the processor time of each program and its Consul beyond that of the Consul
// that is alone, while keys are written that no template uses.
func (w *work) busyCosts(ctx context.Context, b *bench, sides []*side, alone *consul) error {
	read := func() (own time.Duration, all []usage, err error) {
		if own, err = alone.proc.cpu(); err != nil {
			return own, nil, err
		}
		for _, s := range sides {
			u, err := s.used()
			if err != nil {
				return own, nil, err
			}
			all = append(all, u)
		}
		return own, all, nil
	}
	ownBefore, before, err := read()
	if err != nil {
		return err
	}
	sleep(ctx, b.size.busy)
	own, after, err := read()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s, %d other keys written a second for %s", w.name, busyWrites, b.size.busy)
	program := row{what: "processor time of the program, " + what, unit: "s", limit: noTarget, note: w.own}
	both := row{what: "processor time of the program and its Consul beyond that of the writes, " + what, unit: "s", limit: 0.5, note: w.own}
	for i, s := range sides {
		p, c := after[i].program-before[i].program, after[i].consul-before[i].consul-(own-ownBefore)
		s.into(&program, samples{p.Seconds()})
		s.into(&both, samples{max(p+c, 0).Seconds()})
	}
	b.report.Rows = append(b.report.Rows, program, both)
	return nil
}

// appearing measures from the write of an absent key until it is in the file, while others write.
func (w *work) appearing(ctx context.Context, b *bench, sides []*side) error {
	r := row{what: "an absent key appears → file, " + w.name, unit: "ms", limit: 500, note: w.own}
	for n := range b.size.few {
		for k := range sides {
			s := sides[(k+n)%len(sides)]
			want := map[string]string{}
			took, err := s.change(ctx, want, func() error {
				err := s.space.(*absentSpace).appear(ctx, n)
				want[file(0)] = s.space.content(0)
				return err
			})
			if err != nil {
				return fmt.Errorf("key %d: %w", n, err)
			}
			s.took.addMillis(took)
		}
	}
	for _, s := range sides {
		s.into(&r, s.took)
	}
	b.report.Rows = append(b.report.Rows, r)
	return nil
}
