package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// TestEmptyArguments: an argument from a variable that was not set means
// nothing, least of all for the cluster of the environment.
func TestEmptyArguments(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	for _, args := range []string{"delete --yes", "export", "show", "meta get", "profile watch", "profile params", "slots"} {
		command := append(strings.Fields(args), "")
		if got := jorc(t, env, append([]string{"cluster"}, command...)...); got.code != exitUsage || !strings.Contains(got.stderr, "an argument must not be empty") {
			t.Errorf("%q = %+v", command, got)
		}
	}
	do(result{0, "default\t0\n", ""}, "list", "-o", "plain")
}

// TestMembersFieldsJSON: fields that were asked for are called in JSON as they
// are in the whole answer, however they were spelled.
func TestMembersFieldsJSON(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1", "--param", "disks=4")
	for _, fields := range []string{"Node,NodeMeta,Params.disks", `node,node_meta,params["disks"]`} {
		got := jorc(t, env, "cluster", "members", "-o", "json", "--fields", fields)
		var all []map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 1 {
			t.Fatalf("%+v: %v", got, err)
		}
		want := map[string]any{"node": "n1", "node_meta": map[string]any{}, "params.disks": 4.0}
		if fmt.Sprint(all[0]) != fmt.Sprint(want) {
			t.Errorf("--fields %s: got %v, want %v", fields, all[0], want)
		}
	}
}

// TestClusterDenied: a caller who may not see the answer gets an error, and is not
// shown that nothing is there.
func TestClusterDenied(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	root := onServer(t, s)
	env := map[string]string{"CONSUL_HTTP_ADDR": s.HTTPAddr}
	for name, v := range root {
		if !strings.HasPrefix(name, "CONSUL_HTTP_TOKEN") {
			env[name] = v
		}
	}
	doer(t, root)(result{0, "[]\n", ""}, "list", "-o", "json")
	every := []string{
		"list", "show", "export", "members", "leader", "leader --elect", "deps", "join --node n", "leave --node n", "hold", "unhold", "meta get", "meta get --node n",
		"meta set a 1", "init prod", "delete --yes", "profile show", "profile get k", "profile get k --node n", "profile get k --effective --node n", "profile set k 1",
		"profile set k 1 --node n", "profile add k 1", "profile remove k", "profile params", "profile schema get k", "profile schema remove k", "profile watch", "profile token",
		"bootstrap-acl --node n --create", "pause", "resume", "observe-only on",
	}
	denied := func(env map[string]string) {
		t.Helper()
		for _, args := range every {
			got := jorc(t, env, append([]string{"cluster"}, strings.Fields(args)...)...)
			if got.code != exitDenied || got.stdout != "" || !strings.Contains(got.stderr, "denied by ACLs") || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("%s = %+v", args, got)
			}
		}
	}
	denied(env)
	doer(t, root)(result{0, "", ""}, "init", "default")
	denied(env)
	// A member's agent reads, and speaks for itself alone.
	policy := fleet.New(s.Client(), "jorc", "default").Policies("n")[0]
	env["CONSUL_HTTP_TOKEN"] = s.NewToken(policy.Rules)
	doer(t, root)(result{0, "", ""}, "join", "--node", "other")
	do := doer(t, env)
	do(result{0, "", ""}, "join", "--node", "n")
	every = []string{
		"join --node other --zone z", "leave --node other", "meta set a 1 --node other", "profile set k 1 --node other", "profile set k 1",
		"hold", "hold --node other", "pause", "delete --yes", "init prod",
	}
	denied(env)
}

// TestProfileWatchOfTrouble: a lasting problem is reported once.
func TestProfileWatchOfTrouble(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
	}))
	t.Cleanup(broken.Close)
	var said output
	env := map[string]string{"CONSUL_HTTP_ADDR": strings.TrimPrefix(broken.URL, "http://")}
	watch := below(t, env, func(c *exec.Cmd) { c.Stderr = &said }, "profile", "watch")
	consultest.Eventually(t, "the watch to ask again", func(context.Context) error {
		if n := asked.Load(); n < 4 {
			return fmt.Errorf("it asked %d times", n)
		}
		return nil
	})
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); watch.ProcessState.ExitCode() != exitSignal+int(syscall.SIGINT) {
		t.Error(err)
	}
	if text, ended := strings.CutSuffix(said.String(), "jorc: interrupt\n"); !ended || strings.Count(text, "\n") != 1 || !strings.Contains(text, "No cluster leader") {
		t.Errorf("it says %q", text)
	}
}

// below starts a process of jorc below "jorc cluster"; it is killed when the
// test ends.
func below(t *testing.T, env map[string]string, prepare func(*exec.Cmd), args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), builtOnce(t), append([]string{"cluster"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), consultest.NoConfig}
	for name, v := range env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	prepare(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}
