package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/sim"
)

// tries is how often a smaller seed runs before it counts as one that does not fail: what Go's scheduler decides is not
// in a seed.
const tries = 4

// shrink writes the fewest events, and kinds of faults, with which a seed still violates the same invariant, and how to run
// that again. r is how it went with o.
func shrink(t *testing.T, o sim.Options, r sim.Result) {
	t.Helper()
	var events []int
	for _, e := range r.Events {
		events = append(events, e.Number)
	}
	slices.Sort(events)
	last, all := r, slices.Clone(events)
	fails := func(kept []int, without map[string]bool) bool {
		smaller := o
		smaller.Without, smaller.Skip = without, maps.Clone(o.Skip)
		for _, n := range all {
			if !slices.Contains(kept, n) {
				smaller.Skip[n] = true
			}
		}
		for range tries {
			if got := simulate(t, smaller); got.Failed != "" && got.Invariant() == r.Invariant() {
				last = got
				fmt.Printf("shrink seed %d: it fails with %d of %d events, without faults of the kinds %q: %s\n", o.Seed, len(kept), len(all), names(without), got.Failed)
				return true
			}
		}
		return false
	}
	calmer := func() {
		kinds := slices.DeleteFunc(slices.Clone(sim.Kinds), func(kind string) bool { return o.Without[kind] || kind == "freeze" })
		o.Without = rest(sim.Shrink(kinds, func(kinds []string) bool { return fails(events, rest(kinds, o.Without)) }), o.Without)
	}
	calmer() // a seed with fewer faults takes less time
	events = sim.Shrink(events, func(kept []int) bool { return fails(kept, o.Without) })
	calmer()
	fmt.Printf("\nseed %d fails: %s\nwith these of its events, and without faults of the kinds %q:\n", o.Seed, last.Failed, names(o.Without))
	for _, e := range last.Events {
		fmt.Printf("  %d: %s\n", e.Number, e.Text)
	}
	left := slices.DeleteFunc(all, func(n int) bool { return slices.Contains(events, n) })
	flags := "-sim.skip=" + list(left)
	if len(events) > 0 && len(events) < len(left) && *skip == "" && *only == "" {
		flags = "-sim.only=" + list(events)
	}
	if *dense != "" {
		flags += fmt.Sprintf(" %q", "-sim.dense="+*dense)
	}
	if *late {
		flags += " -sim.late"
	}
	if kinds := names(o.Without); len(kinds) > 0 {
		flags += " -sim.without=" + strings.Join(kinds, ",")
	}
	fmt.Printf("run it again:\n  make sim SEED=%d SEEDS=1 FLAGS='%s -sim.v'\n", o.Seed, flags)
}

// rest are the kinds of faults that kept does not have, with those of before.
func rest(kept []string, before map[string]bool) map[string]bool {
	all := maps.Clone(before)
	for _, kind := range sim.Kinds {
		if !slices.Contains(kept, kind) && kind != "freeze" {
			all[kind] = true
		}
	}
	return all
}

func names(without map[string]bool) (all []string) {
	for _, kind := range sim.Kinds {
		if without[kind] {
			all = append(all, kind)
		}
	}
	return all
}

func list(all []int) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ",") }
