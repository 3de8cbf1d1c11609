package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// finish keeps the report if it says something new, answers those who asked
// for the cycle, and says when the next is due after an error. When all of that
// is as it was, nothing is written.
func (t *tenure) finish(ctx context.Context, r *Report, asked []string) error {
	if r.Outcome == OutcomeLost {
		return nil
	}
	var kept []Report
	if t.reports.read && (len(asked) > 0 || t.reports.worth(*r)) {
		kept, *r = t.reports.with(*r)
	}
	keep := func(txn *kv.Txn) {
		if kept != nil {
			t.reports.doc.SetIn(txn, Reports{kept})
		}
	}
	var answers []Answer
	for _, id := range asked {
		answers = append(answers, Answer{ID: id, Report: r.Number})
	}
	written := false
	_, err := t.requests.doc.Change(ctx, func(old kv.Entry[next], txn *kv.Txn) (next, bool, error) {
		n, changed := old.Value.answer(answers)
		n, changed = n.failed(*r, t.backoff, changed)
		if changed {
			keep(txn)
		}
		written = changed
		return n, changed, nil
	})
	switch {
	case errors.Is(err, kv.ErrDamaged):
		txn := t.store.Txn()
		t.requests.doc.SetIn(txn, next{})
		keep(txn)
		_, err = txn.Commit(ctx)
	case err == nil && !written && kept != nil:
		txn := t.store.Txn()
		keep(txn)
		_, err = txn.Commit(ctx)
	}
	if err == nil && kept != nil {
		t.reports.last = kept
	}
	return err
}

// failed says in n when the next cycle is due after an error: nothing new while
// the error and the backoff stay.
func (n next) failed(r Report, backoff time.Duration, changed bool) (next, bool) {
	switch {
	case backoff == 0 && n.Error == "" && n.Due.IsZero():
		return n, changed
	case backoff == 0:
		n.Error, n.Due = "", time.Time{}
	case n.Error == r.Error && backoff == maxBackoff:
		return n, changed
	default:
		n.Error, n.Due = r.Error, time.Now().Add(backoff).UTC().Truncate(time.Second)
	}
	return n, true
}
