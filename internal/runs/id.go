package runs

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxID bounds a run's ID in bytes: a job's, which is made of it, has 128.
const maxID = 96

// NewID returns an ID that sorts by time, to a millisecond.
func NewID(now time.Time) string {
	return strconv.FormatInt(now.UnixMilli(), 36) + "-" + strings.ToLower(rand.Text()[:5])
}

// CheckID returns ErrInvalid for what cannot be the ID of a run.
func CheckID(id string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	switch {
	case id == "":
		return fmt.Errorf("run id: %w: it is empty", ErrInvalid)
	case len(id) > maxID:
		return fmt.Errorf("run id: %w: it has %d bytes, at most %d are possible", ErrInvalid, len(id), maxID)
	case id[0] == '.' || id[0] == '-' || strings.ContainsFunc(id, bad):
		return fmt.Errorf("run id %q: %w: letters, digits, '.', '_' and '-' make one, and a letter, a digit or '_' begins it", id, ErrInvalid)
	}
	return nil
}

// jobID is what the run's job is called on a node.
func jobID(run string, attempt int) string {
	if attempt <= 1 {
		return "run-" + run
	}
	return fmt.Sprintf("run-%s.%d", run, attempt)
}
