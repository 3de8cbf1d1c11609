package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// TestChange: one command sees and steers a version, the files of a stage and runs, by IDs that may be cut; what it changes is in
// the audit; a verb that a kind does not have, and an ID that names nothing or too much, is wrong usage.
func TestChange(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	client := f.server.Client()
	cl, rollouts := fleet.New(client, "jorc", "prod"), rollout.New(client, "jorc", "prod")
	do := func(args ...string) result { return jorc(t, f.env, append([]string{"change"}, args...)...) }
	want := func(code int, part string, args ...string) result {
		t.Helper()
		got := do(args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, part) {
			t.Errorf("change %v: got %+v, want code %d and %q", args, got, code, part)
		}
		return got
	}
	ids := func(args ...string) string {
		t.Helper()
		got := do(append([]string{"list", "-o", "json"}, args...)...)
		var all []shownChange
		if err := json.Unmarshal([]byte(got.stdout), &all); got.code != 0 || err != nil {
			t.Fatalf("list: %+v, %v", got, err)
		}
		var names []string
		for _, x := range all {
			names = append(names, x.ID)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := ids(); got != "" {
		t.Errorf("in progress at first: %s", got)
	}
	want(exitUsage, "no change is in progress", "show")

	if _, err := rollouts.Trigger(t.Context(), rollout.Request{Version: "v1", By: "ann", Policy: func(p *pace.Policy) { p.Canary = 1 }}); err != nil {
		t.Fatal(err)
	}
	want(0, "version", "show") // the only one
	want(exitTimeout, "", "wait", "--timeout", "1ms")
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	for _, node := range []string{"web-1", "web-2"} {
		if _, err := cl.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			return r.WithStage("edge", cluster.StageReport{Policy: cluster.StagePolicy{MaxParallel: "1"}, Wants: "c1", Changed: limit}), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"backup-1", "backup-2"} {
		if _, _, err := runs.New(cl.Store()).Ask(t.Context(), id, runs.Request{Workflow: "say", NeedsApproval: true}, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(); got != "files.edge run.backup-1 run.backup-2 version.v1" {
		t.Errorf("in progress: %s", got)
	}
	if got := ids("--kind", "run"); got != "run.backup-1 run.backup-2" {
		t.Errorf("runs in progress: %s", got)
	}
	want(exitUsage, "must be one of version, files, run", "list", "--kind", "runs")
	want(exitUsage, "4 changes are in progress: give one of ", "show")
	want(exitUsage, `"backup" is the beginning of 2 changes: give one of run.backup-`, "show", "backup")
	want(exitUsage, `there is no change "run.backup-3", did you mean "run.backup-`, "show", "run.backup-3")

	want(0, "web-1", "show", "ed")
	want(0, "say", "show", "run.backup-1")
	want(1, "version.v1\t", "why", "web-1", "-o", "plain")
	want(1, "files.edge\twaiting\tno orchestrator runs", "why", "web-1", "-o", "plain")
	want(0, ": no orchestrator runs\n", "list", "--kind", "files", "-o", "plain")

	want(0, "v1\tpaused", "pause", "v1", "--reason", "a look", "-o", "plain")
	want(0, "v1\twaiting", "resume", "version.v1", "--reason", "it is fine", "-o", "plain")
	want(0, "v1\twaiting", "approve", "v1", "-o", "plain")
	want(0, "backup-1\tpending", "approve", "backup-1", "-o", "plain")
	want(0, "backup-2\tcancel", "cancel", "backup-2", "-o", "plain")
	want(1, "not stopped", "resume", "edge")
	want(1, "no host has it with approve_each", "approve", "edge")
	want(1, "no open grant", "give-up", "web-1")
	want(0, "", "retry", "v1", "web-1")
	want(exitUsage, "which host", "retry", "v1")
	for _, args := range [][]string{
		{"pause", "edge"},
		{"pause", "backup-1"},
		{"resume", "backup-1"},
		{"cancel", "edge"},
		{"cancel", "v1", "--kill"},
		{"logs", "v1"},
		{"history", "v1"},
		{"history", "edge"},
		{"resume", "v1", "--over-budget", "now"},
		{"retry", "edge", "--from-start"},
	} {
		if got := do(args...); got.code != exitUsage || !strings.Contains(got.stderr, "; ") {
			t.Errorf("change %v: got %+v, want code %d and what to do instead", args, got, exitUsage)
		}
	}
	want(0, "v1\taborted", "cancel", "v1", "--reason", "it is broken", "-o", "plain")
	want(0, "v1\taborted", "cancel", "v1", "-o", "plain")
	wantAudit := []string{
		"jorc change pause v1|ann|a look|current/version", "jorc change resume version.v1|ann|it is fine|current/version",
		"jorc change approve v1|ann||current/version", "jorc change approve backup-1|ann||runs/.active/backup-1 runs/backup-1/spec",
		"jorc change cancel backup-2|ann||runs/.active/backup-2 runs/backup-2/spec", "jorc change retry v1 web-1|ann||host/web-1/grants",
		"jorc change cancel v1|ann|it is broken|current/version",
	}
	if got := auditLines(audited(t, f.env, "--command", "jorc change")); !slices.Equal(got, wantAudit) {
		t.Errorf("audit:\n%q\nwant\n%q", got, wantAudit)
	}
	want(exitUsage, "it has ended", "pause", "v1")
	if got := ids(); got != "files.edge run.backup-1" {
		t.Errorf("in progress after the rollout ended: %s", got)
	}
	if got := ids("--all"); !strings.Contains(got, "version.v1") || !strings.Contains(got, "run.backup-2") {
		t.Errorf("all: %s", got)
	}
}

// TestWaitForFiles: a wait for the files of a stage ends when all hosts have what they want, when the stage is stopped, and
// when the cluster is paused; and 'jorc change show --watch' ends then, too.
func TestWaitForFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	cl := fleet.New(f.server.Client(), "jorc", "prod")
	report := func(node, content string, r cluster.StageReport) {
		t.Helper()
		r.Policy = cluster.StagePolicy{MaxParallel: "1"}
		answer := cluster.Answer{Change: cluster.FilesChange("edge"), ID: "1.1.s", Tag: content, State: cluster.GrantDone}
		if _, err := cl.ReportWriter(node).Change(t.Context(), func(old cluster.Report) (cluster.Report, error) {
			return old.WithStage("edge", r).WithAnswer(answer), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	done := cluster.StageReport{Taken: limit, State: cluster.StageDone}
	waits := done
	waits.Wants = "c2"
	report("web-1", "c1", waits)
	report("web-2", "c1", waits)
	wait := func(code int, part string, flags ...string) {
		t.Helper()
		if got := jorc(t, f.env, append([]string{"change", "wait", "edge"}, flags...)...); got.code != code || !strings.Contains(got.stdout+got.stderr, part) {
			t.Errorf("got %+v, want code %d and %q", got, code, part)
		}
	}
	wait(exitTimeout, "timed out after 1ms", "--timeout", "1ms")
	if got := jorc(t, f.env, "cluster", "pause", "--reason", "lunch"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	wait(exitStopped, "the cluster is paused since ")
	watch := func(state string) {
		t.Helper()
		var status stage.Status
		got := jorc(t, f.env, "change", "show", "edge", "--watch", "-o", "json")
		if err := json.Unmarshal([]byte(got.stdout), &status); got.code != 0 || err != nil || status.State != state {
			t.Errorf("got %+v, %v, want the state %s", got, err, state)
		}
	}
	watch("changing") // and paused
	if got := jorc(t, f.env, "cluster", "resume"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { wait(0, `"waiting": 0,`, "-o", "json") })
	waiting.Go(func() { watch("done") })
	report("web-1", "c2", done)
	report("web-2", "c2", done)
	waiting.Wait()

	report("web-2", "c1", waits)
	waiting.Go(func() { wait(exitFailed, "the stage is stopped: 'jorc stage resume edge': web-1: its checks fail") })
	waiting.Go(func() { watch("stopped") })
	stops := kv.NewDoc[stage.Stops](cl.Store(), cluster.StageStopsKey("edge"), 1)
	stop := stage.Stops{Stops: []stage.Stop{{Node: "web-1", Grant: "1.1.s", Content: "c2", Inputs: limit, Reason: "its checks fail"}}}
	if _, err := stops.CompareAndSwap(t.Context(), kv.Entry[stage.Stops]{}, stop); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
}

// TestGiveUpFiles: 'jorc change give-up' frees the place of a host that does not return with its grant of a stage.
func TestGiveUpFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	cl := fleet.New(f.server.Client(), "jorc", "prod")
	limit := cluster.StageInputs{List: []cluster.StageInput{{Name: "key app/limit", Digest: "d1"}}}
	g := change.Grant{Change: cluster.FilesChange("edge"), ID: "1.1.s", Tag: "c1", State: pace.Offered, Since: time.Now().UTC()}
	if _, err := change.GrantsAt(cl.Store(), "web-1").CompareAndSwap(t.Context(), kv.Entry[change.Grants]{}, change.Grants{All: []change.Grant{g}}); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.ReportWriter("web-1").Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
		r = r.WithStage("edge", cluster.StageReport{Policy: cluster.StagePolicy{MaxParallel: "1"}, Taken: limit, State: cluster.StageChanging})
		return r.WithAnswer(cluster.Answer{Change: g.Change, ID: g.ID, Tag: g.Tag, State: cluster.GrantAccepted, Since: g.Since}), nil
	}); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		state, err := cl.Load(t.Context(), cluster.NeedState)
		if err != nil {
			t.Fatal(err)
		}
		return stage.Open("edge", stage.HostsOf(&state)["edge"])
	}
	if n := open(); n != 1 {
		t.Fatalf("%d grants are open, want one", n)
	}
	if got := jorc(t, f.env, "change", "give-up", "web-2"); got.code != 1 || !strings.Contains(got.stderr, "no open grant") {
		t.Errorf("got %+v", got)
	}
	if got := jorc(t, f.env, "change", "give-up", "web-1", "--reason", "a broken disk", "-o", "plain"); got.code != 0 || got.stdout != "web-1\tfiles.edge\n" {
		t.Errorf("got %+v", got)
	}
	if n := open(); n != 0 {
		t.Errorf("%d grants are open after that", n)
	}
}

// TestUpdateNames: each verb of 'jorc update' that is a name for one of 'jorc change' says so.
func TestUpdateNames(t *testing.T) {
	t.Parallel()
	for name, verb := range updateNames() {
		if got := jorc(t, nil, "help", "update", name); !strings.Contains(strings.Join(strings.Fields(got.stdout), " "), "A name for 'jorc change "+verb+"' of a version.") {
			t.Errorf("update %s: %+v", name, got)
		}
		if got := jorc(t, nil, "help", "change", verb); got.code != 0 {
			t.Errorf("change %s: %+v", verb, got)
		}
	}
}

// TestChangeHistory: what has ended is found by its ID, and a failed run is tried again where it failed.
func TestChangeHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "a", "b")
	f.orchestrate()
	do := func(args ...string) result { return jorc(t, f.env, args...) }
	if got := do("cluster", "run", "break", "--id", "broken", "--wait", "--timeout", "60s"); got.code != 1 {
		t.Fatalf("the run: %+v", got)
	}
	if got := do("change", "wait", "broken", "--timeout", "60s"); got.code != 1 {
		t.Errorf("wait: %+v", got)
	}
	store := runs.New(fleet.New(f.server.Client(), "jorc", "prod").Store())
	f.eventually("the run to end: a wait ends with the first member that failed", func() error {
		d, err := store.Show(t.Context(), "broken")
		if err == nil && !d.State.Ended() {
			err = fmt.Errorf("it is %s", d.State)
		}
		return err
	})
	if got := do("change", "history", "-o", "plain"); got.code != 0 || !strings.HasPrefix(got.stdout, "run.broken\tworkflow break on ") {
		t.Errorf("history: %+v", got)
	}
	if got := do("change", "history", "broken"); got.code != 0 || !strings.Contains(got.stdout, "exit code") {
		t.Errorf("history of one: %+v", got)
	}
	if got := do("change", "logs", "broken", "a"); got.code != 0 || !strings.Contains(got.stdout, "no such disk") {
		t.Errorf("logs: %+v", got)
	}
	got := do("change", "retry", "broken", "a", "-o", "json")
	var again runs.Run
	if err := json.Unmarshal([]byte(got.stdout), &again); got.code != 0 || err != nil {
		t.Fatalf("retry: %+v, %v", got, err)
	}
	f.eventually("the retry to end", func() error {
		d, err := store.Show(t.Context(), again.ID)
		if err == nil && (!d.State.Ended() || len(d.Members) != 1 || d.Members[0].Node != "a") {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	if got := do("change", "retry", "broken", "nowhere"); got.code == 0 {
		t.Errorf("a retry on a host that does not exist: %+v", got)
	}
}

// TestChangeLease: the lease of a host is seen and given up among the other changes.
func TestChangeLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1", "web-2")
	client := f.server.Client()
	cl := fleet.New(client, "jorc", "prod")
	report := func(node string, change func(cluster.Report) cluster.Report) {
		t.Helper()
		if _, err := cl.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) { return change(r), nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := func(code int, part string, args ...string) {
		t.Helper()
		if got := jorc(t, f.env, append([]string{"change"}, args...)...); got.code != code || !strings.Contains(got.stdout+got.stderr, part) {
			t.Errorf("change %v: got %+v, want code %d and %q", args, got, code, part)
		}
	}
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	wish := func(node string) *cluster.Wish {
		return &cluster.Wish{ID: "w-" + node, Reason: "a new kernel", Since: since}
	}
	accepted := cluster.Answer{Change: "lease.web-1", ID: "g1", Tag: "w-web-1", State: cluster.GrantAccepted, Since: since}
	report("web-1", func(r cluster.Report) cluster.Report { return r.Wishing(wish("web-1")).WithAnswer(accepted) })
	report("web-2", func(r cluster.Report) cluster.Report { return r.Wishing(wish("web-2")) })
	waits := change.Grant{Change: "lease.web-2", Tag: "w-web-2", Waits: &change.Waited{Code: pace.BecauseBudget, Reason: "the budget: 1 of 1 hosts are out of service: web-1"}}
	if _, err := change.GrantsAt(cl.Store(), "web-2").CompareAndSwap(t.Context(), kv.Entry[change.Grants]{}, change.Grants{All: []change.Grant{waits}}); err != nil {
		t.Fatal(err)
	}

	want(0, "lease.web-1\tlease of web-1: a new kernel\tgranted\t0/1\t0\t2026-11-26T12:00:00Z\tweb-1\t", "list", "-o", "plain")
	want(0, "lease.web-2\tlease of web-2: a new kernel\twaiting\t", "list", "--kind", "lease", "-o", "plain")
	want(0, "web-2\twaiting\ta new kernel\t", "show", "lease.web-2", "-o", "plain")
	want(1, "lease.web-2\tbudget\tthe budget: 1 of 1", "why", "web-2", "-o", "plain")
	want(exitTimeout, "is not over yet", "wait", "lease.web-2", "--timeout", "1ms")
	for _, args := range [][]string{
		{"pause", "lease.web-1"},
		{"resume", "lease.web-1"},
		{"approve", "lease.web-1"},
		{"cancel", "lease.web-1"},
		{"retry", "lease.web-1"},
		{"logs", "lease.web-1"},
		{"history", "lease.web-1"},
		{"show", "lease.web-1", "--watch"},
	} {
		want(exitUsage, "; ", args...)
	}
	want(0, "web-1\tlease.web-1", "give-up", "web-1", "-o", "plain")
	want(0, "web-1\tgiven up\t", "show", "lease.web-1", "-o", "plain")
	want(1, "no open grant", "give-up", "web-2")
	report("web-2", func(r cluster.Report) cluster.Report { return r.Wishing(nil) })
	want(exitTimeout, "", "wait", "lease.web-1", "--timeout", "1ms")
}
