package converge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/nodes"
)

func testDrift(t *testing.T) {
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
	wantText(t, "reported suspect", h.document().States[nodes.Config].Suspect, "drifted: ")
	first := h.modified()
	h.write("etc/app.conf", "by hand")
	drifted("a changed file", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	want(t, "index: more of it is no news", h.modified(), first)
	h.stop()
	h.start()
	drifted("after a restart", etc+"/app.conf", etc+"/conf.d/deep/new.conf")
	want(t, "static runs", strings.Count(h.ran(), "one"), 1)
	if err := os.RemoveAll(etc + "/conf.d"); err != nil {
		t.Fatal(err)
	}
	h.write("etc/app.conf", "v1\n")
	s = drifted("as it was")
	want(t, "suspect", s.Suspect, "")
	want(t, "reported suspect", h.document().States[nodes.Config].Suspect, "")
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
