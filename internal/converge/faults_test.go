package converge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/workflow"
)

func pair(key, value string) *consul.KVPair {
	return &consul.KVPair{Key: key, Value: []byte(value)}
}

// TestResults is about all that a task can say.
func TestResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		retries      int
		phase        Phase
		config       string
		detail       string
		ran          string
		suspect      string
	}{
		{"stop", "exit 195", 0, PhaseConverged, cluster.StateSuccess, "", "one@v1 check@v1", ""},
		{"reboot", "exit 194", 0, PhaseReboot, cluster.StateRunning, "reboots", "one@v1", ""},
		{"not yet", "[ -e $DIR/again ] || { touch $DIR/again; echo soon; exit 196; }", 0, PhaseConverged, cluster.StateSuccess, "", "one@v1 one@v1 two@v1 check@v1", ""},
		{"retry", "[ -e $DIR/again ] || { touch $DIR/again; exit 1; }", 1, PhaseConverged, cluster.StateSuccess, "", "one@v1 one@v1 two@v1 check@v1", "task one"},
		{"failure", "echo oh no; exit 3", 0, PhaseFailed, cluster.StateFailed, "exit code 3", "one@v1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			one := sh("one", tt.script)
			one.Retries, one.RetryDelay = tt.retries, time.Millisecond
			h.flows[0].Tasks[0] = one
			h.trigger("v1")
			h.start()
			h.untilPhase(tt.phase, "v1")
			c := h.document().States[cluster.CategoryConfig]
			want(t, "config", c.State, tt.config)
			wantText(t, "detail", c.Detail, tt.detail)
			wantText(t, "suspect", c.Suspect, tt.suspect)
			want(t, "suspect at all", c.Suspect != "", tt.suspect != "")
			want(t, "ran", h.ran(), tt.ran)
		})
	}
}

// gate is an Admission that a test opens.
type gate struct {
	*source[bool]
	mu   sync.Mutex
	said []string
}

func (g *gate) note(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said = append(g.said, s)
}

func (g *gate) Enter(ctx context.Context, version string, waiting func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	let := false
	_ = g.Watch(ctx, func(open bool) {
		if let = let || open; let {
			cancel()
			return
		}
		waiting("batch 2 of 3")
	})
	if !let {
		return ctx.Err()
	}
	g.note("enter " + version)
	return nil
}

func (g *gate) Run(ctx context.Context, _ AdmissionEvents) error {
	<-ctx.Done()
	return ctx.Err()
}

func (g *gate) Blocked(string) {}

func (g *gate) Report(context.Context, string, func(cluster.Report) cluster.Report) (bool, error) {
	return false, nil
}

func (g *gate) Leave(ctx context.Context, version string) error {
	g.note("leave " + version)
	return nil
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := &gate{source: newSource(false)}
	h.options.Admission = g
	h.trigger("v1")
	h.start()
	s := h.until("waiting", func(s Status) bool { return s.Phase == PhaseAdmission && s.Detail == "batch 2 of 3" })
	want(t, "ran", h.ran(), "")
	want(t, "reported", s.Config == nil, true)
	g.set(true)
	h.until("given back", func(s Status) bool { return s.Phase == PhaseConverged && s.Outcome == Converged })
	g.mu.Lock()
	defer g.mu.Unlock()
	want(t, "said", strings.Join(g.said, ", "), "enter v1, leave v1")
}

func TestRubbish(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("version", "this is\x00 no version")
	h.trigger("v1")
	h.hold.set(Hold{Held: "look at me"})
	h.start()
	s := h.until("held", func(s Status) bool { return s.Phase == PhaseHeld })
	wantText(t, "trouble", strings.Join(s.Trouble, "\n"), "not a version file", "counts as one without a version")
	h.hold.set(Hold{})
	s = h.untilPhase(PhaseConverged, "v1")
	want(t, "trouble", len(s.Trouble), 0)
}

func TestLostProgress(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	h.stop()
	h.write("state/converge.json", "{rubbish")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 check@v1")
	h.trigger("v2") // whose job must not be taken for one of before
	h.untilPhase(PhaseConverged, "v2")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 check@v1 one@v2 two@v2 check@v2")
	if _, err := os.Stat(h.path("state/converge.json.bad")); err != nil {
		t.Error(err)
	}
}

// TestUnwritable: where the version file cannot be written, that is reported,
// and repaired once it can; nothing runs twice.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("version/in the way", "a directory where the file should be")
	h.trigger("v1")
	h.start()
	s := h.until("trouble", func(s Status) bool {
		return s.Phase == PhaseRecording && s.Config != nil && s.Config.State == cluster.StateFailed && s.Reported && strings.Contains(s.Detail, "cannot be recorded")
	})
	wantText(t, "config", s.Config.Detail, "stuck, will retry", "cannot be recorded")
	want(t, "version", h.document().Version, "")
	if err := os.RemoveAll(h.path("version")); err != nil {
		t.Fatal(err)
	}
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1")
}

// TestBusy: while an operator runs a workflow, the host waits.
func TestBusy(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.flows = append(h.flows, config.Workflow{Name: "by hand", Tasks: []config.Task{sh("hand", "while [ ! -e $DIR/go ]; do sleep 0.01; done")}})
	h.build()
	other := workflow.New(workflow.Options{StateDir: h.path("state"), Workflows: h.flows, Environ: []string{"DIR=" + h.dir}})
	done := make(chan error, 1)
	go func() {
		_, err := other.Drive(context.Background(), workflow.Job{Workflow: "by hand"}, workflow.Hooks{})
		done <- err
	}()
	h.until("the task by hand", func(Status) bool { return strings.HasPrefix(h.ran(), "hand") })
	h.trigger("v1")
	h.start()
	s := h.until("waiting", func(s Status) bool { return strings.Contains(s.Detail, "another workflow runs") })
	want(t, "phase", s.Phase, PhaseStatic)
	h.write("go", "")
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.untilPhase(PhaseConverged, "v1")
	want(t, "ran", h.ran(), "hand@ one@v1 two@v1 check@v1")
}

func TestOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		with func(*host)
		want error
		out  Outcome
	}{
		{"converged", func(*host) {}, nil, Converged},
		{"failed", func(h *host) { h.flows[0].Tasks[0] = sh("one", "exit 1") }, ErrFailed, Failed},
		{"invalid", func(h *host) { h.write("broken", "") }, ErrFailed, Failed},
		{"held", func(h *host) { h.hold.set(Hold{Held: "no"}) }, ErrHeld, Held},
		{"paused", func(h *host) { h.hold.set(Hold{Paused: "no"}) }, ErrHeld, Held},
		{"reboot", func(h *host) { h.flows[0].Tasks[0] = sh("one", "exit 194") }, ErrPending, Pending},
		{"pending", func(h *host) {
			h.options.Requires, h.options.Requirements = []config.Requires{{Target: "mysql"}}, needs{newSource(lacking("mysql", 0, 1))}
		}, ErrPending, Pending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.trigger("v1")
			tt.with(h)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			h.options.Changed = func(s Status) {
				if s.Phase == PhasePending && s.Reported {
					cancel() // all else ends by itself
				}
			}
			h.build()
			s, err := h.Once(ctx)
			if !errors.Is(err, tt.want) || s.Outcome != tt.out {
				t.Errorf("Once = %q, %v, want %q, %v", s.Outcome, err, tt.out, tt.want)
			}
			want(t, "version", h.document().Version == "v1", tt.want == nil)
		})
	}
}

// TestDamagedReport: a report that another program damages is replaced, with all parts of it.
func TestDamagedReport(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.quick = func(q *timing) { q.recheck = 10 * time.Millisecond }
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	before := h.document()
	if err := h.client.KVPut(t.Context(), pair("jorc/"+h.cluster+"/nodes/n1", "{")); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the report", func(context.Context) error {
		d, _, err := h.ledger.Report(t.Context(), h.node)
		if err == nil && !d.Equal(before) {
			err = fmt.Errorf("got %+v, want %+v", d, before)
		}
		return err
	})
}
