package converge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jorc/jorc/internal/durable"
)

// snapshotFormat is the number of the file's format.
const snapshotFormat = 1

// save writes a snapshot down.
func (d *drift) save(s *snapshot) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("snapshot of static files: %w", err)
	}
	if err := durable.MkdirAll(filepath.Dir(d.file), 0o750); err != nil {
		return fmt.Errorf("snapshot of static files: %w", err)
	}
	return durable.WriteFile(d.file, data, 0o600)
}

// readSnapshot reads one; nil when there is none.
func readSnapshot(file string) (*snapshot, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s snapshot
	if err := json.Unmarshal(data, &s); err != nil || s.Format != snapshotFormat {
		return nil, errors.Join(fmt.Errorf("%s holds no snapshot of format %d", file, snapshotFormat), err)
	}
	return &s, nil
}
