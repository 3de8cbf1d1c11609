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

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/kv"
)

// holds knows what holds this host still: the file "hold" in its state
// directory, and what the cluster's control says of the node, its roles and all.
type holds struct {
	cluster  *cluster.Cluster
	node     string
	stateDir string
	log      hclog.Logger

	mu      sync.Mutex
	control cluster.Control
	hold    *cluster.Hold // of this node; nil: none
	record  cluster.Record
	member  bool // there is a record
	leaders cluster.Leaders
	sources map[string]error // what was asked, and why there was no answer

	now concurrency.Latest[converge.Hold] // what follows from all that
	is  concurrency.Latest[bool]          // whether the node is a member
}

// asked is how many documents say what holds a host. Nothing begins before each
// has been read once.
const asked = 4

func newHolds(c *cluster.Cluster, node, stateDir string, log hclog.Logger) *holds {
	return &holds{cluster: c, node: node, stateDir: stateDir, log: log, sources: map[string]error{}}
}

// Held says why no further task may begin now; empty: it may.
func (h *holds) Held() string {
	if reason := HoldReason(h.stateDir); reason != "" {
		return reason
	}
	now, _ := h.now.Get()
	return now.Held
}

// Watch calls handle with what holds the host, once the cluster's word is known,
// and whenever that changes, until ctx ends.
func (h *holds) Watch(ctx context.Context, handle func(converge.Hold)) error {
	return h.now.Watch(ctx, handle)
}

// free returns when nothing holds the host any more, or with ctx's error.
func (h *holds) free(ctx context.Context) error {
	return h.await(ctx, func(now converge.Hold) bool { return now.Held == "" })
}

// begin returns when something new may begin, or with ctx's error.
func (h *holds) begin(ctx context.Context) error {
	return h.await(ctx, func(now converge.Hold) bool { return now == converge.Hold{} })
}

func (h *holds) await(ctx context.Context, good func(converge.Hold) bool) error {
	_, err := h.now.Wait(ctx, good)
	return err
}

// run follows all that can hold the host until ctx ends.
func (h *holds) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return h.cluster.WatchControl(ctx, func(u kv.Update[cluster.Control]) {
			h.change("control", u.Err, func() { h.control = u.Entry.Value })
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
	return g.Wait()
}

// change takes in what set does, or why the source could not be read: its last
// good word counts then. A host is held by what it may not read, and by what
// could never be read yet for its content.
func (h *holds) change(source string, err error, set func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, seen := h.sources[source]
	switch {
	case errors.Is(err, consul.ErrDenied), (errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer)) && !(seen && before == nil):
		if before == nil {
			h.log.Error("what holds this host cannot be read: nothing is converged until it can", "error", err)
		}
		h.sources[source] = err
	case err != nil:
		return
	default:
		h.sources[source] = nil
		set()
	}
	h.judge()
}

// judge works out what holds the host, and tells; the caller has the lock.
func (h *holds) judge() {
	next := converge.Hold{Held: HoldReason(h.stateDir)}
	if p := h.control.Paused; p != nil {
		next.Paused = "the cluster is paused " + p.String()
	}
	control := h.control
	if h.hold != nil {
		control.Nodes = map[string]cluster.Hold{h.node: *h.hold}
	}
	if why, is := control.Held(h.node, h.leaders.RolesOf(h.node, h.record)); is && next.Held == "" {
		next.Held = "held " + why.String()
	}
	for _, source := range slices.Sorted(maps.Keys(h.sources)) { // of several the same each time
		if err := h.sources[source]; err != nil && next.Held == "" {
			next.Held = fmt.Sprintf("what holds this host cannot be read: %v", err)
		}
	}
	if len(h.sources) < asked {
		return
	}
	if before, _ := h.now.Get(); next.Held != before.Held {
		h.log.Info("hold", "reason", cmp.Or(next.Held, "none any more"))
	}
	h.now.Set(next)
	h.is.Set(h.member)
}

// watchFile judges again whenever the hold file may have changed. Where the
// kernel gives no notice of that, the file is seen at the next other change, and
// always before a task begins.
func (h *holds) watchFile(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(h.stateDir)
	}
	if err != nil {
		h.log.Warn("the hold file is looked at only before tasks", "error", err)
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if filepath.Base(e.Name) == "hold" {
				h.look()
			}
		case err := <-w.Errors:
			h.log.Debug("watching the hold file", "error", err)
			h.look()
		}
	}
}

func (h *holds) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judge()
}
