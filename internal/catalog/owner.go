package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// Owner is the identity under which services are registered: this machine and
// the state directory. It outlives restarts, upgrades and a change of the host
// name, and differs between two agents on one host.
func Owner(stateDir string) string {
	if abs, err := filepath.Abs(stateDir); err == nil {
		stateDir = abs
	}
	sum := sha256.Sum256([]byte("jorc owner:" + machine()))
	return hex.EncodeToString(sum[:6]) + ":" + stateDir
}

// machine names this host: by the machine id, which is not to be shown as it
// is (machine-id(5)), or without one by its name.
func machine() string {
	data, err := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(data)); err == nil && id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
