package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/replace"
)

// snapshot is the last good data on local disk. It lets guards remember across
// restarts, and lets a start without Consul render what has no file yet. It
// holds no secret of Vault, and only root may read it.
type snapshot struct {
	Format   int
	Data     map[string]any            // dependency id → value
	Indexes  map[string]uint64         // dependency id → Consul's index
	Accepted map[string]map[string]any // template → dependency id → what its file is made of
	Sources  map[string]string         // template → hash of its text
	Written  map[string]replace.Hash   // template → hash of what its file was brought to; see on_edit
}

const snapshotFormat = 1

func snapshotPath(dir string) string { return filepath.Join(dir, "snapshot.gob") }

// loadSnapshot reads what an earlier process left. None, or one that cannot be
// read, is nil; the latter with an error to tell.
func loadSnapshot(dir string) (*snapshot, error) {
	if dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(snapshotPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot of the last data: %w", err)
	}
	var w wireSnapshot
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&w); err != nil {
		return nil, fmt.Errorf("snapshot of the last data %s is damaged, going on without it: %w", snapshotPath(dir), err)
	}
	if w.Format != snapshotFormat {
		return nil, fmt.Errorf("snapshot of the last data %s has format %d, this jorc reads %d: going on without it", snapshotPath(dir), w.Format, snapshotFormat)
	}
	s, err := w.snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot of the last data %s is damaged, going on without it: %w", snapshotPath(dir), err)
	}
	return s, nil
}

func (s *snapshot) save(dir string) error {
	w, err := s.wire()
	if err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(w); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	if err := durable.WriteFile(snapshotPath(dir), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	return nil
}

// hash tells whether a template's text is the one it was.
func (t *tmpl) hash() string {
	if t.src == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(t.src.text))
	return hex.EncodeToString(sum[:])
}

// saver writes snapshots, one at a time. The engine's loop owns it.
type saver struct {
	dir    string
	log    hclog.Logger
	dirty  bool
	next   time.Time     // not before then
	saving chan struct{} // closed when the save under way has ended; nil: none
}

// due is when a save should begin; ok is false when none should.
func (s *saver) due() (time.Time, bool) { return s.next, s.dirty && s.dir != "" && s.saving == nil }

// begin saves in the background and calls ended when it is done.
func (s *saver) begin(snap *snapshot) {
	s.dirty = false
	done := make(chan struct{})
	s.saving = done
	start := time.Now()
	go func() {
		defer close(done)
		if err := snap.save(s.dir); err != nil {
			s.log.Warn(err.Error())
		}
	}()
	s.next = start.Add(snapshotEvery)
}

// ended takes note that the save under way is done.
func (s *saver) ended() { s.saving = nil }

// finish waits for a save under way and saves what has changed since.
func (s *saver) finish(make func() *snapshot) {
	if s.saving != nil {
		<-s.saving
		s.saving = nil
	}
	if s.dirty && s.dir != "" {
		if err := make().save(s.dir); err != nil {
			s.log.Warn(err.Error())
		}
	}
}

// snapshotEvery spaces the snapshots of data that keeps changing.
const snapshotEvery = 5 * time.Second
