package converge

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/nodes"
)

// testFlapping: what recovers by itself again and again is told once.
func testFlapping(t *testing.T) {
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
		want(t, "validation", h.document().States[nodes.Validation].State, nodes.Failed)
		if err := os.Remove(h.path("broken")); err != nil {
			t.Fatal(err)
		}
		s = h.untilPhase(PhaseConverged, "v1")
	}
	want(t, "suspect", s.Suspect, `passed after 3 failed attempts, the last one: validation: task "check": exit code 1`)
	want(t, "reported suspect", h.document().States[nodes.Config].Suspect, s.Suspect)
	want(t, "static runs", strings.Count(h.ran(), "one"), 1)
}

func testNothingDesired(t *testing.T) {
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

// testForeignKeys: a host to which nothing happens puts right what others write
// past its document, and writes nothing otherwise.
func testForeignKeys(t *testing.T) {
	h := newHost(t)
	h.quick = func(q *timing) { q.mend = 20 * time.Millisecond }
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	before := h.modified()
	for _, key := range []string{"running_version/v7/n1", "status/config/failed/n1"} {
		key = "jorc/" + h.cluster + "/" + key
		if err := h.client.KVPut(t.Context(), pair(key, "x")); err != nil {
			t.Fatal(err)
		}
		consultest.Eventually(t, "the end of "+key, func(ctx context.Context) error {
			p, _, err := h.client.KVGet(ctx, key, consul.Query{Consistent: true})
			if err == nil && p != nil {
				err = errors.New("it is there")
			}
			return err
		})
	}
	want(t, "index of the document", h.modified(), before)
	want(t, "version", h.document().Version, "v1")
}

func testAdopted(t *testing.T) {
	h := newHost(t)
	h.write("version", "v1\n")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "check@v1")
	want(t, "version", h.document().Version, "v1")
	want(t, "validation", h.document().States[nodes.Validation].State, nodes.Success)
	if c, ok := h.document().States[nodes.Config]; ok {
		t.Errorf("config is %+v, and nothing was applied", c)
	}
}

// testBackToFirst: a host of which a part was brought to v2 is brought back to
// v1 in whole.
func testBackToFirst(t *testing.T) {
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
	want(t, "config", h.document().States[nodes.Config].State, nodes.Success)
}

func testReplaced(t *testing.T) {
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
