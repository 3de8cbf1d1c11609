package converge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
)

func TestDrift(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	etc := h.path("etc")
	h.options.Static.Paths = []string{etc + "/app.conf", etc + "/conf.d/**/*.conf"}
	h.flows[0].Tasks[0] = sh("one", "mkdir -p $DIR/etc; echo $JORC_VERSION >$DIR/etc/app.conf")
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	drifted := func(what string, paths ...string) Status {
		t.Helper()
		return h.until(what, func(s Status) bool { return s.Reported && s.Phase == PhaseConverged && slices.Equal(s.Drifted, paths) })
	}
	before := h.modified()
	h.write("etc/app.conf", "v1\n") // touched, and as it was
	h.write("etc/other", "not static")
	h.write("etc/conf.d/deep/new.conf", "a directory that appears later")
	s := drifted("a new file", etc+"/conf.d/deep/new.conf")
	wantText(t, "suspect", s.Suspect, "drifted: ", "/new.conf changed after convergence")
	wantText(t, "reported suspect", h.document().States[cluster.CategoryConfig].Suspect, "drifted: ")
	first := h.modified()
	h.write("etc/app.conf", "by hand")
	drifted("a changed file", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	want(t, "index: more of it is no news", h.modified(), first)
	h.stop()
	h.start()
	drifted("after a restart", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	h.write("etc/app.conf", "v1\n")
	drifted("the new file alone", etc+"/conf.d/deep/new.conf")
	was, err := os.Stat(etc + "/app.conf")
	if err != nil {
		t.Fatal(err)
	}
	chmod(t, etc+"/app.conf", 0o604)
	drifted("a file of another mode", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	chmod(t, etc+"/app.conf", was.Mode())
	want(t, "static runs", strings.Count(h.ran(), "one"), 1)
	h.write("etc/app.conf", "by hand")
	drifted("both", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	if err := os.Remove(etc + "/conf.d/deep/new.conf"); err != nil {
		t.Fatal(err)
	}
	s = h.until("another text", func(s Status) bool { return s.Reported && strings.Contains(s.Suspect, "app.conf") })
	wantText(t, "reported suspect", h.document().States[cluster.CategoryConfig].Suspect, "app.conf changed")
	if err := os.RemoveAll(etc + "/conf.d"); err != nil {
		t.Fatal(err)
	}
	h.write("etc/app.conf", "v1\n")
	s = drifted("as it was")
	want(t, "suspect", s.Suspect, "")
	want(t, "reported suspect", h.document().States[cluster.CategoryConfig].Suspect, "")
	if err := os.Remove(etc + "/app.conf"); err != nil {
		t.Fatal(err)
	}
	s = drifted("a file that vanished", etc+"/app.conf")
	wantText(t, "suspect", s.Suspect, "vanished")
	h.trigger("v2")
	s = h.untilPhase(PhaseConverged, "v2")
	want(t, "drifted", len(s.Drifted), 0)
	if before == first {
		t.Error("drift was not reported")
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.conf", "b.txt", "x/c.conf", "x/y/d.conf", "z/e.conf", ".f.conf.jorc-tmp-1"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.conf")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ pattern, want string }{
		{"/a.conf", "a.conf"},
		{"/*.conf", "a.conf link.conf"},
		{"/**/*.conf", "a.conf link.conf x/c.conf x/y/d.conf z/e.conf"},
		{"/x", "x/c.conf x/y/d.conf"},
		{"/?/c.conf", "x/c.conf"},
		{"/{x/y,z}/*.conf", "x/y/d.conf z/e.conf"},
		{"/nothing", ""},
	} {
		files, capped, err := scan(t.Context(), []pattern{newPattern(dir + tt.pattern)}, nil)
		if err != nil || capped != "" {
			t.Errorf("%s: %v, %q", tt.pattern, err, capped)
		}
		var names []string
		for path := range files {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		slices.Sort(names)
		want(t, tt.pattern, strings.Join(names, " "), tt.want)
	}
}

// TestScanReadsOnce: content is read again only when the file is another.
func TestScanReadsOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	patterns := []pattern{newPattern(file)}
	files, _, err := scan(t.Context(), patterns, nil)
	if err != nil {
		t.Fatal(err)
	}
	known := files[file]
	known.Sum = "what it is believed to be"
	again, _, err := scan(t.Context(), patterns, map[string]print{file: known})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "sum of an unchanged file", again[file].Sum, known.Sum)
	if err := os.Chmod(file, 0o644); err != nil { // the inode changes
		t.Fatal(err)
	}
	again, _, err = scan(t.Context(), patterns, map[string]print{file: known})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "sum of a file that was touched", again[file].Sum, files[file].Sum)
}

// TestScanIsBounded: of too many files the first are watched, and the status says so.
func TestScanIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, capped, err := scan(t.Context(), []pattern{newPattern(dir)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "files", len(files), maxFiles)
	wantText(t, "note", capped, "only the first 10000 files")
}

// TestDeaf: a host that gives no more watches has its files scanned.
func TestDeaf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "static", "f")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	d := newDrift([]string{file}, filepath.Join(dir, "drift.json"), time.Minute, func() {}, hclog.NewNullLogger())
	if err := d.snapshot(t.Context(), "j", "v1"); err != nil {
		t.Fatal(err)
	}
	if w := d.listener(); w != nil { // else the limit is reached already
		if err := w.Close(); err != nil { // it refuses more, as at the limit
			t.Fatal(err)
		}
		if w = d.aim(t.Context(), w); w != nil {
			t.Error("it still listens")
		}
	}
	wantText(t, "note", d.note(), "comparing them every 1m0s", "max_user_watches")
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.look(t.Context())
	want(t, "drifted", strings.Join(d.paths(), " "), file)
	d.setWatchError(nil)
	want(t, "note", d.note(), "")
}

// TestHush: what a validation changes did not drift, what had drifted before
// it still has.
func TestHush(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("b", "1")
	d := newDrift([]string{dir + "/?"}, filepath.Join(dir, "drift.json"), time.Minute, func() {}, hclog.NewNullLogger())
	if err := d.snapshot(t.Context(), "j", "v1"); err != nil {
		t.Fatal(err)
	}
	put("a", "by hand")
	d.suspend(t.Context())
	put("b", "by validation")
	put("c", "by validation")
	d.look(t.Context())
	d.resume(t.Context())
	d.look(t.Context())
	want(t, "drifted", strings.Join(d.paths(), " "), dir+"/a")
	again := newDrift([]string{dir + "/?"}, filepath.Join(dir, "drift.json"), time.Minute, func() {}, hclog.NewNullLogger())
	again.load(attempt{Job: "j", Version: "v1", Stage: stageDone})
	again.look(t.Context())
	want(t, "drifted after a restart", strings.Join(again.paths(), " "), dir+"/a")
	put("a", "1")
	d.look(t.Context())
	want(t, "drifted", strings.Join(d.paths(), " "), "")
}
