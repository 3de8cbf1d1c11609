//go:build !windows

package diagnostics_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
)

// TestUnreadableSecretFiles: files of secrets that cannot be read hinder no part.
func TestUnreadableSecretFiles(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/nonexistent/token", t.TempDir(), pipe, "/dev/zero"} {
		o := optionsFor(t, s, "unreadable")
		o.Config.Vault.TokenFile = file
		o.Config.LogStore = &config.LogStore{S3: &config.S3{CredentialsFile: file}}
		if files := archive(t, o); !strings.Contains(files["report/version.json"], "created") || !strings.Contains(files["report/doctor.json"], "{") {
			t.Errorf("%s: got %q", file, files)
		}
	}
}
