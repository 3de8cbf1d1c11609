package main

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// unpaced is what trigger says of a version without a policy during a rollout with one.
const unpaced = "v3 has no policy, so all members begin at once"

// underWay makes the rollout of v2, with a policy, the one that is running.
func underWay(t *testing.T) *operated {
	t.Helper()
	o := newOperated(t)
	o.want("update trigger v1", 0)
	o.report("v1", "n1", "n2", "n3")
	o.want("update trigger v2 --max-parallel 1 --batches 1,100%", 0)
	return o
}

// TestTriggerUnpaced: without a terminal, as trigger_update, and with --yes, a trigger
// without a policy warns during a rollout with one, and does what it did.
func TestTriggerUnpaced(t *testing.T) {
	t.Parallel()
	o := underWay(t)
	o.want("update trigger v3 --dry-run", 0, "a rollout of v2 is under way (batches 1,100%, max-parallel 1", unpaced)
	if d := o.document(); d.Version != "v2" {
		t.Errorf("a dry run wrote %+v", d)
	}
	for _, line := range []string{"update trigger v3", "update trigger v3 --yes", "trigger_update v3"} {
		got := o.run(line)
		if d := o.document(); got.code != 0 || strings.Count(got.stderr, unpaced) != 1 || d.Version != "v3" || d.Paced() {
			t.Errorf("jorc %s: %+v, %+v", line, got, d)
		}
		o.want("update trigger v2 --max-parallel 1 --batches 1,100%", 0)
	}
	for _, line := range []string{"update trigger v2", "update trigger v3 --max-parallel 1", "update trigger v4"} { // the last one during v3
		if got := o.run(line); got.code != 0 || strings.Contains(got.stderr, unpaced) {
			t.Errorf("jorc %s: %+v", line, got)
		}
	}
	o.report("v4", "n1", "n2", "n3")
	orchestrate(t, o.s)
	if got := o.run("update trigger v5"); got.code != 0 || got.stderr != "" { // no rollout is running
		t.Errorf("after the rollout: %+v", got)
	}
}

// TestTriggerAsks: on a terminal it asks, and only yes triggers.
func TestTriggerAsks(t *testing.T) {
	t.Parallel()
	o := underWay(t)
	for _, test := range []struct {
		answer, version string
		code            int
	}{{"\n", "v2", exitFailed}, {"n\n", "v2", exitFailed}, {"\x04", "v2", exitFailed}, {"y\n", "v3", 0}} {
		ours, theirs := pseudoTerminal(t)
		cmd := exec.CommandContext(t.Context(), builtOnce(t), "update", "trigger", "v3")
		cmd.Env = []string{"TERM=dumb", consultest.NoConfig}
		for name, v := range o.env {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
		var screen, stdout output
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, &stdout, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var shown sync.WaitGroup
		shown.Go(func() { _, _ = io.Copy(&screen, ours) }) // it ends when the other end is closed
		says(t, &screen, unpaced+". Continue? [y/N] ")
		if d := o.document(); d.Version != "v2" {
			t.Errorf("before the answer it wrote %+v", d)
		}
		if _, err := ours.WriteString(test.answer); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the state says how it ended
		_ = theirs.Close()
		shown.Wait()
		if d := o.document(); cmd.ProcessState.ExitCode() != test.code || d.Version != test.version {
			t.Errorf("after %q: exit code %d, version %s: %s", test.answer, cmd.ProcessState.ExitCode(), d.Version, &screen)
		}
		if test.code != 0 {
			says(t, &screen, "v3 is not triggered: the answer is no")
		}
	}
}

// TestTriggerTogether: of two operators who trigger at the same time the one who supersedes
// sees whose rollout it was, also if that came meanwhile, and the other learns who did it.
func TestTriggerTogether(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	as := func(user string) map[string]string {
		env := map[string]string{}
		for name, v := range o.env {
			env[name] = v
		}
		env["USER"] = user
		return env
	}
	ann, bob := as("ann"), as("bob")
	o.want("update trigger v1", 0)
	o.report("v1", "n1", "n2", "n3")
	proxy := o.s.Proxy()
	bob["CONSUL_HTTP_ADDR"] = proxy.Addr
	var once sync.Once
	proxy.Do(func(r *http.Request) (f consultest.Fault) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.URL.Path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) { // bob has read what is stored, and writes
			once.Do(func() {
				if got := jorc(t, ann, "update", "trigger", "v2", "--max-parallel", "1"); got.code != 0 {
					t.Errorf("ann: %+v", got)
				}
			})
		}
		return f
	})
	got := jorc(t, bob, "update", "trigger", "v3", "--max-parallel", "1")
	if err := lacks(got.stderr, "the rollout of v2 was unfinished (waiting, triggered by ann at "); got.code != 0 || err != nil {
		t.Errorf("bob: %d, %v", got.code, err)
	}
	o.want("update show", 0, "supersedes", "v2, triggered by ann at ")
	o.report("v3", "n1", "n2", "n3")
	orchestrate(t, o.s)
	orchestrate(t, o.s)
	got = jorc(t, ann, "update", "wait")
	for _, part := range []string{"waits for v3, triggered by bob at ", "it superseded the unfinished rollout of v2, triggered by ann at "} {
		if err := lacks(got.stderr, part); err != nil {
			t.Errorf("ann waits: %v", err)
		}
	}
}
