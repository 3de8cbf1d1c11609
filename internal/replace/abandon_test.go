package replace

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestAbandon: a reload that does not end is given up, the new content stays in
// its place, and the next start reloads it; also when the previous content was
// being reloaded.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		reload string // "hang" is there in the first life only
		first  string // content after it
		last   string // and after the second one
	}{
		{"new content", "test ! -e hang || { touch began; sleep 600; }; cp a loaded", "new", "new"},
		{"roll back", "grep -q old a || exit 1; test ! -e hang || { touch began; sleep 600; }; cp a loaded", "old", "old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write(t, "a", "old")
			p.write(t, "hang", "")
			f := p.file("a", "new")
			f.Reload = p.sh(test.reload)
			done := make(chan error, 1)
			go func() { _, err := p.try(t.Context(), f); done <- err }()
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				if _, err := os.Stat(p.path("began")); err == nil {
					break
				}
				select {
				case err := <-done:
					t.Fatalf("ended before it was abandoned: %v", err)
				case <-tick.C:
				}
			}
			p.r.Abandon()
			err := <-done
			var reload *ReloadError
			if errors.As(err, &reload) {
				err = reload.Rollback
			}
			if !errors.Is(err, ErrAbandoned) {
				t.Errorf("got %v, want ErrAbandoned", err)
			}
			p.want(t, "a", test.first)
			p.wantNone(t, "loaded")

			if err := os.Remove(p.path("hang")); err != nil {
				t.Fatal(err)
			}
			p.r = New(p.state, nil, hclog.NewNullLogger())
			if _, err := p.r.Recover(t.Context(), RecoverOptions{}); err != nil {
				t.Errorf("Recover: %v", err)
			}
			p.want(t, "a", test.last)
			p.want(t, "loaded", test.last)
			if err := os.Remove(p.path("began")); err != nil {
				t.Fatal(err)
			}
			p.wantClean(t)
		})
	}
}
