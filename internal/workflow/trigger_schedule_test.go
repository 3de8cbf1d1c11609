package workflow_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/schedule"
	"github.com/jorc/jorc/internal/workflow"
)

// testClock is a clock that a test sets.
type testClock struct {
	mu  sync.Mutex
	now time.Time
	set concurrency.Signal
	// waits receives the time that a trigger waits for.
	waits chan time.Time
}

func newTestClock(t *testing.T, now string) *testClock {
	c := &testClock{set: concurrency.NewSignal(), waits: make(chan time.Time, 100)}
	c.now = instant(t, now)
	return c
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Wait(ctx context.Context, t time.Time) error {
	c.waits <- t
	return c.set.Wait(ctx)
}

// await returns the time that the trigger waits for next.
func (c *testClock) await(t *testing.T) string {
	t.Helper()
	select {
	case at := <-c.waits:
		return at.UTC().Format(time.RFC3339)
	case <-t.Context().Done():
		t.Fatal("the trigger waits for nothing")
		return ""
	}
}

// turn sets the clock while no trigger waits.
func (c *testClock) turn(t *testing.T, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = instant(t, text)
}

// to sets the clock and returns the time that the trigger waits for after that.
func (c *testClock) to(t *testing.T, text string) string {
	t.Helper()
	c.turn(t, text)
	c.set.Notify()
	return c.await(t)
}

// TestSchedule: a workflow runs once per due time, over a change of the clocks, a clock
// that is set, and restarts; missed due times are handled as configured.
func TestSchedule(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	conf := config.Trigger{Name: "nightly", Schedule: "30 2 * * *", Zone: "Europe/Berlin", Missed: schedule.Skip, Workflow: "note"}
	b.clock = newTestClock(t, "2026-03-27T12:00:00Z")
	stop := b.run(conf)
	next := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got the next due time %s, want %s", got, want)
		}
	}
	next(b.clock.await(t), "2026-03-28T01:30:00Z")
	next(b.clock.to(t, "2026-03-28T01:30:00Z"), "2026-03-29T01:00:00Z") // 02:30 is skipped on the 29th
	b.wantChanges("due 2026-03-28T01:30:00Z")
	next(b.clock.to(t, "2026-03-28T00:30:00Z"), "2026-03-29T01:00:00Z") // set back: it has run
	next(b.clock.to(t, "2026-03-29T01:00:01Z"), "2026-03-30T00:30:00Z")
	stop()
	b.clock = newTestClock(t, "2026-03-29T01:00:02Z")
	stop = b.run(conf)
	next(b.clock.await(t), "2026-03-30T00:30:00Z")
	next(b.clock.to(t, "2026-03-31T12:00:00Z"), "2026-04-01T00:30:00Z") // the host slept
	stop()
	want := []string{"due 2026-03-28T01:30:00Z", "due 2026-03-29T01:00:00Z"}
	b.wantChanges(want...)

	conf.Missed = schedule.RunOnce
	b.clock = newTestClock(t, "2026-04-10T12:00:00Z") // down for ten days
	stop = b.run(conf)
	next(b.clock.await(t), "2026-04-11T00:30:00Z")
	want = append(want, "missed 2026-04-10T00:30:00Z")
	b.wantChanges(want...)
	next(b.clock.to(t, "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z") // 02:30 happens twice
	next(b.clock.to(t, "2026-10-25T01:30:00Z"), "2026-10-26T01:30:00Z")
	want = append(want, "due 2026-10-25T00:30:00Z")
	stop()
	b.wantChanges(want...)
}

// TestSchedules: the last and next run and the missed due times of a trigger are known
// before its agent runs, while it runs and after a restart: over a host that was
// suspended, a clock that was set forward and back, and a job that takes too long.
func TestSchedules(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	conf := config.Trigger{Name: "nightly", Schedule: "0 3 * * *", Zone: "Europe/Berlin", Missed: schedule.Skip, Workflow: "note"}
	want := workflow.ScheduleStatus{Trigger: "nightly", Schedule: conf.Schedule, Zone: conf.Zone, Workflow: "note"}
	check := func(when string) {
		t.Helper()
		got := workflow.Schedules(b.dir, b.node, []config.Trigger{{Name: "other", Key: "k"}, conf})
		if ran := !want.LastRun.IsZero(); len(got) == 1 && ran && got[0].Last != nil && got[0].Last.State == workflow.Success {
			got[0].Last = nil
		} else if ran {
			t.Errorf("%s: got %+v, want a last job that succeeded", when, got)
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, want %+v", when, got, want)
		}
	}
	check("before the agent runs")
	b.clock = newTestClock(t, "2026-01-10T12:00:00Z")
	stop := b.run(conf)
	b.clock.await(t)
	want.NextRun = instant(t, "2026-01-11T02:00:00Z")
	check("new")
	b.clock.to(t, "2026-01-11T02:00:01Z")
	want.LastRun, want.NextRun = instant(t, "2026-01-11T02:00:01Z"), instant(t, "2026-01-12T02:00:00Z")
	check("run")
	b.clock.to(t, "2026-01-11T01:59:00Z")
	check("the clock was set back")
	b.clock.to(t, "2026-01-12T02:10:00Z")
	want.NextRun = instant(t, "2026-01-13T02:00:00Z")
	want.Missed = workflow.MissedTimes{Count: 1, Due: instant(t, "2026-01-12T02:00:00Z"), Noticed: instant(t, "2026-01-12T02:10:00Z")}
	check("the host was suspended for a while")
	stop()
	b.clock = newTestClock(t, "2026-01-12T12:00:00Z")
	stop = b.run(conf)
	b.clock.await(t)
	check("restarted")
	b.clock.to(t, "2026-01-20T12:00:00Z")
	want.NextRun = instant(t, "2026-01-21T02:00:00Z")
	want.Missed = workflow.MissedTimes{Count: 2, Due: instant(t, "2026-01-20T02:00:00Z"), Noticed: instant(t, "2026-01-20T12:00:00Z")}
	check("the clock was set forward by days")
	stop()

	conf.Missed = schedule.RunOnce
	b.held = make(chan struct{})
	b.clock = newTestClock(t, "2026-01-21T02:00:00Z")
	stop = b.run(conf)
	want.LastRun, want.NextRun = instant(t, "2026-01-21T02:00:00Z"), instant(t, "2026-01-22T02:00:00Z")
	consultest.Eventually(t, "the job to wait for the end of the hold", func(context.Context) error {
		got := workflow.Schedules(b.dir, b.node, []config.Trigger{conf})
		if len(got) == 1 {
			got[0].Last = nil
		}
		if len(got) != 1 || got[0] != want {
			return fmt.Errorf("got %+v, want %+v", got, want)
		}
		return nil
	})
	b.clock.turn(t, "2026-01-23T12:00:00Z") // its next run is overdue
	close(b.held)
	b.clock.await(t)
	want.LastRun, want.NextRun = instant(t, "2026-01-23T12:00:00Z"), instant(t, "2026-01-24T02:00:00Z")
	want.Missed = workflow.MissedTimes{Count: 3, Due: instant(t, "2026-01-23T02:00:00Z"), Noticed: instant(t, "2026-01-23T12:00:00Z")}
	check("the job took too long")
	stop()
	b.wantChanges("due 2026-01-11T02:00:00Z", "due 2026-01-21T02:00:00Z", "missed 2026-01-23T02:00:00Z")

	if err := os.WriteFile(filepath.Join(b.dir, "triggers", "nightly.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := workflow.Schedules(b.dir, b.node, []config.Trigger{conf}); len(got) != 1 || !strings.Contains(got[0].Error, "nightly.json") || !got[0].NextRun.IsZero() {
		t.Errorf("with a damaged state: got %+v", got)
	}
}

// TestScheduleOverChangeOfClocks: in both directions of a change of clocks a due time that
// does not exist and one that exists twice run once, also when the clock is set between
// the two, and with a splay.
func TestScheduleOverChangeOfClocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from  string
		times []string // of the clock
		want  []string
	}{
		"does not exist": {
			"2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-29T00:30:00Z", "2026-03-29T01:31:00Z", "2026-03-30T00:30:00Z"},
			[]string{"due 2026-03-29T01:00:00Z", "due 2026-03-30T00:30:00Z"},
		},
		"exists twice": {
			"2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
			[]string{"due 2026-10-25T00:30:00Z", "due 2026-10-26T01:30:00Z"},
		},
		"suspended over the first of two": {
			"2026-10-24T12:00:00Z",
			[]string{"2026-10-25T01:29:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
			[]string{"missed 2026-10-25T00:30:00Z", "due 2026-10-26T01:30:00Z"},
		},
		"suspended over the gap": {
			"2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00Z", "2026-03-30T00:30:00Z"},
			[]string{"missed 2026-03-29T01:00:00Z", "due 2026-03-30T00:30:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, shared(t))
			b.clock = newTestClock(t, c.from)
			stop := b.run(config.Trigger{Name: "nightly", Schedule: "30 2 * * *", Zone: "Europe/Berlin", Missed: schedule.RunOnce, Workflow: "note"})
			b.clock.await(t)
			for _, at := range c.times {
				b.clock.to(t, at)
			}
			stop()
			b.wantChanges(c.want...)
		})
	}
}

// TestScheduleChanged: another schedule under the same name begins again, and one whose
// state is lost does not run for the past.
func TestScheduleChanged(t *testing.T) {
	t.Parallel()
	b := newBed(t, shared(t))
	conf := config.Trigger{Name: "nightly", Schedule: "0 3 * * *", Zone: "UTC", Missed: schedule.RunOnce, Workflow: "note"}
	b.clock = newTestClock(t, "2026-03-27T12:00:00Z")
	stop := b.run(conf)
	b.clock.await(t)
	stop()
	b.clock = newTestClock(t, "2026-03-29T12:00:00Z")
	conf.Schedule = "0 4 * * *"
	stop = b.run(conf)
	b.clock.await(t)
	stop()
	if err := os.Remove(filepath.Join(b.dir, "triggers", "nightly.json")); err != nil {
		t.Fatal(err)
	}
	b.clock = newTestClock(t, "2026-03-31T12:00:00Z")
	stop = b.run(conf)
	if got, want := b.clock.await(t), "2026-04-01T04:00:00Z"; got != want {
		t.Errorf("got the next due time %s, want %s", got, want)
	}
	stop()
	b.wantChanges()
}

// TestScheduleAfterAClockAhead: a due time that a clock days ahead has reached runs again when it
// comes, once over a restart, also if the trigger got another schedule meanwhile.
func TestScheduleAfterAClockAhead(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]string{"the same schedule": "0 3 * * *", "another schedule": "0 3,9 * * *"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, shared(t))
			conf := config.Trigger{Name: "nightly", Schedule: "0 3 * * *", Missed: schedule.Skip, Workflow: "note"}
			b.clock = newTestClock(t, "2026-10-09T12:00:00Z")
			stop := b.run(conf)
			b.clock.await(t)
			b.clock.to(t, "2026-10-10T03:00:00Z")
			stop()
			b.wantChanges("due 2026-10-10T03:00:00Z")

			conf.Schedule = later
			b.clock = newTestClock(t, "2026-10-08T12:00:00Z") // the right time
			stop = b.run(conf)
			if got, want := b.clock.await(t), "2026-10-09T03:00:00Z"; got != want {
				t.Errorf("got the next due time %s, want %s", got, want)
			}
			stop()

			b.held = make(chan struct{})
			b.clock = newTestClock(t, "2026-10-10T03:00:00Z")
			stop = b.run(conf)
			consultest.Eventually(t, "the pending job", func(context.Context) error {
				if got := workflow.Triggers(b.dir, []config.Trigger{conf}); got[0].Running == "" && len(b.clock.waits) == 0 {
					return fmt.Errorf("got %+v", got)
				}
				return nil
			})
			stop()
			close(b.held)
			b.clock = newTestClock(t, "2026-10-10T03:00:01Z")
			stop = b.run(conf)
			b.clock.await(t)
			stop()
			if got := b.changes(); len(got) != 2 || !reflect.DeepEqual(got[0].Changes, got[1].Changes) {
				t.Errorf("got %+v, want two runs of one due time", got)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "jobs", "trigger-nightly-20261010T030000Z")); err != nil {
				t.Errorf("the job of the clock that was ahead: %v", err)
			}
		})
	}
}

// TestScheduleSplay: hosts start at different times of their own.
func TestScheduleSplay(t *testing.T) {
	t.Parallel()
	waits := map[string]bool{}
	for i := range 5 {
		b := newBed(t, shared(t))
		b.node = fmt.Sprintf("n%d", i)
		b.clock = newTestClock(t, "2026-03-27T12:00:00Z")
		stop := b.run(config.Trigger{Name: "nightly", Schedule: "0 3 * * *", Zone: "UTC", Splay: time.Hour, Workflow: "note"})
		waits[b.clock.await(t)] = true
		stop()
	}
	for at := range waits {
		if !strings.HasPrefix(at, "2026-03-28T03:") {
			t.Errorf("a host starts at %s, want within an hour after 03:00", at)
		}
	}
	if len(waits) < 4 {
		t.Errorf("5 hosts start at %q, want different times", slices.Sorted(maps.Keys(waits)))
	}
}

// TestDocumentedSchedule runs the trigger of the document at its due time.
func TestDocumentedSchedule(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- tested: schedule -->\n```hcl\n(.*?)```\n").FindSubmatch(data)
	if m == nil {
		t.Fatal("the document has no schedule to test")
	}
	b := newBed(t, shared(t))
	called := filepath.Join(b.dir, "called")
	file := filepath.Join(b.dir, "jorc.hcl")
	text := strings.ReplaceAll(string(m[1]), `"backup-database"`, `"/bin/sh", "-c", "echo \"$@\" >>`+called+`", "backup"`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{file}, config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	b.more = c.Workflows
	b.clock = newTestClock(t, "2026-06-01T12:00:00Z")
	stop := b.run(c.Triggers...)
	due := b.clock.await(t)
	if !strings.HasPrefix(due, "2026-06-02T01:0") {
		t.Errorf("the backup starts at %s, want within 10 minutes after 03:00 in Berlin", due)
	}
	b.clock.to(t, due)
	stop()
	if data, err := os.ReadFile(called); err != nil || string(data) != "--to /srv/backup\n" {
		t.Errorf("got %q, %v, want one backup", data, err)
	}
}
