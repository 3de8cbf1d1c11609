package concurrency_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// TestRest: what begins as soon as its rest is over uses its share of the time, whatever it takes. After a quiet time the first
// rests are short.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		r := concurrency.Rest{Share: 4, Credit: time.Second, Least: 20 * time.Millisecond}
		now := time.Now()
		begin, spent := now, time.Duration(0)
		for now.Sub(begin) < time.Hour {
			now, spent = now.Add(took), spent+took
			rest := r.After(took, now)
			if rest < r.Least {
				t.Fatalf("took %v: a rest of %v, want at least %v", took, rest, r.Least)
			}
			now = now.Add(rest)
		}
		if most := (now.Sub(begin) + r.Credit) / 5; spent > most+took {
			t.Errorf("took %v: %v of %v were spent, want at most %v", took, spent, now.Sub(begin), most)
		}
		now = now.Add(time.Hour + took)
		if got, want := r.After(took, now), max(r.Least, 4*took-r.Credit); got != want {
			t.Errorf("took %v: after a quiet time the rest is %v, want %v", took, got, want)
		}
	}
}
