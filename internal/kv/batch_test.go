package kv_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	b := s.NonAtomicBatch()
	const groups = 100
	for i := range groups {
		b.Add(s.Txn().Set(fmt.Sprintf("events/%03d", i), []byte("e")).Set("last", fmt.Append(nil, i)))
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := kv.NewTextTree(s, "events/").Names(t.Context())
	if err != nil || len(names) != groups || !slices.IsSorted(names) {
		t.Errorf("Names = %v, %v", names, err)
	}
	if got := mustGet(t, kv.NewText(s, "last")).Value; got != "99" {
		t.Errorf("the last write is that of %q", got)
	}
}

func TestBatchStopsAtAFailure(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	foreign(t, s, srv, "there", "")
	b := s.NonAtomicBatch()
	for i := range 100 {
		g := s.Txn().Set(fmt.Sprint("k", i), nil)
		if i == 70 {
			g.CheckNotExists("there")
		}
		b.Add(g)
	}
	err := b.Commit(t.Context())
	wantIs(t, "Commit", err, kv.ErrConflict)
	var stopped *kv.BatchError
	if !errors.As(err, &stopped) || stopped.Written != 64 || stopped.Failed != 36 || stopped.Groups != 100 {
		t.Errorf("Commit = %+v; want 64 of 100 groups written", err)
	}
	names, err := kv.NewTextTree(s, "k").Names(t.Context())
	if err != nil || len(names) != 64 {
		t.Errorf("%d keys, %v; want those of the first transaction alone", len(names), err)
	}
}

func TestBatchRefusesAGroupThatFitsNowhere(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	b := s.NonAtomicBatch()
	b.Add(s.Txn().Set("small", nil))
	b.Add(s.Txn().Set("big", make([]byte, 500<<10)))
	err := b.Commit(t.Context())
	wantIs(t, "Commit", err, consul.ErrTooLarge)
	wantText(t, "Commit", err, "group 1")
	if raw(t, s, srv, "small") != nil {
		t.Error("something was written")
	}
	b = s.NonAtomicBatch()
	b.Add(kv.New(srv.Client(), "elsewhere").Txn().Set("k", nil))
	wantIs(t, "Commit of another store's group", b.Commit(t.Context()), consul.ErrRefused)
}

// FuzzBatch reads groups from data: each byte pair is the number of operations
// and the size of their values.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{1, 1, 64, 0, 2, 255, 2, 255, 2, 255})
	f.Add([]byte{64, 0, 1, 0, 63, 1, 1, 1, 0, 0})
	f.Add([]byte{65, 0})
	f.Add([]byte{3, 130, 1, 0, 4, 128})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := kv.New(nil, "p")
		b := s.NonAtomicBatch()
		var want []string
		var ends []int // how many operations there are up to the end of each group
		for i := 0; i+1 < len(data) && i < 60; i += 2 {
			g := s.Txn()
			for n := range int(data[i]) % 70 {
				key := fmt.Sprintf("%d/%d", i, n)
				g.Set(key, make([]byte, int(data[i+1])*700))
				want = append(want, key)
			}
			b.Add(g)
			ends = append(ends, len(want))
		}
		parts, err := b.Parts()
		if err != nil {
			if !errors.Is(err, consul.ErrTooLarge) {
				t.Errorf("Parts = %v", err)
			}
			return
		}
		var got []string
		groups := 0
		for i, p := range parts {
			if p.Txn.Len() > kv.MaxOps || p.Txn.Size() > kv.MaxBody {
				t.Errorf("a part has %d operations and %d bytes", p.Txn.Len(), p.Txn.Size())
			}
			got = append(got, p.Txn.Keys()...)
			groups += p.Groups
			if len(got) != ends[groups-1] {
				t.Errorf("part %d ends within a group", i)
			}
		}
		if !slices.Equal(got, want) || groups != len(ends) {
			t.Errorf("%d groups with %v; want %d with %v", groups, got, len(ends), want)
		}
	})
}
