package agent

import (
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
)

// starts are the processes of one host, one after the other.
type starts struct {
	t     *testing.T
	dir   string
	rest  time.Duration
	kills uint64 // of the kernel
	conf  config.Config
}

// start returns the loading of a new process, and whether it rests.
func (s *starts) start() (l *loading, rests bool) {
	s.t.Helper()
	l = newLoading(s.dir, s.rest, hclog.NewNullLogger())
	l.kills = func() (uint64, bool) { return s.kills, true }
	rest := l.begin(&s.conf)
	if rests = rest > 0; rests != (l.why() != "") {
		s.t.Errorf("it rests for %v, as %q", rest, l.why())
	}
	return l, rests
}

func (s *starts) want(rests bool, what string) *loading {
	s.t.Helper()
	l, got := s.start()
	if got != rests {
		s.t.Errorf("%s: it rests: %v, want %v", what, got, rests)
	}
	return l
}

func newStarts(t *testing.T) *starts {
	return &starts{t: t, dir: t.TempDir(), rest: time.Hour, conf: config.Config{Templates: []config.Template{{Name: "a"}}}}
}

// TestRestAfterTwoKills: two ends for want of memory while templates are loaded, and the
// third start does not load them, nor do the following ones.
func TestRestAfterTwoKills(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	s.want(false, "the first start")
	s.kills++
	s.want(false, "after one end")
	s.kills++
	s.want(true, "after two ends")
	s.want(true, "at the next start")
	l := s.want(true, "after a clean stop")
	l.stopped()
	l = s.want(true, "at the start after it")
	if rest := l.begin(&s.conf); rest != 0 || l.why() != "" { // a reload
		t.Errorf("after a reload it rests for %v, as %q", rest, l.why())
	}
	s.kills++
	s.want(false, "after an end that follows a reload")
	s.kills++
	s.want(true, "after the next")
	s.conf.Templates[0].Contents = "less"
	l = s.want(false, "with another configuration")
	l.loaded()
	if _, err := os.Stat(l.doc.Path()); !os.IsNotExist(err) {
		t.Errorf("after success %s is left: %v", l.doc.Path(), err)
	}
}

// TestNoRest: what ends an agent otherwise, or later, does not make it rest.
func TestNoRest(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	for range 20 {
		s.want(false, "after kill -9")
	}
	for range 5 {
		s.want(false, "at a start").loaded()
		s.kills++ // later
	}
	for range 5 {
		s.want(false, "at a start").stopped()
		s.kills++ // while it did not run
	}
	s.want(false, "at a start")
	s.kills++
	s.want(false, "after one end")
	s.rest = time.Nanosecond
	s.kills++
	s.want(false, "after two ends that are not close together")
	if err := os.WriteFile(s.want(false, "at a start").doc.Path(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(false, "with a damaged record")
}

// TestRestEnds: after a rest one more end suffices for the next.
func TestRestEnds(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	for range 2 {
		s.want(false, "at a start")
		s.kills++
	}
	l := s.want(true, "after two ends")
	l.rested()
	if l.why() != "" {
		t.Errorf("it still rests: %s", l.why())
	}
	s.want(false, "after kill -9 that follows a rest")
	s.kills++
	s.want(false, "after one end")
	s.kills++
	l = s.want(true, "after two ends again")
	l.rested()
	s.kills++
	s.want(true, "after one end that follows a rest")
}

// TestKernelCounts: the count is there on the kernels that jorc is tested on.
func TestKernelCounts(t *testing.T) {
	t.Parallel()
	if _, ok := oomKills(); !ok {
		t.Error("/proc/vmstat has no oom_kill")
	}
}
