package replace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/crashtest"
	"github.com/jorc/jorc/internal/durable"
)

// replaced is what Mark says once Replace has returned.
const replaced = "replaced"

// failingPlace is a scenario's directory that a power failure empties; what was loaded is
// elsewhere, because no program relies on it.
func failingPlace(root string) place {
	p := crashPlace(root)
	p.loaded = root + ".loaded"
	return p
}

// replaceWithoutChecks replaces the files; checks would only take time here.
func (s scenario) replaceWithoutChecks(ctx context.Context, p place) error {
	u := s.unit(p)
	for i := range u.Files {
		u.Files[i].Check = nil
	}
	var failed *ReloadError
	_, err := p.r.Replace(ctx, u)
	if s.refuses && errors.As(err, &failed) && failed.RolledBack {
		return nil
	}
	if s.refuses && err == nil {
		return errors.New("a reload succeeded that should fail")
	}
	return err
}

// start is what a process does first.
func (s scenario) start(ctx context.Context, p place) error {
	if err := durable.RemoveTemp(p.state); err != nil { // the agent does
		return err
	}
	var failed *ReloadError
	if err := s.act(ctx, p, "recover"); err != nil && !(s.refuses && errors.As(err, &failed) && failed.RolledBack) {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// recorded are the functions of children of a recording: what replaces the files of a
// scenario, and what recovers them.
func recorded() map[string]func(dir string) error {
	all := map[string]func(string) error{}
	for _, s := range scenarios {
		all[s.name] = func(dir string) error {
			return errors.Join(s.replaceWithoutChecks(context.Background(), failingPlace(dir)), crashtest.Mark(replaced))
		}
		all["recover "+s.name] = func(dir string) error { return s.start(context.Background(), failingPlace(dir)) }
	}
	return all
}

func init() {
	if code, child := crashtest.Child(recorded()); child {
		os.Exit(code)
	}
}

// TestPowerFailure: whatever a power failure leaves of what Replace wrote, the next start
// makes of it all old or all new, and new once Replace has returned. Old content
// whose reload was refused comes back.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			root := s.setUpPowerFailure(t)
			n := crashtest.Record(t, s.name, root).Replay(t, func(c *crashtest.Crash) error { return s.afterPowerFailure(t.Context(), root, c) })
			t.Logf("%d states", n)
		})
	}
}

// TestPowerFailureWhileRecovering: the power fails again while the start repairs what the first
// failure left, with files of both kinds in place.
func TestPowerFailureWhileRecovering(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		if len(s.news) == 1 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			root := s.setUpPowerFailure(t)
			mixed := filepath.Join(t.TempDir(), "mixed")
			crashtest.Record(t, s.name, root).Replay(t, func(*crashtest.Crash) error {
				olds, news, err := s.count(failingPlace(root))
				if _, none := os.Stat(mixed); none != nil && olds > 0 && news > 0 {
					snapshot(t, root, mixed)
				}
				return err
			})
			snapshot(t, mixed, root)
			crashtest.Record(t, "recover "+s.name, root).Replay(t, func(c *crashtest.Crash) error { return s.afterPowerFailure(t.Context(), root, c) })
		})
	}
}

func (s scenario) setUpPowerFailure(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	s.setUp(t, root)
	if err := os.Mkdir(failingPlace(root).loaded, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// afterPowerFailure is the start after the crash.
func (s scenario) afterPowerFailure(ctx context.Context, root string, c *crashtest.Crash) error {
	p := failingPlace(root)
	if err := s.start(ctx, p); err != nil {
		return err
	}
	olds, news, err := s.count(p)
	switch {
	case err != nil:
		return err
	case olds > 0 && news > 0:
		return fmt.Errorf("got %d old and %d new files, want them together", olds, news)
	case s.refuses && news > 0:
		return errors.New("got new files although their reload fails")
	case !s.refuses && olds > 0 && c.Marked(replaced):
		return errors.New("got old files after Replace had returned")
	}
	if err := s.replaceWithoutChecks(ctx, p); err != nil {
		return fmt.Errorf("replace after it: %w", err)
	}
	strays, err := p.strays()
	if err == nil && len(strays) > 0 {
		err = fmt.Errorf("left behind: %q", strays)
	}
	return err
}
