package slots

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestMoves(t *testing.T) {
	t.Parallel()
	old := Group{Max: 2, Holders: map[string]Holding{"a": {}, "b": {}}, Queue: []string{"c", "d", "e"}}
	next := Group{Max: 2, Holders: map[string]Holding{"b": {}, "c": {}, "g": {}}, Queue: []string{"e", "f"}}
	want := map[string]move{"a": released, "c": admitted, "d": dropped, "f": queued, "g": entered}
	if got := moves(old, next); !maps.Equal(got, want) {
		t.Errorf("moves = %v; want %v", got, want)
	}
	if got := moves(old, old); len(got) != 0 {
		t.Errorf("moves without a difference = %v", got)
	}
}

// FuzzMoves carries out the moves on sets of keys: afterwards the keys are
// those of the next value.
func FuzzMoves(f *testing.F) {
	f.Add([]byte{0, 1, 2, 1, 0}, []byte{1, 1, 0, 2, 2})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		old, next := groupOf(a), groupOf(b)
		wait, held := set(old.Queue), set(slices.Collect(maps.Keys(old.Holders)))
		for name, m := range moves(old, next) {
			switch m {
			case queued:
				wait[name] = true
				delete(held, name) // its key is left to who puts it there: see enter
			case entered, admitted:
				delete(wait, name)
				held[name] = true
			case dropped:
				delete(wait, name)
			case released:
				delete(held, name)
			}
		}
		if !maps.Equal(wait, set(next.Queue)) || !maps.Equal(held, set(slices.Collect(maps.Keys(next.Holders)))) {
			t.Errorf("%v → %v: keys wait %v, held %v", old, next, wait, held)
		}
	})
}

// groupOf makes a group of bytes: who holds, who waits, who is not there.
func groupOf(b []byte) Group {
	g := Group{Holders: map[string]Holding{}}
	for i, c := range b {
		switch name := fmt.Sprint("n/", i); c % 3 {
		case 1:
			g.Holders[name] = Holding{}
		case 2:
			g.Queue = append(g.Queue, name)
		}
	}
	return g
}
