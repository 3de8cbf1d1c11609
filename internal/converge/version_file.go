package converge

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/text"
)

// maxVersionFile bounds what is read of a version file: longer text cannot be a version.
const maxVersionFile = 4 * text.MaxName

// ReadVersionFile reads the version that this host runs. It returns
// cluster.ErrNoVersion when there is no such file or nothing in it, cluster.ErrVersionFile when it holds something else, and
// what durable.OpenRead does.
func ReadVersionFile(path string) (string, error) {
	f, err := durable.OpenRead(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("version file %s: %w", path, cluster.ErrNoVersion)
	}
	if err != nil {
		return "", fmt.Errorf("version file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxVersionFile))
	if err != nil {
		return "", fmt.Errorf("version file: %w", err)
	}
	version := strings.TrimSpace(string(data))
	if version == "" {
		return "", fmt.Errorf("version file %s: %w", path, cluster.ErrNoVersion)
	}
	if err := cluster.CheckVersion(version); err != nil {
		return "", fmt.Errorf("version file %s: %w: %v; 'jorc update local VERSION' replaces it", path, cluster.ErrVersionFile, err)
	}
	return version, nil
}

// WriteVersionFile replaces the version file by one that holds version and a
// line end; its directory is made when it is missing. A file that says so
// already is not touched. It returns text.ErrName or an *fs.PathError.
func WriteVersionFile(path, version string) error {
	if err := cluster.CheckVersion(version); err != nil {
		return err
	}
	data := version + "\n"
	if old, err := durable.ReadFile(path, maxVersionFile); err == nil && string(old) == data {
		return nil
	}
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("version file: %w", err)
	}
	return durable.WriteFile(path, []byte(data), 0o644)
}
