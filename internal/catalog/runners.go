package catalog

import (
	"context"
	"reflect"
)

// runner runs one check for as long as its definition stays.
type runner struct {
	spec   checkSpec
	state  *checkState
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// syncRunners starts and ends runners so that each wanted check that jorc runs
// has one. A check whose definition is the same keeps its runner.
func (r *Registrar) syncRunners(ctx context.Context) {
	type wanted struct {
		spec  checkSpec
		state *checkState
	}
	want := map[string]wanted{}
	r.mu.Lock()
	for _, w := range r.wanted {
		for _, spec := range w.checks {
			if spec.runByJorc() {
				want[spec.id] = wanted{spec, r.checks[spec.id]}
			}
		}
	}
	r.mu.Unlock()
	for id, old := range r.runners {
		if _, ok := want[id]; !ok {
			old.cancel()
			delete(r.runners, id)
		}
	}
	for id, w := range want {
		old, ok := r.runners[id]
		if ok && old.state == w.state && reflect.DeepEqual(old.spec, w.spec) {
			continue
		}
		var after <-chan struct{}
		if ok {
			old.cancel()
			after = old.done
		}
		r.runners[id] = r.startRunner(ctx, w.spec, w.state, after)
	}
}

func (r *Registrar) startRunner(ctx context.Context, spec checkSpec, state *checkState, after <-chan struct{}) *runner {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.wg.Go(func() {
		defer close(done)
		defer cancel()
		r.runCheck(ctx, state, spec, after)
	})
	return &runner{spec: spec, state: state, cancel: cancel, done: done}
}
