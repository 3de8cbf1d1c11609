package diagnostics

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// goroutines returns the stacks of all goroutines, without arguments, and how many have
// each: what package runtime/pprof writes. A program that links that package has its
// allocations profiled from its start, in every command.
func goroutines() []byte {
	var records []runtime.StackRecord
	n := runtime.NumGoroutine()
	for ok := false; !ok; {
		records = make([]runtime.StackRecord, n+n/8+16) // more may start meanwhile
		n, ok = runtime.GoroutineProfile(records)
	}
	counts := map[string]int{}
	for i := range records[:n] {
		var b strings.Builder
		frames := runtime.CallersFrames(records[i].Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			fmt.Fprintf(&b, "#\t%s\t%s:%d\n", f.Function, f.File, f.Line)
		}
		counts[b.String()]++
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "goroutine profile: total %d\n", n)
	for _, stack := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { // the most frequent first
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	}) {
		fmt.Fprintf(&out, "%d goroutines\n%s\n", counts[stack], stack)
	}
	return out.Bytes()
}
