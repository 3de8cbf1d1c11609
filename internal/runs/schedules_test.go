package runs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// timed is a cluster whose rules a test decides at times of its own.
type timed struct {
	*site
	store *kv.Store
	d     *Decider
	told  []event.Decision
}

func newTimed(t *testing.T, rules string) *timed {
	t.Helper()
	x := &timed{site: newSite(t), d: quickDecider()}
	x.store = kv.New(x.server.Client(), "jorc/"+x.name)
	x.rules(rules)
	return x
}

func (x *timed) rules(text string) {
	x.t.Helper()
	v, err := profile.ParseValue(text)
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := fleet.New(x.server.Client(), "jorc", x.name).Set(x.t.Context(), profile.Scope{}, ParamRules, v, profile.Ref{}); err != nil {
		x.t.Fatal(err)
	}
}

// cycle decides at a time. It reports whether the orchestrator was killed in it.
func (x *timed) cycle(now string) (killed bool) {
	x.t.Helper()
	defer func() { killed = recover() != nil }()
	o, err := x.observe(x.t.Context(), x.server.Client(), "o")
	if err != nil {
		x.t.Fatal(err)
	}
	if o.Now, err = time.Parse(time.RFC3339, now); err != nil {
		x.t.Fatal(err)
	}
	told, err := x.d.Decide(x.t.Context(), x.store, o)
	if err != nil {
		x.t.Fatal(err)
	}
	x.told = append(x.told, told...)
	return false
}

// wantRuns compares the runs of rules, in the order of their due times.
func (x *timed) wantRuns(want ...string) {
	x.t.Helper()
	all, _, err := x.runs.List(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	got := []string{}
	for _, r := range all {
		_, due, _ := strings.Cut(r.By, ", due ")
		got = append(got, due)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		x.t.Errorf("got runs for %q, want %q", got, want)
	}
}

// TestScheduledRule: each due time starts one run, missed ones as the rule says, and a
// rule that is removed and added again begins again.
func TestScheduledRule(t *testing.T) {
	t.Parallel()
	x := newTimed(t, `[{"name": "nightly", "workflow": "w", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "filter": "Node == \"x\""}]`)
	for _, due := range [][2]string{
		{"2026-03-27T12:00:00Z", "2026-03-27T13:00:00Z"}, // it looks for runs to forget each hour
		{"2026-03-28T01:30:00Z", "2026-03-28T02:00:00Z"},
	} {
		x.cycle(due[0])
		x.wantRuns()
		if got := x.d.NextDue().UTC().Format(time.RFC3339); got != due[1] {
			t.Errorf("at %s it is due next at %s, want %s", due[0], got, due[1])
		}
	}
	x.cycle("2026-03-28T02:00:01Z")
	x.cycle("2026-03-28T02:00:02Z")
	want := []string{"2026-03-28T02:00:00Z"}
	x.wantRuns(want...)
	d, err := x.runs.Show(t.Context(), Rule{Name: "nightly"}.dueID(time.Date(2026, 3, 28, 2, 0, 0, 0, time.UTC)))
	if err != nil || d.State != Failed || d.Why != "it matches no member" {
		t.Errorf("got %+v, %v", d, err)
	}
	x.cycle("2026-03-28T01:00:00Z") // the clock is set back
	x.cycle("2026-03-29T01:03:00Z") // in summer time, and another orchestrator took over
	want = append(want, "2026-03-29T01:00:00Z")
	x.wantRuns(want...)
	x.cycle("2026-04-02T12:00:00Z") // no orchestrator for days: skip
	x.wantRuns(want...)
	x.rules(`[{"name": "nightly", "workflow": "w", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "missed": "run-once"}]`)
	x.cycle("2026-04-05T12:00:00Z")
	want = append(want, "2026-04-05T01:00:00Z")
	x.wantRuns(want...)
	x.rules(`[]`)
	x.cycle("2026-04-05T13:00:00Z")
	x.rules(`[{"name": "nightly", "workflow": "w", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "missed": "run-once"}]`)
	x.cycle("2026-04-20T13:00:00Z")
	x.wantRuns(want...)
	if got := x.d.Progress().Schedules; len(got) != 1 || got[0] != (RuleSchedule{Rule: "nightly", NextRun: instant(t, "2026-04-21T01:00:00Z")}) {
		t.Errorf("the rule that was added again has the state %+v", got)
	}
	kinds := map[string]int{}
	for _, d := range x.told {
		kinds[d.Kind]++
	}
	if kinds[event.RuleDue] != 3 || kinds[event.RuleMissed] != 1 {
		t.Errorf("got events %v, want 3 due and 1 missed", kinds)
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestScheduledRuleState: the last and next run and the missed due times of a rule are
// known, also to the next orchestrator; while the cluster is paused a due time is overdue.
func TestScheduledRuleState(t *testing.T) {
	t.Parallel()
	x := newTimed(t, `[{"name": "nightly", "workflow": "w", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "filter": "Node == \"x\""},
		{"workflow": "v", "schedule": "@yearly"}, {"workflow": "u", "filter": "Node == \"x\""}]`)
	yearly := RuleSchedule{Rule: "v", NextRun: instant(t, "2027-01-01T00:00:00Z")}
	want := RuleSchedule{Rule: "nightly", NextRun: instant(t, "2026-03-28T02:00:00Z")}
	check := func(when string) {
		t.Helper()
		if got := x.d.Progress().Schedules; !slices.Equal(got, []RuleSchedule{want, yearly}) {
			t.Errorf("%s: got %+v, want %+v", when, got, want)
		}
	}
	x.cycle("2026-03-27T12:00:00Z")
	check("new")
	x.cycle("2026-03-28T02:00:01Z")
	want.LastRun, want.NextRun = instant(t, "2026-03-28T02:00:01Z"), instant(t, "2026-03-29T01:00:00Z")
	check("run")
	x.cycle("2026-03-28T02:00:02Z")
	check("nothing is due")
	c := fleet.New(x.server.Client(), "jorc", x.name)
	if _, err := c.Pause(t.Context(), cluster.Hold{Since: time.Unix(0, 0), Reason: "why", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	x.cycle("2026-03-29T12:00:00Z")
	check("paused")
	if _, err := c.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.cycle("2026-03-29T12:01:00Z")
	want.NextRun, want.Missed, want.MissNoticed = instant(t, "2026-03-30T01:00:00Z"), 1, instant(t, "2026-03-29T12:01:00Z")
	check("missed")
	x.d = quickDecider()
	x.cycle("2026-03-29T12:02:00Z")
	check("another orchestrator")
}

// TestScheduledRuleOverChangeOfClocks: in both directions of a change of clocks a due time
// that does not exist and one that exists twice start one run, also when orchestrators with
// different clocks follow each other.
func TestScheduledRuleOverChangeOfClocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ times, want []string }{
		"does not exist": {
			[]string{"2026-03-28T12:00:00Z", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		"exists twice": {
			[]string{"2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T00:29:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"set forward by months and back": {
			[]string{"2026-03-28T12:00:00Z", "2026-07-01T12:00:00Z", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
			[]string{"2026-03-29T01:00:00Z", "2026-07-01T00:30:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTimed(t, `[{"name": "nightly", "workflow": "w", "schedule": "30 2 * * *", "zone": "Europe/Berlin", "missed": "run-once", "filter": "Node == \"x\""}]`)
			for _, at := range c.times {
				x.cycle(at)
				x.d = quickDecider()
				x.store = kv.New(x.server.Client(), "jorc/"+x.name)
			}
			x.wantRuns(c.want...)
		})
	}
}

// TestScheduledRuleWaits: nothing starts while the cluster is paused or the run before is
// in progress.
func TestScheduledRuleWaits(t *testing.T) {
	t.Parallel()
	x := newTimed(t, `[{"workflow": "w", "schedule": "@hourly"}]`)
	x.join("a") // no worker: its run stays in progress
	x.cycle("2026-01-01T00:30:00Z")
	x.cycle("2026-01-01T01:00:00Z")
	x.cycle("2026-01-01T02:00:00Z")
	x.wantRuns("2026-01-01T01:00:00Z")
	if _, _, err := x.runs.Cancel(t.Context(), Rule{Name: "w"}.dueID(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)), "ann", false); err != nil {
		t.Fatal(err)
	}
	x.cycle("2026-01-01T02:01:00Z")
	x.cycle("2026-01-01T02:02:00Z")
	x.wantRuns("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z")
}

// TestScheduledRuleKilled: orchestrators that are killed at any point start each due time
// once.
func TestScheduledRuleKilled(t *testing.T) {
	t.Parallel()
	x := newTimed(t, `[{"workflow": "w", "schedule": "*/5 * * * *", "filter": "Node == \"x\""}, {"workflow": "v", "schedule": "@yearly"}]`)
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	x.cycle(now.Format(time.RFC3339))
	var want []string
	for now.Minute() < 45 {
		now = now.Add(time.Duration(20+r.IntN(60)) * time.Second)
		if r.IntN(2) == 0 { // another orchestrator
			x.d = quickDecider()
			x.store = kv.New(x.server.Client(), "jorc/"+x.name)
		}
		x.d.hook = func(string) {
			if r.IntN(4) == 0 {
				panic("killed")
			}
		}
		x.cycle(now.Format(time.RFC3339))
		x.d.hook = func(string) {}
	}
	x.cycle(now.Format(time.RFC3339))
	for m := 5; m <= now.Minute(); m += 5 {
		want = append(want, fmt.Sprintf("2026-01-01T00:%02d:00Z", m))
	}
	x.wantRuns(want...)
}

// TestScheduledRuleInvalid: a rule that mixes both kinds, or has no schedule, is refused
// when it is set.
func TestScheduledRuleInvalid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`[{"workflow": "w", "schedule": "0 3 * *"}]`, `[{"workflow": "w", "schedule": "@daily", "zone": "Europe/Bern"}]`,
		`[{"workflow": "w", "zone": "UTC"}]`, `[{"workflow": "w", "schedule": "@daily", "missed": "once"}]`, `[{"workflow": "w", "on_manager": true}]`,
		`[{"workflow": "w"}, {"workflow": "v", "schedule": "@daily", "after": "w"}]`, `[{"workflow": "w", "schedule": "@daily"}, {"workflow": "v", "after": "w"}]`,
		`[{"workflow": "w", "schedule": "@daily", "batches": ["50%"]}]`, `[{"workflow": "w", "schedule": "@daily", "on_manager": true, "max_parallel": "1"}]`,
	} {
		v, err := profile.ParseValue(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckRules(v); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	v, err := profile.ParseValue(`[{"name": "nightly", "workflow": "w", "schedule": "0 3 * * *", "zone": "Europe/Berlin", "max_parallel": "10%", "canary": 1, "max_failures": 2, "min_healthy": "1m"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckRules(v); err != nil {
		t.Error(err)
	}
}

// TestDocumentedRules: the rules of the document start at their due times, with their
// limits.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/runs.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- tested: rules -->\n```sh\njorc cluster profile set cluster/rules '(.*?)'\n```\n").FindSubmatch(data)
	if m == nil {
		t.Fatal("the document has no rules to test")
	}
	x := newTimed(t, string(m[1]))
	x.cycle("2026-11-21T12:00:00Z")
	x.cycle("2026-11-22T00:00:00Z") // a Sunday
	x.cycle("2026-11-22T02:00:00Z")
	x.wantRuns("2026-11-22T00:00:00Z", "2026-11-22T02:00:00Z")
	d, err := x.runs.Show(t.Context(), Rule{Name: "nightly"}.dueID(time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)))
	if q := d.Request; err != nil || q.Workflow != "vacuum" || q.MaxParallel != amount(t, "1") || q.MaxFailures == nil || !strings.HasSuffix(d.ID, "-20261122T020000Z") {
		t.Errorf("got %+v, %v", d, err)
	}
}
