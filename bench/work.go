package main

import (
	"context"
	"fmt"
	"time"
)

// work is what both programs do in one scenario.
type work struct {
	name      string
	templates int
	// space is one program's part of the data; it is filled before the start.
	space func(name string, c *consul) space
	steps []step
	// alone says why consul-template does not take part.
	alone string
	// own says why consul-template gets a Consul of its own, with more connections.
	own     string
	idle    bool    // measure the use of the CPU, too
	maxIdle float64 // percent of a core, of jorc; 0: no target
	changes bool    // measure what each change costs, too
	memory  bool    // report memory and sockets, too
	maxRSS  float64 // MB, of jorc; 0: no target
}

// space is a program's part of Consul's data and of the templates.
type space interface {
	fill(ctx context.Context) error
	template(i int) string
	content(i int) string // of file i, as the data is now
}

// step is one kind of change.
type step struct {
	what    string
	limit   float64 // ms, of jorc; below zero: no target
	ofFloor float64 // see row
	ofPeer  float64 // see row
	samples int
	gap     time.Duration
	all     bool // every file changes
	// change makes the n-th change to item i, both in Consul and for content.
	change func(ctx context.Context, s space, i, n int) error
	note   string
}

// side is a contender with its data.
type side struct {
	*contender
	space space
	took  samples // ms, of the running step
}

// carryOut runs the scenario of w.
func (w *work) carryOut(ctx context.Context, b *bench) error {
	sides, stop, err := w.prepare(ctx, b)
	defer stop()
	if err != nil {
		return err
	}
	for _, s := range sides {
		if err := w.begin(ctx, b, s); err != nil {
			return err
		}
	}
	f, err := newFloor(ctx, b, sides[0].consul)
	if err != nil {
		return err
	}
	sleep(ctx, b.size.rest)
	for i := range w.steps {
		r, err := w.alternate(ctx, b, sides, &w.steps[i], f)
		if err != nil {
			return err
		}
		b.report.Rows = append(b.report.Rows, r)
	}
	if w.idle {
		if err := w.idleness(ctx, b, sides); err != nil {
			return err
		}
	}
	return w.costs(b, sides)
}

// prepare starts the Consuls and fills them.
func (w *work) prepare(ctx context.Context, b *bench) (sides []*side, stop func(), err error) {
	var ends []func()
	stop = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	var server *consul
	for _, program := range w.programs(b) {
		if server == nil || w.own != "" {
			limit := 0
			if program == peer {
				limit = peerLimit
			}
			if server, err = b.startConsul(ctx, limit); err != nil {
				return nil, stop, err
			}
			ends = append(ends, server.proc.kill)
		}
		c, err := b.newContender(program, server)
		if err != nil {
			return nil, stop, err
		}
		c.cost.scenario = w.name
		ends = append(ends, c.close)
		s := &side{contender: c, space: w.space("bench-"+program, server)}
		if err := s.space.fill(ctx); err != nil {
			return nil, stop, err
		}
		sides = append(sides, s)
	}
	return sides, stop, nil
}

func (w *work) programs(b *bench) []string {
	if b.programs.peer == "" || w.alone != "" {
		return []string{jorc}
	}
	return []string{jorc, peer}
}

// begin starts a side's program.
func (w *work) begin(ctx context.Context, b *bench, s *side) error {
	templates, want := make([]string, w.templates), map[string]string{}
	for i := range templates {
		templates[i] = s.space.template(i)
		want[file(i)] = s.space.content(i)
	}
	if err := s.run(ctx, b, templates, "", want); err != nil {
		return err
	}
	return s.measure()
}

// alternate makes the changes of a step, one for each side and one of the
// floor at a time. The sides change turns, too.
func (w *work) alternate(ctx context.Context, b *bench, sides []*side, st *step, f *floor) (row, error) {
	before := 0
	used := make([]usage, len(sides))
	for n := range b.size.warmUp + st.samples {
		if n == b.size.warmUp {
			before = len(f.query)
		}
		for k := range sides {
			s := sides[(k+n)%len(sides)]
			if n == b.size.warmUp {
				s.took = nil
				var err error
				if used[(k+n)%len(sides)], err = s.used(); err != nil {
					return row{}, err
				}
			}
			if err := w.sample(ctx, s, st, n); err != nil {
				return row{}, fmt.Errorf("%s: %w", st.what, err)
			}
			if err := s.settle(ctx, st.gap); err != nil {
				return row{}, err
			}
		}
		if err := f.sample(ctx, st.files(w)); err != nil {
			return row{}, fmt.Errorf("floor: %w", err)
		}
	}
	if w.changes {
		if err := w.perChange(b, sides, used, st.samples); err != nil {
			return row{}, err
		}
	}
	now := floor{query: f.query[before:], file: f.file[before:]}
	r := row{
		what: st.what, unit: "ms", limit: st.limit, ofFloor: st.ofFloor, ofPeer: st.ofPeer,
		floor: now.String(), floors: now.sums(), note: joinNotes(st.note, w.alone, w.own),
	}
	for _, s := range sides {
		if err := s.measure(); err != nil {
			return row{}, err
		}
		s.into(&r, s.took)
	}
	return r, nil
}

// sample makes one change to the next item, which is far from the last one, because
// neighbours may share a query.
func (w *work) sample(ctx context.Context, s *side, st *step, n int) error {
	i := n * stride % w.templates
	want := map[string]string{}
	begin := time.Now()
	took, err := s.changed(ctx, w, st, i, n, want)
	if err != nil {
		return fmt.Errorf("change %d, of file %d, after %s: %w", n, i, time.Since(begin).Round(time.Millisecond), err)
	}
	s.took.addMillis(took)
	return nil
}

// files is how many files one change is in.
func (st *step) files(w *work) int {
	if st.all {
		return w.templates
	}
	return 1
}

// settle returns when the program is idle after a change, at the earliest after gap:
// a program that executes all its templates is busy for long after the changed file
// is written.
func (s *side) settle(ctx context.Context, gap time.Duration) error {
	for range mostTurns {
		before, err := s.proc.cpu()
		if err != nil {
			return err
		}
		sleep(ctx, gap)
		after, err := s.proc.cpu()
		if err != nil || after == before {
			return err
		}
	}
	return nil
}

// mostTurns bounds settle for a program that is never idle.
const mostTurns = 30

// stride has no divisor in common with any number of templates.
const stride = 7919

func (s *side) changed(ctx context.Context, w *work, st *step, i, n int, want map[string]string) (time.Duration, error) {
	return s.change(ctx, want, func() error {
		err := st.change(ctx, s.space, i, n)
		if !st.all {
			want[file(i)] = s.space.content(i)
			return err
		}
		for i := range w.templates {
			want[file(i)] = s.space.content(i)
		}
		return err
	})
}

// into puts a side's samples into its column.
func (s *side) into(r *row, v samples) {
	if s.program == peer {
		r.peer = v
	} else {
		r.jorc = v
	}
}

func joinNotes(notes ...string) string {
	text := ""
	for _, n := range notes {
		if n != "" && text != "" {
			text += " "
		}
		text += n
	}
	return text
}
