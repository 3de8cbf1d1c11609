package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/filewatch"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// holds knows why this host is held: the file "hold" in its state directory, or the
// holds in the cluster's control of the node, its roles or the whole cluster.
type holds struct {
	cluster   *fleet.Cluster
	node      string
	stateDir  string
	log       hclog.Logger
	unwatched bool // see SimulatedOptions.UnwatchedHold

	mu      sync.Mutex
	control cluster.Control
	index   uint64        // of control
	hold    *cluster.Hold // of this node; nil: none
	record  cluster.Record
	member  bool // the record exists
	leaders cluster.Leaders
	sources map[string]error // by source that has answered: why it cannot be read; nil: it can
	end     time.Time        // when a hold ends by itself next; zero: none does
	why     cluster.Hold     // the hold in Consul that is in force; zero: none is
	paused  cluster.Hold     // the pause that is in force; zero: none is
	ends    concurrency.Signal

	now concurrency.Latest[converge.Hold] // the result of evaluate
	is  concurrency.Latest[bool]          // whether the node is a member

	file concurrency.Latest[string] // why the hold file holds the host; empty: there is no hold file
}

// holdSources is the number of documents that can hold a host. No task begins before
// each has been read once.
const holdSources = 4

func newHolds(c *fleet.Cluster, node, stateDir string, log hclog.Logger) *holds {
	return &holds{cluster: c, node: node, stateDir: stateDir, log: log, sources: map[string]error{}, ends: concurrency.NewSignal()}
}

// Held returns why no further task may begin now; empty: one may.
func (h *holds) Held() string {
	if reason := HoldReason(h.stateDir); reason != "" {
		return reason
	}
	now, _ := h.now.Get()
	return now.Held
}

// heldText is what Held returns, with how long the hold lasts at now and when it ends; zero:
// it does not end by itself.
func (h *holds) heldText(now time.Time) (text string, until time.Time) {
	text = h.Held()
	h.mu.Lock()
	defer h.mu.Unlock()
	if text != "" && text == heldBy+h.why.String() {
		return heldBy + h.why.TextAt(now), h.why.Until
	}
	return text, time.Time{}
}

// pauseText is a text about the pause in force, with how long it lasts at now; another text
// stays as it is.
func (h *holds) pauseText(text string, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if text == pausedBy+h.paused.String() {
		return pausedBy + h.paused.TextAt(now)
	}
	return text
}

// What texts about holds and pauses begin with.
const (
	heldBy   = "held "
	pausedBy = "the cluster is paused "
)

// Watch calls handle with the host's hold once all sources have been read, and
// whenever it changes, until ctx ends.
func (h *holds) Watch(ctx context.Context, handle func(converge.Hold)) error {
	return h.now.Watch(ctx, handle)
}

// free returns when the host is no longer held, or with ctx's error.
func (h *holds) free(ctx context.Context) error {
	return h.await(ctx, func(now converge.Hold) bool { return now.Held == "" })
}

// begin returns when a new job may begin (not held, not paused), with the index of the control of
// the cluster that says so, or with ctx's error.
func (h *holds) begin(ctx context.Context) (control uint64, err error) {
	for {
		if err := h.await(ctx, func(now converge.Hold) bool { return now == converge.Hold{} }); err != nil {
			return 0, err
		}
		h.mu.Lock()
		now, _ := h.now.Get()
		index := h.index
		h.mu.Unlock()
		if (now == converge.Hold{}) {
			return index, nil
		}
	}
}

func (h *holds) await(ctx context.Context, good func(converge.Hold) bool) error {
	_, err := h.now.Wait(ctx, good)
	return err
}

// run follows everything that can hold the host until ctx ends.
func (h *holds) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return h.cluster.WatchControl(ctx, func(u kv.Update[cluster.Control]) {
			h.change("control", u.Err, func() { h.control, h.index = u.Entry.Value, u.Entry.Index })
		})
	})
	g.Go(func() error {
		return h.cluster.WatchHold(ctx, h.node, func(u kv.Update[cluster.Hold]) {
			h.change("hold", u.Err, func() {
				h.hold = nil
				if u.Entry.Exists {
					h.hold = &u.Entry.Value
				}
			})
		})
	})
	g.Go(func() error {
		return h.cluster.WatchRecord(ctx, h.node, func(u kv.Update[cluster.Record]) {
			h.change("record", u.Err, func() { h.record, h.member = u.Entry.Value, u.Entry.Exists })
		})
	})
	g.Go(func() error {
		return h.cluster.WatchLeaders(ctx, func(u kv.Update[cluster.Leaders]) {
			h.change("leaders", u.Err, func() { h.leaders = u.Entry.Value })
		})
	})
	g.Go(func() error { return h.watchFile(ctx) })
	g.Go(func() error { return h.followEnds(ctx) })
	return g.Wait()
}

// change calls set, or records why the source could not be read. After an error the
// source's last value counts, with two exceptions, which hold the host: access is
// denied, or the content is invalid and no value has been read before.
func (h *holds) change(source string, err error, set func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, seen := h.sources[source]
	switch {
	case errors.Is(err, consul.ErrDenied), consul.IsPermanent(err), (errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer)) && !(seen && before == nil):
		if before == nil {
			h.log.Error("cannot read whether this host is held; it does not converge until it can", "error", err)
		}
		h.sources[source] = err
	case err != nil:
		return
	default:
		h.sources[source] = nil
		set()
	}
	h.evaluate()
}

// evaluate works out what holds the host and publishes it. The caller holds the lock.
func (h *holds) evaluate() {
	next, now := converge.Hold{Held: HoldReason(h.stateDir)}, time.Now()
	h.file.Set(next.Held)
	control := h.control
	if control.Nodes = nil; h.hold != nil {
		control.Nodes = map[string]cluster.Hold{h.node: *h.hold}
	}
	if end := control.Change(now); !end.Equal(h.end) {
		h.end = end
		h.ends.Notify()
	}
	control = control.At(now)
	h.paused, h.why = cluster.Hold{}, cluster.Hold{}
	if p := control.Paused; p != nil {
		h.paused, next.Paused = *p, pausedBy+p.String()
	}
	if why, is := control.Held(h.node, h.leaders.RolesOf(h.node, h.record)); is && next.Held == "" {
		h.why, next.Held = why, heldBy+why.String()
	}
	for _, source := range slices.Sorted(maps.Keys(h.sources)) { // of several errors always the same one
		if err := h.sources[source]; err != nil && next.Held == "" {
			next.Held = fmt.Sprintf("what holds this host cannot be read: %v", err)
		}
	}
	if len(h.sources) < holdSources {
		return
	}
	if before, _ := h.now.Get(); next.Held != before.Held {
		h.log.Info("hold", "reason", cmp.Or(next.Held, "none"))
	}
	h.now.Set(next)
	h.is.Set(h.member)
}

// followEnds evaluates again when a hold ends by this host's clock, whether an orchestrator
// runs or not, until ctx ends.
func (h *holds) followEnds(ctx context.Context) error {
	for ctx.Err() == nil {
		h.mu.Lock()
		at := h.end
		h.mu.Unlock()
		if h.ends.WaitUntil(ctx, at) != nil && ctx.Err() == nil {
			h.readFile()
		}
	}
	return ctx.Err()
}

// roles returns the roles of this host, derived ones too.
func (h *holds) roles() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaders.RolesOf(h.node, h.record)
}

// watchFile evaluates again whenever the hold file may have changed. The file is also
// read before each task.
func (h *holds) watchFile(ctx context.Context) error {
	if h.unwatched {
		h.readFile()
		return nil
	}
	filewatch.Watch(ctx, filepath.Join(h.stateDir, "hold"), func(context.Context) { h.readFile() }, h.log)
	return nil
}

// readFile evaluates again.
func (h *holds) readFile() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evaluate()
}

// reportHoldFile keeps the text of the hold file in the host's report, so that other
// machines know it, until ctx ends. The first report also removes what an earlier agent
// said of templates.
func (p *part) reportHoldFile(ctx context.Context) error {
	_ = p.holds.file.Watch(ctx, func(string) { // ends with ctx
		failed := false
		_ = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, time.Minute), func(ctx context.Context) error {
			_, err := p.report.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
				reason, _ := p.holds.file.Get() // both again after a conflict: they may be others by then
				problems, _ := p.templateProblems.Get()
				return d.WithHoldFile(reason).WithTemplates(problems), nil
			})
			return err
		}, func(err error, _ time.Duration) {
			if !failed {
				p.log.Warn("cannot report the hold file, will retry", "error", err)
			}
			failed = true
		})
	})
	return nil
}
