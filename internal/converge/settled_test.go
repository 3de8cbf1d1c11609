package converge

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// TestFlapping: what recovers by itself again and again is reported once.
func TestFlapping(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.options.Static.ValidationInterval = 20 * time.Millisecond
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Hour, time.Hour }
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	var s Status
	for range 3 {
		h.write("broken", "")
		s = h.untilPhase(PhaseFailed, "v1")
		want(t, "validation", h.document().States[cluster.CategoryValidation].State, cluster.StateFailed)
		if err := os.Remove(h.path("broken")); err != nil {
			t.Fatal(err)
		}
		s = h.untilPhase(PhaseConverged, "v1")
	}
	want(t, "suspect", s.Suspect, `passed after 3 failed attempts, the last one: validation: task "check": exit code 1`)
	want(t, "reported suspect", h.document().States[cluster.CategoryConfig].Suspect, s.Suspect)
	want(t, "static runs", strings.Count(h.ran(), "one"), 1)
}

// TestAttemptsCountFromRetry: what failed before an operator asked for another attempt no longer
// counts, neither in the status nor for the pause after the attempt.
func TestAttemptsCountFromRetry(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows[0].Tasks[1] = sh("two", "[ -e $DIR/fixed ]")
	h.quick = func(q *timing) { q.firstRetry, q.maxRetry = time.Hour, 100*time.Hour }
	h.trigger("v1")
	h.start()
	for tries := 1; tries <= 4; tries++ {
		if tries > 1 {
			h.setRetry(Retry{At: time.Now()})
		}
		s := h.until(fmt.Sprintf("attempt %d to fail", tries), func(s Status) bool {
			return s.Phase == PhaseFailed && s.Reported && strings.Count(h.ran(), "two@v1") == tries
		})
		want(t, "failed attempts", s.Fails, 1)
		if pause := time.Until(s.Next); pause > 90*time.Minute {
			t.Errorf("the next attempt is in %v, want the first pause (1h)", pause)
		}
	}
}

func TestNothingDesired(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start()
	h.until("idle", func(s Status) bool { return s.Phase == PhaseIdle })
	want(t, "index", h.modified(), uint64(0))
	h.trigger("v1")
	h.untilPhase(PhaseConverged, "v1")
	if err := h.client.KVPut(t.Context(), pair("jorc/"+h.cluster+"/current_version", "")); err != nil {
		t.Fatal(err)
	}
	h.until("idle again", func(s Status) bool { return s.Phase == PhaseIdle && s.Desired == "" })
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
	want(t, "version", h.document().Version, "v1")
}

// TestForeignKeys: index keys that others plant change nothing of what a host
// reports, also when it reports the next version.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	for _, key := range []string{"running_version/v7/n1", "status/validation/failed/n1", "status/backup/failed/n1"} {
		if err := h.client.KVPut(t.Context(), pair("jorc/"+h.cluster+"/"+key, "x")); err != nil {
			t.Fatal(err)
		}
	}
	h.trigger("v2")
	h.untilPhase(PhaseConverged, "v2")
	d := h.document()
	want(t, "version", d.Version, "v2")
	want(t, "previous version", d.Previous, "v1")
	_, planted := d.States["backup"]
	want(t, "a planted category", planted, false)
	want(t, "validation", d.States[cluster.CategoryValidation].State, cluster.StateSuccess)
}

func TestAdopted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("version", "v1\n")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "check@v1")
	want(t, "version", h.document().Version, "v1")
	want(t, "validation", h.document().States[cluster.CategoryValidation].State, cluster.StateSuccess)
	if c, ok := h.document().States[cluster.CategoryConfig]; ok {
		t.Errorf("config is %+v, and nothing was applied", c)
	}
}

// TestBackToFirst: a host of which a part was brought to v2 is brought back to
// v1 in whole.
func TestBackToFirst(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows[0].Tasks[1] = sh("two", "[ $JORC_VERSION != v2 ]")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	h.trigger("v2")
	h.untilPhase(PhaseFailed, "v2")
	h.trigger("v1")
	h.until("v1 again", func(s Status) bool {
		return s.Phase == PhaseConverged && s.Reported && strings.HasSuffix(h.ran(), "one@v2 two@v2 one@v1 two@v1 check@v1")
	})
	want(t, "config", h.document().States[cluster.CategoryConfig].State, cluster.StateSuccess)
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows[0].Tasks[0] = sh("one", "while [ ! -e $DIR/go ]; do sleep 0.01; done")
	h.trigger("v1")
	h.start()
	h.until("the first task", func(Status) bool { return h.ran() == "one@v1" })
	h.trigger("v2")
	h.until("the news", func(Status) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.in.desired == "v2"
	})
	h.write("go", "")
	h.untilPhase(PhaseConverged, "v2")
	want(t, "ran", h.ran(), "one@v1 one@v2 two@v2 check@v2")
	want(t, "previous", h.document().Previous, "")
}
