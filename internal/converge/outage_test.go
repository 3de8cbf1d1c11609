package converge

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

// TestOutageAtEveryStep: from each step on Consul answers nothing, for a while.
// The host converges all the same, and no task runs twice.
func TestOutageAtEveryStep(t *testing.T) {
	server := consultest.Start(t)
	direct := server.Client()
	through := func(t *testing.T) (*consultest.Proxy, *host) {
		p := server.Proxy()
		h := crashHost(t, scenarios()[0], p.Client(), fmt.Sprintf("outage%d", clusters.Add(1)), t.TempDir())
		if _, err := rollout.New(direct, "jorc", h.cluster).Trigger(t.Context(), rollout.Request{Version: "v1"}); err != nil {
			t.Fatal(err)
		}
		return p, h
	}
	all := &counter{}
	_, h := through(t)
	if err := h.toEnd(func(step string) { all.met(step) }); err != nil {
		t.Fatal(err)
	}
	turn := make(chan struct{}, 4)
	for step := range all.steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			turn <- struct{}{}
			defer func() { <-turn }()
			p, h := through(t)
			var met, refused atomic.Int64
			h.quick = func(q *timing) { q.reportWait = 100 * time.Millisecond }
			err := h.toEnd(func(now string) {
				if now == step && met.Add(1) == 1 {
					p.Do(func(*http.Request) consultest.Fault {
						if refused.Add(1) > 3 {
							return consultest.Fault{} // it is back
						}
						return consultest.Fault{Status: http.StatusInternalServerError}
					})
				}
			})
			if err != nil {
				t.Error(err)
			}
			want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
			d, _, err := fleet.New(direct, "jorc", h.cluster).Report(t.Context(), "n1")
			if err != nil || d.Version != "v1" || d.States[cluster.CategoryConfig].State != cluster.StateSuccess || d.States[cluster.CategoryValidation].State != cluster.StateSuccess {
				t.Errorf("document is %+v, %v", d, err)
			}
		})
	}
}

// TestConsulDies: the static workflow ends, the version is recorded here, and
// told once Consul is back; also by a process that was started meanwhile.
func TestConsulDies(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t, consultest.Persistent())
	h := newHostOn(t, server.Client(), "c", "n1", t.TempDir())
	h.flows[0].Tasks[0] = sh("one", "while [ ! -e $DIR/go ]; do sleep 0.01; done")
	h.quick = func(q *timing) { q.patience = 50 * time.Millisecond }
	h.trigger("v1")
	h.start()
	h.until("the first task", func(Status) bool { return h.ran() == "one@v1" })
	server.Kill()
	h.write("go", "")
	s := h.until("done without Consul", func(s Status) bool { return s.Version == "v1" })
	want(t, "reported", s.Reported, false)
	h.stop()
	h.start()
	h.until("a start without Consul", func(s Status) bool { return s.Phase == PhaseStarting && len(s.Trouble) > 0 })
	server.Restart()
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
	d := h.document()
	want(t, "version", d.Version, "v1")
	want(t, "config", d.States[cluster.CategoryConfig].State, cluster.StateSuccess)
}

// TestOpenJobWithoutConsul: a host that was restarted in the middle continues
// when Consul does not come back: its tasks may be what brings it back.
func TestOpenJobWithoutConsul(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t, consultest.Persistent())
	h := newHostOn(t, server.Client(), "c", "n1", t.TempDir())
	one := sh("one", "while [ ! -e $DIR/go ]; do sleep 0.01; done")
	one.Idempotent = true
	h.flows[0].Tasks[0] = one
	h.quick = func(q *timing) { q.patience = 50 * time.Millisecond }
	h.trigger("v1")
	h.start()
	h.until("the first task", func(Status) bool { return h.ran() == "one@v1" })
	server.Kill()
	h.stop()
	h.write("go", "")
	h.start()
	h.until("done without Consul", func(s Status) bool { return s.Version == "v1" })
	server.Restart()
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "one@v1 one@v1 two@v1 check@v1")
}

// TestWrites measures what one version change, and nothing at all, costs Raft.
func TestWrites(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t, consultest.WithConfig(map[string]any{"disable_coordinates": true}))
	h := newHostOn(t, server.Client(), "c", "n1", t.TempDir())
	h.options.Static.ValidationInterval = 20 * time.Millisecond
	h.options.Requires, h.options.Requirements = []config.Requires{{Target: "mysql"}}, needs{newSource[[]Missing](nil)}
	h.options.Admission = &gate{source: newSource(true)}
	h.trigger("v0")
	h.start()
	h.untilPhase(PhaseConverged, "v0")
	n := 0
	consultest.Eventually(t, "a version change of which Consul writes nothing else", func(context.Context) error {
		n++
		version := fmt.Sprintf("v%d", n)
		before := lastIndex(t, server)
		h.trigger(version)
		h.untilPhase(PhaseConverged, version)
		if cost := lastIndex(t, server) - before; cost != 3 {
			return fmt.Errorf("%d writes, want 3: the trigger, running, and the end", cost)
		}
		return nil
	})
	consultest.Eventually(t, "validations without a write", func(context.Context) error {
		before, ran := lastIndex(t, server), strings.Count(h.ran(), "check")
		h.until("20 validations", func(Status) bool { return strings.Count(h.ran(), "check") > ran+20 })
		if cost := lastIndex(t, server) - before; cost != 0 {
			return fmt.Errorf("%d writes while nothing changed", cost)
		}
		return nil
	})
}
