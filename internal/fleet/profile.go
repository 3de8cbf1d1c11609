package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Profile reads the profile with one request. It returns cluster.ErrNoCluster when
// the profile does not exist, or what kv.Doc.Get returns.
func (c *Cluster) Profile(ctx context.Context) (profile.Document, error) {
	e, err := c.profile.Get(ctx)
	if err == nil && !e.Exists {
		err = c.missing(ctx)
	}
	return e.Value, err
}

// Exists reports whether the cluster has a profile.
func (c *Cluster) Exists(ctx context.Context) (bool, error) {
	e, err := c.profile.Get(ctx)
	return e.Exists, err
}

// Change makes the next document from one; what it returns is written when it
// differs. It may be asked more than once.
type Change func(e *profile.Editor, d profile.Document) (profile.Document, error)

// ChangeProfile reads the profile, asks change for its successor and writes
// that, again until no other process wrote in between; it writes nothing when
// nothing changed. It returns the profile as it is now, or change's error
// (nothing was written then), cluster.ErrNoCluster, consul.ErrOutcomeUnknown,
// consul.ErrTooLarge or another class of package consul.
//
// A new schema that refuses a member's own param is profile.SchemaErrors, and nothing is
// written.
func (c *Cluster) ChangeProfile(ctx context.Context, change Change) (profile.Document, error) {
	return c.changeProfile(ctx, change, func(refused profile.SchemaErrors) error {
		if len(refused) > 0 {
			return refused
		}
		return nil
	})
}

// SetSchema sets the schema of a param. If it refuses values that the cluster, roles or
// members have, they are the error, and nothing is written; with force the schema is set
// and they are returned.
func (c *Cluster) SetSchema(ctx context.Context, key string, schema profile.Value, force bool) (d profile.Document, refused profile.SchemaErrors, err error) {
	d, err = c.changeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.ForceSchema(d, key, schema)
	}, func(found profile.SchemaErrors) error {
		if refused = found; len(refused) > 0 && !force {
			return refused
		}
		return nil
	})
	return d, refused, err
}

// changeProfile is ChangeProfile; judge is asked about the values that a new schema refuses.
func (c *Cluster) changeProfile(ctx context.Context, change Change, judge func(profile.SchemaErrors) error) (profile.Document, error) {
	ctx, record := c.withHistory(ctx)
	e, err := c.profile.Update(ctx, func(old kv.Entry[profile.Document]) (profile.Document, bool, error) {
		if !old.Exists {
			return profile.Document{}, false, c.missing(ctx)
		}
		next, err := change(c.editor, old.Value)
		if err != nil {
			return profile.Document{}, false, err
		}
		if profile.NewSchemas(old.Value, next) {
			own, err := c.ownParams(ctx)
			if err == nil {
				err = judge(c.editor.NewRefusals(old.Value, next, own))
			}
			if err != nil {
				return profile.Document{}, false, err
			}
		}
		record.old, record.next = old.Value, next
		return next, !next.Identical(old.Value), nil
	})
	return e.Value, err
}

// ownParams reads the members' own params, by node. Damaged records are left out.
func (c *Cluster) ownParams(ctx context.Context) (map[string]profile.Params, error) {
	s, err := c.Load(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("read members' own params, which the schema is about: %w", err)
	}
	own := map[string]profile.Params{}
	for node, h := range s.Hosts {
		own[node] = h.Record.Params
	}
	return own, nil
}

// WatchProfile calls handle with the profile, and whenever it changes, until
// ctx ends.
func (c *Cluster) WatchProfile(ctx context.Context, handle func(kv.Update[profile.Document])) error {
	return c.profile.Watch(ctx, handle)
}

// Set sets a param of the cluster, or of a role, if ref holds now. Other
// changes at the same time never make it fail. It returns a
// *profile.MismatchError when ref does not hold, else what ChangeProfile does.
func (c *Cluster) Set(ctx context.Context, s profile.Scope, key string, v profile.Value, ref profile.Ref) (profile.Document, error) {
	return c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Set(d, s, key, v, ref)
	})
}

// Remove removes a param as Set sets one; that it is gone already is not an error.
func (c *Cluster) Remove(ctx context.Context, s profile.Scope, key string, ref profile.Ref) (profile.Document, error) {
	return c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Remove(d, s, key, ref)
	})
}

// View reads what node's params come from, with one request. That the node is
// no member is not an error: it has the cluster's params. It returns cluster.ErrNoCluster
// when there is no profile.
func (c *Cluster) View(ctx context.Context, node string) (cluster.View, error) {
	v := cluster.View{Node: node}
	member := c.members.At(node)
	r, err := c.store.Txn().Get(cluster.KeyProfile).Get(cluster.KeyLeaders).Get(member.Key()).Commit(ctx)
	if err != nil {
		return v, err
	}
	p, err := c.profile.From(r)
	if err != nil {
		return v, err
	}
	l, err := c.leaders.From(r)
	if err != nil {
		return v, err
	}
	m, err := member.From(r)
	if err != nil {
		return v, err
	}
	v.Profile, v.Leaders, v.Record, v.Member = p.Value, l.Value, m.Value, m.Exists
	if !p.Exists {
		return v, c.missing(ctx)
	}
	return v, nil
}

// Params are the effective params of one node of a cluster.
type Params struct {
	cluster *Cluster
	node    string
}

// ParamsOf returns the effective params of a node; it does no I/O.
func (c *Cluster) ParamsOf(node string) Params { return Params{c, node} }

// Watch calls handle with the effective params, or why they cannot be read
// (cluster.ErrNoCluster without a profile), and again whenever what they come from
// changes, until ctx ends; then it returns ctx's error. Three queries block: on the profile, on who leads
// and on the node's record, as roles bring params with them.
func (p Params) Watch(ctx context.Context, handle func(profile.Params, error)) error {
	w := &paramsWatcher{view: cluster.View{Node: p.node}, missing: p.cluster.noCluster(""), handle: handle}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return p.cluster.profile.Watch(ctx, func(u kv.Update[profile.Document]) {
			w.update(0, u.Err, func(v *cluster.View) { v.Profile, w.exists = u.Entry.Value, u.Entry.Exists })
		})
	})
	g.Go(func() error {
		return p.cluster.leaders.Watch(ctx, func(u kv.Update[cluster.Leaders]) {
			w.update(1, u.Err, func(v *cluster.View) { v.Leaders = u.Entry.Value })
		})
	})
	g.Go(func() error {
		return p.cluster.members.At(p.node).Watch(ctx, func(u kv.Update[cluster.Record]) {
			w.update(2, u.Err, func(v *cluster.View) { v.Record, v.Member = u.Entry.Value, u.Entry.Exists })
		})
	})
	return g.Wait()
}

// paramsWatcher puts three documents together.
type paramsWatcher struct {
	missing error
	handle  func(profile.Params, error)

	mu     sync.Mutex
	view   cluster.View
	exists bool // the profile
	read   [3]bool
	errs   [3]error
}

// update takes in news of document i: that it is what set says, or cannot be read.
func (w *paramsWatcher) update(i int, err error, set func(*cluster.View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs[i] = err
	if err == nil {
		w.read[i] = true
		set(&w.view)
	}
	for _, err := range w.errs {
		if err != nil {
			w.handle(nil, err)
			return
		}
	}
	switch {
	case w.read != [3]bool{true, true, true}:
	case !w.exists:
		w.handle(nil, w.missing)
	default:
		w.handle(w.view.Effective(false).Params(), nil)
	}
}

// InitOptions say how a cluster begins.
type InitOptions struct {
	Leaders   int    // how many members lead; default 1
	NoLeaders bool   // no member leads until SetCount changes that
	Manager   string // a node, or a logical member without a host
}

// Init creates the cluster's profile by compare-and-swap on its absence, and with
// it the number of leaders and the manager. If the profile exists it changes
// nothing, and created is false. Nodes that joined before stay members.
func (c *Cluster) Init(ctx context.Context, o InitOptions) (created bool, err error) {
	switch {
	case o.NoLeaders:
		o.Leaders = 0
	case o.Leaders == 0:
		o.Leaders = 1
	}
	d, err := profile.New(c.name)
	if err != nil {
		return false, err
	}
	if o.Leaders < 0 || o.Leaders > cluster.MaxLeaders {
		return false, fmt.Errorf("%d leaders: %w: there can be up to %d", o.Leaders, cluster.ErrInvalid, cluster.MaxLeaders)
	}
	if o.Manager != "" {
		if err := cluster.CheckNode(o.Manager); err != nil {
			return false, err
		}
	}
	err = kv.RetryConflicts(ctx, func() (err error) { // another process created it, or a manager joined
		created, err = c.create(ctx, d, o)
		return err
	})
	if err != nil || !created {
		return false, err
	}
	return true, c.fillVacancies(ctx)
}

func (c *Cluster) create(ctx context.Context, d profile.Document, o InitOptions) (bool, error) {
	manager := c.members.At(o.Manager)
	read := c.store.Txn().Get(cluster.KeyProfile).Get(cluster.KeyLeaders).Get(cluster.KeyControl).Get(cluster.KeyLayout)
	if o.Manager != "" {
		read.Get(manager.Key())
	}
	r, err := read.Commit(ctx)
	if err != nil {
		return false, err
	}
	if err := c.layoutOf(r); err != nil {
		return false, err
	}
	old, err := c.profile.From(r)
	if old.Exists || err != nil {
		return false, err
	}
	leaders, err := c.leaders.From(r)
	if err != nil {
		return false, err
	}
	next := leaders.Value.Clone()
	next.Count = o.Leaders
	t := c.store.Txn()
	c.profile.SwapIn(t, old, d)
	t.Set(cluster.KeyLayout, []byte(strconv.Itoa(cluster.Layout)))
	if o.Manager != "" {
		next.SetManager(o.Manager)
		record, err := manager.From(r)
		if err != nil {
			return false, err
		}
		if !record.Exists {
			manager.SwapIn(t, record, cluster.Record{})
		}
	}
	c.leaders.SwapIn(t, leaders, next)
	// All agents watch it, and a watch of a key that does not exist wakes for
	// every other.
	if control, err := c.control.From(r); !control.Exists && !unreadable(err) {
		if err != nil {
			return false, err
		}
		c.control.SwapIn(t, control, cluster.Control{})
	}
	_, err = t.Commit(ctx)
	return err == nil, err
}

// AddManager makes node a manager and, if it is not a member, a member. It
// reports whether that changed something.
func (c *Cluster) AddManager(ctx context.Context, node string) (changed bool, err error) {
	if err := cluster.CheckNode(node); err != nil {
		return false, err
	}
	if _, err := c.Profile(ctx); err != nil {
		return false, err
	}
	member := c.members.At(node)
	_, err = c.leaders.Change(ctx, func(old kv.Entry[cluster.Leaders], t *kv.Txn) (cluster.Leaders, bool, error) {
		record, err := member.Get(ctx)
		if err != nil {
			return cluster.Leaders{}, false, err
		}
		next := old.Value.Clone()
		next.SetManager(node)
		if !record.Exists {
			member.SwapIn(t, record, cluster.Record{})
		}
		changed = !record.Exists || !next.Equal(old.Value)
		return next, changed, nil
	})
	return changed && err == nil, err
}

const profileHistoryFormat = 1

// roomForHistory is what a transaction leaves to the history for its own key and verb in
// JSON, in bytes.
const roomForHistory = 1 << 10

// profileRecorder adds a change of the profile to its history, in the transaction of the
// change.
type profileRecorder struct {
	cluster   *Cluster
	author    Author
	old, next profile.Document // of the attempt that is running
}

// withHistory returns a context in which a change of the profile is recorded in its history,
// from the recorder's old document to its next one.
func (c *Cluster) withHistory(ctx context.Context) (context.Context, *profileRecorder) {
	r := &profileRecorder{cluster: c, author: authorOf(ctx)}
	return kv.AddRecorder(ctx, r), r
}

// Record implements kv.Recorder. A history that cannot be read begins again.
func (r *profileRecorder) Record(ctx context.Context, s *kv.Store, t *kv.Txn, _ []kv.Write) error {
	c := profile.Change{Time: time.Now().UTC().Truncate(time.Second), Command: r.author.Command, Reason: r.author.Reason}
	if r.author.By != nil {
		by, err := r.author.By(ctx)
		if err != nil {
			return err
		}
		c.By = by
	}
	doc := r.cluster.history.In(s)
	old, err := doc.Get(ctx)
	if errors.Is(err, kv.ErrDamaged) {
		old.Value, err = profile.History{}, nil
	}
	if err != nil {
		return err
	}
	room := max(1, (kv.MaxBody-t.Size()-roomForHistory)/4*3) // its value is written in base64
	doc.SwapIn(t, old, old.Value.With(c, r.old, r.next, room))
	return nil
}

// ProfileHistory reads the history of the profile and the profile as it is now, with one
// request. It returns cluster.ErrNoCluster when there is no profile, kv.ErrDamaged or kv.ErrNewer for
// a history or profile that cannot be read, or a class of package consul.
func (c *Cluster) ProfileHistory(ctx context.Context) (profile.History, profile.Document, error) {
	r, err := c.store.Txn().Get(cluster.KeyProfile).Get(cluster.KeyProfileHistory).Commit(ctx)
	if err != nil {
		return profile.History{}, profile.Document{}, err
	}
	p, err := c.profile.From(r)
	if err == nil && !p.Exists {
		err = c.missing(ctx)
	}
	if err != nil {
		return profile.History{}, profile.Document{}, err
	}
	h, err := c.history.From(r)
	return h.Value, p.Value, err
}

// RevertProfile changes the profile back to what it had before the change with that number,
// if nothing of it has changed since. It returns what profile.Editor.Revert and ChangeProfile
// do; reverted is false when nothing had to be written.
func (c *Cluster) RevertProfile(ctx context.Context, number uint64) (d profile.Document, reverted bool, err error) {
	d, err = c.ChangeProfile(ctx, func(e *profile.Editor, now profile.Document) (profile.Document, error) {
		h, err := c.history.Get(ctx)
		if err != nil {
			return profile.Document{}, err
		}
		next, err := e.Revert(now, h.Value, number)
		reverted = err == nil && !next.Identical(now)
		return next, err
	})
	return d, reverted, err
}
