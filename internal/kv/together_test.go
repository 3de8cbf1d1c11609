package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// proxied returns a store whose requests are counted.
func proxied(t *testing.T) (*kv.Store, *consultest.Proxy, *consultest.Server) {
	t.Helper()
	_, srv := newStore(t)
	p := srv.Proxy()
	return kv.New(p.Client(), "jorc/default"), p, srv
}

// waiting returns when n more wait for the document than the one in its turn.
func waiting(t *testing.T, s *kv.Store, n int) {
	t.Helper()
	consultest.Eventually(t, "others wait", func(context.Context) error {
		if got := s.Waiting("n"); got != n {
			return fmt.Errorf("%d wait; want %d", got, n)
		}
		return nil
	})
}

var errRefused = errors.New("refused")

// TestTogether lets twenty wait for one: those that want to write do so with
// one transaction, those that refuse have their own error.
func TestTogether(t *testing.T) {
	t.Parallel()
	s, proxy, _ := proxied(t)
	doc := kv.NewDoc[counter](s, "n", 1)
	mustSwap(t, doc, kv.Entry[counter]{}, counter{N: 10})
	begin, began := proxy.Asked("/v1/txn"), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := doc.UpdateTogether(t.Context(), func(old kv.Entry[counter]) (counter, bool, error) {
			close(began)
			waiting(t, s, 20)
			return increment(old)
		})
		wantIs(t, "the first update", err, nil)
	})
	<-began
	for i := range 20 {
		all.Go(func() {
			e, err := doc.UpdateTogether(t.Context(), func(old kv.Entry[counter]) (counter, bool, error) {
				switch i % 4 {
				case 0:
					return counter{N: -1}, true, errRefused
				case 1:
					return counter{N: -1}, false, nil
				}
				return increment(old)
			})
			if i%4 == 0 {
				wantIs(t, "an update that is refused", err, errRefused)
			} else if err != nil || e.Value.N != 21 || !e.Exists {
				t.Errorf("update %d = %+v, %v; want 21", i, e, err)
			}
		})
	}
	all.Wait()
	if got := mustGet(t, doc).Value.N; got != 21 {
		t.Errorf("the counter is %d; want 21", got)
	}
	if got := proxy.Asked("/v1/txn") - begin; got != 2 {
		t.Errorf("%d transactions; want 2", got)
	}
}

// TestTogetherEachItsOwnContext: neither the end of the first one's context
// nor that of one that waits is the others' failure.
func TestTogetherEachItsOwnContext(t *testing.T) {
	t.Parallel()
	s, _, _ := proxied(t)
	doc := kv.NewDoc[counter](s, "n", 1)
	mustSwap(t, doc, kv.Entry[counter]{}, counter{N: 10})
	first, endFirst := context.WithCancel(t.Context())
	defer endFirst()
	impatient, endImpatient := context.WithCancel(t.Context())
	defer endImpatient()
	began, gone := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := doc.UpdateTogether(first, func(old kv.Entry[counter]) (counter, bool, error) {
			close(began)
			waiting(t, s, 5)
			endImpatient()
			<-gone
			endFirst()
			return counter{N: old.Value.N + 100}, false, first.Err()
		})
		wantIs(t, "the update that was cancelled", err, context.Canceled)
	})
	<-began
	all.Go(func() {
		defer close(gone)
		_, err := doc.UpdateTogether(impatient, func(old kv.Entry[counter]) (counter, bool, error) {
			t.Error("asked one that waits no more")
			return old.Value, false, nil
		})
		wantIs(t, "the update that waited too long", err, context.Canceled)
	})
	for range 4 {
		all.Go(func() {
			_, err := doc.UpdateTogether(t.Context(), increment)
			wantIs(t, "an update behind one that was cancelled", err, nil)
		})
	}
	all.Wait()
	if got := mustGet(t, doc).Value.N; got != 14 {
		t.Errorf("the counter is %d; want 14", got)
	}
}

// TestTogetherWithOneTooLarge: what is wrong with one is not the others' failure.
func TestTogetherWithOneTooLarge(t *testing.T) {
	t.Parallel()
	s, _, _ := proxied(t)
	doc := kv.NewText(s, "n")
	began := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := doc.UpdateTogether(t.Context(), func(kv.Entry[string]) (string, bool, error) {
			close(began)
			waiting(t, s, 3)
			return "x", true, nil
		})
		wantIs(t, "the first update", err, nil)
	})
	<-began
	for i := range 3 {
		all.Go(func() {
			_, err := doc.UpdateTogether(t.Context(), func(old kv.Entry[string]) (string, bool, error) {
				if i == 0 {
					return old.Value + strings.Repeat("y", kv.MaxValue), true, nil
				}
				return old.Value + "z", true, nil
			})
			if i == 0 {
				wantIs(t, "an update beyond the limit", err, consul.ErrTooLarge)
			} else {
				wantIs(t, "an update beside one beyond the limit", err, nil)
			}
		})
	}
	all.Wait()
	if got := mustGet(t, doc).Value; got != "xzz" {
		t.Errorf("the text is %.20q; want xzz", got)
	}
}

func TestReadingAndChangingAreTwoRequests(t *testing.T) {
	t.Parallel()
	s, proxy, srv := proxied(t)
	doc, theirs := kv.NewDoc[counter](s, "n", 1), kv.NewDoc[counter](kv.New(srv.Client(), "jorc/default"), "n", 1)
	seen := mustSwap(t, doc, kv.Entry[counter]{}, counter{N: 1})
	look := func() {
		t.Helper()
		if _, err := doc.GetToChange(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	change := func(from, to, requests int) {
		t.Helper()
		before := proxy.Asked("/")
		e, err := doc.UpdateTogether(t.Context(), func(old kv.Entry[counter]) (counter, bool, error) {
			if old.Value.N != from {
				return counter{}, false, errRefused
			}
			return counter{N: to}, true, nil
		})
		if err != nil || e.Value.N != to {
			t.Errorf("from %d to %d: %+v, %v", from, to, e, err)
		}
		if got := proxy.Asked("/") - before; got != requests {
			t.Errorf("from %d to %d: %d requests; want %d", from, to, got, requests)
		}
	}
	look()
	change(1, 2, 1)
	look()
	change(2, 1, 1) // also of what it wrote itself
	change(1, 3, 2) // it was of use once
	look()
	seen = mustSwap(t, theirs, mustGet(t, theirs), counter{N: 4})
	change(4, 5, 2) // a refusal of what was seen is not believed
	look()
	mustSwap(t, theirs, mustGet(t, theirs), counter{N: 6})
	if _, err := doc.UpdateTogether(t.Context(), increment); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, theirs); got.Value.N != 7 || got.Index <= seen.Index {
		t.Errorf("after a write in between: %+v; want 7", got)
	}
}

// TestNothingIsKeptWithoutRivals: a store that met no other writer keeps nothing.
func TestNothingIsKeptWithoutRivals(t *testing.T) {
	t.Parallel()
	s, _, _ := proxied(t)
	for i := range 10 {
		doc := kv.NewDoc[counter](s, fmt.Sprint("n", i), 1)
		for _, update := range []updateFunc{kv.Doc[counter].Update, kv.Doc[counter].UpdateTogether} {
			if _, err := update(doc, t.Context(), increment); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.Learned(); n != 0 {
		t.Errorf("%d keys are remembered; want none", n)
	}
}
