package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTurns: members line up in the order in which they are admitted, evenly
// and within a time that grows with their number up to a bound.
func TestTurns(t *testing.T) {
	t.Parallel()
	const members = 1000
	keys := make([]Key, members)
	for i := range keys {
		keys[i] = Policy{}.KeyOf("v1", fmt.Sprint("node-", i), nil, "")
	}
	slices.SortFunc(keys, Key.Compare)
	var last time.Duration
	for i, k := range keys {
		turn := k.turn(members)
		if off := turn - time.Duration(i)*lineUp(members)/members; turn < last || off.Abs() > lineUp(members)/10 {
			t.Errorf("member %d of %d lines up after %v, the one before it after %v", i, members, turn, last)
		}
		last = turn
	}
	if first := keys[0].turn(1_000_000); last > lineUp(members) || first > lineUpWithin/100 {
		t.Errorf("the last of %d lines up after %v, the first of a million after %v", members, last, first)
	}
	if got := keys[members-1].turn(1_000_000); got > lineUpWithin {
		t.Errorf("the last of a million lines up after %v", got)
	}
	for n, want := range map[int]time.Duration{1: lineUpEvery, 100: 100 * lineUpEvery, 10_000: 10_000 * lineUpEvery, 1_000_000: lineUpWithin} {
		if want = min(want, lineUpWithin); lineUp(n) != want {
			t.Errorf("%d members line up within %v; want %v", n, lineUp(n), want)
		}
	}
	if got := (Key{}).turn(members); got != 0 {
		t.Errorf("a member without a hash lines up after %v", got)
	}
}
