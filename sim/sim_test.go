package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

var (
	first   = flag.Uint64("sim.seed", 1, "the first seed")
	count   = flag.Uint64("sim.seeds", 2, "how many seeds")
	minutes = flag.Duration("sim.time", 0, "for how long, in place of a number of seeds")
	skip    = flag.String("sim.skip", "", "numbers of events that are left out, with commas between them")
	verbose = flag.Bool("sim.v", false, "write what happens")
)

// disks is where the disks of hosts are: in memory, if this system has such a directory.
func disks(t *testing.T) string {
	t.Helper()
	if dir, err := os.MkdirTemp("/dev/shm", "jorc-sim-"); err == nil {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	return t.TempDir()
}

// simulate runs one seed.
func simulate(t *testing.T, o Options) (got Result) {
	t.Helper()
	if *verbose {
		o.Trace = func(s string) { fmt.Println(s) }
		o.Log = hclog.New(&hclog.LoggerOptions{Output: os.Stdout, Level: hclog.Debug, DisableTime: true})
	}
	synctest.Test(t, func(t *testing.T) { got = Run(t.Context(), o) })
	return got
}

// TestNothingFails: where no request is lost and no process is killed, every version, lease and run ends within
// the budget.
func TestNothingFails(t *testing.T) {
	dir := disks(t)
	for seed := range uint64(3) {
		if got := simulate(t, Options{Seed: seed, Dir: dir, Calm: true}); got.Failed != "" {
			t.Errorf("seed %d: %s", seed, got.Failed)
		}
	}
}

// found are seeds that found a fault. What Go's scheduler decides is not in a seed, so each runs more than once.
var found = map[uint64]string{
	1028: "a snapshot without a budget and without a run that waited for places was restored: the places stayed kept for that run, and a version reached no host more",
}

// TestFound: faults that seeds found stay repaired.
func TestFound(t *testing.T) {
	dir := disks(t)
	for seed, what := range found {
		for i := range 3 {
			if got := simulate(t, Options{Seed: seed, Dir: filepath.Join(dir, strconv.Itoa(i))}); got.Failed != "" {
				t.Errorf("seed %d (%s): %s", seed, what, got.Failed)
			}
		}
	}
}

// TestFaults runs some seeds, or as many as fit into a time, and writes how they went.
func TestFaults(t *testing.T) {
	dir := disks(t)
	steps, seeds, faults, begun := uint64(0), 0, map[string]int{}, time.Now()
	for seed := *first; *minutes == 0 && seed < *first+*count || time.Since(begun) < *minutes; seed++ {
		got := simulate(t, Options{Seed: seed, Dir: dir, Skip: skipped(t)})
		steps, seeds = steps+got.Steps, seeds+1
		for kind, n := range got.Faults {
			faults[kind] += n
		}
		fmt.Printf("seed %d: %d steps, %v, %d offers, at most %d out %s\n", seed, got.Steps, got.Took.Round(time.Second), got.Offers, got.Most, got.Failed)
		if got.Failed != "" {
			t.Errorf("seed %d: %s", seed, got.Failed)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%6d %s", faults[kind], kind)
	}
	t.Logf("%d seeds, %d steps in %v: %.0f a minute", seeds, steps, time.Since(begun).Round(time.Millisecond), float64(steps)/time.Since(begun).Minutes())
}

// skipped are the events that the flag leaves out.
func skipped(t *testing.T) map[int]bool {
	t.Helper()
	all := map[int]bool{}
	for text := range strings.SplitSeq(*skip, ",") {
		if n, err := strconv.Atoi(text); err == nil {
			all[n] = true
		} else if text != "" {
			t.Fatalf("-sim.skip: %v", err)
		}
	}
	return all
}
