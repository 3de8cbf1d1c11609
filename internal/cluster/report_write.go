package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// ReportVersion records that node runs version, and reports whether that was news. It
// writes nothing when it is known. It returns text.ErrName, consul.ErrRefused for names that
// this Consul takes in no key, or what ChangeReport returns.
func (c *Cluster) ReportVersion(ctx context.Context, node, version string) (changed bool, err error) {
	if err := CheckVersion(version); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, runningKey(version, node)); err != nil {
		return false, err
	}
	return c.ChangeReport(ctx, node, func(d Report, _ string) (Report, error) {
		return d.At(version, now()), nil
	})
}

// checkIndexKey returns text.ErrName, or consul.ErrRefused when this Consul does not read
// key, an index key of node.
func (c *Cluster) checkIndexKey(ctx context.Context, node, key string) error {
	if err := CheckNode(node); err != nil {
		return err
	}
	return c.store.CheckNames(ctx, key)
}

// SetState records the state of node in a category, and reports whether that was
// news; s.Since is not used. Without s.Version the state is about the desired
// version, or about the one that the node runs. A node that is provisioned
// stays so: ErrProvisioned. It returns text.ErrName, ErrBadState, consul.ErrRefused
// for names that this Consul takes in no key, or what Move returns.
func (c *Cluster) SetState(ctx context.Context, node, category string, s CategoryState) (changed bool, err error) {
	if err := CheckState(category, s.State); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, statusKey(category, s.State, node)); err != nil {
		return false, err
	}
	return c.ChangeReport(ctx, node, func(d Report, desired string) (Report, error) {
		if category == CategoryProvisioned && d.States[category].State == StateSuccess {
			if s.State != StateSuccess {
				return d, fmt.Errorf("node %q: %w since %s: only 'jorc status decommission' ends that", node, ErrProvisioned, d.States[category].Since.Format(time.RFC3339))
			}
			return d, nil
		}
		s := s
		if s.Version == "" && CheckVersion(desired) == nil {
			s.Version = desired
		}
		if s.Version == "" {
			s.Version = d.Version
		}
		return d.With(category, s, now()).refreshed(category, now()), nil
	})
}

// ChangeReport replaces node's document by what change makes of it. change is asked again
// when another process wrote in between, so it must have no effects of its own;
// its second argument is the desired version, which may be empty. When it changes
// nothing, nothing is written. A document that is damaged counts as empty.
//
// The index keys that follow from the document move in the same transaction where
// the token may write them. Where it may not the orchestrator writes them.
//
// ChangeReport returns change's error, text.ErrName, ErrBadState, kv.ErrNewer,
// consul.ErrDenied, consul.ErrUnreachable, consul.ErrTooLarge or
// consul.ErrOutcomeUnknown.
func (c *Cluster) ChangeReport(ctx context.Context, node string, change func(d Report, desired string) (Report, error)) (changed bool, err error) {
	return c.changeReport(ctx, node, change, nil)
}

// ChangeReportFenced is Move of which the transaction also holds what fence adds. When
// that does not hold, nor the document stays, ChangeReportFenced returns kv.ErrConflict
// at once, having written nothing.
func (c *Cluster) ChangeReportFenced(
	ctx context.Context, node string, change func(d Report, desired string) (Report, error), fence func(*kv.Txn),
) (changed bool, err error) {
	return c.changeReport(ctx, node, change, fence)
}

func (c *Cluster) changeReport(
	ctx context.Context, node string, change func(d Report, desired string) (Report, error), fence func(*kv.Txn),
) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	attempt := func() error {
		m, err := c.prepareFromLast(ctx, node, change)
		if changed = m.news; err != nil || !changed {
			return err
		}
		m.fence = fence
		if err = c.commitReport(ctx, m); errors.Is(err, consul.ErrOutcomeUnknown) {
			err = c.settleReport(ctx, m, err)
		}
		return err
	}
	if fence != nil {
		err = attempt()
	} else {
		err = kv.RetryConflicts(ctx, attempt)
	}
	return changed && err == nil, err
}

// reportChange is one step of a node.
type reportChange struct {
	node    string
	old     kv.Entry[Report]
	next    Report
	news    bool   // next is another document
	desired string // version, as it was read

	fence func(*kv.Txn) // adds what else must hold; nil: nothing
}

// lastReport is a node's report as the last transaction of this process left
// it: a possibly stale base of the next compare-and-swap, which detects that.
type lastReport struct {
	mu      sync.Mutex
	node    string
	desired string // as it was last read
	entry   kv.Entry[Report]
	// written: nothing was asked of the entry since it was written, so a change
	// that leaves it as it is needs no read.
	written bool
}

// Remembering returns the same cluster for the one process that writes a node's
// report: it begins a ChangeReport with the report as the last one left it, so that
// most need no read. The desired version is then the one that was last read.
func (c *Cluster) Remembering() *Cluster {
	other := *c
	other.last = &lastReport{}
	return &other
}

// Forget makes the next ChangeReport read the report: another process may have
// replaced it.
func (c *Cluster) Forget() {
	if c.last != nil {
		c.last.set("", "", kv.Entry[Report]{}, false)
	}
}

func (d *lastReport) set(node, desired string, e kv.Entry[Report], written bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.node, d.desired, d.entry, d.written = node, desired, e, written
}

// get returns the report of node; ok is false when it is not known.
func (d *lastReport) get(node string) (e kv.Entry[Report], desired string, written, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	written, d.written = d.written, false
	return d.entry, d.desired, written, d.node == node && d.entry.Exists
}

// prepareFromLast prepares a change of the report that the process remembers, or
// of the stored one.
func (c *Cluster) prepareFromLast(ctx context.Context, node string, change func(Report, string) (Report, error)) (reportChange, error) {
	if c.last == nil {
		return c.prepareReport(ctx, node, change)
	}
	if old, desired, written, ok := c.last.get(node); ok {
		next, err := change(old.Value, desired)
		news := !next.Equal(old.Value)
		if err == nil && next.Check() == nil && (news || written) {
			return reportChange{node: node, old: old, next: next, news: news, desired: desired}, nil
		}
	}
	m, err := c.prepareReport(ctx, node, change)
	if err == nil {
		c.last.set(node, m.desired, m.old, false)
	}
	return m, err
}

// prepareReport reads node's document and the desired version, and asks change.
func (c *Cluster) prepareReport(ctx context.Context, node string, change func(Report, string) (Report, error)) (reportChange, error) {
	doc := c.reports.At(node)
	r, err := c.store.Txn().Get(doc.Key()).Get(KeyDesired).Commit(ctx)
	if err != nil {
		return reportChange{}, err
	}
	old, err := doc.From(r)
	damaged := errors.Is(err, kv.ErrDamaged)
	if damaged {
		old.Value = Report{}
	} else if err != nil {
		return reportChange{}, err
	}
	desired := ""
	if e, err := c.desired().From(r); err == nil { // states can do without
		desired = strings.TrimSpace(e.Value)
	}
	next, err := change(old.Value, desired)
	if err != nil {
		return reportChange{}, err
	}
	if err := next.Check(); err != nil {
		return reportChange{}, err
	}
	return reportChange{node: node, old: old, next: next, news: damaged || !next.Equal(old.Value), desired: desired}, nil
}

// commitReport carries out m, and remembers what that left.
func (c *Cluster) commitReport(ctx context.Context, m reportChange) error {
	done, err := c.swapReport(ctx, m)
	if c.last == nil {
		return err
	}
	c.Forget()
	if err == nil {
		if e, readErr := c.reports.At(m.node).Swapped(done, m.old, m.next); readErr == nil {
			c.last.set(m.node, m.desired, e, true)
		}
	}
	return err
}

// swapReport writes the report, with its index keys where the token may write them.
func (c *Cluster) swapReport(ctx context.Context, m reportChange) (*kv.Result, error) {
	doc := c.reports.At(m.node)
	ops := indexWrites(m.node, indexOf(m.old.Value), indexOf(m.next))
	if len(ops) >= kv.MaxOps-1 {
		return nil, &consul.Error{Op: "move node", Name: m.node, Class: consul.ErrTooLarge, Err: fmt.Errorf("%d index keys change at once; the limit is %d", len(ops), kv.MaxOps-2)}
	}
	if !c.unprojected.Load() {
		t := c.fencedTxn(m)
		doc.SwapIn(t, m.old, m.next)
		for _, o := range ops {
			o.add(t)
		}
		done, err := t.Commit(ctx)
		if !c.deniedProjection(err) {
			return done, err
		}
	}
	t := c.fencedTxn(m)
	doc.SwapIn(t, m.old, m.next)
	done, err := t.Commit(ctx)
	if err == nil {
		c.unprojected.Store(true)
	}
	return done, err
}

// fencedTxn returns a transaction that holds what m's fence adds.
func (c *Cluster) fencedTxn(m reportChange) *kv.Txn {
	t := c.store.Txn()
	if m.fence != nil {
		m.fence(t)
	}
	return t
}

// Bounds of how long the outcome of a write is searched for.
const (
	settlePause  = 100 * time.Millisecond
	settleWithin = 15 * time.Second
)

// settleReport finds out what became of a move whose answer never came: unknown is
// the error it ended with. While the document is as it was the move was not
// carried out so far, and ErrConflict makes it be tried again: of all that ask
// for one index at most one is ever carried out. A document that was and is
// absent may have been created and removed since.
func (c *Cluster) settleReport(ctx context.Context, m reportChange, unknown error) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	doc := c.reports.In(c.store.Consistent()).At(m.node)
	retry := concurrency.NewBackoff(settlePause, settleWithin/4)
	for {
		e, err := doc.Get(ctx)
		switch {
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if retry.Wait(ctx) != nil {
				return unknown
			}
		case e.Exists && e.Index == m.old.Index:
			return fmt.Errorf("%w: %w", kv.ErrConflict, unknown)
		case err == nil && e.Exists && e.Value.Equal(m.next):
			return nil
		default:
			return unknown
		}
	}
}

// Reports returns the reports of all nodes by name, to list or watch. They are
// changed with ChangeReport only.
func (c *Cluster) Reports() kv.Tree[Report] { return c.reports }

// now is the time as reports hold it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
