package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/sim"
)

var (
	first     = flag.Uint64("sim.seed", 1, "the first seed")
	count     = flag.Uint64("sim.seeds", 2, "how many seeds")
	minutes   = flag.Duration("sim.time", 0, "for how long, in place of a number of seeds")
	processes = flag.Int("sim.processes", 1, "how many processes share the seeds; 1: this one has all")
	skip      = flag.String("sim.skip", "", "numbers of events that are left out, with commas between them")
	only      = flag.String("sim.only", "", "numbers of the events that are not left out, with commas between them")
	without   = flag.String("sim.without", "", "kinds of faults that do not happen, with commas between them: "+strings.Join(sim.Kinds, ","))
	dense     = flag.String("sim.dense", "", "the only kinds of events, with commas between them; there are many of them then")
	late      = flag.Bool("sim.late", false, "writes that fail arrive after their sender has given up")
	shrinks   = flag.Bool("sim.shrink", false, "look for the fewest events and kinds of faults with which a seed fails")
	verbose   = flag.Bool("sim.v", false, "write what happens")
	worker    = flag.String("sim.worker", "", "run the seeds that standard input names, with hosts' disks in this directory; for -sim.processes")
)

// mostEvents is more than a seed has.
const mostEvents = 512

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

// simulate runs one seed. Only one goroutine runs at a time, so that a seed mostly goes as it went before.
func simulate(t *testing.T, o sim.Options) (got sim.Result) {
	t.Helper()
	if *verbose {
		o.Trace = func(s string) { fmt.Println(s) }
		o.Log = hclog.New(&hclog.LoggerOptions{Output: os.Stdout, Level: hclog.Debug, DisableTime: true})
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { got = sim.Run(t.Context(), o) })
	if err := os.RemoveAll(filepath.Join(o.Dir, fmt.Sprint("seed-", o.Seed))); err != nil {
		t.Error(err)
	}
	return got
}

// TestNothingFails: where no request is lost and no process is killed, every version, lease and run ends within
// the budget.
func TestNothingFails(t *testing.T) {
	dir := disks(t)
	for seed := range uint64(3) {
		if got := simulate(t, sim.Options{Seed: seed, Dir: dir, Calm: true}); got.Failed != "" {
			t.Errorf("seed %d: %s", seed, got.Failed)
		}
	}
}

// found are seeds that found a fault. What Go's scheduler decides is not in a seed, so each runs more than once.
var found = []struct {
	what string
	o    sim.Options
}{
	{
		"the disk of a host that had declined an offer was wiped: it waited for another offer, and the orchestrator for the host to be ready",
		sim.Options{Seed: 40061, Without: map[string]bool{"stage": true}},
	},
	{
		"a snapshot without a budget and without a run that waited for places was restored: the places stayed kept for that run, and a version reached no host more",
		sim.Options{Seed: 1058, Without: map[string]bool{"freeze": true, "stage": true}},
	},
	{
		"an orchestrator lost its lock by a restore, or waited for the lock, and granted at once in its next term",
		sim.Options{Seed: 1459},
	},
}

// TestFound: faults that seeds found stay repaired.
func TestFound(t *testing.T) {
	dir := disks(t)
	for _, f := range found {
		for range 3 {
			f.o.Dir = dir
			if got := simulate(t, f.o); got.Failed != "" {
				t.Errorf("seed %d (%s): %s", f.o.Seed, f.what, got.Failed)
			}
		}
	}
}

// crowds are kinds of events of which many come close after one another, and seeds that notice what is planted
// in regressions/.
var crowds = map[string]struct {
	kinds []string
	seeds []uint64
	late  bool // writes arrive late
}{
	"holds":    {[]string{"trigger", "budget", "host held", "host released"}, []uint64{0, 1, 2}, false},
	"pauses":   {[]string{"trigger", "budget", "cluster paused", "cluster resumed", "lease"}, []uint64{0, 1}, false},
	"rollouts": {[]string{"trigger", "rollout paused", "rollout resumed"}, []uint64{0, 3}, false},
	"restores": {[]string{"trigger", "budget", "snapshot", "restore", "lease"}, []uint64{1, 3, 59}, false},
	"runs":     {[]string{"snapshot", "restore", "run", "budget"}, []uint64{3, 12, 39}, false},
	"late":     {[]string{"trigger", "lease", "budget"}, []uint64{0, 3, 6, 8, 11}, true},
	"killed":   {[]string{"run", "host killed"}, []uint64{6, 7}, false},
	"reports":  {[]string{"lease", "host killed"}, []uint64{4, 33, 50, 59}, true},
	"contents": {[]string{"content", "stage resumed", "host killed", "lease"}, []uint64{0, 1, 2}, false},
}

// TestCrowds: nothing is violated when many events of a few kinds come close after one another.
func TestCrowds(t *testing.T) {
	dir := disks(t)
	for name, c := range crowds {
		t.Run(name, func(t *testing.T) {
			for _, seed := range c.seeds {
				if got := simulate(t, sim.Options{Seed: seed, Dir: dir, Dense: c.kinds, Late: c.late}); got.Failed != "" {
					t.Errorf("seed %d: %s", seed, got.Failed)
				}
			}
		})
	}
}

// options are what the flags say, for a seed.
func options(t *testing.T, dir string, seed uint64) sim.Options {
	t.Helper()
	o := sim.Options{Seed: seed, Dir: dir, Skip: numbers(t, "sim.skip", *skip), Without: map[string]bool{}, Late: *late}
	if *dense != "" {
		o.Dense = strings.Split(*dense, ",")
	}
	if kept := numbers(t, "sim.only", *only); len(kept) > 0 {
		for n := range mostEvents {
			if !kept[n] {
				o.Skip[n] = true
			}
		}
	}
	for kind := range strings.SplitSeq(*without, ",") {
		if kind != "" && !slices.Contains(sim.Kinds, kind) {
			t.Fatalf("-sim.without: there is no kind of faults %q: %s", kind, sim.Kinds)
		}
		o.Without[kind] = true
	}
	return o
}

// numbers returns the numbers in the text of a flag.
func numbers(t *testing.T, flag, text string) map[int]bool {
	t.Helper()
	all := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(part); err == nil {
			all[n] = true
		} else if part != "" {
			t.Fatalf("-%s: %v", flag, err)
		}
	}
	return all
}

// TestFaults runs some seeds, or as many as fit into a time, and writes how they went.
func TestFaults(t *testing.T) {
	if *worker != "" {
		work(t, *worker)
		return
	}
	dir := disks(t)
	ran, begun := tally{faults: map[string]int{}}, time.Now()
	seeds := func(yield func(uint64) bool) {
		for seed := *first; *minutes == 0 && seed < *first+*count || time.Since(begun) < *minutes; seed++ {
			if !yield(seed) {
				return
			}
		}
	}
	if n := *processes; n > 1 && (*minutes > 0 || *count > 1) {
		share(t, dir, n, seeds, ran.add)
	} else {
		for seed := range seeds {
			ran.add(seed, simulate(t, options(t, dir, seed)))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(ran.faults)) {
		t.Logf("%6d %s", ran.faults[kind], kind)
	}
	t.Logf("%d seeds, %d requests in %v: %.0f a minute", ran.seeds, ran.steps, time.Since(begun).Round(time.Millisecond), float64(ran.steps)/time.Since(begun).Minutes())
	for _, f := range ran.failed {
		t.Errorf("seed %d: %s", f.seed, f.result.Failed)
	}
	if *shrinks && len(ran.failed) == 0 {
		t.Log("no seed failed, so there is nothing to shrink; a seed does not always fail again")
	}
	for _, f := range ran.failed {
		if *shrinks {
			shrink(t, options(t, dir, f.seed), f.result)
		}
	}
}

// tally is how the seeds went so far.
type tally struct {
	seeds  int
	steps  uint64
	faults map[string]int
	failed []failure
}

type failure struct {
	seed   uint64
	result sim.Result
}

// add counts a seed, and writes how it went.
func (c *tally) add(seed uint64, r sim.Result) {
	c.seeds++
	c.steps += r.Steps
	for kind, n := range r.Faults {
		c.faults[kind] += n
	}
	if r.Failed != "" {
		c.failed = append(c.failed, failure{seed, r})
	}
	line := fmt.Sprintf("seed %d: %d requests, %v, %d offers, at most %d out %s", seed, r.Steps, r.Took.Round(time.Second), r.Offers, r.Most, r.Failed)
	fmt.Println(strings.TrimSpace(line))
}
