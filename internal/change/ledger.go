package change

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// FencingKeys are the keys on which offers of all kinds depend, beside the ones of their own.
var FencingKeys = [...]string{cluster.KeyControl, cluster.KeyLeaders, cluster.KeyProfile}

// Fence adds to t that the FencingKeys still have these indexes.
func Fence(t *kv.Txn, indexes map[string]uint64) {
	for _, key := range FencingKeys {
		t.CheckIndex(key, indexes[key])
	}
}

// Ledger is the document at orchestrate/grants. Every transaction that offers hosts something
// swaps it, so that of two plans made of the same state one is carried out.
type Ledger struct {
	Term uint64 `json:"term"` // counts holders of the lock
	Seq  uint64 `json:"seq"`  // counts transactions in a term
	// Quiet is until when nothing is granted, as Consul's KV was restored: hosts
	// report meanwhile what they are at.
	Quiet time.Time `json:"quiet,omitzero"`
}

// Next is the ledger after one transaction more. Its value is always another one: Consul keeps the index
// of a key that is written with the same bytes.
func (l Ledger) Next() Ledger {
	l.Seq++
	return l
}

// After reports whether l was written after o. One ledger after the other is, unless Consul's KV was restored.
func (l Ledger) After(o Ledger) bool { return l.Term > o.Term || l.Term == o.Term && l.Seq > o.Seq }

// ID names a grant of the transaction that writes l. Sessions differ also where
// a restored ledger counts the same numbers again.
func (l Ledger) ID(session string) string {
	return fmt.Sprintf("%d.%d.%.8s", l.Term, l.Seq, session)
}

// ledgerOf is the ledger in which a grant was offered, by its ID; the zero Ledger: it is not an ID.
func ledgerOf(id string) (l Ledger) {
	first, rest, _ := strings.Cut(id, ".")
	second, _, _ := strings.Cut(rest, ".")
	l.Term, _ = strconv.ParseUint(first, 10, 64)
	l.Seq, _ = strconv.ParseUint(second, 10, 64)
	return l
}

// Earlier reports whether the grant a was offered before b, by their IDs; one without an ID is earlier than all others.
func Earlier(a, b string) bool { return ledgerOf(b).After(ledgerOf(a)) }

// Bounds of what is believed of hosts about the ledger, which counts on from that.
const (
	mostTermsAhead = 1 << 20
	mostSeq        = 1 << 53
)

// Answered is the latest ledger in which hosts were offered something that they answered, as their reports say; without one
// that no ledger can have reached.
func (l Ledger) Answered(s *cluster.State) (latest Ledger) {
	for _, h := range s.Hosts {
		for _, a := range h.Report.Grants {
			for _, id := range [...]string{a.ID, a.Declined} {
				if said := ledgerOf(id); said.After(latest) && said.Seq < mostSeq && (said.Term < l.Term || said.Term-l.Term <= mostTermsAhead) {
					latest = said
				}
			}
		}
	}
	return latest
}

// Ledgers is the ledger of a cluster in Consul's KV.
type Ledgers struct {
	store *kv.Store
	doc   kv.Doc[Ledger]
}

const ledgerFormat = 1

// NewLedgers returns the ledger of the cluster with a store. It does no I/O.
func NewLedgers(s *kv.Store) Ledgers {
	return Ledgers{s, kv.NewDoc[Ledger](s, cluster.KeyGrantLedger, ledgerFormat)}
}

// Get reads the ledger, as no server that lost its leadership can answer. One that is damaged counts as empty. It returns
// kv.ErrNewer, consul.ErrDenied or consul.ErrUnreachable.
func (l Ledgers) Get(ctx context.Context) (kv.Entry[Ledger], error) {
	e, err := l.doc.In(l.store.Consistent()).Get(ctx)
	if errors.Is(err, kv.ErrDamaged) {
		return kv.Entry[Ledger]{}, nil
	}
	return e, err
}

// From returns what a transaction read of the key cluster.KeyGrantLedger, or kv.ErrDamaged or kv.ErrNewer.
func (l Ledgers) From(read *kv.Result) (kv.Entry[Ledger], error) { return l.doc.From(read) }

// Swap adds to t the swap of the ledger, which every transaction needs that offers
// hosts something. It returns the ledger as it is then.
func (l Ledgers) Swap(t *kv.Txn, old kv.Entry[Ledger]) Ledger {
	next := old.Value.Next()
	l.doc.SwapIn(t, old, next)
	return next
}

// Renewal is how a ledger is renewed.
type Renewal struct {
	Begin bool   // a new term begins
	Known Ledger // that was written before: the ledger counts on from it. An earlier one that is stored shows that Consul's KV was restored
	// State is what hosts have answered: that was written before, too; nil: it is not known.
	State *cluster.State
	// Restored is when a restore was noticed otherwise; zero: none was.
	Restored time.Time
	Quiet    time.Duration // for how long nothing is granted after a restore
}

// quietUntil is until when nothing is granted after a restore that was noticed then, to the second: never shorter.
func quietUntil(noticed time.Time, quiet time.Duration) time.Time {
	return noticed.Add(quiet + time.Second - 1).UTC().Truncate(time.Second)
}

// of is the ledger after the renewal of old.
func (r Renewal) of(old Ledger, now time.Time) Ledger {
	if r.State != nil {
		if answered := old.from(r.Known).Answered(r.State); answered.After(r.Known) {
			r.Known = answered
		}
	}
	noticed := r.Restored
	if noticed.IsZero() && r.Known.After(old) {
		noticed = now
	}
	if until := quietUntil(noticed, r.Quiet); !noticed.IsZero() && old.Quiet.Before(noticed) && now.Before(until) {
		old.Quiet = until
	}
	old = old.from(r.Known)
	if r.Begin {
		old.Term, old.Seq = old.Term+1, 0
	}
	return old.Next()
}

// Renew swaps the ledger alone and returns it: no transaction that was sent before
// and swaps it, too, can be carried out from then on. It tries until that is certain and returns what Commit returns otherwise.
func (l Ledgers) Renew(ctx context.Context, r Renewal) (kv.Entry[Ledger], error) {
	return l.change(ctx, func(old Ledger) Ledger { return r.of(old, time.Now()) })
}

// Quiet has orchestrators grant nothing for a while from now on, also those of later terms. The ledger counts on from known, as that was
// written before. Its errors are those of Renew.
func (l Ledgers) Quiet(ctx context.Context, quiet time.Duration, known Ledger) error {
	until := quietUntil(time.Now(), quiet)
	_, err := l.change(ctx, func(old Ledger) Ledger {
		old = old.from(known)
		old.Quiet = until
		return old.Next()
	})
	return err
}

// from is l where it counts on from known.
func (l Ledger) from(known Ledger) Ledger {
	if known.After(l) {
		l.Term, l.Seq = known.Term, known.Seq
	}
	return l
}

func (l Ledgers) change(ctx context.Context, change func(Ledger) Ledger) (swapped kv.Entry[Ledger], err error) {
	err = kv.RetryConflicts(ctx, func() error {
		e, err := l.doc.In(l.store.Consistent()).Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return err
		}
		t := l.store.Txn()
		next := change(e.Value)
		l.doc.SwapIn(t, e, next)
		done, err := t.Commit(ctx)
		switch {
		case errors.Is(err, consul.ErrOutcomeUnknown):
			return fmt.Errorf("%w: %w", kv.ErrConflict, err) // swapping it again settles that
		case err != nil:
			return err
		}
		swapped = kv.Entry[Ledger]{Value: next, Index: done.Index(cluster.KeyGrantLedger), Exists: true}
		return nil
	})
	return swapped, err
}
