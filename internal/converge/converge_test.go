package converge

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	d := h.document()
	want(t, "version", d.Version, "v1")
	want(t, "config", d.States[cluster.CategoryConfig].State, cluster.StateSuccess)
	want(t, "validation", d.States[cluster.CategoryValidation].State, cluster.StateSuccess)
	want(t, "suspect", d.States[cluster.CategoryConfig].Suspect, "")
	before := h.modified()
	h.trigger("v1")
	h.stop()
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	h.trigger("v2")
	h.untilPhase(PhaseConverged, "v2")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 one@v2 two@v2 check@v2")
	want(t, "version file", strings.TrimSpace(read(t, h.path("version"))), "v2")
	if h.modified() == before {
		t.Error("v2 was not reported")
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStaticFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows[0].Tasks[1] = sh("two", "echo no such package; [ -e $DIR/fixed ]")
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Hour, time.Hour }
	h.trigger("v1")
	h.start()
	s := h.untilPhase(PhaseFailed, "v1")
	wantText(t, "detail", s.Detail, `task "two"`, "exit code 1", "no such package")
	c := h.document().States[cluster.CategoryConfig]
	want(t, "config", c.State, cluster.StateFailed)
	want(t, "config's version", c.Version, "v1")
	wantText(t, "config's detail", c.Detail, `task "two"`, "exit code 1", "no such package")
	want(t, "version", h.document().Version, "")
	want(t, "ran", h.ran(), "one@v1 two@v1")
	if s.Next.Before(time.Now().Add(40*time.Minute)) || s.Next.After(time.Now().Add(73*time.Minute)) {
		t.Errorf("it is tried again at %v, want in an hour, give or take a fifth", s.Next)
	}
	h.stop()
	h.write("fixed", "")
	h.start() // tries at once
	s = h.untilPhase(PhaseConverged, "v1")
	wantText(t, "suspect", s.Suspect, "after a failed attempt", `task "two"`)
	wantText(t, "reported suspect", h.document().States[cluster.CategoryConfig].Suspect, "after a failed attempt")
	want(t, "ran", h.ran(), "one@v1 two@v1 one@v1 two@v1 check@v1")
}

func TestValidationFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("broken", "")
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Millisecond, time.Millisecond }
	h.flows[0].Tasks[1] = sh("two", "[ $(wc -l <$DIR/ran) -lt 6 ] || rm -f $DIR/broken")
	h.trigger("v1")
	h.start()
	s := h.untilPhase(PhaseConverged, "v1")
	wantText(t, "suspect", s.Suspect, "validation", `task "check"`)
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 one@v1 two@v1 check@v1 one@v1 two@v1 check@v1"[:len(h.ran())])
	want(t, "validation", h.document().States[cluster.CategoryValidation].State, cluster.StateSuccess)
}

func TestValidationLater(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.options.Static.ValidationInterval = 20 * time.Millisecond
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Millisecond, time.Millisecond }
	h.flows[0].Tasks[1] = sh("two", "rm -f $DIR/broken")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	before := h.modified()
	h.until("more validations", func(Status) bool { return strings.Count(h.ran(), "check") > 3 })
	want(t, "index after validations that pass", h.modified(), before)
	h.write("broken", "")
	s := h.until("another static run", func(s Status) bool {
		return strings.Count(h.ran(), "two") == 2 && s.Phase == PhaseConverged && s.Suspect != ""
	})
	wantText(t, "suspect", s.Suspect, "validation")
	want(t, "version", h.document().Version, "v1")
}

func TestChecksFail(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.checks.set(Health{Failing: []string{"web: critical: HTTP 500"}})
	h.quick = func(q *timing) { q.settle = time.Hour }
	h.trigger("v1")
	h.start()
	s := h.until("waiting for checks", func(s Status) bool { return s.Phase == PhaseValidation && strings.Contains(s.Detail, "HTTP 500") })
	wantText(t, "detail", s.Detail, "health checks have until")
	want(t, "version", h.document().Version, "")
	h.checks.set(Health{})
	h.untilPhase(PhaseConverged, "v1")
	h.checks.set(Health{Failing: []string{"web: critical: HTTP 500"}}) // it has passed: that is news
	s = h.untilPhase(PhaseFailed, "v1")
	wantText(t, "detail", s.Detail, "web: critical: HTTP 500")
	v := h.document().States[cluster.CategoryValidation]
	want(t, "validation", v.State, cluster.StateFailed)
	wantText(t, "validation's detail", v.Detail, "HTTP 500")
	h.checks.set(Health{}) // recovers by itself
	h.untilPhase(PhaseConverged, "v1")
	want(t, "static runs", strings.Count(h.ran(), "one"), 1)
	want(t, "validation", h.document().States[cluster.CategoryValidation].State, cluster.StateSuccess)
}

// TestChecksAfterStaticRun: a check that failed during the static workflow may be
// reported after its end; it counts as little as one reported before.
func TestChecksAfterStaticRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	clock := noon
	h.build().now = func() time.Time { return clock }
	bad := []string{"web: critical: connection refused"}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing is known", func() { h.setChecks(Health{Failing: bad}) }, false},
		{"they pass", func() { h.setChecks(Health{}) }, false},
		{"they fail", func() { h.setChecks(Health{Failing: bad}) }, true},
		{"they pass again", func() { h.setChecks(Health{}) }, false},
		{"static run, news of before its end", func() { h.freshChecks(); h.setChecks(Health{Failing: bad}) }, false},
		{"29 s later", func() { clock = clock.Add(29 * time.Second) }, false},
		{"30 s later", func() { clock = clock.Add(time.Second) }, true},
		{"they passed since, and fail", func() {
			h.setChecks(Health{})
			h.freshChecks()
			h.setChecks(Health{Failing: bad})
			h.setChecks(Health{})
			h.setChecks(Health{Failing: bad})
		}, true},
		{"static run, no news", func() { h.setChecks(Health{}); h.freshChecks(); clock = clock.Add(31 * time.Second) }, false},
		{"they fail long after it", func() { h.setChecks(Health{Failing: bad}) }, true},
		{"after maintenance", func() { h.setChecks(Health{Failing: bad, Drained: true}); h.setChecks(Health{Failing: bad}) }, false},
		{"29 s later", func() { clock = clock.Add(29 * time.Second) }, false},
		{"30 s later", func() { clock = clock.Add(time.Second) }, true},
	} {
		step.do()
		if got, _ := h.facts().checksFail(clock); got != step.want {
			t.Errorf("%s: they count: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	shared, name := consultest.Shared(t)
	proxy := shared.Proxy()
	reports := countReports(proxy)
	h := newHostOn(t, proxy.Client(), name, "n1", t.TempDir())
	n := needs{newSource(lacking("mysql", 0, 2))}
	h.options.Requires, h.options.Requirements = []config.Requires{{Target: "mysql", Count: 2}}, n
	h.trigger("v1")
	h.start()
	s := h.untilPhase(PhasePending, "v1")
	want(t, "detail", s.Detail, "waiting for mysql: 0 of 2 functional")
	c := h.document().States[cluster.CategoryConfig]
	want(t, "config", c.State, cluster.StatePending)
	want(t, "config's detail", c.Detail, s.Detail)
	want(t, "writes", reports.of(h), 1)
	n.set(lacking("mysql", 1, 2)) // only the number: not worth a write yet
	h.until("the number", func(s Status) bool { return s.Detail == "waiting for mysql: 1 of 2 functional" })
	want(t, "writes", reports.of(h), 1)
	n.set(lacking("redis", 0, 1))
	h.until("other targets", func(s Status) bool { return strings.Contains(s.Detail, "redis") && s.Reported && reports.of(h) == 2 })
	wantText(t, "config's detail", h.document().States[cluster.CategoryConfig].Detail, "redis")
	want(t, "ran", h.ran(), "")
	n.set(nil)
	h.untilPhase(PhaseConverged, "v1")
	want(t, "writes", reports.of(h), 4)
	want(t, "suspect", h.document().States[cluster.CategoryConfig].Suspect, "")
}

func TestCycle(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	n := needs{newSource(lacking("b", 0, 1))}
	cycle := newSource([]string{"a", "b"})
	h.options.Requires, h.options.Requirements = []config.Requires{{Target: "b"}}, n
	h.options.Cycle = func(context.Context) ([]string, error) { return cycle.get(), nil }
	h.quick = func(q *timing) { q.cycle = 10 * time.Millisecond }
	h.trigger("v1")
	h.start()
	s := h.untilPhase(PhaseFailed, "v1")
	wantText(t, "detail", s.Detail, "a → b → a: static requirements form a cycle")
	c := h.document().States[cluster.CategoryConfig]
	want(t, "config", c.State, cluster.StateFailed)
	wantText(t, "config's detail", c.Detail, "a → b → a")
	cycle.set(nil)
	h.untilPhase(PhasePending, "v1")
	want(t, "config", h.document().States[cluster.CategoryConfig].State, cluster.StatePending)
	n.set(nil)
	h.untilPhase(PhaseConverged, "v1")
}

func TestHolds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows[0].Tasks[0] = sh("one", "while [ ! -e $DIR/go ]; do sleep 0.01; done")
	h.hold.set(Hold{Paused: "maintenance window"})
	h.trigger("v1")
	h.start()
	s := h.until("paused", func(s Status) bool { return s.Phase == PhasePaused })
	want(t, "detail", s.Detail, "maintenance window")
	h.hold.set(Hold{Held: "by hand"})
	h.until("held", func(s Status) bool { return s.Phase == PhaseHeld })
	want(t, "ran", h.ran(), "")
	h.hold.set(Hold{})
	h.until("the first task", func(Status) bool { return h.ran() == "one@v1" })
	h.hold.set(Hold{Held: "by hand"})
	h.write("go", "")
	h.until("held between tasks", func(s Status) bool { return s.Phase == PhaseHeld })
	want(t, "ran", h.ran(), "one@v1")
	h.stop() // and also over a restart
	h.start()
	h.until("held", func(s Status) bool { return s.Phase == PhaseHeld })
	h.hold.set(Hold{})
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
}
