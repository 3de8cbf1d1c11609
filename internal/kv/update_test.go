package kv_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

func TestConcurrentUpdatesAllCount(t *testing.T) {
	t.Parallel()
	_, srv := newStoreAlone(t)
	const stores, goroutines, rounds = 8, 4, 10
	var all sync.WaitGroup
	for range stores {
		doc := kv.NewDoc[counter](kv.New(srv.Client(), "p"), "n", 1)
		for range goroutines {
			all.Go(func() {
				for range rounds {
					if _, err := doc.Update(t.Context(), increment); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	doc := kv.NewDoc[counter](kv.New(srv.Client(), "p"), "n", 1)
	if got := mustGet(t, doc).Value.N; got != stores*goroutines*rounds {
		t.Errorf("the counter is %d; want %d", got, stores*goroutines*rounds)
	}
}

func TestUpdateWritesOnlyChanges(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	doc := kv.NewDoc[counter](s, "n", 1)
	e, err := doc.Update(t.Context(), increment)
	if err != nil || e.Value.N != 1 {
		t.Fatalf("Update = %+v, %v", e, err)
	}
	same, err := doc.Update(t.Context(), func(old kv.Entry[counter]) (counter, bool, error) { return counter{}, false, nil })
	if err != nil || same.Value.N != 1 || same.Index != e.Index {
		t.Errorf("Update without a change = %+v, %v; want %+v", same, err, e)
	}
	errNo := errors.New("no")
	_, err = doc.Update(t.Context(), func(old kv.Entry[counter]) (counter, bool, error) { return counter{}, true, errNo })
	wantIs(t, "Update with a refusal", err, errNo)
	if got := raw(t, s, srv, "n").ModifyIndex; got != e.Index {
		t.Errorf("the index moved from %d to %d", e.Index, got)
	}
}

// TestLostAnswers cuts the connection around one write of an update.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	_, srv := newStoreAlone(t)
	other := kv.NewDoc[counter](kv.New(srv.Client(), "jorc/default"), "n", 1)
	overwrite := func(ctx context.Context) {
		if _, err := other.Update(ctx, increment); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name          string
		create        bool
		before, after int64
		between       func(context.Context)
		want          error
		n             int // in the end; it starts at 10
	}{
		{name: "carried out, answer lost", after: 1, n: 11},
		{name: "never arrived", before: 1, n: 11},
		{name: "never arrived, three times", before: 3, n: 11},
		{name: "never arrived, then answer lost", before: 1, after: 1, n: 11},
		{name: "carried out and overwritten", after: 1, between: overwrite, want: consul.ErrOutcomeUnknown, n: 12},
		{name: "created, answer lost", create: true, after: 1, n: 1},
		{name: "creation never arrived", create: true, before: 1, want: consul.ErrOutcomeUnknown, n: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustGet(t, other)
			if c.create && e.Exists {
				if err := other.Delete(t.Context(), e.Index); err != nil {
					t.Fatal(err)
				}
			} else if !c.create {
				mustSwap(t, other, e, counter{N: 10})
			}
			cut := newCutter(t, srv)
			if c.between != nil {
				cut.between = func() { c.between(t.Context()) }
			}
			cut.before.Store(c.before)
			cut.after.Store(c.after)
			_, err := kv.NewDoc[counter](cut.store, "n", 1).Update(t.Context(), increment)
			wantIs(t, "the update", err, c.want)
			if errors.Is(err, kv.ErrConflict) {
				t.Errorf("the update = %v; an unknown outcome is no conflict", err)
			}
			if got := mustGet(t, other).Value.N; got != c.n {
				t.Errorf("the counter is %d; want %d", got, c.n)
			}
		})
	}
}

func TestUnknownWhenConsulFreezes(t *testing.T) {
	t.Parallel()
	_, srv := newStoreAlone(t)
	way := srv.Proxy()
	doc := kv.NewDoc[counter](kv.New(way.Client(), "jorc/default"), "n", 1)
	mustSwap(t, doc, kv.Entry[counter]{}, counter{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := doc.Update(ctx, func(old kv.Entry[counter]) (counter, bool, error) {
		srv.Freeze() // after the read, before the write
		way.Do(func(*http.Request) consultest.Fault {
			cancel() // the write is sent: the caller loses patience
			return consultest.Fault{}
		})
		return increment(old)
	})
	srv.Thaw()
	wantIs(t, "Update of a frozen Consul", err, consul.ErrOutcomeUnknown)
	e, err := doc.Update(t.Context(), increment)
	if err != nil || e.Value.N != 1 && e.Value.N != 2 {
		t.Errorf("Update afterwards = %+v, %v", e, err)
	}
}

func TestOutcomesWhenConsulIsKilled(t *testing.T) {
	t.Parallel()
	srv := consultest.Start(t, consultest.Persistent())
	client := srv.Client()
	doc := kv.NewDoc[counter](kv.New(client, "p"), "n", 1)
	mustSwap(t, doc, kv.Entry[counter]{}, counter{})
	var done, unknown atomic.Int64
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for range 8 {
		mine := kv.NewDoc[counter](kv.New(srv.Client(), "p"), "n", 1)
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := mine.Update(t.Context(), increment)
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, consul.ErrOutcomeUnknown):
					unknown.Add(1)
				case !errors.Is(err, consul.ErrUnreachable):
					t.Errorf("Update = %v", err)
				}
			}
		})
	}
	for range 2 {
		before := done.Load()
		progress := func(context.Context) error {
			if done.Load() < before+50 {
				return errors.New("too few increments yet")
			}
			return nil
		}
		consultest.Eventually(t, "increments", progress)
		srv.Kill()
		srv.Restart()
		before = done.Load()
		consultest.Eventually(t, "increments after the restart", progress)
	}
	close(stop)
	writers.Wait()
	n, low := int64(mustGet(t, doc).Value.N), done.Load()
	if high := low + unknown.Load(); n < low || n > high {
		t.Errorf("the counter is %d; the writers were told of %d to %d increments", n, low, high)
	}
	t.Logf("%d increments, %d told as done, %d as unknown", n, low, unknown.Load())
}

// TestBackoffIsForgotten: a store that met no other writer keeps nothing of the
// keys that it changed.
func TestBackoffIsForgotten(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for i := range 10 {
		if _, err := kv.NewDoc[counter](s, fmt.Sprint("n", i), 1).Update(t.Context(), increment); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.BusyKeys(); n != 0 {
		t.Errorf("%d keys are kept; want none", n)
	}
}

// TestCASBackoff: the window follows the share of attempts that conflict.
func TestCASBackoff(t *testing.T) {
	t.Parallel()
	const took = time.Millisecond
	var b kv.CASBackoff
	b.Succeeded(took)
	if got := b.Window(); got != 0 {
		t.Errorf("a window of %v without a conflict", got)
	}
	for want := took; want <= 8*took; want *= 2 {
		if pause := b.Failed(took); b.Window() != want || pause > want {
			t.Errorf("window %v and pause %v; want %v", b.Window(), pause, want)
		}
	}
	if b.Succeeded(took); b.Window() != 6*took {
		t.Errorf("window %v after a success; want %v", b.Window(), 6*took)
	}
	for range 10 {
		b.Succeeded(took)
	}
	if b.Window() != 0 {
		t.Errorf("a window of %v after many successes", b.Window())
	}
	for took, widest := range map[time.Duration]time.Duration{
		time.Millisecond: 250 * time.Millisecond, 10 * time.Millisecond: 640 * time.Millisecond, time.Second: 8 * time.Second,
	} {
		var b kv.CASBackoff
		for range 20 {
			b.Failed(took)
		}
		if b.Window() != widest {
			t.Errorf("attempts of %v: window %v after twenty conflicts; want %v", took, b.Window(), widest)
		}
	}
}
