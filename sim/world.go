// Package sim runs a fleet in one process: hosts, orchestrators and operators are the product's code over a model of
// Consul, in a bubble with a clock of its own. What happens follows from a seed: how long requests take, which are lost
// or doubled, which processes are killed, what operators ask for. While it runs, a checker compares each
// change of the KV with the invariants; at the end, when faults are over, everything must end.
package sim

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/fleet"
)

// Options say what is simulated.
type Options struct {
	Seed uint64
	Dir  string       // for the hosts' disks
	Skip map[int]bool // events that are left out, by number
	// Without are kinds of faults that do not happen, of Kinds.
	Without map[string]bool
	Calm    bool // nothing fails: no request is lost or doubled, and only what operators ask for happens
	// Dense, if not empty, are the only kinds of events that are planned: many of them, while more requests than otherwise fail.
	Dense []string
	// Late: of the requests only writes fail, many of them, and they arrive after their sender has given up: nothing but what they
	// compare keeps an old decision from being carried out.
	Late bool
	Log  hclog.Logger // of the product; nil: none
	// Trace, if not nil, gets what happens, a line each.
	Trace func(string)
}

// Result is how a simulation went.
type Result struct {
	Steps  uint64         // requests that Consul carried out
	Took   time.Duration  // by the simulation's clock
	Offers int            // grants that were offered
	Most   int            // hosts out of service for grants at the same time
	Faults map[string]int // by kind
	Events []Event        // what was planned and not left out, in order
	Failed string         // the first violation; empty: none
}

// Event is something that was planned.
type Event struct {
	Number int
	Text   string
}

// Kinds of faults beside the planned ones: requests and answers that are late or lost, requests that arrive twice; and
// processes that are frozen, which is planned, too.
// "stage" leaves out the stage of the hosts, and what operators do with it.
var Kinds = []string{"delay", "loss", "double", "freeze", "stage"}

// Invariant returns the number of the invariant that was violated, as Failed names it.
func (r Result) Invariant() string {
	_, what, _ := strings.Cut(r.Failed, ": ")
	number, _, _ := strings.Cut(what, ":")
	return number
}

// world is one simulation.
type world struct {
	o             Options
	dir           string
	net           *network
	check         *checker
	hosts         []*host
	orchestrators []*process
	operator      *operator
	begun         time.Time
	running       sync.WaitGroup // processes, and calls of operators
	failed        string         // guarded by the network's mutex
	over          context.CancelFunc
}

// Run simulates a fleet. It must be called in a bubble of testing/synctest.
func Run(ctx context.Context, o Options) Result {
	w := &world{o: o, dir: filepath.Join(o.Dir, fmt.Sprint("seed-", o.Seed)), net: newNetwork(o.Seed, o.Without), begun: time.Now()}
	ctx, w.over = context.WithCancel(ctx)
	defer w.over()
	w.net.trace, w.net.late = w.traceLocked, o.Late
	w.check = newChecker(w)
	w.net.sent, w.net.lacks = w.check.sent, func(what string) { w.failLocked("%s", what) }
	w.net.model.Changed = w.check.changed
	plan := w.plan()
	result := Result{}
	for _, e := range plan {
		if !o.Skip[e.number] {
			result.Events = append(result.Events, Event{e.number, fmt.Sprintf("%v %s", e.at.Round(time.Second), e.what)})
		}
	}
	server := make(chan struct{})
	go func() { defer close(server); w.serve(ctx) }()
	w.live(ctx, plan)
	w.end()
	w.over()
	<-server
	w.net.tasks.Wait()
	synctest.Wait()
	result.Steps, result.Took, result.Faults, result.Failed = w.net.steps, time.Since(w.begun), w.net.faults, w.failed
	result.Offers, result.Most = w.check.offers, w.check.most
	return result
}

// asked are the kinds of events of a fleet in which nothing fails.
var asked = []string{"trigger", "budget", "lease", "run", "content"}

// live runs the fleet through its faults, and then until everything has ended.
func (w *world) live(ctx context.Context, plan []event) {
	if err := w.build(ctx); err != nil {
		w.fail("build the fleet: %v", err)
		return
	}
	if !w.o.Calm {
		w.net.mu.Lock()
		w.net.rate, w.net.failing = []float64{0.002, 0.01, 0.03}[w.o.Seed%3], true
		if len(w.o.Dense) > 0 {
			w.net.rate = 0.1
		}
		if w.o.Late {
			w.net.rate = 0.25
		}
		w.net.mu.Unlock()
	}
	begun := time.Now()
	for _, e := range plan {
		if sleep(ctx, time.Until(begun.Add(e.at))) != nil {
			return
		}
		if w.o.Skip[e.number] || w.o.Calm && !slices.Contains(asked, e.kind) {
			continue
		}
		w.net.mu.Lock()
		w.net.count(e.kind)
		w.traceLocked("event %d: %s", e.number, e.what)
		w.net.mu.Unlock()
		e.do(ctx)
	}
	if err := w.settle(ctx); err != nil {
		w.fail("7: when faults are over: %v", err)
	}
}

// build makes the cluster and starts everyone.
func (w *world) build(ctx context.Context) error {
	client, err := consul.New(config.Consul{}, consul.WithTransport(w.net.link("p")))
	if err != nil {
		return err
	}
	w.operator = newOperator(w, client)
	if _, err := w.operator.cluster.Init(ctx, fleet.InitOptions{NoLeaders: true}); err != nil {
		return err
	}
	if err := w.operator.trigger(ctx, "v0", nil); err != nil {
		return err
	}
	if w.o.staged() {
		if err := w.operator.fill(ctx, contents[0]); err != nil {
			return err
		}
	}
	r := chance(w.o.Seed, "fleet")
	for i := range 3 + r.IntN(4) {
		w.hosts = append(w.hosts, w.newHost(fmt.Sprint("h", i)))
	}
	for i := range 1 + r.IntN(2) {
		w.orchestrators = append(w.orchestrators, w.newOrchestrator(fmt.Sprint("o", i)))
	}
	for _, h := range w.hosts {
		h.begin()
	}
	for _, o := range w.orchestrators {
		o.begin()
	}
	return w.await(ctx, time.Hour, func() error { return w.at("v0", contents[0]) }) // a task may take some minutes
}

// serve ends sessions and forgets tombstones as Consul's servers do.
func (w *world) serve(ctx context.Context) {
	for n := 1; sleep(ctx, time.Second) == nil; n++ {
		w.net.change(func(m *consulmodel.Model) {
			m.ExpireSessions(time.Now())
			if n%900 == 0 {
				m.ReapTombstones()
			}
		})
	}
}

// end kills everyone and waits for them.
func (w *world) end() {
	for _, h := range w.hosts {
		h.kill()
	}
	for _, o := range w.orchestrators {
		o.kill()
	}
	w.over()
	w.running.Wait()
}

// host returns a host by its name; nil: no host has it.
func (w *world) host(name string) *host {
	for _, h := range w.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// await returns nil when check does, or its error after a time.
func (w *world) await(ctx context.Context, within time.Duration, check func() error) error {
	for deadline := time.Now().Add(within); ; {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// at returns an error unless all hosts report a version and have a content, and nothing is open.
func (w *world) at(version, content string) error {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for _, h := range w.hosts {
		r := w.check.reports[h.name]
		if r.Version != version {
			return fmt.Errorf("%s is at %q, wants %q: %+v, %+v, its lease is %+v, its report says %+v", h.name, r.Version, version, h.simulated.Convergence(), w.check.grants[h.name], h.simulated.Lease().Status(), r)
		}
		if f := h.file; f != nil && f.content != content {
			return fmt.Errorf("the file of %s has %q, wants %q: %+v, %+v", h.name, f.content, content, r.Stages, w.check.grants[h.name])
		}
		if i := slices.IndexFunc(r.Grants, cluster.Answer.Open); i >= 0 {
			return fmt.Errorf("%s has an open grant: %+v, %+v", h.name, r.Grants[i], w.check.grants[h.name].Of(r.Grants[i].Change))
		}
		if h.maintenance {
			return fmt.Errorf("%s is in maintenance: %+v, %+v", h.name, r.Grants, w.check.grants[h.name])
		}
		if r.Lease != nil {
			return fmt.Errorf("%s asks for a lease: %+v, %+v", h.name, r.Lease, w.check.grants[h.name])
		}
	}
	return nil
}

// projected: what foreign readers see is what the hosts report (invariant 3).
func (w *world) projected() error {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	have := map[string]string{}
	for _, key := range w.net.model.Keys(root + cluster.PrefixRunning) {
		version, node, _ := strings.Cut(strings.TrimPrefix(key, root+cluster.PrefixRunning), "/")
		if other := have[node]; other != "" {
			return fmt.Errorf("3: %s runs %s and %s at the same time", node, other, version)
		}
		have[node] = version
	}
	want := map[string]string{}
	for _, h := range w.hosts {
		want[h.name] = w.check.reports[h.name].Version
	}
	if !maps.Equal(have, want) {
		return fmt.Errorf("3: running_version says %v, the hosts %v", have, want)
	}
	return nil
}

func (w *world) fail(format string, args ...any) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *world) failLocked(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf("%v: ", time.Since(w.begun).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
		w.traceLocked("FAILED %s", w.failed)
		w.over()
	}
}

func (w *world) traceLocked(format string, args ...any) {
	if w.o.Trace != nil {
		w.o.Trace(fmt.Sprintf("%12v ", time.Since(w.begun).Round(time.Microsecond)) + fmt.Sprintf(format, args...))
	}
}

func (w *world) logger(name string) hclog.Logger {
	if w.o.Log == nil {
		return hclog.NewNullLogger()
	}
	return w.o.Log.Named(name)
}
