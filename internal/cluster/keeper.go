package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// KeeperOptions are what a Keeper needs.
type KeeperOptions struct {
	Node string
	// Name tells this agent from all others, and stays the same when it is started
	// again; empty: another agent that keeps the same record is not noticed.
	Name string
	// Files is the record as the member's own files have it.
	Files Record
	// LeaveOnStop ends the membership when Run ends.
	LeaveOnStop bool
	Log         hclog.Logger
}

// Keeper keeps one member's record true to the member's own files.
type Keeper struct {
	cluster *Cluster
	o       KeeperOptions
	rivals  rivals
}

// NewKeeper returns a keeper of o.Node's record.
func (c *Cluster) NewKeeper(o KeeperOptions) *Keeper {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Keeper{cluster: c, o: o, rivals: rivals{self: o.Name}}
}

// Pauses between two corrections of one record: a host that fights with
// another of the same name must not write without end.
const (
	firstCorrection = 100 * time.Millisecond
	lastCorrection  = 30 * time.Second
	calm            = time.Minute // after which the pause is short again
)

// leaveWithin bounds how long a stop may take.
const leaveWithin = 5 * time.Second

// Run joins the cluster and corrects the record whenever it is not what the
// files say, until ctx ends; then it leaves, if it is to, and returns nil. It
// writes only on change. Where Consul refuses, it goes on trying.
func (k *Keeper) Run(ctx context.Context) error {
	var spell time.Duration
	var last time.Time
	for ctx.Err() == nil {
		if err := k.differs(ctx); err != nil {
			break // ctx ended
		}
		if time.Since(last) > calm {
			spell = 0
		}
		if concurrency.Sleep(ctx, spell) != nil {
			break
		}
		changed, err := k.correct(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			k.o.Log.Warn("the member's record cannot be written", "node", k.o.Node, "error", err)
		case changed:
			k.o.Log.Info("the member's record was written", "cluster", k.cluster.name, "node", k.o.Node, "roles", k.o.Files.Roles)
		}
		last, spell = time.Now(), min(max(2*spell, firstCorrection), lastCorrection)
	}
	if k.o.LeaveOnStop {
		k.leave(ctx)
	}
	return nil
}

// Rival names another agent that keeps the same record, because it was given the
// same node name, and when it was noticed last; empty: there is none. It may be
// called at any time.
func (k *Keeper) Rival() (name string, seen time.Time) { return k.rivals.now(time.Now()) }

// wanted is the record as this agent wants it.
func (k *Keeper) wanted(have Record, now time.Time) Record {
	next := have.declare(k.o.Files)
	if in, claims := k.rivals.due(have.Keeper, now); claims && in == 0 {
		next.Keeper = k.o.Name
	}
	return next
}

// correct makes the record what the files say, also where a hand has damaged it.
func (k *Keeper) correct(ctx context.Context) (changed bool, err error) {
	now := time.Now()
	join := func() (bool, error) {
		var next Record
		changed, err := k.cluster.Join(ctx, k.o.Node, func(have Record) (Record, error) { next = k.wanted(have, now); return next, nil })
		if changed && next.Keeper == k.o.Name {
			k.rivals.wrote(now)
		}
		return changed, err
	}
	changed, err = join()
	if !errors.Is(err, kv.ErrDamaged) {
		return changed, err
	}
	replaced, failed := k.cluster.replaceDamaged(ctx, k.o.Node, k.wanted(Record{}, now))
	if failed != nil || !replaced {
		return changed, cmp.Or(failed, err)
	}
	k.rivals.wrote(now)
	k.o.Log.Warn("the member's record was damaged, and is what the files say again; what else had been set is lost", "node", k.o.Node, "error", err)
	_, err = join()
	return true, err
}

// differs returns when the record in Consul is not what the files say.
func (k *Keeper) differs(ctx context.Context) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	again := time.AfterFunc(laterClaims, cancel) // another's name is looked at again
	again.Stop()
	defer again.Stop()
	denied := false
	_ = k.cluster.members.At(k.o.Node).Watch(watch, func(u kv.Update[Record]) {
		switch {
		case errors.Is(u.Err, consul.ErrDenied):
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
		if k.rivals.saw(have.Keeper, now) {
			k.o.Log.Warn("another agent was given the same node name and keeps the same member record: stop one of the two, or give it a name of its own",
				"node", k.o.Node, "other", have.Keeper, "this", k.o.Name)
		}
		if !k.wanted(have, now).equal(have) {
			cancel()
		} else if in, claims := k.rivals.due(have.Keeper, now); claims {
			again.Reset(in)
		}
	}) // ends with watch
	return ctx.Err()
}

func (k *Keeper) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if _, err := k.cluster.Leave(ctx, k.o.Node, false); err != nil {
		k.o.Log.Warn("the cluster could not be left", "cluster", k.cluster.name, "node", k.o.Node, "error", err)
	}
}

// declare returns have as files want it: roles, zone, provides and requires are
// theirs; of params and meta those that the files name, and no more those that
// they named before. Others were set by jobs or people, and stay.
func (r Record) declare(files Record) Record {
	next := r
	next.Roles, next.Zone, next.Provides, next.Requires = files.Roles, files.Zone, files.Provides, files.Requires
	next.Params = overlay(r.Params, r.declared().Params, files.Params)
	next.Meta = overlay(r.Meta, r.declared().Meta, files.Meta)
	next.Declared = nil
	if d := (Declared{Params: keys(files.Params), Meta: keys(files.Meta)}); len(d.Params)+len(d.Meta) > 0 {
		next.Declared = &d
	}
	return next
}

func overlay(have profile.Params, before []string, files profile.Params) profile.Params {
	next := make(profile.Params, len(have)+len(files))
	maps.Copy(next, have)
	for _, key := range before {
		delete(next, key)
	}
	maps.Copy(next, files)
	return next
}

func keys(p profile.Params) []string { return slices.Sorted(maps.Keys(p)) }
