//go:build system

package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/config"
)

// smallState puts the state on a file system of 1 MB.
func (h *host) smallState(o Options, tasks ...config.Task) {
	h.t.Helper()
	h.state = h.t.TempDir()
	if err := unix.Mount("tmpfs", h.state, "tmpfs", 0, "size=1m"); err != nil {
		h.t.Fatalf("mount: %v (system tests need root)", err)
	}
	h.t.Cleanup(func() {
		if err := unix.Unmount(h.state, 0); err != nil {
			h.t.Error(err)
		}
	})
	h.start(o, tasks...)
}

// fill leaves no byte free.
func (h *host) fill() {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.state, "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		h.t.Fatal(err)
	}
}

func (h *host) empty() {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.state, "ballast")); err != nil {
		h.t.Fatal(err)
	}
}

// TestDiskFullByTask: a task that fills the disk with its output still ends in
// a state that is written down, and the next one finds the same room.
func TestDiskFullByTask(t *testing.T) {
	h := newHost(t, Options{})
	h.smallState(Options{}, sh("one", "head -c 10000000 /dev/zero"), sh("two", "exit 3"))
	res := h.run()
	want(t, "tasks", states(res), "success failed")
	wantText(t, "log", res.Tasks[0].LogError, "bytes of output are missing", "no space left")
	stored, err := h.Job("j")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "why", stored.Why, "exit code 3")
}

// TestDiskFullBetween: no task begins whose end could not be written down.
func TestDiskFullBetween(t *testing.T) {
	h := newHost(t, Options{})
	h.smallState(Options{}, sh("one", ""), sh("two", ""))
	ran := false
	h.hook = func(step string) {
		ran = ran || step == "ran"
		if ran {
			h.fill() // the room of the reserve, too, once it is free
		}
	}
	_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w"})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want ENOSPC with its remedy", err)
	}
	res, err := h.Job("j")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "tasks", states(res), "success planned")
	want(t, "open", res.Open, true)
	h.hook = func(string) {}
	h.empty()
	want(t, "state", h.run().State, Success)
	want(t, "ran", h.read("ran"), "one\ntwo\n")
}

// TestDiskFullBefore: a job that cannot be written down is not begun.
func TestDiskFullBefore(t *testing.T) {
	h := newHost(t, Options{})
	h.smallState(Options{}, sh("one", ""))
	if err := os.MkdirAll(h.jobs, 0o700); err != nil {
		t.Fatal(err)
	}
	h.fill()
	_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w"})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	want(t, "ran", h.read("ran"), "")
	if _, err := h.Job("j"); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v, want no job", err)
	}
	h.empty()
	want(t, "state", h.run().State, Success)
}

// TestDiskFullDuring: the disk is full when the task ends. That it failed is
// written down all the same.
func TestDiskFullDuring(t *testing.T) {
	h := newHost(t, Options{})
	h.smallState(Options{}, sh("one", "exit 3"))
	h.hook = func(step string) {
		if step == "ran" {
			h.fill()
		}
	}
	res := h.run()
	want(t, "state", res.State, Failed)
	stored, err := h.Job("j")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "why", stored.Why, "exit code 3")
}

// TestOtherUser: a task of another user finds its script, its params and its
// token, and nothing else of jorc's; no other user finds them.
func TestOtherUser(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for dir := temp; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil { // t.TempDir is for its owner only
			t.Fatal(err)
		}
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
id -un; echo $HOME $USER; pwd
cat "$JORC_PARAMS"; echo; cat "$JORC_CHANGE"; echo; cat "$CONSUL_HTTP_TOKEN_FILE"
[ "$(cat "$CONSUL_HTTP_TOKEN_FILE" | rev)" = terces ] && echo readable
stat -c %U:%a "$0" "$CONSUL_HTTP_TOKEN_FILE" "$JORC_PARAMS"
ls "$JORC_STATE/jobs" "$(dirname "$0")" 2>/dev/null
exit 0`
	task := config.Task{Name: "one", Script: script, User: "daemon", TokenFile: token, OnlyIf: []string{"sh", "-c", `[ "$(id -un)" = daemon ] && [ -r "$JORC_PARAMS" ]`}}
	h := newHost(t, Options{}, task)
	h.start(Options{Environ: []string{"JORC_STATE=" + h.state}}, task)
	res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, "a: 1"), Change: []byte("changed")})
	if err != nil || res.State != Success || states(res) != "success" {
		t.Fatalf("got %+v, %v", res, err)
	}
	want(t, "log", h.log("j", ""), "daemon\n/usr/sbin daemon\n/\n{\"a\":1}\nchanged\n[redacted]\nreadable\ndaemon:500\ndaemon:500\ndaemon:500\n")
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	task.User, task.OnlyIf, task.Script, task.Command = "1", nil, "", []string{"id", "-un"}
	h = newHost(t, Options{}, task)
	want(t, "state", h.run().State, Success)
	want(t, "by number", h.log("j", ""), "daemon\n")
}

// TestOtherUserCrash: what was made for another user is removed at the next start.
func TestOtherUserCrash(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	h := newHost(t, Options{}, config.Task{Name: "one", Script: "exit 0", User: "daemon", Idempotent: true})
	h.hook = func(step string) {
		if step == "ran" {
			panic("died") // as near to kill -9 as a test can come in one process
		}
	}
	func() {
		defer func() { _ = recover() }()
		h.run()
	}()
	var rec record
	if err := readJSON(filepath.Join(h.jobs, "j", recordFile), &rec); err != nil {
		t.Fatal(err)
	}
	if rec.Temp == "" {
		t.Fatal("the directory is not in the record")
	}
	if err := os.MkdirAll(rec.Temp, 0o711); err != nil { // the panic removed it
		t.Fatal(err)
	}
	h.start(Options{}, config.Task{Name: "one", Script: "exit 0"})
	want(t, "state", h.run().State, Failed) // TMPDIR is for its owner only: daemon gets nowhere
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
