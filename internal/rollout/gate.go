package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// Snapshots tells what is desired and how. *Rollouts is one.
type Snapshots interface {
	// WatchSnapshot calls handle with the snapshot, or why it cannot be read, now
	// and whenever it changes, until ctx ends; then it returns ctx's error.
	WatchSnapshot(ctx context.Context, handle func(Snapshot, error)) error
	// ReadFor reads the snapshot as nobody can have replaced it by now, and whether
	// node holds a slot, which it tells also with kv.ErrDamaged and kv.ErrNewer.
	ReadFor(ctx context.Context, node string) (s Snapshot, holds bool, err error)
}

// Selves tells what a node knows of itself, but whether it holds a slot.
type Selves interface {
	WatchSelf(ctx context.Context, handle func(Self)) error
}

// Claims are the slots of a cluster. *slots.Slots is one.
type Claims interface {
	Acquire(ctx context.Context, group string, limit int, h slots.Holder) (*slots.Claim, error)
	Held(ctx context.Context, group, node, id string) (slots.Holding, bool, error)
	Release(ctx context.Context, group, node, id string) error
}

// Maintenance takes this host out of service in Consul and back. Only what jorc
// itself began is lifted; repeating either is no failure and writes nothing.
type Maintenance interface {
	Begin(ctx context.Context, reason string) error
	Lift(ctx context.Context) error
}

// Checks tells which of this host's checks fail, jorc's own maintenance left out.
type Checks interface {
	Watch(ctx context.Context, handle func(failing []string)) error
}

// GateOptions are what a Gate needs.
type GateOptions struct {
	Node        string
	Snapshots   Snapshots
	Self        Selves
	Slots       Claims
	Maintenance Maintenance
	Checks      Checks
	Log         hclog.Logger
}

// Gate is a node's own side of rollouts: it lets the node begin with a version
// when the rollout admits it and a slot is there, and hands the slot on once the
// node is healthy. What it holds is in Consul, so it outlives the process.
type Gate struct {
	o GateOptions
}

// NewGate returns a gate. It does no I/O.
func NewGate(o GateOptions) *Gate {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Gate{o: o}
}

// Enter returns nil once the node may take itself out of service for version,
// which it then is in Consul, too, when the rollout uses slots. waiting is told
// why it has to wait, whenever that changes. A node that holds a slot is let in
// at once. When ctx ends first nothing that Enter took stays taken.
func (g *Gate) Enter(ctx context.Context, version string, waiting func(reason string)) error {
	holds, err := g.holds(ctx)
	if err != nil {
		return err
	}
	e := &entry{gate: g, version: version, waiting: waiting, holds: holds, news: make(chan struct{}, 1)}
	return e.run(ctx)
}

// holds tells whether this node holds a slot already; it asks until Consul says.
func (g *Gate) holds(ctx context.Context) (bool, error) {
	for {
		_, held, err := g.o.Slots.Held(ctx, Slots, g.o.Node, ClaimID)
		if err == nil {
			return held, nil
		}
		g.o.Log.Warn("cannot tell whether this node holds a slot of the rollout", "error", err)
		if err := concurrency.Sleep(ctx, retry); err != nil {
			return false, err
		}
	}
}

// retry is the pause after a failure that is not Consul's silence alone, which
// the packages below wait out themselves.
const retry = 2 * time.Second

// Leave brings the node back into service and hands its slot on once all its
// checks have passed for as long as the policy of version's rollout asks. A node
// that holds none only comes back into service. It goes on until that is done or
// ctx ends.
func (g *Gate) Leave(ctx context.Context, version string) error {
	for {
		err := g.leave(ctx, version)
		if err == nil || ctx.Err() != nil {
			return err
		}
		g.o.Log.Warn("the slot of the rollout is not handed on yet", "version", version, "error", err)
		if err := concurrency.Sleep(ctx, retry); err != nil {
			return err
		}
	}
}

func (g *Gate) leave(ctx context.Context, version string) error {
	if err := g.o.Maintenance.Lift(ctx); err != nil {
		return err
	}
	s, holds, err := g.o.Snapshots.ReadFor(ctx, g.o.Node)
	told := err == nil || errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer)
	if told && !holds {
		return nil
	}
	if err != nil {
		return err
	}
	var healthy time.Duration
	if s.Exists && s.Document.Version == version {
		healthy = time.Duration(s.Document.Policy.MinHealthy)
	}
	if err := g.awaitHealth(ctx, healthy); err != nil {
		return err
	}
	if err := g.o.Slots.Release(ctx, Slots, g.o.Node, ClaimID); err != nil {
		return err
	}
	g.o.Log.Info("the slot of the rollout is handed on", "version", version)
	return nil
}

// awaitHealth returns nil once no check has failed for so long.
func (g *Gate) awaitHealth(ctx context.Context, long time.Duration) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan []string)
	done := make(chan error, 1)
	go func() {
		done <- g.o.Checks.Watch(watch, func(failing []string) {
			select {
			case news <- failing:
			case <-watch.Done():
			}
		})
	}()
	defer func() { cancel(); <-done }()
	timer := time.NewTimer(0)
	timer.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-done:
			done <- err
			return errors.Join(errors.New("the checks of this node are not watched any more"), err)
		case <-timer.C:
			return nil
		case failing := <-news:
			timer.Stop()
			if len(failing) == 0 {
				timer.Reset(long)
			} else if text := failing[0]; text != told {
				told = text
				g.o.Log.Info("the slot is kept until all checks pass", "failing", len(failing), "first", text, "for", long)
			}
		}
	}
}

// reasonOf is what maintenance mode says.
func reasonOf(version string) string { return consul.JorcNote + " update to " + version }
