package fleet

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// RecordSyncOptions are what a RecordSync needs.
type RecordSyncOptions struct {
	Node string
	// Name tells this agent from all others, and stays the same when it is started
	// again; empty: another agent that keeps the same record is not noticed.
	Name string
	// Files is the record as the member's own files have it.
	Files cluster.Record
	// LeaveOnStop ends the membership when Run ends.
	LeaveOnStop bool
	Log         hclog.Logger
}

// RecordSync keeps one member's record true to the member's own files.
type RecordSync struct {
	cluster  *Cluster
	o        RecordSyncOptions
	conflict nameConflict
}

// NewRecordSync returns a keeper of o.Node's record.
func (c *Cluster) NewRecordSync(o RecordSyncOptions) *RecordSync {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &RecordSync{cluster: c, o: o, conflict: nameConflict{self: o.Name}}
}

// Pauses between two corrections of one record: a host that fights with
// another of the same name must not write without end.
const (
	firstCorrection = 100 * time.Millisecond
	lastCorrection  = 30 * time.Second
	correctionCalm  = time.Minute // after which the pause is short again
)

// leaveWithin bounds how long a stop may take.
const leaveWithin = 5 * time.Second

// Run joins the cluster and corrects the record whenever it is not what the
// files say, until ctx ends; then it leaves, if it is to, and returns nil. It
// writes only on change. Where Consul refuses, it keeps trying.
func (k *RecordSync) Run(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstCorrection, lastCorrection)
	var pause time.Duration // the first correction is immediate
	var last time.Time
	for ctx.Err() == nil {
		if err := k.awaitDifference(ctx); err != nil {
			break // ctx ended
		}
		if time.Since(last) > correctionCalm {
			pause = 0
			retry.Reset()
		}
		if concurrency.Sleep(ctx, pause) != nil {
			break
		}
		changed, err := k.correct(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			k.o.Log.Warn("the member's record cannot be written", "node", k.o.Node, "error", err)
		case changed:
			k.o.Log.Info("the member's record was written", "cluster", k.cluster.name, "node", k.o.Node, "roles", k.o.Files.Roles)
		}
		last, pause = time.Now(), retry.Next()
	}
	if k.o.LeaveOnStop {
		k.leave(ctx)
	}
	return nil
}

// OtherAgent names another agent that keeps the same record, because it was given the
// same node name, and when it was noticed last; empty: none exists. It may be
// called at any time.
func (k *RecordSync) OtherAgent() (name string, seen time.Time) { return k.conflict.other(time.Now()) }

// wanted is the record as this agent wants it.
func (k *RecordSync) wanted(have cluster.Record, now time.Time) cluster.Record {
	next := have.Declare(k.o.Files)
	if in, claims := k.conflict.reclaimIn(have.Keeper, now); claims && in == 0 {
		next.Keeper = k.o.Name
	}
	return next
}

// correct makes the record what the files say, also where a hand has damaged it.
func (k *RecordSync) correct(ctx context.Context) (changed bool, err error) {
	now := time.Now()
	// Leaders are left to the electors, of which this agent is one: if each agent of a
	// fleet that starts looked for a leader, each would read all members.
	join := func() (bool, error) {
		var next cluster.Record
		changed, err := k.cluster.join(ctx, k.o.Node, func(have cluster.Record) (cluster.Record, error) { next = k.wanted(have, now); return next, nil })
		if changed && next.Keeper == k.o.Name {
			k.conflict.reclaimed(now)
		}
		return changed, err
	}
	changed, err = join()
	if !errors.Is(err, kv.ErrDamaged) {
		return changed, err
	}
	replaced, failed := k.cluster.replaceDamaged(ctx, k.o.Node, k.wanted(cluster.Record{}, now))
	if failed != nil || !replaced {
		return changed, cmp.Or(failed, err)
	}
	k.conflict.reclaimed(now)
	k.o.Log.Warn("the member's record was damaged, and is what the files say again; what else had been set is lost", "node", k.o.Node, "error", err)
	_, err = join()
	return true, err
}

// awaitDifference returns when the record in Consul is not what the files say.
func (k *RecordSync) awaitDifference(ctx context.Context) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	again := time.AfterFunc(reclaimInterval, cancel) // another's name is read again
	again.Stop()
	defer again.Stop()
	denied := false
	_ = k.cluster.members.At(k.o.Node).Watch(watch, func(u kv.Update[cluster.Record]) {
		switch {
		case errors.Is(u.Err, consul.ErrDenied), consul.IsPermanent(u.Err):
			if !denied {
				k.o.Log.Warn("the member's record cannot be read", "node", k.o.Node, "error", u.Err)
			}
			denied = true
			return
		case u.Err != nil && !errors.Is(u.Err, kv.ErrDamaged):
			return // retried by the watch
		}
		denied = false
		if u.Err != nil || !u.Entry.Exists {
			cancel()
			return
		}
		have, now := u.Entry.Value, time.Now()
		if k.conflict.observe(have.Keeper, now) {
			k.o.Log.Warn("another agent was given the same node name and keeps the same member record: stop one of the two, or give it a name of its own",
				"node", k.o.Node, "other", have.Keeper, "this", k.o.Name)
		}
		if !k.wanted(have, now).Equal(have) {
			cancel()
		} else if in, claims := k.conflict.reclaimIn(have.Keeper, now); claims {
			again.Reset(in)
		}
	}) // ends with watch
	return ctx.Err()
}

func (k *RecordSync) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if _, err := k.cluster.Leave(ctx, k.o.Node, false); err != nil {
		k.o.Log.Warn("the cluster could not be left", "cluster", k.cluster.name, "node", k.o.Node, "error", err)
	}
}

// Times of two agents that keep one record: both were given the same node name.
const (
	firstReclaims     = 2                // so often an agent takes the record back at once
	reclaimInterval   = 10 * time.Minute // and then once in so long, so that both keep noticing
	conflictForgotten = 30 * time.Minute // an agent that has not been noticed for this long is gone
)

// nameConflict notices that another agent keeps the same record. Each writes its name
// into the record; one that finds the other's name there takes the record back.
// A restored backup, or an agent that was replaced, does not answer to that.
type nameConflict struct {
	self string // this agent's name; empty: nothing is noticed

	mu          sync.Mutex
	own         bool      // the record bore this agent's name last
	taken       int       // how often another took it away since
	reclaimedAt time.Time // when it was taken back last
	otherName   string    // the agent that answered; empty: none did
	seen        time.Time // when it did last
}

// observe notes whose name the record bears; news says that another agent answered,
// and that this was not reported within the last minute.
func (r *nameConflict) observe(name string, now time.Time) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self == "" || name == "" || name == r.self {
		r.own = r.own || name == r.self
		return false
	}
	if !r.own {
		return false
	}
	if now.Sub(r.reclaimedAt) > conflictForgotten {
		r.taken = 0
	}
	r.own = false
	if r.taken++; r.taken < firstReclaims {
		return false
	}
	news = name != r.otherName || now.Sub(r.seen) > time.Minute
	r.otherName, r.seen = name, now
	return news
}

// reclaimIn is in how long the record that bears name is to be taken back; claims
// reports whether it is to be at all.
func (r *nameConflict) reclaimIn(name string, now time.Time) (in time.Duration, claims bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.self == "" || name == r.self:
		return 0, false
	case name == "" || r.taken <= firstReclaims:
		return 0, true
	}
	return max(0, reclaimInterval-now.Sub(r.reclaimedAt)), true
}

// reclaimed notes that this agent wrote the record under its own name.
func (r *nameConflict) reclaimed(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own, r.reclaimedAt = true, now
}

// other is the other agent, empty if it does not exist, and when it was noticed last.
func (r *nameConflict) other(at time.Time) (other string, seen time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.otherName == "" || at.Sub(r.seen) > conflictForgotten {
		return "", time.Time{}
	}
	return r.otherName, r.seen
}
