package workflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// TestHang: a task that ignores SIGTERM and has children, one of which left the
// group, is ended with all of them; then it is tried again.
func TestHang(t *testing.T) {
	t.Parallel()
	task := sh("one", `setsid sh -c 'trap "" TERM; echo $$ >>$DIR/pids; while :; do sleep 600; done' &
		sh -c 'trap "" TERM; echo $$ >>$DIR/pids; while :; do sleep 600; done' &
		trap "" TERM
		while [ "$(wc -l <$DIR/pids 2>/dev/null || echo 0)" -lt 2 ]; do sleep 0.01; done
		while :; do sleep 600; done`)
	// The timeout may pass before the children have said who they are: then it is given more.
	for timeout := 300 * time.Millisecond; ; timeout *= 2 {
		task.Timeout = timeout
		h := newHost(t, Options{}, task)
		res := h.run()
		want(t, "state", res.State, Failed)
		want(t, "why", res.Why, fmt.Sprintf("timed out after %v", timeout))
		want(t, "exit code", res.ExitCode, 124)
		pids := strings.Fields(h.read("pids"))
		for _, text := range pids {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if !gone(pid) {
				t.Errorf("pid %d still runs", pid)
			}
		}
		if len(pids) == 2 {
			return
		}
	}
}

// TestLeftBehind: a task that succeeds may leave processes; they are reported.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", `setsid sh -c 'while :; do sleep 600; done' >/dev/null 2>&1 & echo $! >$DIR/pid`), sh("two", ""))
	res := h.run()
	pid, err := strconv.Atoi(strings.TrimSpace(h.read("pid")))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "state", res.State, Success)
	if gone(pid) {
		t.Errorf("pid %d: got gone, want it left alone", pid)
	}
	if got := res.Tasks[0].LeftBehind; len(got) == 0 || !strings.Contains(strings.Join(got, " "), fmt.Sprintf("(pid %d)", pid)) {
		t.Errorf("left behind: got %q, want pid %d", got, pid)
	}
	want(t, "of task two", len(res.Tasks[1].LeftBehind), 0)
	if killed, err := killMarked(mark(t, h, 0)); err != nil || len(killed) == 0 || !gone(pid) {
		t.Errorf("kill by mark: got %v, %v", killed, err)
	}
}

// TestLeftBehindDuringExec: a process has no environment for a moment while it
// executes another program; it is found all the same.
func TestLeftBehindDuringExec(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", `printf '#!/bin/sh\nexec "$0"\n' >$DIR/again; chmod +x $DIR/again; setsid $DIR/again >/dev/null 2>&1 & echo $! >$DIR/pid`))
	res := h.run()
	pid, err := strconv.Atoi(strings.TrimSpace(h.read("pid")))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "state", res.State, Success)
	if got := strings.Join(res.Tasks[0].LeftBehind, " "); !strings.Contains(got, fmt.Sprintf("(pid %d)", pid)) {
		t.Errorf("left behind: got %q, want pid %d", got, pid)
	}
	if killed, err := killMarked(mark(t, h, 0)); err != nil || len(killed) == 0 || !gone(pid) {
		t.Errorf("kill by mark: got %v, %v", killed, err)
	}
}

func mark(t *testing.T, h *host, i int) string {
	t.Helper()
	j, err := h.loadJob("j")
	if err != nil {
		t.Fatal(err)
	}
	return j.mark(i)
}

// TestStop: what becomes of a task when jorc stops.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		task := sh("one", `[ ! -e $DIR/was ] || exit 0; touch $DIR/was; echo here; while :; do sleep 600; done`)
		task.Idempotent = again
		h := newHost(t, Options{Output: onWrite(cancel)}, task)
		res, err := h.Run(ctx, Job{ID: "j", Workflow: "w"})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the context's end", err)
		}
		want(t, "state", res.State, Interrupted)
		want(t, "open", res.Open, again)
		want(t, "tail", res.Tail, "here\n")
		h.start(Options{}, task)
		res = h.run()
		if again {
			want(t, "state", res.State, Success)
			want(t, "ran", h.read("ran"), "one\none\n")
			want(t, "suspect", len(res.Suspect), 0)
		} else {
			want(t, "state", res.State, Interrupted)
			wantText(t, "why", res.Why, "not idempotent")
			want(t, "ran", h.read("ran"), "one\n")
		}
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestInterruptedForEver: a task that ends jorc each time is not run for ever.
func TestInterruptedForEver(t *testing.T) {
	t.Parallel()
	task := sh("one", "echo here; while :; do sleep 600; done")
	task.Idempotent = true
	h := newHost(t, Options{}, task)
	var res Result
	for range maxInterruptions {
		ctx, cancel := context.WithCancel(t.Context())
		h.start(Options{Output: onWrite(cancel)}, task)
		var err error
		if res, err = h.Run(ctx, Job{ID: "j", Workflow: "w"}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	want(t, "state", res.State, Failed)
	wantText(t, "why", res.Why, "for the 10th time")
	want(t, "runs", count(h.read("ran"))["one"], maxInterruptions)
}

// TestStdin: a task that asks gets nothing, at once.
func TestStdin(t *testing.T) {
	t.Parallel()
	res := newHost(t, Options{}, sh("one", `read answer && exit 3; [ ! -t 0 ]`)).run()
	want(t, "state", res.State, Success)
}

// TestGigabyte: a gigabyte of output costs bounded disk and memory, and its end is kept.
func TestGigabyte(t *testing.T) {
	t.Parallel()
	const limit = 128 << 10
	h := newHost(t, Options{MaxLog: limit}, sh("one", "head -c 1073741824 /dev/zero; echo the end; exit 1"))
	res := h.run()
	want(t, "state", res.State, Failed)
	wantText(t, "tail", res.Tail, "the end\n")
	if len(res.Tail) > 4096 {
		t.Errorf("tail: got %d bytes, want at most 4096", len(res.Tail))
	}
	// The record holds the tail, in which JSON writes each zero byte with six.
	if n := size(filepath.Join(h.jobs, "j")); n > limit+6*4096+4096 {
		t.Errorf("on disk: got %d bytes, want at most about %d", n, limit)
	}
	if log := h.log("j", "one"); len(log) > limit || len(log) < limit/2 || !strings.HasSuffix(log, "the end\n") {
		t.Errorf("log: got %d bytes", len(log))
	}
}

// TestEnvironment: what a task sees, and what it does not.
func TestEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "hidden")
	t.Setenv("VAULT_TOKEN", "hidden")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret-of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := config.Task{
		Name: "one", Script: "env; cat $JORC_PARAMS; echo; cat $JORC_CHANGE; pwd\n", TokenFile: token,
		Env: map[string]string{"MINE": "{{.Param `a`}} ${HOME}", "JORC_VERSION": "overridden"},
	}
	h := newHost(t, Options{Environ: []string{"JORC_CLUSTER=prod"}}, task)
	job := Job{ID: "j", Workflow: "w", Version: "v1", Params: params(t, `{"a": "x y"}`), Change: []byte("changed")}
	res, err := h.Run(t.Context(), job)
	if err != nil || res.State != Success {
		t.Fatal(res, err)
	}
	log := h.log("j", "")
	for _, line := range []string{
		"JORC_JOB=j", "JORC_WORKFLOW=w", "JORC_TASK=one", "JORC_NODE=n1", "JORC_CLUSTER=prod", "MINE=x y ${HOME}", "JORC_VERSION=overridden",
		"CONSUL_HTTP_TOKEN_FILE=" + token, "JORC_EXIT_REBOOT=194", "JORC_EXIT_STOP=195", "JORC_EXIT_NOT_YET=196", `{"a":"x y"}`, "changed/",
	} {
		if !strings.Contains("\n"+log, "\n"+line+"\n") {
			t.Errorf("got no %q in %s", line, log)
		}
	}
	if strings.Contains(log, "hidden") || strings.Contains(log, "secret-of-the-file") {
		t.Errorf("a secret shows: %s", log)
	}
}

// TestFiles: no other user can read what belongs to a job.
func TestFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, config.Task{Name: "one", Script: "echo here\n"})
	if _, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, `{"a": 1}`)}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(h.jobs, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && d.Name() != lockName { // the lock holds a process id
			t.Errorf("%s: mode %v", path, info.Mode())
		}
		if strings.HasSuffix(path, "01-one") && info.Mode().Perm() != 0o700 {
			t.Errorf("script: mode %v, want 0700", info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBusy: another process that runs a job keeps this one out, and is named.
func TestBusy(t *testing.T) {
	t.Parallel()
	var other *host
	var err error
	h := newHost(t, Options{Output: onWrite(func() {
		_, err = other.advance(context.Background(), Job{Workflow: "w"}, nil)
	})}, sh("one", "echo here"))
	other = &host{t: t, state: h.state, dir: h.dir}
	other.start(Options{}, sh("one", "touch $DIR/never"))
	want(t, "state", h.run().State, Success)
	if !errors.Is(err, ErrBusy) {
		t.Fatalf("got %v, want ErrBusy", err)
	}
	wantText(t, "error", err.Error(), `job j, workflow "w", task "one"`, fmt.Sprintf("held by pid %d", os.Getpid()))
	want(t, "never", h.read("never"), "")
	want(t, "ran", h.read("ran"), "one\n")
}

// TestTurns: within a process jobs wait for each other.
func TestTurns(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", `mkdir $DIR/alone && rmdir $DIR/alone`))
	const n = 8
	done := make(chan Result, n)
	for i := range n {
		go func() {
			res, err := h.Run(context.Background(), Job{ID: "j" + strconv.Itoa(i), Workflow: "w"})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
	}
	for range n {
		want(t, "state", (<-done).State, Success)
	}
	h.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Run(ctx, Job{Workflow: "w"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

// TestBinaryOutput: anything may be printed.
func TestBinaryOutput(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", `printf '\377\000\033[31mred\nlast \001 line\n\n'; exit 1`))
	res := h.run()
	want(t, "why", res.Why, "exit code 1: last   line")
	if !bytes.Contains([]byte(h.log("j", "")), []byte{0xff, 0, 0x1b}) {
		t.Error("the log is not what was printed")
	}
	if strings.Contains(res.Tail, "\xff") {
		t.Errorf("tail is not UTF-8: %q", res.Tail)
	}
}

// TestKilledGroup: a signal that a task sends to its own group stays there.
func TestKilledGroup(t *testing.T) {
	t.Parallel()
	res := newHost(t, Options{}, sh("one", "kill -KILL 0")).run()
	want(t, "exit code", res.ExitCode, 128+int(syscall.SIGKILL))
	want(t, "state", res.State, Failed)
}
