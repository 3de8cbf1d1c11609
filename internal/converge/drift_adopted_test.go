package converge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
)

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestAdoptedDrifts: also a version that another program brought drifts, and
// the host no longer waits for what it waited for before.
func TestAdoptedDrifts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/app.conf", "by others")
	chmod(t, h.path("etc/app.conf"), 0o644)
	h.options.Static.Paths = []string{h.path("etc")}
	n := needs{newSource(lacking("mysql", 0, 1))}
	h.options.Requires, h.options.Requirements = []config.Requires{{Target: "mysql"}}, n
	h.trigger("v1")
	h.start()
	h.untilPhase(PhasePending, "v1")
	h.write("version", "v1\n")
	n.set(lacking("mysql", 0, 2)) // an occasion to look
	h.untilPhase(PhaseConverged, "v1")
	c := h.document().States[cluster.CategoryConfig]
	want(t, "config", c.State, cluster.StateSuccess)
	wantText(t, "config's suspect", c.Suspect, "jorc did not apply it")
	chmod(t, h.path("etc/app.conf"), 0o666)
	s := h.until("drift", func(s Status) bool { return s.Reported && len(s.Drifted) == 1 })
	wantText(t, "suspect", s.Suspect, "was made 0666 ")
	v := h.document().States[cluster.CategoryValidation]
	want(t, "validation", v.State, cluster.StateSuccess)
	wantText(t, "validation's suspect", v.Suspect, "drifted: "+h.path("etc/app.conf")+" was made 0666 ", " instead of 0644 ")
	chmod(t, h.path("etc/app.conf"), 0o644)
	h.until("no drift", func(s Status) bool { return s.Reported && len(s.Drifted) == 0 })
	want(t, "validation's suspect", h.document().States[cluster.CategoryValidation].Suspect, "")
	want(t, "ran", h.ran(), "check@v1")
}

// TestAdoptedAndTold: what a script says of the version that it brought is not
// written over.
func TestAdoptedAndTold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.trigger("v1")
	h.start()
	h.untilPhase(PhaseConverged, "v1")
	h.hold.set(Hold{Held: "a script is at work"})
	h.trigger("v2")
	h.untilPhase(PhaseHeld, "v2")
	if _, err := h.ledger.SetState(t.Context(), h.node, cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "half of it"}); err != nil {
		t.Fatal(err)
	}
	h.write("version", "v2\n")
	h.hold.set(Hold{})
	h.untilPhase(PhaseConverged, "v2")
	d := h.document()
	want(t, "version", d.Version, "v2")
	want(t, "config", d.States[cluster.CategoryConfig].State, cluster.StateFailed)
	want(t, "config's detail", d.States[cluster.CategoryConfig].Detail, "half of it")
	want(t, "ran", h.ran(), "one@v1 two@v1 check@v1 check@v2")
}

// TestScanAccess: a file of another mode is another file; one of which an
// earlier jorc did not note the mode is not.
func TestScanAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	look := func(known map[string]print) map[string]print {
		t.Helper()
		files, _, err := scan(t.Context(), []pattern{newPattern(dir)}, known)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	was := look(nil)
	want(t, "access", was[file].Access, fmt.Sprintf("0600 %d:%d", os.Getuid(), os.Getgid()))
	chmod(t, file, 0o640)
	is := look(was)
	want(t, "drifted", strings.Join(differences(was, is), " "), file+" "+link)
	wantText(t, "what became of it", became(file, was, is), "was made 0640 ", " instead of 0600 ")
	for path, p := range was {
		p.Access = ""
		was[path] = p
	}
	want(t, "drifted from what is not known", len(differences(was, look(was))), 0)
}
