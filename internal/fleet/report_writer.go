package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// ReportWriter writes the report of one host. The parts of an agent share one: each gives
// it a function that changes what that part reports. It carries out one change after the
// other, remembers the report as it was last read or written, so that most changes need no
// read, and finds out what became of a write without an answer.
type ReportWriter struct {
	cluster *Cluster
	node    string
	turn    chan struct{} // full while a change is running
	forget  atomic.Bool   // last is to be read again
	seen    concurrency.Latest[cluster.Report]

	// Of the running change. Host scripts write reports, too, so last may be out of
	// date; a write holds only while it is not.
	last    kv.Entry[cluster.Report]
	desired string // version, as it was read with last
	known   bool   // last was read or written
	sure    bool   // last was written, and no change has asked since: one that changes nothing needs no read
	damaged bool   // last is instead of a document that is damaged
	// late: a write without an answer may be carried out as long as the report's index is lateIndex.
	late      bool
	lateIndex uint64
}

// ReportWriter returns a writer of node's report. It does no I/O.
func (c *Cluster) ReportWriter(node string) *ReportWriter {
	return &ReportWriter{cluster: c, node: node, turn: make(chan struct{}, 1)}
}

// Node is the name of the host.
func (w *ReportWriter) Node() string { return w.node }

// Document is where the report is stored, to be read.
func (w *ReportWriter) Document() kv.Doc[cluster.Report] { return w.cluster.reports.At(w.node) }

// Seen is the report as it was last read or written. It does no I/O; nothing is seen before
// the first change.
func (w *ReportWriter) Seen() *concurrency.Latest[cluster.Report] { return &w.seen }

// Forget makes the next change read the report: another program may have replaced it.
func (w *ReportWriter) Forget() { w.forget.Store(true) }

// Change replaces the report by what change makes of it, and reports whether that was
// news. change is asked again when the report turns out to be another one, so it must have
// no effects of its own. When it changes nothing, nothing is written. A document that is
// damaged is replaced: it counts as the one that w knew last, or as empty.
//
// The index keys that follow from the report move in the same transaction where the
// token may write them. Where it may not the orchestrator writes them.
//
// Change returns change's error, text.ErrName, cluster.ErrBadState, kv.ErrNewer, consul.ErrDenied,
// consul.ErrUnreachable, consul.ErrTooLarge or ctx's error, or consul.ErrOutcomeUnknown when
// Consul did not answer for a while. The next change then makes sure that the write is
// either known or can no longer be carried out, also when it changes nothing itself.
func (w *ReportWriter) Change(ctx context.Context, change func(cluster.Report) (cluster.Report, error)) (changed bool, err error) {
	return w.change(ctx, change, nil)
}

// ChangeFenced is Change in a transaction that also holds what fence adds. When that does
// not hold, ChangeFenced returns kv.ErrConflict: nothing was written, nor will be.
func (w *ReportWriter) ChangeFenced(
	ctx context.Context, change func(cluster.Report) (cluster.Report, error), fence func(*kv.Txn),
) (changed bool, err error) {
	return w.change(ctx, change, fence)
}

func (w *ReportWriter) change(
	ctx context.Context, change func(cluster.Report) (cluster.Report, error), fence func(*kv.Txn),
) (changed bool, err error) {
	if err := cluster.CheckNode(w.node); err != nil {
		return false, err
	}
	select {
	case w.turn <- struct{}{}:
		defer func() {
			if w.known {
				w.seen.Set(w.last.Value)
			}
			<-w.turn
		}()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	var ended, unanswered error
	err = kv.RetryConflicts(ctx, func() error {
		a := attempt{ReportWriter: w, change: change, fence: fence, settling: unanswered != nil}
		again, err := a.carryOut(ctx)
		changed = changed || a.wrote
		switch {
		case again && errors.Is(err, consul.ErrOutcomeUnknown):
			unanswered = err
			return kv.ErrConflict
		case again:
			return err
		case a.unread && unanswered != nil:
			err = unanswered
		}
		ended = err
		return nil
	})
	switch {
	case err == nil:
		err = ended
	case unanswered != nil:
		err = unanswered
	}
	return changed && err == nil, err
}

// attempt is one attempt at a change.
type attempt struct {
	*ReportWriter
	change   func(cluster.Report) (cluster.Report, error)
	fence    func(*kv.Txn)
	settling bool // the outcome of a write depends on what can be read

	unread bool // what is stored could not be read
	wrote  bool // there was something to write
}

// carryOut makes the attempt. again: the report is another one than last, or may be.
func (a *attempt) carryOut(ctx context.Context) (again bool, err error) {
	if a.forget.Swap(false) {
		a.known = false
	}
	for read := false; ; {
		if !read && (!a.known || a.late) {
			if err := a.read(ctx); err != nil {
				a.unread = true
				return false, err
			}
			read = true
		}
		next, err := a.change(a.last.Value)
		if err == nil {
			err = next.Check()
		}
		a.wrote = err == nil && !next.Equal(a.last.Value)
		if !read && !a.sure && !a.wrote {
			a.known = false
			continue
		}
		a.sure = false
		if err != nil || !a.wrote && !a.damaged && !a.late {
			return false, err
		}
		return a.write(ctx, next)
	}
}

// Bounds of how long the outcome of a write is searched for.
const (
	settlePause  = 100 * time.Millisecond
	settleWithin = 15 * time.Second
)

// read reads the report and the desired version; for the outcome of a write it waits for
// Consul for a while.
func (a *attempt) read(ctx context.Context) error {
	if !a.settling {
		return a.readOnce(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	retry := concurrency.NewBackoff(settlePause, settleWithin/4)
	for {
		err := a.readOnce(ctx)
		if !errors.Is(err, consul.ErrUnreachable) && !errors.Is(err, consul.ErrRateLimited) {
			return err
		}
		if retry.Wait(ctx) != nil {
			return err
		}
	}
}

// readOnce is one attempt of read.
func (w *ReportWriter) readOnce(ctx context.Context) error {
	store, doc := w.cluster.store, w.Document()
	if w.late {
		store = store.Consistent()
	}
	r, err := store.Txn().Get(doc.Key()).Get(cluster.KeyDesired).Commit(ctx)
	if err != nil {
		return err
	}
	e, err := doc.From(r)
	damaged := errors.Is(err, kv.ErrDamaged)
	if damaged {
		e.Value = w.last.Value
	} else if err != nil {
		return err
	}
	w.last, w.known, w.sure, w.damaged, w.desired = e, true, false, damaged, ""
	if e, err := w.cluster.desired().From(r); err == nil { // states can do without
		w.desired = strings.TrimSpace(e.Value)
	}
	w.late = w.late && e.Index == w.lateIndex
	return nil
}

// write replaces last by next, and remembers what that left.
func (a *attempt) write(ctx context.Context, next cluster.Report) (again bool, err error) {
	a.known = false
	done, err := a.swap(ctx, next)
	switch {
	case err == nil:
		a.late = false
		if e, readErr := a.Document().Swapped(done, a.last, next); readErr == nil {
			a.last, a.known, a.sure, a.damaged = e, true, true, false
		}
		return false, nil
	case errors.Is(err, consul.ErrOutcomeUnknown):
		a.late, a.lateIndex = true, a.last.Index
		return true, err
	case errors.Is(err, kv.ErrConflict) && a.fence != nil && !conflictOf(err, a.Document().Key()):
		a.known = true // Consul compared it
		return false, err
	}
	return errors.Is(err, kv.ErrConflict), err
}

// conflictOf reports whether key is among what a transaction failed for.
func conflictOf(err error, key string) bool {
	var c *kv.ConflictError
	return errors.As(err, &c) && slices.ContainsFunc(c.Failures, func(f kv.Failure) bool { return f.Key == key })
}

// swap writes the report, with its index keys where the token may write them.
func (a *attempt) swap(ctx context.Context, next cluster.Report) (*kv.Result, error) {
	ops := indexWrites(a.node, indexOf(a.last.Value), indexOf(next))
	if len(ops) >= kv.MaxOps-1 {
		return nil, &consul.Error{Op: "move node", Name: a.node, Class: consul.ErrTooLarge, Err: fmt.Errorf("%d index keys change at once; the limit is %d", len(ops), kv.MaxOps-2)}
	}
	unprojected := a.cluster.unprojected
	if !unprojected.Load() {
		t := a.txn(next)
		for _, o := range ops {
			o.add(t)
		}
		done, err := t.Commit(ctx)
		if !a.cluster.deniedProjection(err) {
			return done, err
		}
	}
	done, err := a.txn(next).Commit(ctx)
	if err == nil {
		unprojected.Store(true)
	}
	return done, err
}

// txn returns a transaction that replaces last by next while what fence adds holds. It
// changes the report's index also where both are alike.
func (a *attempt) txn(next cluster.Report) *kv.Txn {
	t := a.cluster.store.Txn()
	if a.fence != nil {
		a.fence(t)
	}
	a.Document().RewriteIn(t, a.last, next)
	return t
}

// ReportVersion records that node runs version, and reports whether that was news. It
// writes nothing when it is known. It returns text.ErrName, consul.ErrRefused for names that
// this Consul takes in no key, or what ReportWriter.Change returns.
func (c *Cluster) ReportVersion(ctx context.Context, node, version string) (changed bool, err error) {
	if err := cluster.CheckVersion(version); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, runningKey(version, node)); err != nil {
		return false, err
	}
	return c.ReportWriter(node).Change(ctx, func(d cluster.Report) (cluster.Report, error) { return d.At(version, now()), nil })
}

// checkIndexKey returns text.ErrName, or consul.ErrRefused when this Consul does not read
// key, an index key of node.
func (c *Cluster) checkIndexKey(ctx context.Context, node, key string) error {
	if err := cluster.CheckNode(node); err != nil {
		return err
	}
	return c.store.CheckNames(ctx, key)
}

// SetState records the state of node in a category, and reports whether that was
// news; s.Since is not used. Without s.Version the state is about the desired
// version, or about the one that the node runs. A node that is provisioned
// stays so: cluster.ErrProvisioned. It returns text.ErrName, cluster.ErrBadState, consul.ErrRefused
// for names that this Consul takes in no key, or what
// ReportWriter.Change returns.
func (c *Cluster) SetState(ctx context.Context, node, category string, s cluster.CategoryState) (changed bool, err error) {
	if err := cluster.CheckState(category, s.State); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, statusKey(category, s.State, node)); err != nil {
		return false, err
	}
	w := c.ReportWriter(node)
	return w.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
		if category == cluster.CategoryProvisioned && d.States[category].State == cluster.StateSuccess {
			if s.State != cluster.StateSuccess {
				return d, fmt.Errorf("node %q: %w since %s: only 'jorc status decommission' ends that", node, cluster.ErrProvisioned, d.States[category].Since.Format(time.RFC3339))
			}
			return d, nil
		}
		s := s
		if s.Version == "" && cluster.CheckVersion(w.desired) == nil {
			s.Version = w.desired
		}
		if s.Version == "" {
			s.Version = d.Version
		}
		return d.With(category, s, now()).Refreshed(category, now()), nil
	})
}

// Reports returns the reports of all nodes by name, to list or watch. They are
// changed with a ReportWriter only.
func (c *Cluster) Reports() kv.Tree[cluster.Report] { return c.reports }

// now is the time as reports hold it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
