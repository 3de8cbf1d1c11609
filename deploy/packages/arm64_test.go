//go:build packages

package packages_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestARM64 runs what the packages for arm64 contain, with qemu: the program, and the scripts of the package with it.
func TestARM64(t *testing.T) {
	b := packages(t)
	root := t.TempDir()
	deb := only(t, filepath.Join(b.new, "*arm64.deb"))
	run(t, "dpkg-deb", "-x", deb, root)
	run(t, "dpkg-deb", "-e", deb, filepath.Join(root, "DEBIAN"))
	program := filepath.Join(root, "usr/bin/jorc")
	jorc := func(args ...string) string {
		t.Helper()
		return run(t, append([]string{"qemu-aarch64", program}, args...)...)
	}
	version := strings.TrimSuffix(run(t, "dpkg-deb", "-f", deb, "Version"), "-1")
	for _, want := range []string{`"platform": "linux/arm64"`, `"version": "` + version + `"`} {
		if got := jorc("version", "-o", "json"); !strings.Contains(got, want) {
			t.Errorf("jorc version = %s, want %s", got, want)
		}
	}
	if got, want := jorc("config", "validate", filepath.Join(root, "etc/jorc/jorc.hcl.example")), "valid"; !strings.Contains(got, want) {
		t.Errorf("jorc config validate = %s, want %s", got, want)
	}
	if got, want := jorc("version", "--licenses"), run(t, "cat", filepath.Join(root, "usr/share/doc/jorc/NOTICE")); got != want {
		t.Errorf("the licenses that the program prints differ from the package's NOTICE")
	}
	native := filepath.Join(t.TempDir(), "native")
	run(t, "dpkg-deb", "-x", only(t, filepath.Join(b.new, "*amd64.deb")), native)
	for _, file := range []string{"usr/share/bash-completion/completions/jorc", "usr/share/man/man8/jorc.8.gz"} {
		run(t, "cmp", filepath.Join(root, file), filepath.Join(native, file))
	}
	// The same scripts as in the other package, which a booted Debian runs; this program answers what they ask.
	run(t, "dpkg-deb", "-e", only(t, filepath.Join(b.new, "*amd64.deb")), filepath.Join(native, "DEBIAN"))
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		run(t, "cmp", filepath.Join(root, "DEBIAN", script), filepath.Join(native, "DEBIAN", script))
	}
	bin := t.TempDir()
	wrapper := "#!/bin/sh\nexec qemu-aarch64 " + program + " \"$@\"\n"
	m := &machine{t: t, root: bin}
	m.write("jorc", wrapper)
	m.write("systemctl", "#!/bin/sh\necho \"$@\"\n")
	m.write("state/keep", "")
	run(t, "chmod", "0755", filepath.Join(bin, "jorc"), filepath.Join(bin, "systemctl"))
	got := run(t, "env", "PATH="+bin+":/usr/bin:/bin", "JORC_STATE_DIR="+filepath.Join(bin, "state"), "JORC_CONFIG=/dev/null",
		filepath.Join(root, "usr/lib/jorc/restart-when-idle"))
	if want := "try-restart jorc.service"; got != want {
		t.Errorf("restart-when-idle = %q, want %q", got, want)
	}
}
