package converge

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/workflow"
)

// TestClockJumps: what the clock said before a restart bounds pauses, and does
// nothing else, however it jumped since.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		validated time.Duration // ago
		due       time.Duration // from now
	}{
		{"a moment ago", time.Minute, 4 * time.Minute},
		{"long ago", time.Hour, 0},
		{"a year in the future", -8760 * time.Hour, 0},
		{"never", 1 << 62, 0},
	} {
		c := New(Options{StateDir: t.TempDir()})
		c.now = func() time.Time { return noon }
		c.p.Attempt.Validated = in(-tt.validated)
		c.resumeClocks()
		want(t, tt.name, c.mem.validateAt.Sub(noon), tt.due)
		want(t, tt.name+": retry", c.mem.retryAt.IsZero(), true)
	}
}

func TestJobNames(t *testing.T) {
	t.Parallel()
	p := newProgress()
	seen := map[string]bool{}
	for _, version := range []string{"v1", "v1", ".x", strings.Repeat("ä", 64), strings.Repeat("v", 128)} {
		for _, prefix := range []string{staticJob, validationJob} {
			id := p.nextJob(prefix, version)
			if err := workflow.CheckID(id); err != nil || seen[id] {
				t.Errorf("job of version %q: %s, %v, used before: %v", version, id, err, seen[id])
			}
			seen[id] = true
		}
	}
	if q := newProgress(); q.ID == p.ID {
		t.Error("two files have one ID")
	}
}

// FuzzProgress: whatever the file holds, there is progress to continue from.
func FuzzProgress(f *testing.F) {
	written := progressIn(f.TempDir())
	if err := written.Save(newProgress()); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(written.Path())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"format":1,"id":"a","attempt":{"stage":"static"}}`))
	f.Add([]byte(`{"format":2,"id":"a"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc := progressIn(t.TempDir())
		if err := os.WriteFile(doc.Path(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		p, fresh, err := readProgress(doc)
		if p.ID == "" || fresh != (err != nil) {
			t.Errorf("got %+v, %v, %v", p, fresh, err)
		}
		if _, again := os.Stat(doc.Path()); fresh && !os.IsNotExist(again) {
			t.Error("what cannot be read is still there")
		}
	})
}
