package kv_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// BenchmarkUpdate increments one document with 1, 16 and 64 writers, each with
// a store and connections of its own as so many hosts have. ns/op is per
// successful increment of all together: with 16 and 64 it should be at most
// twice that of 1. tries/op counts compare-and-swaps, failed ones included.
func BenchmarkUpdate(b *testing.B) {
	srv := consultest.Start(b)
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			stores := make([]*kv.Store, writers)
			for i := range stores {
				stores[i] = kv.New(srv.Client(), "bench")
			}
			benchmarkUpdate(b, stores)
		})
	}
	b.Run("writers=64/one-process", func(b *testing.B) {
		stores := make([]*kv.Store, 64)
		shared := kv.New(srv.Client(), "bench")
		for i := range stores {
			stores[i] = shared
		}
		benchmarkUpdate(b, stores)
	})
}

func benchmarkUpdate(b *testing.B, stores []*kv.Store) {
	key := fmt.Sprintf("%s/%d", b.Name(), b.N)
	var left, tries atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var writers sync.WaitGroup
	for _, s := range stores {
		writers.Go(func() {
			doc := kv.NewDoc[counter](s, key, 1)
			for left.Add(-1) >= 0 {
				_, err := doc.Update(context.Background(), func(old kv.Entry[counter]) (counter, bool, error) {
					tries.Add(1)
					return increment(old)
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(tries.Load())/float64(b.N), "tries/op")
	if got := mustGet(b, kv.NewDoc[counter](stores[0], key, 1)).Value.N; got != b.N {
		b.Errorf("the counter is %d after %d increments", got, b.N)
	}
}

// BenchmarkLock takes a free lock and gives it back.
func BenchmarkLock(b *testing.B) {
	s, _ := newStoreAlone(b)
	for b.Loop() {
		h, err := s.Lock(b.Context(), "lock", quick)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTransaction writes 62 keys under a lock, all or nothing.
func BenchmarkTransaction(b *testing.B) {
	s, _ := newStoreAlone(b)
	h, err := s.Lock(b.Context(), "lock", kv.LeaseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		txn := h.Txn()
		for i := range 62 {
			n++
			txn.Set(fmt.Sprint("k", i), fmt.Append(nil, n))
		}
		if _, err := txn.Commit(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if err := h.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}
