package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

func says(t *testing.T, o *output, what string) {
	t.Helper()
	consultest.Eventually(t, "it to say "+what, func(context.Context) error {
		if text := o.String(); !strings.Contains(text, what) {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
}

// TestProfileWatch: it prints what is there and what changes, survives a
// restart of Consul, and exits 130 or 143 when a signal ends it.
func TestProfileWatch(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.Persistent())
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "n", "1")
	var one, all, failures output
	key := below(t, env, func(c *exec.Cmd) { c.Stdout, c.Stderr = &one, &failures }, "profile", "watch", "n")
	whole := below(t, env, func(c *exec.Cmd) { c.Stdout, c.Stderr = &all, io.Discard }, "profile", "watch")
	says(t, &one, "1\n")
	says(t, &all, `"n":1`)
	do(result{0, "", ""}, "profile", "set", "other", "7")
	says(t, &all, `"other":7`)
	do(result{0, "", ""}, "profile", "set", "n", `{"a": 2}`)
	says(t, &one, `{"a":2}`)
	s.Kill()
	says(t, &failures, "jorc: ")
	s.Restart()
	do(result{0, "", ""}, "profile", "set", "n", "3")
	says(t, &one, "3\n")
	do(result{0, "", ""}, "profile", "remove", "n")
	says(t, &one, "null\n")
	for watch, number := range map[*exec.Cmd]syscall.Signal{key: syscall.SIGINT, whole: syscall.SIGTERM} {
		if err := watch.Process.Signal(number); err != nil {
			t.Fatal(err)
		}
		if err := watch.Wait(); watch.ProcessState.ExitCode() != exitSignal+int(number) {
			t.Errorf("%v after %v: %v", watch.Args[1:], number, err)
		}
	}
	if got, want := one.String(), "1\n{\"a\":2}\n3\nnull\n"; got != want {
		t.Errorf("the watch of a param printed %q; want %q", got, want)
	}
}

// pseudoTerminal returns both ends of a new pseudo terminal.
func pseudoTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestProfileEditInTerminal: the editor has the terminal, a person types, and a
// conflict is shown with all three sides.
func TestProfileEditInTerminal(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "size", "1")
	// An editor that needs a terminal of its own: it asks which number to write.
	editor := filepath.Join(t.TempDir(), "editor")
	script := "#!/bin/sh\n[ -t 0 ] && [ -t 1 ] && [ -t 2 ] || exit 3\nprintf 'size? '; read -r n < /dev/tty || exit 4\nsed -i \"s/\\\"size\\\": [0-9]*/\\\"size\\\": $n/\" \"$1\"\n"
	if err := os.WriteFile(editor, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	env["EDITOR"] = editor
	edit := func(meanwhile func(), typed string) (int, string) {
		t.Helper()
		ours, theirs := pseudoTerminal(t)
		cmd := below(t, env, func(c *exec.Cmd) {
			c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}, "profile", "edit")
		_ = theirs.Close() // the process has its own
		var screen output
		shown := make(chan struct{})
		go func() {
			defer close(shown)
			_, _ = io.Copy(&screen, ours) // ends with the last process on the terminal
		}()
		says(t, &screen, "size? ")
		meanwhile()
		if _, err := io.WriteString(ours, typed+"\n"); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		<-shown
		return cmd.ProcessState.ExitCode(), strings.ReplaceAll(screen.String(), "\r\n", "\n")
	}
	if code, screen := edit(func() {}, "2"); code != exitOK || !strings.HasSuffix(screen, "2\n") {
		t.Errorf("an edit: exit %d, %q", code, screen)
	}
	do(result{0, "2\n", ""}, "profile", "get", "size")
	theirs := func() { do(result{0, "", ""}, "profile", "set", "size", "7") }
	code, screen := edit(theirs, "8")
	if want := "  it was  2\n  yours   8\n  theirs  7\n"; code != exitConflict || !strings.Contains(screen, want) || !strings.Contains(screen, "/params/size") {
		t.Errorf("both changed it: exit %d, %q; want 4 and %q", code, screen, want)
	}
	do(result{0, "7\n", ""}, "profile", "get", "size")
}

// TestUnholdBeatsWiderHolds: what is said of a node counts before what is said
// of its role, and that before the cluster; scripts see what changed nothing.
func TestUnholdBeatsWiderHolds(t *testing.T) {
	t.Parallel()
	s, env := onShared(t)
	do := doer(t, env)
	cl := fleet.New(s.Client(), env["JORC_PREFIX"], "default")
	held := func(node, role string) bool {
		t.Helper()
		v, err := cl.ControlOf(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		_, yes := v.Held(node, []string{role})
		return yes
	}
	same := func(what string) result {
		return result{0, "", "jorc: cluster \"default\": " + what + "; nothing was changed\n"}
	}
	do(result{0, "", ""}, "init", "default")
	for node, role := range map[string]string{"n1": "db", "n2": "web", "n3": "web", "n9": "web"} {
		do(result{0, "", ""}, "join", "--node", node, "--role", role)
	}
	for _, step := range []struct {
		args []string
		want result
		held map[string]bool // "node/role" → held
	}{
		{[]string{"unhold"}, same("it is not held"), map[string]bool{"n1/db": false}},
		{[]string{"unhold", "--node", "n1"}, same("it is not held"), map[string]bool{"n1/db": false}},
		{[]string{"unhold", "--role", "db"}, same("it is not held"), map[string]bool{"n1/db": false}},
		{[]string{"hold", "--reason", "deploy"}, result{}, map[string]bool{"n1/db": true, "n2/web": true}},
		{[]string{"hold"}, same("it is held already"), map[string]bool{"n1/db": true}},
		{[]string{"unhold", "--role", "db"}, result{}, map[string]bool{"n1/db": false, "n2/db": false, "n2/web": true}},
		{[]string{"unhold", "--role", "db"}, same("it is not held"), map[string]bool{"n1/db": false}},
		{[]string{"hold", "--node", "n1"}, result{}, map[string]bool{"n1/db": true, "n2/db": false}},
		{[]string{"unhold", "--node", "n1"}, result{}, map[string]bool{"n1/db": false, "n2/db": false}},
		{[]string{"hold", "--role", "db"}, result{}, map[string]bool{"n1/db": false, "n2/db": true, "n2/web": true}},
		{[]string{"unhold", "--node", "n3"}, result{}, map[string]bool{"n3/web": false, "n2/web": true}},
		{[]string{"unhold"}, result{}, map[string]bool{"n2/web": false, "n2/db": true, "n1/db": false}},
		{[]string{"unhold", "--role", "db"}, result{}, map[string]bool{"n2/db": false, "n1/db": false}},
		{[]string{"unhold", "--node", ""}, result{2, "", "jorc: a name must not be empty; see 'jorc cluster unhold --help'\n"}, nil},
		{[]string{"unhold", "n1"}, result{2, "", "jorc: no arguments expected; see 'jorc cluster unhold --help'\njorc: hint: 'jorc cluster unhold --node n1'\n"}, nil},
	} {
		do(step.want, step.args...)
		for who, want := range step.held {
			node, role, _ := strings.Cut(who, "/")
			if got := held(node, role); got != want {
				t.Errorf("after %q: %s is held: %v; want %v", step.args, who, got, want)
			}
		}
	}
	do(result{0, "", ""}, "hold", "--node", "n9", "--reason", "why")
	do(result{0, "", ""}, "unhold", "--node", "n9")
	do(result{0, "", ""}, "hold", "--role", "web", "--reason", "why")
	shown := jorc(t, env, "cluster", "show", "-o", "json")
	for _, want := range []string{`"held": null`, `"held_nodes": {}`, `"held_roles": {`, `"web": {`, `"reason": "why"`} {
		if shown.code != exitOK || !strings.Contains(shown.stdout, want) {
			t.Errorf("show says %+v; want %s", shown, want)
		}
	}
	if shown := jorc(t, env, "cluster", "show", "-o", "plain"); !strings.Contains(shown.stdout, "\nheld role web\tsince ") {
		t.Errorf("show says %+v", shown)
	}
	do(result{2, "", "jorc: \"a/b\" cannot be a name: '/' at position 2 is not allowed: a name is one segment of a key; see 'jorc cluster init --help'\n"}, "init", "a/b")
	do(result{1, "", "jorc: cluster \"none\": no such cluster; clusters: default; create it with 'jorc cluster init none'\n"}, "hold", "--cluster", "none")
	do(result{1, "", "jorc: role \"wbe\": no such role in cluster \"default\", did you mean \"web\"?; roles: db, leader, manager, web, worker\n"}, "hold", "--role", "wbe")
	do(result{0, "", ""}, "hold", "--role", "later", "--force")
	do(result{0, "", ""}, "unhold", "--role", "later")
	do(result{0, "", ""}, "hold", "--node", "later", "--force")
	do(result{0, "", ""}, "unhold", "--node", "later")
}
