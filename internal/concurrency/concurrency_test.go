package concurrency_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		if err := concurrency.Sleep(ctx, time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("got %v after %v, want nil after an hour", err, time.Since(start))
		}
		time.AfterFunc(time.Minute, cancel)
		start = time.Now()
		if err := concurrency.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want context.Canceled after a minute", err, time.Since(start))
		}
	})
}

func TestSignalWaitUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		news := concurrency.NewSignal()
		at := time.Now().Add(time.Hour)
		if err := news.WaitUntil(t.Context(), at); !errors.Is(err, context.DeadlineExceeded) || !time.Now().After(at) {
			t.Errorf("without news: %v at %v, want that it is later than %v", err, time.Now(), at)
		}
		time.AfterFunc(time.Minute, news.Notify)
		start := time.Now()
		if err := news.WaitUntil(t.Context(), time.Time{}); err != nil || time.Since(start) != time.Minute {
			t.Errorf("with news after a minute: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := news.WaitUntil(ctx, time.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("once ctx has ended: %v", err)
		}
	})
}

func TestSleepUnless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(wake) })
		start := time.Now()
		if err := concurrency.SleepUnless(t.Context(), wake, time.Hour); err != nil || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want nil after a minute", err, time.Since(start))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := concurrency.SleepUnless(ended, nil, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: got %v, want context.Canceled", err)
		}
	})
}

func TestSignal(t *testing.T) {
	s := concurrency.NewSignal()
	s.Notify()
	s.Notify()
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.C():
		t.Error("two calls of Notify before the first Wait woke twice")
	default:
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with an ended context: got %v, want context.Canceled", err)
	}
}

func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l concurrency.Latest[int]
		if v, known := l.Get(); known {
			t.Errorf("a new Latest has the value %d", v)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []int
		var watcher sync.WaitGroup
		watcher.Go(func() {
			if err := l.Watch(ctx, func(v int) { seen = append(seen, v) }); !errors.Is(err, context.Canceled) {
				t.Errorf("Watch returned %v, want context.Canceled", err)
			}
		})
		for _, v := range []int{1, 1, 2, 3} {
			synctest.Wait()
			l.Set(v)
		}
		synctest.Wait()
		cancel()
		watcher.Wait()
		if want := []int{1, 2, 3}; !slices.Equal(seen, want) {
			t.Errorf("Watch saw %v, want %v", seen, want)
		}
		if v, err := l.Wait(t.Context(), func(v int) bool { return v == 3 }); v != 3 || err != nil {
			t.Errorf("Wait for the present value: got %d, %v", v, err)
		}
		if _, err := l.Wait(ctx, func(v int) bool { return v == 4 }); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait with an ended context: got %v, want context.Canceled", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	const first, most = time.Second, 10 * time.Second
	b := concurrency.NewBackoff(first, most)
	for range 2 {
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			want *= time.Second
			if got := b.Next(); got < want*3/4 || got > want*5/4 {
				t.Errorf("pause %d: got %v, want %v ± 25 %%", i, got, want)
			}
		}
		b.Reset()
	}
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, reported := 0, 0
		err := concurrency.Retry(t.Context(), concurrency.NewBackoff(time.Second, time.Minute), func(context.Context) error {
			if tries++; tries < 4 {
				return errors.New("not yet")
			}
			return nil
		}, func(err error, pause time.Duration) {
			if reported++; err == nil || pause <= 0 {
				t.Errorf("reported %v with a pause of %v", err, pause)
			}
		})
		if err != nil || tries != 4 || reported != 3 {
			t.Errorf("got %v after %d tries and %d reports, want nil after 4 and 3", err, tries, reported)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err = concurrency.Retry(ctx, concurrency.NewBackoff(time.Second, time.Minute), func(context.Context) error { return errors.New("never") }, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want context.DeadlineExceeded", err)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var pauses []time.Duration
		runs := 0
		err := concurrency.Restart(ctx, concurrency.NewBackoff(time.Second, time.Minute), time.Hour, func(ctx context.Context) error {
			switch runs++; runs {
			case 4:
				return concurrency.Sleep(ctx, 2*time.Hour) // calm: the pauses begin again
			case 6:
				cancel()
			}
			return errors.New("ended")
		}, func(_ error, pause time.Duration) { pauses = append(pauses, pause.Round(time.Second)) })
		if err != nil || runs != 6 || len(pauses) != 5 {
			t.Fatalf("got %v, %d runs, pauses %v", err, runs, pauses)
		}
		if pauses[2] < 3*time.Second || pauses[3] > 2*time.Second {
			t.Errorf("pauses %v: want them to grow, and to begin again after a run longer than calm", pauses)
		}
	})
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 5: 16 * time.Minute, 6: 30 * time.Minute, 1 << 40: 30 * time.Minute} {
		if got := concurrency.Delay(time.Minute, 30*time.Minute, n); got != want {
			t.Errorf("after failure %d: got %v, want %v", n, got, want)
		}
	}
}
