package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/text"
)

// Sentinels of version files.
var (
	// ErrNoVersion: the version file does not exist or is empty.
	ErrNoVersion = errors.New("no version yet")
	// ErrVersionFile: the version file holds something else than a version.
	ErrVersionFile = errors.New("not a version file")
)

// ReadVersionFile reads the version that this host runs. It returns
// ErrNoVersion when there is no such file or nothing in it, and ErrVersionFile when it holds something else.
func ReadVersionFile(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("version file %s: %w", path, ErrNoVersion)
	}
	if err != nil {
		return "", fmt.Errorf("version file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4*text.MaxName)) // longer text cannot be a version
	if err != nil {
		return "", fmt.Errorf("version file: %w", err)
	}
	version := strings.TrimSpace(string(data))
	if version == "" {
		return "", fmt.Errorf("version file %s: %w", path, ErrNoVersion)
	}
	if err := CheckVersion(version); err != nil {
		return "", fmt.Errorf("version file %s: %w: %v; 'jorc update local VERSION' replaces it", path, ErrVersionFile, err)
	}
	return version, nil
}

// WriteVersionFile replaces the version file by one that holds version and a
// line end; its directory is made when it is missing. A file that says so
// already is not touched. It returns text.ErrName or an *fs.PathError.
func WriteVersionFile(path, version string) error {
	if err := CheckVersion(version); err != nil {
		return err
	}
	data := version + "\n"
	if old, err := os.ReadFile(path); err == nil && string(old) == data {
		return nil
	}
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("version file: %w", err)
	}
	return durable.WriteFile(path, []byte(data), 0o644)
}

// PendingChange says whether a host has an update to make. Its numbers are those
// that scripts know.
type PendingChange int

// Pendencies.
const (
	UpdatePending    PendingChange = 0
	UpToDate         PendingChange = 1
	PendingUnknown   PendingChange = 2 // it cannot be told
	NoDesiredVersion PendingChange = 3 // no version was triggered, or this host has none and Consul is unreachable
)

// PendingChangeOf compares the desired version, as Desired returned it, with that of
// the version file, as ReadVersionFile returned it.
func PendingChangeOf(desired string, desiredErr error, local string, localErr error) PendingChange {
	known := desired != "" && desiredErr == nil
	switch {
	case desired == "" && desiredErr == nil:
		return NoDesiredVersion
	case !known && errors.Is(localErr, ErrNoVersion):
		return NoDesiredVersion
	case !known:
		return PendingUnknown
	case localErr == nil && local == desired:
		return UpToDate
	case localErr == nil, errors.Is(localErr, ErrNoVersion), errors.Is(localErr, ErrVersionFile):
		return UpdatePending // whatever the file says, it is not the desired version
	}
	return PendingUnknown
}

func (p PendingChange) String() string {
	switch p {
	case UpdatePending:
		return "pending"
	case UpToDate:
		return "none"
	case PendingUnknown:
		return "unknown"
	default:
		return "no version"
	}
}
