package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// Caller is a job that waits. What cannot end before the job does is not waited for.
type Caller struct {
	Job  string // its ID on Node; its run and its lane follow from the queue of Node
	Run  string // without Job: the run that it belongs to; empty: none
	Node string // on which it runs; empty: none
}

// lane is one of a node's sequences of jobs: of members, of managers, and of gates.
type lane struct {
	node          string
	manager, gate bool
}

// laneOf is the lane of a run's job on a node.
func laneOf(r Run, node string) lane {
	return lane{node: node, manager: r.Request.OnManager, gate: r.Request.OnManager && r.Gate}
}

// lane is that of a job in a node's queue.
func (e Queued) lane(node string) lane { return lane{node, e.Manager, e.Gate} }

// caller is a Caller as a node's queue has it.
type caller struct {
	run, node string
	lanes     []lane // what is queued there waits for the caller
}

// occupies reports whether the host of node cannot converge before the caller has ended.
func (c caller) occupies(node string) bool {
	return node == c.node && slices.Contains(c.lanes, lane{node: node})
}

// find finds the caller's run. A job of a run that is no longer in its node's queue, or
// is of another cluster, waits as a person does.
func (e Caller) find(ctx context.Context, r *Runs) (caller, error) {
	if e.Job == "" {
		c := caller{run: e.Run, node: e.Node}
		if e.Node != "" {
			c.lanes = []lane{{node: e.Node}, {node: e.Node, manager: true}, {node: e.Node, manager: true, gate: true}}
		}
		return c, nil
	}
	queue, err := r.queueAt(ctx, e.Node)
	if err != nil {
		return caller{}, err
	}
	if i := queue.find(e.Job); i >= 0 {
		q := queue.Jobs[i]
		return caller{run: q.Run, node: e.Node, lanes: []lane{q.lane(e.Node)}}, nil
	}
	if strings.HasPrefix(e.Job, jobID("", 1)) {
		return caller{}, nil
	}
	return caller{node: e.Node, lanes: []lane{{node: e.Node}}}, nil
}

// wait is what a job waits for; it is kept at runs/.waits/<node>/<run> meanwhile.
type wait struct {
	Idle bool   `json:"idle,omitempty"`
	Run  string `json:"run,omitempty"`
}

// announce writes what the caller waits for, so that others do not wait for the caller. It
// returns what takes that back.
func (c caller) announce(ctx context.Context, r *Runs, g Goal) (done func(), err error) {
	if c.run == "" || c.node == "" {
		return func() {}, nil
	}
	doc := r.waits.At(c.node + "/" + c.run)
	t := r.store.Txn()
	doc.SetIn(t, wait{Idle: g.Idle, Run: g.Run})
	if _, err := t.Commit(ctx); err != nil {
		return func() {}, err
	}
	return func() {
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, _ = r.store.Txn().Delete(doc.Key()).Commit(ctx) // it is void once the run has ended
	}, nil
}

// part is what a run does on one node.
type part struct{ run, node string }

// bound is what cannot continue before a caller has ended.
type bound struct {
	caller caller
	runs   []Detail        // in progress
	places map[string]lane // of runs on a manager that are not on a node yet
	waits  map[string]wait // by node/run
	idle   bool            // the caller waits for idle

	parts map[part]bool
	lanes map[lane]part // with who holds them
}

// boundBy finds what cannot continue before the caller has ended: what is queued behind it, and
// the jobs that wait for such runs. all are the cluster's runs.
func (w *Waiter) boundBy(ctx context.Context, c caller, all []Run, idle bool) (*bound, error) {
	r := New(w.Cluster.Store())
	b := &bound{caller: c, places: map[string]lane{}, waits: map[string]wait{}, idle: idle, parts: map[part]bool{}, lanes: map[lane]part{}}
	if c.node == "" {
		return b, nil
	}
	waits, err := r.waits.List(ctx)
	if err != nil {
		return nil, err
	}
	for name, leaf := range waits {
		if leaf.Err == nil {
			b.waits[name] = leaf.Value
		}
	}
	for _, run := range all {
		if !inProgress(run) {
			continue
		}
		d, readable, err := w.detail(ctx, run.ID)
		if err != nil {
			return nil, err
		}
		if !readable || d.State.Ended() {
			continue
		}
		b.runs = append(b.runs, d)
		if !d.Request.OnManager || d.Started.IsZero() || slices.ContainsFunc(d.Members, open) {
			continue
		}
		node, err := w.placeOf(ctx, r, d.Request.Workflow)
		if err != nil {
			return nil, err
		}
		b.places[d.ID] = laneOf(d.Run, node)
	}
	b.spread()
	return b, nil
}

// placeOf is where a workflow of managers runs if it begins now.
func (w *Waiter) placeOf(ctx context.Context, r *Runs, workflow string) (string, error) {
	s, own, err := loadState(ctx, w.Cluster, cluster.NeedAgent, nil)
	if err != nil {
		return "", err
	}
	nodes, err := r.managerNow(ctx, workflow, candidates(&s, own, nil))
	return strings.Join(nodes, ""), err // at most one
}

// open reports whether a member's part has not ended.
func open(m Member) bool { return !m.State.Ended() }

// spread follows what waits for the caller until nothing new is found.
func (b *bound) spread() {
	self := part{b.caller.run, b.caller.node}
	b.parts[self] = true
	for _, l := range b.caller.lanes {
		b.lanes[l] = self
	}
	for more := true; more; {
		more = false
		for _, d := range b.runs {
			for _, m := range d.Members {
				p := part{d.ID, m.Node}
				if b.parts[p] || !open(m) {
					continue
				}
				l := laneOf(d.Run, m.Node)
				holder, held := b.lanes[l]
				waits, waiting := b.waits[m.Node+"/"+d.ID]
				waiting = waiting && m.State == Running && (waits.Idle && b.idle || waits.Run != "" && b.stuck(waits.Run))
				if waiting || held && holder != p {
					b.parts[p], more = true, true
				}
				if waiting && !held {
					b.lanes[l] = p
				}
			}
		}
	}
}

// stuck reports whether a run cannot end before the caller.
func (b *bound) stuck(run string) bool {
	if run == b.caller.run {
		return true
	}
	if l, placed := b.places[run]; placed {
		_, held := b.lanes[l]
		return held
	}
	for p := range b.parts {
		if p.run == run {
			return true
		}
	}
	return false
}

// rest reports whether all that is left of a run cannot continue before the caller has ended.
func (b *bound) rest(d Detail) bool {
	if d.ID == b.caller.run || len(d.Members) == 0 || b.places[d.ID] != (lane{}) {
		return b.stuck(d.ID)
	}
	paced := d.Request.paced(len(d.Members))
	return b.stuck(d.ID) && !slices.ContainsFunc(d.Members, func(m Member) bool {
		return open(m) && !b.parts[part{d.ID, m.Node}] && (m.Attempt > 0 || !paced)
	})
}

// leftOut are the runs for which the caller does not wait.
func (b *bound) leftOut() map[string]bool {
	all := map[string]bool{b.caller.run: b.caller.run != ""}
	for _, d := range b.runs {
		if b.rest(d) {
			all[d.ID] = true
		}
	}
	return all
}

// why is the reason for which a run cannot end before the caller; empty: it can.
func (b *bound) why(run string) string {
	switch {
	case run == b.caller.run && run != "":
		return fmt.Sprintf("run %s is the run of the job that waits for it: it cannot end first", run)
	case b.caller.node != "" && b.stuck(run):
		return fmt.Sprintf("run %s cannot end before the job on %s that waits for it: it is queued behind that job, or its own job waits for it", run, b.caller.node)
	}
	return ""
}

// begin finds the caller of a wait, and announces the wait. Without the rights for that the
// wait works as that of a person, and Warn receives what may happen.
func (w *Waiter) begin(ctx context.Context, g Goal) (c caller, done func(), err error) {
	r := New(w.Cluster.Store())
	c, err = g.Except.find(ctx, r)
	if done = func() {}; err == nil && g.Except.Job != "" {
		done, err = c.announce(ctx, r, g)
	}
	if errors.Is(err, consul.ErrDenied) {
		if w.Warn != nil {
			w.Warn(fmt.Sprintf("two jobs that wait for each other would wait until their timeouts, because they cannot see each other: %v", err))
		}
		err = nil
	}
	return c, done, err
}
