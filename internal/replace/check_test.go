package replace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/command"
)

func TestSubstitute(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want []string
		err  string
	}{
		{args: nil, want: []string{}},
		{args: []string{"nginx", "-t", "-c", "{{.Staged}}"}, want: []string{"nginx", "-t", "-c", "/S"}},
		{args: []string{"x={{ .Staged }}:{{.Destination}};", ""}, want: []string{"x=/S:/D;", ""}},
		{args: []string{"{{.Staged}}{{.Staged}}"}, want: []string{"/S/S"}},
		{args: []string{"}} {x} $HOME"}, want: []string{"}} {x} $HOME"}},
		{args: []string{"{{.Stagd}}"}, err: `unknown {{.Stagd}}`},
		{args: []string{"{{.Staged | printf}}"}, err: "only {{.Staged}} and {{.Destination}} are known"},
		{args: []string{"ok", "{{.Staged"}, err: "{{ without }}"},
		{args: []string{"{{}}"}, err: "unknown {{}}"},
	}
	for _, tt := range tests {
		got, err := substitute(tt.args, "/S", "/D")
		if cerr := CheckArgs(tt.args); (cerr == nil) != (err == nil) {
			t.Errorf("%q: CheckArgs: got %v, want as substitute: %v", tt.args, cerr, err)
		}
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: got %v, want %q in it", tt.args, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
		}
		wantStrings(t, "arguments", got, tt.want)
	}
}

func FuzzCheckArgs(f *testing.F) {
	f.Add("{{.Staged}}")
	f.Add("a{{ .Destination }}{{")
	f.Fuzz(func(t *testing.T, arg string) {
		got, err := substitute([]string{arg}, "/S", "/D")
		if err == nil && strings.Contains(arg, "{{") && got[0] == arg {
			t.Errorf("%q: got it back as it was", arg)
		}
		if err == nil && !strings.Contains(arg, "{{") && got[0] != arg {
			t.Errorf("%q: got %q, want no change", arg, got[0])
		}
	})
}

// TestCheckSees that the staged file is complete, private until then, beside
// its destination, and that the destination is still the old one.
func TestCheckSees(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a.conf", "old")
	f := p.file("a.conf", "new")
	f.Perms = 0o640
	f.Check = append(p.sh(`
		test "$1" = "$PWD/.a.conf.jorc-new" || exit 11
		test "$(cat "$1")" = new || exit 12
		test "$(stat -c %a "$1")" = 640 || exit 13
		test "$2" = "$PWD/a.conf" || exit 14
		test "$(cat "$2")" = old || exit 15
		test "$(echo *.conf)" = a.conf || exit 16`), "{{.Staged}}", "{{.Destination}}")
	p.replace(t, f)
	p.want(t, "a.conf", "new")
}

func TestCheckFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tests := []struct {
		name  string
		check []string
		want  string
		is    error
	}{
		{name: "refuses", check: p.sh("echo line 3 is wrong; exit 1"), want: "exit code 1: line 3 is wrong"},
		{name: "hangs", check: p.sh("trap '' TERM; sleep 1000 & wait; wait"), want: "timed out after"},
		{name: "not found", check: []string{"jorc-no-such-program"}, want: "command not found", is: command.ErrNotFound},
		{name: "not executable", check: []string{p.dir}, want: "permission denied", is: command.ErrPermission},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			p.write(t, "a", "old")
			bad := p.file("a", "new")
			bad.Check, bad.CheckTimeout, bad.Reload = tt.check, 50*time.Millisecond, p.sh("touch reloaded")
			if tt.name != "hangs" {
				bad.CheckTimeout = 0
			}
			good := p.file("b", "new")
			out, err := p.try(t.Context(), good, bad)
			var cerr *CheckError
			if !errors.As(err, &cerr) || cerr.File != "a" {
				t.Fatalf("got %v, want a CheckError of a", err)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("message: got %q, want one line with %q", err, tt.want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			if len(out.Changed) != 0 {
				t.Errorf("changed: got %q, want nothing", out.Changed)
			}
			p.want(t, "a", "old")
			p.wantNone(t, "b")
			p.wantNone(t, "reloaded")
			p.wantClean(t)
		})
	}
}

// TestCheckOnce runs one command for two files, with both of them staged.
func TestCheckOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.file("a", "1"), p.file("b", "2")
	a.Check = p.sh("cat .a.jorc-new .b.jorc-new >>checks")
	b.Check = a.Check
	p.replace(t, a, b)
	p.want(t, "checks", "12")
}

// TestOutputOfUnchangedFile: a command may print a file of its unit that does not change.
// What it prints is withheld if not every user may read that file.
func TestOutputOfUnchangedFile(t *testing.T) {
	t.Parallel()
	replace := func(t *testing.T, p place, u Unit) error {
		_, err := p.r.Replace(t.Context(), u)
		return err
	}
	recovered := func(back bool) func(*testing.T, place, Unit) error {
		return func(t *testing.T, p place, u Unit) error {
			p = interrupted(t, p, "reload", u)
			_, err := p.r.Recover(t.Context(), RecoverOptions{Back: func(string) bool { return back }})
			return err
		}
	}
	for _, tt := range []struct {
		name  string
		check bool // the check fails, not the reload
		run   func(*testing.T, place, Unit) error
	}{
		{name: "check", check: true, run: replace},
		{name: "reload", run: replace},
		{name: "reload after a crash", run: recovered(false)},
		{name: "roll back after a crash", run: recovered(true)},
	} {
		for mode, shown := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
			t.Run(fmt.Sprintf("%s, %o", tt.name, mode), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.write(t, "app.conf", "old")
				p.write(t, "app.env", "hunter2")
				if err := os.Chmod(p.path("app.env"), mode); err != nil {
					t.Fatal(err)
				}
				conf, env := p.file("app.conf", "new"), p.file("app.env", "hunter2")
				if fails := p.sh("cat app.env; exit 1"); tt.check {
					conf.Check = fails
				} else {
					conf.Reload = fails
				}
				err := tt.run(t, p, Unit{Name: "unit", Files: []File{conf, env}})
				if err == nil || strings.Contains(err.Error(), "hunter2") != shown || strings.Contains(err.Error(), "its output is in") == shown {
					t.Errorf("got %v; want the output to be shown: %v", err, shown)
				}
				p.want(t, "app.conf", "old")
			})
		}
	}
}

func TestContextEndsDuringCheck(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.r.hook = func(step string) {
		if step == "check" {
			cancel()
		}
	}
	f := p.file("a", "new")
	f.Check = []string{"sleep", "1000"}
	if _, err := p.try(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	p.want(t, "a", "old")
	p.wantClean(t)
}

func TestCommandEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "secret")
	p := newPlace(t)
	f := p.file("a", "x")
	f.Check, f.Reload = p.sh("env >check.env"), p.sh("env >reload.env")
	p.replace(t, f)
	for _, name := range []string{"check.env", "reload.env"} {
		b, err := os.ReadFile(p.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "secret") || !strings.Contains(string(b), "PATH=") {
			t.Errorf("%s: got %s, want PATH and no token", name, b)
		}
	}
}
