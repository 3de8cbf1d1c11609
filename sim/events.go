package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// event is something that happens to the fleet at a time of the plan.
type event struct {
	at         time.Duration
	number     int
	kind, what string
	do         func(ctx context.Context)
}

// operator asks for what operators ask for.
type operator struct {
	w        *world
	client   *consul.Client
	cluster  *fleet.Cluster
	stages   *stage.Stages
	rollouts *rollout.Rollouts
	runs     *runs.Runs
	snapshot *consulmodel.Snapshot
}

func newOperator(w *world, client *consul.Client) *operator {
	c := fleet.New(client, "jorc", "default")
	return &operator{w: w, client: client, cluster: c, stages: stage.New(c.Store()), rollouts: rollout.New(client, "jorc", "default"), runs: runs.New(c.Store())}
}

func (o *operator) trigger(ctx context.Context, version string, policy func(*pace.Policy)) error {
	_, err := o.rollouts.Trigger(ctx, rollout.Request{Version: version, Policy: policy, By: "op"})
	return err
}

// call has an operator do something that takes at most a minute. What fails was refused or met a fault.
func (o *operator) call(ctx context.Context, do func(context.Context) error) {
	o.w.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := do(ctx)
		o.w.net.mu.Lock()
		defer o.w.net.mu.Unlock()
		o.w.traceLocked("an operator's call ends: %v", err)
	})
}

// op is an event in which an operator does something.
func (w *world) op(kind, what string, do func(context.Context) error) event {
	return event{kind: kind, what: what, do: func(ctx context.Context) { w.operator.call(ctx, do) }}
}

// plan makes the events of a seed.
func (w *world) plan() []event {
	r := chance(w.o.Seed, "plan")
	length := time.Duration(10+r.IntN(30)) * time.Minute
	var all []event
	count := 10 + r.IntN(40)
	if len(w.o.Dense) > 0 {
		count = 120
	}
	for i := range count {
		e := w.event(r)
		for from := w.event; len(w.o.Dense) > 0 && e.kind != w.o.Dense[i%len(w.o.Dense)]; e = from(r) {
			if slices.Contains(filed, w.o.Dense[i%len(w.o.Dense)]) {
				from = w.fileEvent
			}
		}
		e.at = time.Duration(r.Int64N(int64(length)))
		all = append(all, e)
	}
	slices.SortFunc(all, inTime)
	// From sources of their own, so that the others are the same with and without them.
	if !w.o.Without["freeze"] {
		all = append(all, w.freezes(chance(w.o.Seed, "freezes"), length)...)
	}
	if w.o.staged() && len(w.o.Dense) == 0 {
		r := chance(w.o.Seed, "contents")
		for range r.IntN(12) {
			e := w.fileEvent(r)
			e.at = time.Duration(r.Int64N(int64(length)))
			all = append(all, e)
		}
	}
	for i := range all {
		all[i].number = i
	}
	slices.SortStableFunc(all, inTime)
	return all
}

func inTime(a, b event) int { return cmp.Compare(a.at, b.at) }

// freezes makes the events in which processes stand still for a while, as in a virtual machine that is moved.
func (w *world) freezes(r *rand.Rand, length time.Duration) (all []event) {
	for range r.IntN(6) {
		at, who, span := time.Duration(r.Int64N(int64(length))), r.IntN(64), time.Duration(r.ExpFloat64()*float64(time.Minute))
		kind, p := "host frozen", func() *process { return &w.hosts[who%len(w.hosts)].process }
		if r.IntN(2) == 0 {
			kind, p = "orchestrator frozen", func() *process { return w.orchestrators[who%len(w.orchestrators)] }
		}
		all = append(all, event{at: at, kind: kind, what: fmt.Sprintf("%s (%d) for %v", kind, who, span), do: func(context.Context) { w.freeze(p(), span) }})
	}
	return all
}

// event makes one event.
func (w *world) event(r *rand.Rand) event {
	n := r.IntN(100)
	who, number, span := r.IntN(64), 1+r.IntN(3), time.Duration(r.ExpFloat64()*float64(time.Minute))
	host := func() *host { return w.hosts[who%len(w.hosts)] }
	switch {
	case n < 20:
		version, policy := fmt.Sprint("v", 1+r.IntN(9)), policyOf(r)
		return w.op("trigger", "trigger "+version+" "+policy.String(), func(ctx context.Context) error {
			return w.operator.trigger(ctx, version, func(p *pace.Policy) { *p = policy })
		})
	case n < 34:
		wipe, reboot := r.IntN(8) == 0, r.IntN(3) == 0
		return event{kind: "host killed", what: fmt.Sprintf("kill a host (%d) for %v, wiped %v, reboot %v", who, span, wipe, reboot), do: func(ctx context.Context) {
			h := host()
			if err := h.crash(wipe, reboot); err != nil {
				w.fail("crash: %v", err)
			}
			w.later(ctx, span, h.begin)
		}}
	case n < 42:
		return event{kind: "orchestrator killed", what: fmt.Sprintf("kill an orchestrator (%d) for %v", who, span), do: func(ctx context.Context) {
			o := w.orchestrators[who%len(w.orchestrators)]
			o.kill()
			w.later(ctx, span, o.begin)
		}}
	case n < 48:
		return event{kind: "host cut off", what: fmt.Sprintf("cut a host off (%d) for %v", who, span), do: func(context.Context) { w.cut(&host().process, span) }}
	case n < 52:
		return event{kind: "orchestrator cut off", what: fmt.Sprintf("cut an orchestrator off (%d) for %v", who, span), do: func(context.Context) {
			w.cut(w.orchestrators[who%len(w.orchestrators)], span)
		}}
	case n < 55:
		return event{kind: "Consul without leader", what: fmt.Sprintf("no leader for %v", span), do: func(context.Context) {
			w.net.mu.Lock()
			defer w.net.mu.Unlock()
			w.net.outage = time.Now().Add(span)
		}}
	case n < 58:
		return event{kind: "snapshot", what: "snapshot", do: func(context.Context) {
			w.net.change(func(m *consulmodel.Model) { w.operator.snapshot = m.Snapshot() })
		}}
	case n < 60:
		return event{kind: "restore", what: "restore the snapshot", do: func(ctx context.Context) { w.restore(ctx, min(span, time.Minute)) }}
	case n < 63:
		return event{kind: "session destroyed", what: fmt.Sprintf("destroy a session (%d)", who), do: func(context.Context) {
			w.net.change(func(m *consulmodel.Model) {
				if ids, _ := m.Sessions(); len(ids) > 0 {
					m.EndSession(ids[who%len(ids)], time.Now())
				}
			})
		}}
	case n < 69:
		return event{kind: "check fails", what: fmt.Sprintf("a check fails (%d) for %v", who, span), do: func(ctx context.Context) { w.sicken(ctx, host(), span) }}
	case n < 76:
		return w.op("budget", fmt.Sprintf("budget %d", number), func(ctx context.Context) error {
			_, err := w.operator.cluster.SetBudget(ctx, &pace.Budget{MaxOut: pace.Amount{N: number}, Since: time.Now().UTC(), By: "op"})
			return err
		})
	case n < 85:
		within := time.Hour
		if number == 1 {
			within = time.Minute
		}
		return event{kind: "lease", what: fmt.Sprintf("lease of a host (%d) for %v", who, span), do: func(ctx context.Context) { w.lease(ctx, host(), span, within) }}
	case n < 88:
		return w.op("run", "run patch", func(ctx context.Context) error {
			_, _, err := w.operator.runs.Ask(ctx, runs.NewID(time.Now()), runs.Request{Workflow: "patch"}, "op")
			return err
		})
	}
	return w.operated(r, host)
}

// operated is an event of an operator who steers what runs.
func (w *world) operated(r *rand.Rand, host func() *host) event {
	stop := rollout.Stop{By: "op", Reason: "sim"}
	hold := func() cluster.Hold { return cluster.Hold{Since: time.Now().UTC().Truncate(time.Second), By: "op"} }
	switch r.IntN(9) {
	case 0:
		return w.op("rollout paused", "pause the rollout", func(ctx context.Context) error { _, _, err := w.operator.rollouts.Pause(ctx, stop); return err })
	case 1:
		return w.op("rollout resumed", "resume the rollout", func(ctx context.Context) error { _, _, err := w.operator.rollouts.Resume(ctx); return err })
	case 2:
		return w.op("rollout aborted", "abort the rollout", func(ctx context.Context) error { _, _, err := w.operator.rollouts.Abort(ctx, stop); return err })
	case 3:
		return w.op("give up", "give a host up", func(ctx context.Context) error {
			_, err := w.operator.rollouts.GiveUp(ctx, host().name, "op", "sim")
			return err
		})
	case 4:
		return w.op("cluster paused", "pause the cluster", func(ctx context.Context) error { _, err := w.operator.cluster.Pause(ctx, hold()); return err })
	case 5:
		return w.op("cluster resumed", "resume the cluster", func(ctx context.Context) error { _, err := w.operator.cluster.Resume(ctx); return err })
	case 6:
		return w.op("host held", "hold a host", func(ctx context.Context) error {
			_, err := w.operator.cluster.Hold(ctx, cluster.Scope{Node: host().name}, hold())
			return err
		})
	case 7:
		return w.op("host released", "release a host", func(ctx context.Context) error {
			_, err := w.operator.cluster.Unhold(ctx, cluster.Scope{Node: host().name}, hold())
			return err
		})
	}
	return w.op("rollback", "roll back", func(ctx context.Context) error {
		_, err := w.operator.rollouts.Rollback(ctx, rollout.Request{By: "op"}, "sim")
		return err
	})
}

func policyOf(r *rand.Rand) pace.Policy {
	p := pace.Policy{MaxParallel: pace.Amount{N: 1 + r.IntN(2)}, MaxFailures: r.IntN(3)}
	if r.IntN(3) == 0 {
		p.Canary = 1
		p.MinHealthy = pace.Duration(10 * time.Second)
	}
	if r.IntN(4) == 0 {
		p.MinHealthy = pace.Duration(time.Duration(r.IntN(60)) * time.Second)
	}
	if r.IntN(5) == 0 {
		p.Batches = []pace.Amount{{N: 50, Percent: true}, {N: 100, Percent: true}}
	}
	if r.IntN(5) == 0 {
		p.OnFailure = pace.OnFailureRollback
	}
	if r.IntN(6) == 0 {
		p.NodeDeadline = pace.Duration(2 * time.Minute)
	}
	return p
}

// later does something after a time, unless the simulation is over.
func (w *world) later(ctx context.Context, after time.Duration, do func()) {
	w.running.Go(func() {
		if sleep(ctx, after) == nil {
			do()
		}
	})
}

func (w *world) cut(p *process, span time.Duration) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if p.link != nil {
		p.link.cut = time.Now().Add(span)
	}
}

func (w *world) freeze(p *process, span time.Duration) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if p.link != nil {
		p.link.frozen = time.Now().Add(span)
	}
}

// restore restores the snapshot. After a time the hosts' Consul agents tell the servers again what checks they have.
func (w *world) restore(ctx context.Context, after time.Duration) {
	if w.operator.snapshot == nil {
		return
	}
	w.net.change(func(m *consulmodel.Model) {
		m.Restore(w.operator.snapshot, time.Now())
		w.check.rebuild(time.Now())
		for _, h := range w.hosts {
			h.stale = true
		}
	})
	w.later(ctx, after, func() {
		for _, h := range w.hosts {
			w.net.change(h.tell)
		}
	})
}

// tell has Consul's servers know the checks of a host. The network's mutex is held.
func (h *host) tell(m *consulmodel.Model) {
	h.sick, h.stale = time.Now(), false // it may have been until now
	h.world.check.sickened(h)
	maintenance := ""
	if h.maintenance {
		maintenance = consul.HealthCritical
	}
	h.checked(m)
	m.SetCheck(h.name, consul.NodeMaintenance, maintenance, h.reason)
}

func (w *world) sicken(ctx context.Context, h *host, span time.Duration) {
	w.net.change(func(m *consulmodel.Model) {
		h.sick, h.failing = time.Now(), true
		w.check.sickened(h)
		h.checked(m)
	})
	w.later(ctx, span, func() { w.heal(h) })
}

func (w *world) heal(h *host) {
	w.net.change(func(m *consulmodel.Model) {
		if !h.sick.IsZero() {
			h.sick = time.Now() // it was, until now
			w.check.sickened(h)
		}
		h.failing = false
		h.checked(m)
	})
}

// holder is the host's lease, and the link of its agent; nil: it does not run.
func (h *host) holder() (lease.Holder, *link) {
	h.world.net.mu.Lock()
	defer h.world.net.mu.Unlock()
	return h.simulated.Lease(), h.link
}

// lease asks for a lease on a host within a time, does something for a while, and gives it back.
func (w *world) lease(ctx context.Context, h *host, span, within time.Duration) {
	holder, l := h.holder()
	if l == nil {
		return
	}
	w.running.Go(func() {
		asking, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		got, err := holder.Begin(asking, lease.Request{ID: "sim", Reason: "sim", For: within}, func(lease.Status) {})
		w.net.mu.Lock()
		w.traceLocked("%s lease: %+v %v", l.name, got, err)
		w.net.mu.Unlock()
		if err == nil && sleep(ctx, span) != nil || l.dead.Load() {
			return
		}
		if err := holder.End(asking, "sim"); err != nil {
			w.net.mu.Lock()
			w.traceLocked("%s lease ends: %v", l.name, err)
			w.net.mu.Unlock()
		}
	})
}

// settle ends all faults, has operators answer what waits for them, and returns nil when everything has come to
// its end.
func (w *world) settle(ctx context.Context) error {
	w.net.mu.Lock()
	w.net.rate, w.net.failing, w.net.outage = 0, false, time.Time{}
	w.net.mu.Unlock()
	for _, h := range w.hosts {
		w.cut(&h.process, 0)
		w.freeze(&h.process, 0)
		h.begin()
		w.heal(h)
	}
	for _, o := range w.orchestrators {
		w.cut(o, 0)
		w.freeze(o, 0)
		o.begin()
	}
	if err := sleep(ctx, 3*time.Minute); err != nil { // what is late arrives, and outages are noticed
		return err
	}
	o := w.operator
	for _, h := range w.hosts {
		h.begin() // one that was to start later
		holder, _ := h.holder()
		w.running.Go(func() { _ = holder.End(ctx, "") }) // what does not end is found below
		if _, err := o.cluster.Unhold(ctx, cluster.Scope{Node: h.name}, cluster.Hold{By: "op"}); err != nil {
			return fmt.Errorf("release %s: %w", h.name, err)
		}
	}
	if _, err := o.cluster.Resume(ctx); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if _, err := o.cluster.SetBudget(ctx, &pace.Budget{MaxOut: pace.Amount{N: 2}, Since: time.Now().UTC(), By: "op"}); err != nil {
		return fmt.Errorf("budget: %w", err)
	}
	if w.o.staged() {
		if err := errors.Join(o.resumeStage(ctx), o.fill(ctx, contents[len(contents)-1])); err != nil {
			return fmt.Errorf("stage: %w", err)
		}
	}
	if err := o.trigger(ctx, "final", func(p *pace.Policy) { *p = pace.Policy{MaxParallel: pace.Amount{N: 2}, MaxFailures: 10} }); err != nil {
		return fmt.Errorf("trigger: %w", err)
	}
	if err := w.await(ctx, 90*time.Minute, func() error { return w.at("final", contents[len(contents)-1]) }); err != nil {
		s, failed := o.rollouts.Show(ctx)
		stages, unknown := stage.Show(ctx, o.cluster, "", nil, time.Now())
		return fmt.Errorf("%w; the rollout is %s, waits for %q, out are %+v, %v; stages: %+v, %v", err, s.StateText(), s.Waits, s.Out, failed, stages, unknown)
	}
	return w.await(ctx, 10*time.Minute, func() error { return errors.Join(w.projected(), w.ended(ctx)) })
}

// ended returns an error unless the rollout is done.
func (w *world) ended(ctx context.Context) error {
	s, err := w.operator.rollouts.Load(ctx)
	if err == nil && !s.Document.Over() {
		err = fmt.Errorf("the rollout is %s", s.Document.Phase)
	}
	return err
}
