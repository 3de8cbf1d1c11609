package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// Stored is what is stored of a rollout, read at one moment.
type Stored struct {
	Desired  string // empty: nothing
	Document Document
	Exists   bool // the document
	Ledger   Ledger
	// Session is that of the lock in whose store this was read; empty: none.
	Session string
	// Damaged is why the document of the rollout, or the desired version, cannot be
	// read. Where it is the latter, Desired is what the document says.
	Damaged error

	desired    kv.Entry[string]
	doc        kv.Entry[Document]
	ledger     kv.Entry[Ledger]
	others     map[string]uint64 // the indexes of fencingKeys
	badDesired bool              // what is stored as the desired version is none
	badLedger  bool
}

// Current reports whether there is a rollout of the desired version.
func (s Stored) Current() bool {
	return s.Exists && s.Damaged == nil && s.Document.Version == s.Desired
}

// fencingKeys are the keys beside the rollout's own on which offers depend.
var fencingKeys = [...]string{cluster.KeyControl, cluster.KeyLeaders, cluster.KeyProfile}

// Load reads what is stored, at one moment. What is damaged is not an error:
// Stored says so, and of a document that is, Exists is false. It returns
// kv.ErrNewer, consul.ErrDenied or consul.ErrUnreachable.
func (r *Rollouts) Load(ctx context.Context) (Stored, error) {
	t := r.store.Consistent().Txn().Get(keyDesired).Get(keyRollout).Get(keyLedger)
	for _, key := range fencingKeys {
		t.Get(key)
	}
	read, err := t.Commit(ctx)
	if err != nil {
		return Stored{}, err
	}
	s, err := r.stored(read)
	if err != nil {
		return Stored{}, err
	}
	s.ledger, err = r.ledgers.From(read)
	if s.badLedger = errors.Is(err, kv.ErrDamaged); err != nil && !s.badLedger {
		return Stored{}, err
	}
	s.Ledger, s.others, s.Session = s.ledger.Value, map[string]uint64{}, r.session
	for _, key := range fencingKeys {
		e, err := kv.NewText(r.store, key).From(read)
		if err != nil {
			return Stored{}, err
		}
		s.others[key] = e.Index
	}
	return s, nil
}

// StoredIn is Load of what a state of the cluster says, without a request. The
// ledger is that of the last Renew or Apply of the lock's holder. It returns
// kv.ErrNewer.
func (r *Rollouts) StoredIn(state *cluster.State, ledger kv.Entry[Ledger]) (Stored, error) {
	index := state.Indexes[keyDesired]
	desired := kv.Entry[string]{Value: state.Desired, Index: index, Exists: index != 0}
	doc, err := r.doc.Parse(state.Rollout)
	s, err := r.assemble(desired, doc, err)
	if err != nil {
		return Stored{}, err
	}
	if damaged := state.Damaged[keyDesired]; damaged != nil {
		s.Desired, s.badDesired, s.Damaged = s.Document.Version, true, cmp.Or(s.Damaged, damaged)
	}
	s.Ledger, s.ledger, s.Session, s.others = ledger.Value, ledger, r.session, map[string]uint64{}
	for _, key := range fencingKeys {
		s.others[key] = state.Indexes[key]
	}
	return s, nil
}

// stored is what a transaction read of the desired version and the document.
func (r *Rollouts) stored(read *kv.Result) (Stored, error) {
	desired, err := r.desired.From(read)
	if err != nil {
		return Stored{}, err
	}
	doc, err := r.doc.From(read)
	return r.assemble(desired, doc, err)
}

// assemble puts together the desired version and the document, of which the
// decoding returned docErr.
func (r *Rollouts) assemble(desired kv.Entry[string], doc kv.Entry[Document], docErr error) (Stored, error) {
	s := Stored{Desired: strings.TrimSpace(desired.Value), desired: desired, doc: doc}
	if errors.Is(docErr, kv.ErrDamaged) {
		s.Damaged = docErr
	} else if docErr != nil {
		return Stored{}, docErr
	}
	s.Document, s.Exists = s.doc.Value, s.doc.Exists && s.Damaged == nil
	if err := r.checkDesired(s.Desired); err != nil {
		s.Desired, s.badDesired = s.Document.Version, true
		if s.Damaged == nil {
			s.Damaged = err
		}
	}
	return s, nil
}

// checkDesired returns kv.ErrDamaged for a desired version that is none.
func (r *Rollouts) checkDesired(version string) error {
	if version == "" || cluster.CheckVersion(version) == nil {
		return nil
	}
	return fmt.Errorf("key %q: %w: not a version", r.store.Path(keyDesired), kv.ErrDamaged)
}

// Check returns kv.ErrDamaged or kv.ErrNewer for a document that cannot be read.
func (r *Rollouts) Check(e kv.Entry[string]) error {
	_, err := r.doc.Parse(e)
	return err
}

// fence adds to t what an offer depends on: all that s says of the whole cluster.
func (s Stored) fence(t *kv.Txn) {
	t.CheckIndex(keyDesired, s.desired.Index).CheckIndex(keyRollout, s.doc.Index)
	for key, index := range s.others {
		t.CheckIndex(key, index)
	}
}

// usable returns why there is no rollout to show or to change.
func (s Stored) usable(r *Rollouts) error {
	switch {
	case s.Damaged != nil && s.Exists:
		return fmt.Errorf("%w: 'jorc update trigger %s' continues the last one, and another version begins a new rollout", s.Damaged, s.Document.Version)
	case s.Damaged != nil:
		return fmt.Errorf("%w: 'jorc update trigger VERSION' writes a new one", s.Damaged)
	case !s.Exists:
		return fmt.Errorf("%w: 'jorc update trigger VERSION' begins one", ErrNone)
	case s.Document.Version != s.Desired:
		return fmt.Errorf("%w: the last one was of %s, but key %q says %q: 'jorc update trigger VERSION' begins one",
			ErrNone, s.Document.Version, r.store.Path(keyDesired), s.Desired)
	}
	return nil
}

// write adds to t the document next in place of that of s, and makes its version
// the desired one.
func (r *Rollouts) write(t *kv.Txn, s Stored, next Document) {
	if s.Desired == next.Version && !s.badDesired {
		t.CheckIndex(keyDesired, s.desired.Index)
	} else {
		r.desired.SwapIn(t, s.desired, next.Version)
	}
	r.doc.SwapIn(t, s.doc, next)
}
