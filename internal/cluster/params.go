package cluster

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Params are the effective params of one node of a cluster.
type Params struct {
	cluster *Cluster
	node    string
}

// ParamsOf returns the effective params of a node; it does no I/O.
func (c *Cluster) ParamsOf(node string) Params { return Params{c, node} }

// Watch calls handle with the effective params, or why they cannot be read
// (ErrNoCluster without a profile), and again whenever what they come from
// changes, until ctx ends; then it returns ctx's error. Three queries block: on the profile, on who leads
// and on the node's record, as roles bring params with them.
func (p Params) Watch(ctx context.Context, handle func(profile.Params, error)) error {
	w := &paramsWatcher{view: View{Node: p.node}, missing: p.cluster.noCluster(""), handle: handle}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return p.cluster.profile.Watch(ctx, func(u kv.Update[profile.Document]) {
			w.update(0, u.Err, func(v *View) { v.Profile, w.exists = u.Entry.Value, u.Entry.Exists })
		})
	})
	g.Go(func() error {
		return p.cluster.leaders.Watch(ctx, func(u kv.Update[Leaders]) {
			w.update(1, u.Err, func(v *View) { v.Leaders = u.Entry.Value })
		})
	})
	g.Go(func() error {
		return p.cluster.members.At(p.node).Watch(ctx, func(u kv.Update[Record]) {
			w.update(2, u.Err, func(v *View) { v.Record, v.Member = u.Entry.Value, u.Entry.Exists })
		})
	})
	return g.Wait()
}

// paramsWatcher puts three documents together.
type paramsWatcher struct {
	missing error
	handle  func(profile.Params, error)

	mu     sync.Mutex
	view   View
	exists bool // the profile
	read   [3]bool
	errs   [3]error
}

// update takes in news of document i: that it is what set says, or cannot be read.
func (w *paramsWatcher) update(i int, err error, set func(*View)) {
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
