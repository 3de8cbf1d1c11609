package agent_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/web"
)

// A host whose check fails while its file says "bad".
const stagedConf = `
service "web" {
  port = 80
  check {
    script   = ["sh", "-c", "if grep bad DIR/limit; then exit 2; fi"]
    interval = "1s"
  }
}
member {}
orchestrator { interval = "1s" }
template "limit" {
  contents    = "limit {{ key \"app/limit\" }} on {{ key \"app/name\" }}\n"
  destination = "DIR/limit"
  reload      = ["sh", "-c", "cat DIR/limit >>DIR/reloads"]
  stage "edge" {
    min_healthy   = "3s"
    node_deadline = "8s"
  }
}
`

func (h *host) stages() *stage.Stages { return stage.New(kv.New(h.client, "jorc/default")) }

// wantStage waits until the host's report of the stage is as wanted.
func (h *host) wantStage(what string, wanted func(cluster.StageReport) bool) {
	h.t.Helper()
	h.eventually(what, func() error {
		e, err := h.cluster().Reports().At(h.server.Node).Get(h.t.Context())
		if err != nil {
			return err
		}
		if got := e.Value.Stages["edge"]; !wanted(got) {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
}

// wantStageState waits until the stage is shown in a state.
func (h *host) wantStageState(want string) stage.Status {
	h.t.Helper()
	var got stage.Status
	h.eventually("the stage "+want, func() error {
		all, err := stage.Show(h.t.Context(), h.cluster(), "edge", nil, time.Now())
		if err == nil && all[0].State != want {
			err = fmt.Errorf("got %+v", all[0])
		}
		if err == nil {
			got = all[0]
		}
		return err
	})
	return got
}

func newStagedHost(t *testing.T, conf string) *host {
	h := newHost(t, consultest.Start(t), conf)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "1")
	h.start()
	if s := h.wantStageState(stage.StateWaiting); s.Counts != (pace.Counts{Members: 1, Waiting: 1}) || s.Hosts[0].Waits == "" {
		t.Errorf("before the first content: got %+v", s)
	}
	h.put("app/name", "a")
	h.wantFile("limit", "limit 1 on a\n")
	h.wantStage("the first content", func(r cluster.StageReport) bool { return r.State == cluster.StageDone })
	return h
}

// TestStageRestores: a value with which the checks fail is taken back, is not taken
// again, and is named; another value is taken.
func TestStageRestores(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	h.put("app/limit", "bad")
	h.wantFile("limit", "limit bad on a\n")
	h.wantFile("limit", "limit 1 on a\n")
	h.wantStage("the old file", func(r cluster.StageReport) bool {
		return r.State == cluster.StageRestored && len(r.Taken.List) == 1 && r.Taken.List[0].Name == "key app/limit" &&
			strings.Contains(r.Reason, "web:") && r.Wants != ""
	})
	h.wantFile("reloads", "limit 1 on a\nlimit bad on a\nlimit 1 on a\n")
	h.eventually("the status of the stage", func() error { // it follows the report
		if stages := h.agent.Status().Stages; len(stages) != 1 || stages[0].State != cluster.StageRestored || !stages[0].Failed || !strings.Contains(stages[0].Reason, "web:") {
			return fmt.Errorf("%+v", stages)
		}
		return nil
	})
	h.eventually("the stop", func() error {
		d, err := h.stages().Load(t.Context(), "edge")
		if err == nil && (len(d.Stops.Stops) != 1 || d.Stops.Stops[0].Node != h.server.Node) {
			err = fmt.Errorf("got %+v", d.Stops)
		}
		return err
	})
	h.wantTemplate("limit", func(s web.Template) bool { return strings.Contains(strings.Join(s.Waiting, ""), "waits for its grant") })

	h.put("app/name", "b") // limit is still bad
	h.wantStage("another value", func(r cluster.StageReport) bool { return len(r.Changed.List) == 2 })
	h.put("app/limit", "3")
	h.wantFile("limit", "limit 3 on b\n")
	h.wantStage("the end", func(r cluster.StageReport) bool { return r.State == cluster.StageDone && r.Wants == "" })
	h.eventually("no stop", func() error {
		d, err := h.stages().Load(t.Context(), "edge")
		if err == nil && (len(d.Stops.Stops) != 0 || d.Book.Active) {
			err = fmt.Errorf("got %+v", d)
		}
		return err
	})
	h.wantFile("reloads", "limit 1 on a\nlimit bad on a\nlimit 1 on a\nlimit 3 on b\n")
}

// TestStatusOfTurns: the host's status has the stages in which it waits or failed, and what is
// left of a hold; that no orchestrator runs is said while it waits for a grant.
func TestStatusOfTurns(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), strings.Replace(stagedConf, `orchestrator { interval = "1s" }`, "", 1))
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "1")
	h.put("app/name", "a")
	h.start()
	want := func(what string, ok func(web.Status) bool) {
		t.Helper()
		h.eventually(what, func() error {
			s := h.agent.Status()
			if !ok(s) {
				return fmt.Errorf("got %q %s, stages %+v", s.Held, s.HeldUntil, s.Stages)
			}
			return nil
		})
	}
	one := func(s web.Status) web.Stage {
		if len(s.Stages) != 1 {
			return web.Stage{}
		}
		return s.Stages[0]
	}
	want("the grant that is waited for", func(s web.Status) bool {
		t := one(s)
		return t.Stage == "edge" && t.State == cluster.StageWaiting && !t.Since.IsZero() && slices.Contains(t.Changed, "key app/limit") && !t.Failed
	})
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	if _, err := h.cluster().Hold(t.Context(), cluster.Scope{Node: h.server.Node}, cluster.Hold{Since: time.Now(), Until: until, Reason: "disks"}); err != nil {
		t.Fatal(err)
	}
	want("the hold with its end", func(s web.Status) bool {
		return s.HeldUntil.Equal(until) && strings.HasPrefix(s.Held, "held since ") && strings.HasSuffix(s.Held, " left)")
	})
	want("that no orchestrator runs", func(s web.Status) bool { return one(s).Unorchestrated })
	if _, err := h.cluster().Unhold(t.Context(), cluster.Scope{Node: h.server.Node}, cluster.Hold{}); err != nil {
		t.Fatal(err)
	}
	want("no hold", func(s web.Status) bool { return s.Held == "" && s.HeldUntil.IsZero() })
	lock, err := h.cluster().Store().Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "another"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(t.Context()) })
	want("the orchestrator to be seen", func(s web.Status) bool { return one(s).State == cluster.StageWaiting && !one(s).Unorchestrated })
}

// TestFilesAreReported: a host reports the content of files of stages and of those with
// report = true, and of no others, also of the old file that returned.
func TestFilesAreReported(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf+`
template "motd" {
  contents    = "{{ key \"app/motd\" }}"
  destination = "DIR/motd"
  report      = true
}
template "other" {
  contents    = "{{ key \"app/motd\" }}"
  destination = "DIR/other"
}
`)
	h.put("app/motd", "hello")
	files := func(what, motd string) (all map[string]cluster.HostFile) {
		t.Helper()
		h.eventually(what, func() error {
			s, err := h.cluster().LoadReports(t.Context())
			if err != nil {
				return err
			}
			list, _ := s.Files("")
			all = map[string]cluster.HostFile{}
			for _, f := range list {
				all[filepath.Base(f.Destination)] = f
			}
			if sum := sha256.Sum256([]byte(motd)); len(all) != 2 || all["motd"].Content != fmt.Sprintf("%x", sum[:12]) || all["limit"].Stage != "edge" || all["limit"].Since.IsZero() {
				return fmt.Errorf("got %+v", list)
			}
			return nil
		})
		return all
	}
	before := files("the first content", "hello")
	h.put("app/motd", "hi")
	after := files("another content", "hi")
	if before["limit"] != after["limit"] || after["motd"].Since.Before(before["motd"].Since) {
		t.Errorf("from %+v to %+v", before, after)
	}
	h.put("app/limit", "bad")
	h.wantStage("the old file", func(r cluster.StageReport) bool { return r.State == cluster.StageRestored && r.Wants != "" })
	h.eventually("the old content waits for another", func() error {
		s, err := h.cluster().LoadReports(t.Context())
		if err != nil {
			return err
		}
		list, _ := s.Files(before["limit"].Destination)
		if len(list) != 1 || list[0].Content != before["limit"].Content || list[0].State != cluster.StageRestored {
			return fmt.Errorf("got %+v", list)
		}
		return nil
	})
}

// TestStageSetBack: a bad value that is set back ends the stop by itself, without another
// turn. Set again, it is stopped at once, and no host takes it.
func TestStageSetBack(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	reloads := "limit 1 on a\n"
	h.put("app/limit", "bad")
	if s := h.wantStageState(stage.StateStopped); len(s.Stops) != 1 || s.Counts.Failed != 1 {
		t.Errorf("got %+v", s)
	}
	reloads += "limit bad on a\nlimit 1 on a\n"
	h.wantFile("reloads", reloads)
	h.put("app/limit", "1")
	s := h.wantStageState(stage.StateDone)
	if host := s.Hosts[0]; len(s.Stops) != 0 || s.Counts != (pace.Counts{Members: 1, Done: 1}) || host.State != pace.HasIt || host.Files != "" || host.Detail != "" || len(host.Changed) != 0 {
		t.Errorf("got %+v", s)
	}

	h.put("app/limit", "bad")
	h.eventually("the stop, and its host as it is since", func() error { // a status has its hosts before its stops
		if s := h.wantStageState(stage.StateStopped); len(s.Stops) != 1 || s.Hosts[0].State != pace.Failed || s.Hosts[0].Files != cluster.StageRestored {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	h.put("app/limit", "2")
	h.wantFile("limit", "limit 2 on a\n")
	h.wantStageState(stage.StateDone)
	h.wantFile("reloads", reloads+"limit 2 on a\n")
}

// TestStageWaitsSince: a host that waits says since when it waits for this change, also
// after a restart; and until its template is rendered again it wants what it wanted.
func TestStageWaitsSince(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	h.eventually("the orchestrator to know that the first change is done", func() error {
		d, err := h.stages().Load(t.Context(), "edge")
		if err == nil && d.Book.Active {
			err = fmt.Errorf("got %+v", d)
		}
		return err
	})
	if _, err := h.cluster().Pause(t.Context(), cluster.Hold{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "2")
	var waits cluster.StageReport
	waiting := func(r cluster.StageReport) bool { waits = r; return r.Wants != "" }
	h.wantStage("the wish", waiting)
	report, _, err := h.cluster().Report(t.Context(), h.server.Node)
	if err != nil {
		t.Fatal(err)
	}
	if s := h.wantStageState(stage.StateChanging); !waits.WantsSince.After(report.Answered(cluster.FilesChange("edge")).Since) || !s.Since.Equal(waits.WantsSince) ||
		s.Hosts[0].State != pace.Pending || s.Hosts[0].Detail == "" || !s.Hosts[0].Since.Equal(waits.WantsSince) {
		t.Errorf("got %+v of %+v", s, waits)
	}

	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.client.KVDeleteTree(t.Context(), "app/name"); err != nil {
		t.Fatal(err)
	}
	h.configure(strings.Replace(stagedConf, "min_healthy ", "canary = 2\n    min_healthy ", 1))
	h.start()
	before := waits
	h.wantStage("a report of the new process", func(r cluster.StageReport) bool { waits = r; return r.Policy.Canary == 2 })
	if waits.Wants != before.Wants || len(waits.Changed.List) != 1 || waits.Changed.List[0] != before.Changed.List[0] || !waits.WantsSince.Equal(before.WantsSince) {
		t.Errorf("got %+v, want %+v", waits, before)
	}
	h.put("app/name", "a")
	if _, err := h.cluster().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantFile("limit", "limit 2 on a\n")
}

// TestStageRestarted: a host that stops while its checks have to pass continues after
// its start, and takes a bad value back then.
func TestStageRestarted(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	h.put("app/limit", "bad")
	h.wantFile("limit", "limit bad on a\n")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantFile("limit", "limit 1 on a\n")
	h.wantStage("the old file", func(r cluster.StageReport) bool { return r.State == cluster.StageRestored })
}

// TestStageDeadlineOutlivesTheAgent: the deadline counts from when the files are in place.
// After it the old files return, also where the checks pass at the next start.
func TestStageDeadlineOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	conf := strings.Replace(stagedConf, "if grep bad", "test -e DIR/mended || if grep bad", 1)
	h := newStagedHost(t, conf)
	h.put("app/limit", "bad")
	h.wantFile("limit", "limit bad on a\n")
	h.wantStage("the checks' time", func(r cluster.StageReport) bool { return r.State != cluster.StageChanging })
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	over := time.Now().Add(8 * time.Second) // node_deadline
	h.write("mended", "")
	h.eventually("the deadline", func() error {
		if time.Now().Before(over) {
			return errors.New("not yet")
		}
		return nil
	})
	h.start()
	h.wantFile("limit", "limit 1 on a\n")
	h.wantStage("the old file", func(r cluster.StageReport) bool { return r.State == cluster.StageRestored })
}

// TestStageStops: with on_unhealthy = "stop" the new file stays; once an operator
// approves it, it counts no longer.
func TestStageStops(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, strings.Replace(stagedConf, "min_healthy ", "on_unhealthy = \"stop\"\n    min_healthy ", 1))
	h.put("app/limit", "bad")
	h.wantStage("the failure", func(r cluster.StageReport) bool { return r.State == cluster.StageFailed && r.Wants == "" })
	h.wantFile("limit", "limit bad on a\n")
	h.eventually("the stop", func() error {
		_, err := h.stages().Resume(t.Context(), "edge", "", cluster.Hold{By: "ann"})
		return err
	})
	if _, err := h.stages().Resume(t.Context(), "edge", "", cluster.Hold{By: "ann"}); !errors.Is(err, stage.ErrNotStopped) {
		t.Errorf("got %v", err)
	}
	h.put("app/limit", "2")
	h.wantFile("limit", "limit 2 on a\n")
}

// TestStageReloadFails: a reload that fails ends the grant; the previous file is back, and
// the report has nothing of what the reload printed.
func TestStageReloadFails(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, strings.Replace(stagedConf, `"cat DIR/limit >>DIR/reloads"`, `"! grep bad DIR/limit"`, 1))
	h.put("app/limit", "bad")
	h.wantStage("the failure", func(r cluster.StageReport) bool {
		return r.State == cluster.StageRestored && strings.Contains(r.Reason, "reload for limit") &&
			!strings.Contains(r.Reason, "limit bad on a") // what the reload printed
	})
	h.wantFile("limit", "limit 1 on a\n")
}

// TestStageFound: a stage whose files were there before it is done without a grant.
func TestStageFound(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), stagedConf)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "1")
	h.put("app/name", "a")
	h.write("limit", "limit 1 on a\n")
	h.start()
	h.wantStageState(stage.StateDone)
}

// TestStageEdited: a file that another program changed returns without a grant.
func TestStageEdited(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	if err := os.WriteFile(h.path("limit"), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.wantFile("limit", "limit 1 on a\n")
}

// gatedConf is a stage with a gate: a workflow whose answer the file DIR/slo is.
func gatedConf(block string) string {
	conf := strings.Replace(stagedConf, `node_deadline = "8s"`, `node_deadline = "8s"`+"\n"+block, 1)
	conf = strings.Replace(conf, `orchestrator { interval = "1s" }`, "orchestrator {\n  interval = \"1s\"\n  stage_gates = [\"slo\"]\n}", 1)
	return conf + `
workflow "slo" {
  task "ask" {
    script = "cat $JORC_PARAMS >>DIR/asked; echo >>DIR/asked; sh DIR/slo"
  }
}
`
}

func startGatedHost(t *testing.T, conf string) *host {
	h := newHost(t, consultest.Start(t), conf)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.put("app/limit", "1")
	h.put("app/name", "a")
	h.write("slo", "echo 0 errors")
	h.start()
	return h
}

// TestStageGate: a change is done once its gate has passed; a gate that says no stops the
// stage with the last line of its output, and a resume asks it again.
func TestStageGate(t *testing.T) {
	t.Parallel()
	h := startGatedHost(t, gatedConf("bake = \"1s\"\n gate = \"slo\"\n approve_each = true"))
	s := h.wantStageState(stage.StateDone)
	if s.PassedGate == nil || s.PassedGate.Answer != "0 errors" || s.Gates != "bake 1s, gate slo, gate-timeout 1h0m0s, approve-each" {
		t.Errorf("got %+v, %+v", s, s.PassedGate)
	}
	asked, err := os.ReadFile(h.path("asked"))
	if err != nil || strings.Count(string(asked), `"gate/stage"`) != 1 || !strings.Contains(string(asked), h.server.Node) {
		t.Errorf("the gate was asked %s, %v", asked, err)
	}

	h.write("slo", "echo 7 % errors; exit 1")
	h.put("app/limit", "2")
	h.wantFile("limit", "limit 2 on a\n")
	s = h.wantStageState(stage.StateStopped)
	if got := s.Stops[0]; !strings.Contains(got.Reason, `gate "slo" of batch 1 failed: `) || !strings.Contains(got.Reason, "7 % errors") ||
		got.Step != "batch 1" || len(got.Inputs.List) != 1 || got.Inputs.List[0].Name != "key app/limit" {
		t.Errorf("got %+v", got)
	}
	h.write("slo", "echo better")
	if _, err := h.stages().Resume(t.Context(), "edge", "", cluster.Hold{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if s := h.wantStageState(stage.StateDone); s.PassedGate.Answer != "better" {
		t.Errorf("got %+v", s.PassedGate)
	}

	h.write("slo", "exit 1")
	h.put("app/limit", "3")
	h.wantStageState(stage.StateStopped)
	h.write("slo", "echo fine")
	h.put("app/limit", "4") // another value needs no resume
	h.wantFile("limit", "limit 4 on a\n")
	if s := h.wantStageState(stage.StateDone); s.PassedGate.Answer != "fine" {
		t.Errorf("got %+v", s.PassedGate)
	}
}

// TestStageGateHolds: a gate that cannot be asked holds the stage, and a workflow that the
// orchestrator does not list never runs.
func TestStageGateHolds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ slo, block, gates, want string }{
		"not found":   {"no-such-program", "", `["slo"]`, "cannot be asked"},
		"timeout":     {"exit 196", "gate_timeout = \"2s\"", `["slo"]`, "it did not answer for 2s"},
		"not allowed": {"echo yes", "", `["other"]`, "does not list it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := gatedConf("gate = \"slo\"\n" + test.block)
			conf = strings.Replace(conf, `["slo"]`, test.gates, 1)
			h := newHost(t, consultest.Start(t), conf)
			if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
				t.Fatal(err)
			}
			h.put("app/limit", "1")
			h.put("app/name", "a")
			h.write("slo", test.slo)
			h.start()
			s := h.wantStageState(stage.StateStopped)
			if !strings.Contains(s.Stops[0].Reason, test.want) || !strings.Contains(s.Stops[0].Reason, "'jorc stage resume edge' asks again") {
				t.Errorf("got %+v", s.Stops)
			}
			if _, err := os.Stat(h.path("asked")); name == "not allowed" && err == nil {
				t.Error("the workflow ran")
			}
		})
	}
}

// tick is how much earlier than the clock the time of a file may be: the kernel takes it from the last tick.
const tick = 10 * time.Millisecond

// TestStageFrozen: in a freeze a host takes no new content, but what an operator lets it take;
// content that comes later is taken at the end of the freeze, and not before.
func TestStageFrozen(t *testing.T) {
	t.Parallel()
	h := newStagedHost(t, stagedConf)
	freeze := func(id string, long time.Duration) (end time.Time) {
		now := time.Now().UTC().Truncate(time.Second)
		end = now.Add(long)
		if _, err := h.cluster().AddFreeze(t.Context(), pace.Freeze{ID: id, From: now, To: end, Reason: "the sale"}); err != nil {
			t.Fatal(err)
		}
		return end
	}
	waits := func(what string) {
		t.Helper()
		h.eventually(what+" to wait", func() error {
			all, err := stage.Show(t.Context(), h.cluster(), "edge", nil, time.Now())
			if err == nil && (all[0].Counts.Waiting != 1 || !strings.Contains(all[0].Hosts[0].Waits, "frozen until ")) {
				err = fmt.Errorf("got %+v", all[0])
			}
			return err
		})
	}
	freeze("f1", time.Hour)
	h.put("app/limit", "2")
	waits("the change")
	h.wantFile("limit", "limit 1 on a\n")
	if _, err := h.stages().Exempt(t.Context(), h.cluster(), "edge", "", stage.Exemption{Exceptions: pace.Exceptions{DuringFreeze: "a hole in the fence"}, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.wantFile("limit", "limit 2 on a\n")
	h.wantStage("what was let through", func(r cluster.StageReport) bool { return r.State == cluster.StageDone && r.Wants == "" })
	h.put("app/limit", "3")
	waits("what comes later")
	h.eventually("no exemption to be left", func() error {
		d, err := h.stages().Load(t.Context(), "edge")
		if err == nil && len(d.Stops.Exempt) > 0 {
			err = fmt.Errorf("got %+v", d.Stops)
		}
		return err
	})
	if _, err := h.cluster().RemoveFreeze(t.Context(), "f1"); err != nil {
		t.Fatal(err)
	}
	h.wantFile("limit", "limit 3 on a\n")
	h.wantStage("the end", func(r cluster.StageReport) bool { return r.State == cluster.StageDone && r.Wants == "" })
	end := freeze("f2", 5*time.Second)
	h.put("app/limit", "4")
	h.wantFile("limit", "limit 4 on a\n")
	info, err := os.Stat(h.path("limit"))
	if err != nil {
		t.Fatal(err)
	}
	if info.ModTime().Before(end.Add(-tick)) {
		t.Errorf("the file is of %v, before the end of the freeze at %v", info.ModTime(), end)
	}
}
