package replace

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/command"
)

// TestReloadOnce runs distinct commands once each, in order, and only those of
// files that changed.
func TestReloadOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "same", "same")
	one, two, none := p.sh("echo one $(cat a b) >>log"), p.sh("echo two >>log"), p.sh("echo same >>log")
	a, b, c, same := p.file("a", "1"), p.file("b", "2"), p.file("c", "3"), p.file("same", "same")
	a.Reload, b.Reload, c.Reload, same.Reload = one, two, one, none
	out := p.replace(t, a, b, c, same)
	p.want(t, "log", "one 12\ntwo\n")
	if len(out.Reloaded) != 2 || len(out.Changed) != 3 || out.RolledBack {
		t.Errorf("outcome: got %+v, want 3 changed and 2 reloads", out)
	}
	p.wantClean(t)
}

func TestReloadFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		refuse  string // the command when new content is seen
		command []string
		timeout time.Duration
		want    string
		is      error
		back    string // in the error about the roll back
	}{
		{name: "exit code", refuse: "echo bad port; exit 3", want: "exit code 3: bad port; the previous content is back"},
		{name: "hangs with children", refuse: "sleep 1000 & sleep 1000", timeout: 2 * time.Second, want: "timed out after"},
		{name: "not found", command: []string{"jorc-no-such-program"}, want: "command not found", is: command.ErrNotFound, back: "roll back: "},
		{name: "also of the previous content", command: []string{"false"}, want: "exit code 1", back: "reload of the previous content: false: exit code 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write(t, "a", "old")
			before := inode(t, p.path("a"))
			a, b, c := p.file("a", "new"), p.file("b", "new"), p.file("c", "new")
			a.Reload = p.sh("cat a >>first; echo >>first")
			b.Reload, b.ReloadTimeout = tt.command, tt.timeout
			if tt.command == nil {
				b.Reload = p.sh("if grep -q new a; then " + tt.refuse + "; fi; cp a second")
			}
			c.Reload = p.sh("touch third")
			out, err := p.try(t.Context(), a, b, c)
			var rerr *ReloadError
			if !errors.As(err, &rerr) {
				t.Fatalf("got %v, want a ReloadError", err)
			}
			if rerr.File != "b" || !rerr.RolledBack || !out.RolledBack || len(out.Changed)+len(out.Reloaded) != 0 {
				t.Errorf("got %+v, %+v, want b's reload rolled back", rerr, out)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("message: got %q, want one line with %q", err, tt.want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			if (rerr.Rollback != nil) != (tt.back != "") || !strings.Contains(err.Error(), tt.back) {
				t.Errorf("roll back: got %v, want %q", err, tt.back)
			}
			p.want(t, "a", "old")
			if got := inode(t, p.path("a")); got != before {
				t.Errorf("inode: got %d, want the very file %d", got, before)
			}
			p.wantNone(t, "b")
			p.wantNone(t, "c")
			p.want(t, "first", "new\nold\n")
			if tt.command == nil {
				p.want(t, "second", "old")
			}
			p.wantNone(t, "third")
			p.wantClean(t)
		})
	}
}

// TestContextEndsDuringReload must not leave new content that was not loaded.
func TestContextEndsDuringReload(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.r.hook = func(step string) {
		if step == "renamed" {
			cancel()
		}
	}
	f := p.file("a", "new")
	f.Reload = p.sh("cp a loaded")
	out, err := p.try(ctx, f)
	if err != nil || len(out.Reloaded) != 1 {
		t.Errorf("got %+v, %v, want it reloaded", out, err)
	}
	p.want(t, "loaded", "new")
	p.wantClean(t)
}

func TestGate(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old")
	var log []string
	f := p.file("a", "new")
	f.Check, f.Reload = p.sh("touch checked"), p.sh("touch reloaded")
	gate := func(context.Context) (func(), error) {
		log = append(log, "taken: "+p.present("checked", "reloaded"))
		return func() { log = append(log, "released: "+p.present("checked", "reloaded")) }, nil
	}
	if _, err := p.r.Replace(t.Context(), Unit{Name: "u", Files: []File{f}, Gate: gate}); err != nil {
		t.Fatal(err)
	}
	wantStrings(t, "gate", log, []string{"taken: checked", "released: checked reloaded"})

	// Nothing to do: the fleet is not asked.
	log = nil
	if _, err := p.r.Replace(t.Context(), Unit{Name: "u", Files: []File{f}, Gate: gate}); err != nil {
		t.Fatal(err)
	}
	wantStrings(t, "gate when nothing changed", log, nil)

	closed := errors.New("closed")
	f.Data = []byte("newer")
	u := Unit{Name: "u", Files: []File{f}, Gate: func(context.Context) (func(), error) { return nil, closed }}
	if _, err := p.r.Replace(t.Context(), u); !errors.Is(err, closed) {
		t.Errorf("got %v, want the gate's error", err)
	}
	p.want(t, "a", "new")
	p.wantClean(t)
}

// TestRenameFails loses a staged file after the first rename.
func TestRenameFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old a")
	p.write(t, "b", "old b")
	renames := 0
	p.r.hook = func(step string) {
		if step == "rename" {
			if renames++; renames == 2 {
				_ = os.Remove(p.path(".b.jorc-new"))
			}
		}
	}
	a, b, c := p.file("a", "new a"), p.file("b", "new b"), p.file("c", "new c")
	a.Reload = p.sh("touch reloaded")
	out, err := p.try(t.Context(), a, b, c)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), p.path("b")) || !out.RolledBack {
		t.Errorf("got %+v, %v, want b's rename to fail and all rolled back", out, err)
	}
	p.want(t, "a", "old a")
	p.want(t, "b", "old b")
	p.wantNone(t, "c")
	p.wantNone(t, "reloaded")
	p.wantClean(t)
}

// present lists which of the names exist.
func (p place) present(names ...string) string {
	var found []string
	for _, n := range names {
		if _, err := os.Lstat(p.path(n)); err == nil {
			found = append(found, n)
		}
	}
	return strings.Join(found, " ")
}
