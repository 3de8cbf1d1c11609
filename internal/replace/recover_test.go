package replace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// interrupted leaves a unit as a crash at a step would: it panics out of
// Replace there, and hands out a new Replacer.
func interrupted(t *testing.T, p place, step string, u Unit) place {
	t.Helper()
	type crash struct{}
	p.r.hook = func(s string) {
		if s == step {
			panic(crash{})
		}
	}
	func() {
		defer func() {
			if _, ok := recover().(crash); !ok {
				t.Fatalf("step %q was never reached", step)
			}
		}()
		_, err := p.r.Replace(t.Context(), u)
		t.Fatalf("replace came back: %v", err)
	}()
	p.r = New(p.state, nil, hclog.NewNullLogger())
	return p
}

// pair is a unit of two files with a reload.
func pair(p place) Unit {
	a, b := p.file("a", "new a"), p.file("b", "new b")
	a.Reload = p.sh("cat a b >loaded")
	return Unit{Name: "pair", Files: []File{a, b}}
}

func TestRecoverNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got, err := p.r.Recover(t.Context(), RecoverOptions{Destinations: []string{p.path("a"), p.path("none/a"), p.path("a/b")}})
	if err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v, want nothing", got, err)
	}
	p.wantClean(t)
}

func TestRecoverActions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		step   string
		spoil  func(t *testing.T, p place)
		action string
		a, b   string // content afterwards
		err    string
	}{
		{name: "not begun", step: "journal: written", action: Completed, a: "new a", b: "new b"},
		{name: "reload owed", step: "reload", action: Completed, a: "new a", b: "new b"},
		{
			name: "staged file lost", step: "journal: written", action: RolledBack, a: "old a", b: "old b",
			spoil: func(t *testing.T, p place) {
				if err := os.Remove(p.path(".b.jorc-new")); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "staged file damaged", step: "journal: written", action: RolledBack, a: "old a", b: "old b",
			spoil: func(t *testing.T, p place) { p.write(t, ".a.jorc-new", "new !") },
		},
		{
			name: "half replaced, the other damaged", step: "journal: written", action: RolledBack, a: "old a", b: "old b",
			spoil: func(t *testing.T, p place) {
				if err := os.Rename(p.path(".a.jorc-new"), p.path("a")); err != nil {
					t.Fatal(err)
				}
				p.write(t, ".b.jorc-new", "")
			},
		},
		{
			name: "somebody else wrote", step: "reload", action: RolledBack, a: "by hand", b: "old b",
			spoil: func(t *testing.T, p place) { p.write(t, "a", "by hand") },
		},
		{
			name: "backup lost", step: "journal: written", action: Owed, a: "new a", b: "old b",
			err: "its backup is gone, the new content stays",
			spoil: func(t *testing.T, p place) {
				if err := errors.Join(os.Rename(p.path(".a.jorc-new"), p.path("a")), os.Remove(p.path(".a.jorc-old")), os.Remove(p.path(".b.jorc-new"))); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write(t, "a", "old a")
			p.write(t, "b", "old b")
			p = interrupted(t, p, tt.step, pair(p))
			if tt.spoil != nil {
				tt.spoil(t, p)
			}
			got, err := p.r.Recover(t.Context(), RecoverOptions{})
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: got %v, want %q", err, tt.err)
			}
			if len(got) != 1 || got[0].Unit != "pair" || got[0].Action != tt.action || len(got[0].Destinations) != 2 {
				t.Errorf("got %+v, want pair %s", got, tt.action)
			}
			p.want(t, "a", tt.a)
			p.want(t, "b", tt.b)
			p.want(t, "loaded", tt.a+tt.b)
			p.wantClean(t)
		})
	}
}

// TestReplaceSettles is the way without Recover: the unit's own next Replace
// finishes what was begun, and then does its own work.
func TestReplaceSettles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old a")
	p = interrupted(t, p, "reload", pair(p))
	u := pair(p)
	u.Files[1].Data = []byte("newer b")
	out, err := p.r.Replace(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	wantStrings(t, "changed", out.Changed, []string{p.path("b")})
	p.want(t, "loaded", "new anew b") // b has no reload of its own
	p.want(t, "b", "newer b")
	p.wantClean(t)
}

func TestRecoverGate(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	u := pair(p)
	u.Gate = func(context.Context) (func(), error) { return nil, nil }
	p = interrupted(t, p, "reload", u)

	closed := errors.New("closed")
	gate := func(context.Context, string) (func(), error) { return nil, closed }
	got, err := p.r.Recover(t.Context(), RecoverOptions{Gate: gate, Destinations: []string{p.path("a"), p.path("b")}})
	if !errors.Is(err, closed) || len(got) != 1 || got[0].Action != Owed {
		t.Errorf("closed gate: got %+v, %v, want the reload owed", got, err)
	}
	p.wantNone(t, "loaded")

	released := ""
	gate = func(_ context.Context, unit string) (func(), error) { return func() { released = unit }, nil }
	if _, err := p.r.Recover(t.Context(), RecoverOptions{Gate: gate}); err != nil {
		t.Fatal(err)
	}
	if released != "pair" {
		t.Errorf("released: got %q, want pair", released)
	}
	p.want(t, "loaded", "new anew b")
	p.wantClean(t)
}

func TestRecoverUnreadableJournal(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"not JSON":        "{",
		"empty":           "",
		"no files":        `{"format":1,"unit":"u"}`,
		"relative target": `{"format":1,"unit":"u","files":[{"target":"etc/passwd"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			path := p.r.journalPath("unit")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := p.r.Recover(t.Context(), RecoverOptions{}); err == nil || !strings.Contains(err.Error(), "kept as") {
				t.Errorf("got %v, want it set aside", err)
			}
			if _, err := p.r.Recover(t.Context(), RecoverOptions{}); err != nil {
				t.Errorf("again: got %v, want nil", err)
			}
			p.replace(t, p.file("a", "data"))
		})
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, name := range []string{"a", ".a.jorc-new", ".a.jorc-old", ".b.jorc-new", ".other"} {
		p.write(t, name, "x")
	}
	if err := os.Symlink("b", p.path("link")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.r.Recover(t.Context(), RecoverOptions{Destinations: []string{p.path("a"), p.path("link")}}); err != nil {
		t.Fatal(err)
	}
	p.wantClean(t)
	p.want(t, "a", "x")
	p.want(t, ".other", "x")
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"format":1,"unit":"u","files":[{"destination":"/a","target":"/a","existed":true,"size":3,"sha256":"00"}],"reloads":[{"args":["true"],"timeout_ns":1}]}`))
	f.Add([]byte(`{"files":[{}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		path := filepath.Join(t.TempDir(), "journal.json")
		if err := os.WriteFile(path, doc, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := load(path)
		if err != nil {
			return
		}
		for _, file := range j.Files {
			if !filepath.IsAbs(file.Target) {
				t.Errorf("target: got %q, want an absolute path", file.Target)
			}
		}
	})
}

// TestRecoverBack: a unit that may not go forward is rolled back and reloads its old content.
func TestRecoverBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"journal: written", "reload"} { // nothing is in place; everything is
		p := newPlace(t)
		p.write(t, "a", "old a")
		p.write(t, "b", "old b")
		p = interrupted(t, p, step, pair(p))
		var asked []string
		got, err := p.r.Recover(t.Context(), RecoverOptions{Back: func(unit string) bool { asked = append(asked, unit); return true }})
		if err != nil || len(got) != 1 || got[0].Action != RolledBack {
			t.Errorf("%s: got %+v, %v, want it rolled back", step, got, err)
		}
		wantStrings(t, "asked", asked, []string{"pair"})
		p.want(t, "a", "old a")
		p.want(t, "b", "old b")
		p.want(t, "loaded", "old aold b")
		p.wantClean(t)
	}
}
