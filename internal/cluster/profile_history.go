package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

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
// request. It returns ErrNoCluster when there is no profile, kv.ErrDamaged or kv.ErrNewer for
// a history or profile that cannot be read, or a class of package consul.
func (c *Cluster) ProfileHistory(ctx context.Context) (profile.History, profile.Document, error) {
	r, err := c.store.Txn().Get(KeyProfile).Get(KeyProfileHistory).Commit(ctx)
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
