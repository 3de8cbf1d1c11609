package replace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
)

// crashEnv makes the test binary a process that kills itself: its value is
// "scenario|replace or recover|number of the step|directory".
const crashEnv = "JORC_TEST_REPLACE_CRASH"

// scenario is a unit and what its reload does. Old files hold "old …", new
// ones "new …".
type scenario struct {
	name    string
	olds    []string // files that exist before
	news    []string // files of the unit
	reloads bool
	refuses bool // the reload fails when it sees new content
}

var scenarios = []scenario{
	{name: "one file", olds: []string{"a"}, news: []string{"a"}},
	{name: "one new file", news: []string{"a"}},
	{name: "reload", olds: []string{"a"}, news: []string{"a"}, reloads: true},
	{name: "reload of a new file", news: []string{"a"}, reloads: true},
	{name: "reload fails", olds: []string{"a"}, news: []string{"a"}, reloads: true, refuses: true},
	{name: "together", olds: []string{"a", "sub/b"}, news: []string{"a", "sub/b", "sub/c"}, reloads: true},
	{name: "together without reload", olds: []string{"a", "sub/b"}, news: []string{"a", "sub/b"}},
	{name: "together, reload fails", olds: []string{"a", "sub/b"}, news: []string{"a", "sub/b", "sub/c"}, reloads: true, refuses: true},
}

// crashPlace is a scenario's directory; the same for parent and child.
func crashPlace(root string) place {
	p := place{dir: filepath.Join(root, "files"), state: filepath.Join(root, "state")}
	p.loaded = p.dir
	p.r = New(p.state, nil, hclog.NewNullLogger())
	return p
}

func (s scenario) setUp(t *testing.T, root string) place {
	t.Helper()
	p := crashPlace(root)
	for _, d := range []string{p.path("sub"), p.state} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range s.olds {
		p.write(t, name, "old "+name+"\n")
	}
	return p
}

// unit has a check, and two reload commands that record what they loaded.
func (s scenario) unit(p place) Unit {
	u := Unit{Name: s.name}
	for i, name := range s.news {
		f := p.file(name, "new "+name+"\n")
		f.Check = []string{"grep", "-q", "new", "{{.Staged}}"}
		if s.reloads {
			which := filepath.Join(p.loaded, "loaded"+strconv.Itoa(i%2))
			script := "cat " + strings.Join(s.news, " ") + " >" + which + ".tmp 2>/dev/null; mv " + which + ".tmp " + which
			if s.refuses && i == len(s.news)-1 {
				script += "; ! grep -q new " + which
			}
			f.Reload = p.sh(script)
		}
		u.Files = append(u.Files, f)
	}
	return u
}

func (s scenario) destinations(p place) []string {
	var all []string
	for _, name := range s.news {
		all = append(all, p.path(name))
	}
	return all
}

// act is what a process does: replace as the first, recover as the next.
func (s scenario) act(ctx context.Context, p place, what string) error {
	if what == "recover" {
		_, err := p.r.Recover(ctx, RecoverOptions{Destinations: s.destinations(p)})
		return err
	}
	_, err := p.r.Replace(ctx, s.unit(p))
	return err
}

// steps runs the whole thing and lists the steps it went through.
func (s scenario) steps(t *testing.T, p place, what string) []string {
	t.Helper()
	var names []string
	p.r.hook = func(step string) { names = append(names, step) }
	err := s.act(t.Context(), p, what)
	var rerr *ReloadError
	if err != nil && !(s.refuses && errors.As(err, &rerr)) {
		t.Fatal(err)
	}
	return names
}

// TestCrash kills the process at every step of replacing, then at every step
// of recovering from that.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			steps := s.steps(t, s.setUp(t, t.TempDir()), "replace")
			if len(steps) < 4 {
				t.Fatalf("steps: got %q, want more", steps)
			}
			for i, step := range steps {
				t.Run(fmt.Sprintf("%02d %s", i, step), func(t *testing.T) {
					root := filepath.Join(t.TempDir(), "root")
					p := s.setUp(t, root)
					die(t, s, "replace", i, root)
					s.wantEntire(t, p)
					snapshot(t, root, root+".saved")

					for k, again := range s.steps(t, p, "recover") {
						snapshot(t, root+".saved", root)
						die(t, s, "recover", k, root)
						s.wantEntire(t, p)
						s.recover(t, p, "killed again at "+again)
					}
					snapshot(t, root+".saved", root)
					s.recover(t, p, "killed once")
				})
			}
		})
	}
}

// recover is the start after the crash; nothing may be wrong after it, and
// the unit must be replaceable as ever.
func (s scenario) recover(t *testing.T, p place, when string) {
	t.Helper()
	p = crashPlace(filepath.Dir(p.dir))
	var rerr *ReloadError
	err := s.act(t.Context(), p, "recover")
	if err != nil && !(s.refuses && errors.As(err, &rerr) && rerr.RolledBack) {
		t.Errorf("%s: recover: %v", when, err)
	}
	s.wantTogether(t, p, when)
	p.wantClean(t)

	err = s.act(t.Context(), p, "replace")
	if s.refuses != errors.As(err, &rerr) || !s.refuses && err != nil {
		t.Errorf("%s: replace after it: %v", when, err)
	}
	if got := s.wantTogether(t, p, when+", replaced"); got == s.refuses {
		t.Errorf("%s: replaced after it: got %v, want %v", when, got, !s.refuses)
	}
	p.wantClean(t)
}

// wantEntire fails unless every file is old or new, and nothing between.
func (s scenario) wantEntire(t *testing.T, p place) (olds, news int) {
	t.Helper()
	olds, news, err := s.count(p)
	if err != nil {
		t.Error(err)
	}
	return olds, news
}

// count returns how many files are old and how many new; the error names others.
func (s scenario) count(p place) (olds, news int, err error) {
	for _, name := range s.news {
		got, rerr := os.ReadFile(p.path(name))
		switch {
		case rerr == nil && string(got) == "new "+name+"\n":
			news++
		case rerr == nil && string(got) == "old "+name+"\n", errors.Is(rerr, os.ErrNotExist) && !s.existed(name):
			olds++
		default:
			err = errors.Join(err, fmt.Errorf("%s: got %q, %v, want all old or all new", name, got, rerr))
		}
	}
	return olds, news, err
}

func (s scenario) existed(name string) bool {
	for _, old := range s.olds {
		if old == name {
			return true
		}
	}
	return false
}

// wantTogether fails when old and new are mixed, or when what is in place is
// not what was loaded last. It says whether the files are new.
func (s scenario) wantTogether(t *testing.T, p place, when string) bool {
	t.Helper()
	olds, news := s.wantEntire(t, p)
	if olds > 0 && news > 0 {
		t.Errorf("%s: got %d old and %d new files, want them together", when, olds, news)
	}
	if s.refuses && news > 0 {
		t.Errorf("%s: got new files although their reload fails", when)
	}
	for i := range min(2, len(s.news)) {
		loaded, err := os.ReadFile(p.path("loaded" + strconv.Itoa(i)))
		if errors.Is(err, os.ErrNotExist) && (!s.reloads || olds > 0) {
			continue // nothing was ever reloaded, and nothing is owed
		}
		var want strings.Builder
		for _, name := range s.news {
			b, _ := os.ReadFile(p.path(name)) // a missing file is loaded as nothing
			want.Write(b)
		}
		if err != nil || string(loaded) != want.String() {
			t.Errorf("%s: loaded: got %q, %v, want %q", when, loaded, err, want.String())
		}
	}
	return news > 0
}

// die runs a child that kills itself at a step.
func die(t *testing.T, s scenario, what string, step int, root string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^$")
	child.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{s.name, what, strconv.Itoa(step), root}, "|"))
	out, err := child.CombinedOutput()
	ws, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("child at %s step %d: got %v, want it killed: %s", what, step, err, out)
	}
}

func crashMain() int {
	parts := strings.SplitN(os.Getenv(crashEnv), "|", 4)
	at, err := strconv.Atoi(parts[2])
	if err != nil {
		return 2
	}
	p := crashPlace(parts[3])
	n := -1
	p.r.hook = func(string) {
		if n++; n == at {
			consultest.Die()
			select {}
		}
	}
	for _, s := range scenarios {
		if s.name == parts[0] {
			_ = s.act(context.Background(), p, parts[1]) // it should not come back
		}
	}
	return 2
}

// snapshot makes dst a copy of src, hard links and all.
func snapshot(t *testing.T, src, dst string) {
	t.Helper()
	if err := os.RemoveAll(dst); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", src, dst).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}
