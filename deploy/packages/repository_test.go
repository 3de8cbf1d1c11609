//go:build packages

package packages_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// keys are a keyring of GnuPG with the keys good, other and expired.
type keys struct{ dir string }

// past is a command line before another one: in January 2020, when the key expired was valid.
var past = []string{"faketime", "2020-01-02 00:00:00"}

func newKeys(t *testing.T) keys {
	t.Helper()
	k := keys{dir: filepath.Join(t.TempDir(), "gnupg")}
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run(t, k.env("gpgconf", "--kill", "gpg-agent")...) })
	generate := []string{"gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key"}
	run(t, k.env(append(generate, "good", "rsa2048", "sign", "1y")...)...)
	run(t, k.env(append(generate, "other", "rsa2048", "sign", "1y")...)...)
	run(t, k.env(append(append([]string{"faketime", "2020-01-01 00:00:00"}, generate...), "expired", "rsa2048", "sign", "30d")...)...)
	return k
}

// env is a command line in the environment of the keyring.
func (k keys) env(args ...string) []string {
	return append([]string{"env", "GNUPGHOME=" + k.dir}, args...)
}

// public writes a public key to a file, and returns its path.
func (k keys) public(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".asc")
	run(t, k.env("gpg", "--batch", "--armor", "--output", path, "--export", name)...)
	return path
}

// refused checks that a command fails with a text and leaves nothing of directory.
func refused(t *testing.T, what, want, directory string, args []string) {
	t.Helper()
	out, err := output(args...)
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("%s: %v, %q; want %q", what, err, out, want)
	}
	left, globErr := filepath.Glob(filepath.Join(filepath.Dir(directory), "*"+filepath.Base(directory)+"*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("%s: left behind %v, %v; want nothing", what, left, globErr)
	}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// only returns the file that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// TestRepositoryRefuses: without a key that can sign, over a repository that exists, and of packages that
// are not what was built, nothing is published.
func TestRepositoryRefuses(t *testing.T) {
	b, k := packages(t), newKeys(t)
	to := filepath.Join(t.TempDir(), "site")
	build := func(key, from string) []string { return k.env("KEY="+key, "tools/repository", from, to) }
	refused(t, "without a key", "no key: give KEY=FINGERPRINT", to, build("", b.new))
	refused(t, "a key that does not exist", "there is no secret key nobody", to, build("nobody", b.new))
	refused(t, "an expired key", "the key expired has expired", to, build("expired", b.new))
	refused(t, "an empty directory", "has no SHA256SUMS", to, build("good", t.TempDir()))

	changed := filepath.Join(t.TempDir(), "changed")
	run(t, "cp", "-r", b.new, changed)
	flip(t, only(t, filepath.Join(changed, "*amd64.deb")))
	refused(t, "a changed package", "is not what was built", to, build("good", changed))

	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := output(build("good", b.new)...); err == nil || !strings.Contains(out, "site exists already") {
		t.Errorf("a repository that exists: %v, %q", err, out)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("beside the repository that exists: %v, %v", left, err)
	}
}

// TestRepositoryForAPT installs from the repository in a booted Debian, which refuses what is not signed with the key,
// changed, or old.
func TestRepositoryForAPT(t *testing.T) {
	b, k, root := packages(t), newKeys(t), newRoot(t)
	repository := func(name string, prefix ...string) string {
		t.Helper()
		to := filepath.Join(root, name)
		run(t, append(prefix, append([]string{"tools/repository", b.new}, to)...)...)
		return to
	}
	good := repository("good", k.env("KEY=good")...)
	repository("old", k.env("KEY=good", "VALID_SECONDS=1")...)
	repository("expired", append(k.env("KEY=expired", "VALID_SECONDS=2000000000"), past...)...)
	run(t, "cp", "-r", good, filepath.Join(root, "index"))
	flip(t, filepath.Join(root, "index/apt/dists/stable/main/binary-amd64/Packages"))
	flip(t, filepath.Join(root, "index/apt/dists/stable/main/binary-amd64/Packages.gz"))
	run(t, "cp", "-r", good, filepath.Join(root, "release"))
	flip(t, filepath.Join(root, "release/apt/dists/stable/InRelease"))
	run(t, "cp", "-r", good, filepath.Join(root, "package"))
	flip(t, only(t, filepath.Join(root, "package/apt/pool/*amd64.deb")))
	run(t, "install", "-m", "0644", k.public(t, "other"), filepath.Join(root, "other.asc"))

	m := boot(t, root)
	m.run("sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*")
	use := func(name, key string) {
		t.Helper()
		m.run("sh", "-c", "rm -rf /var/lib/apt/lists/* && apt-get clean")
		m.write("/etc/apt/sources.list.d/jorc.list", fmt.Sprintf("deb [signed-by=%s] file:///%s/apt stable main\n", key, name))
	}
	for _, test := range []struct{ name, key, want string }{
		{"good", "/other.asc", "NO_PUBKEY"},
		{"expired", "/expired/jorc-archive-keyring.asc", "EXPKEYSIG"},
		{"release", "/good/jorc-archive-keyring.asc", "signatures were invalid"},
		{"index", "/good/jorc-archive-keyring.asc", "Hash Sum mismatch"},
	} {
		use(test.name, test.key)
		if out, err := m.output("apt-get", "update", "-o", "APT::Update::Error-Mode=any"); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("repository %s with key %s: %v, %s; want %q", test.name, test.key, err, out, test.want)
		}
		if out, err := m.output("apt-get", "install", "-y", "jorc"); err == nil {
			t.Errorf("repository %s with key %s: apt installed jorc: %s", test.name, test.key, out)
		}
	}
	use("old", "/good/jorc-archive-keyring.asc")
	consultest.Eventually(t, "the index is too old", func(context.Context) error {
		if out, err := m.output("apt-get", "update", "-o", "APT::Update::Error-Mode=any"); err == nil || !strings.Contains(out, "expired") {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("accepted, or refused otherwise")), out)
		}
		return nil
	})
	use("package", "/good/jorc-archive-keyring.asc")
	m.run("apt-get", "update")
	if out, err := m.output("apt-get", "install", "-y", "jorc"); err == nil || !strings.Contains(out, "Hash Sum mismatch") && !strings.Contains(out, "unexpected size") {
		t.Errorf("a changed package: %v, %s", err, out)
	}
	use("good", "/good/jorc-archive-keyring.asc")
	m.run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
	m.run("apt-get", "install", "-y", "jorc")
	if got, want := m.run("jorc", "version", "--licenses"), "jorc\nCopyright"; !strings.HasPrefix(got, want) {
		t.Errorf("jorc from the repository: %.80q", got)
	}
}

// TestRepositoryForDNF installs from the repository with gpgcheck and repo_gpgcheck.
func TestRepositoryForDNF(t *testing.T) {
	b, k := packages(t), newKeys(t)
	from := filepath.Join(t.TempDir(), "from")
	run(t, "cp", "-r", b.new, from)
	// What the package depends on, which Fedora has and the Debian in the test does not say.
	spec := filepath.Join(t.TempDir(), "util-linux.spec")
	if err := os.WriteFile(spec, []byte("Name: util-linux\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\nProvides: /bin/sh\n%description\nx\n%files\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+t.TempDir(), "--define", "_rpmdir "+from, "--define", "_rpmfilename %%{NAME}.rpm", spec)
	run(t, "sh", "-c", `cd "$1" && sha256sum *.deb *.rpm >SHA256SUMS`, "sh", from)

	sites := t.TempDir()
	site := func(name string, prefix ...string) string {
		t.Helper()
		to := filepath.Join(sites, name)
		run(t, append(prefix, "tools/repository", from, to)...)
		return to
	}
	good := site("good", k.env("KEY=good")...)
	site("expired", append(k.env("KEY=expired"), past...)...)
	run(t, "cp", "-r", good, filepath.Join(sites, "package"))
	flip(t, only(t, filepath.Join(sites, "package/rpm/jorc*x86_64.rpm")))
	run(t, "cp", "-r", good, filepath.Join(sites, "index"))
	flip(t, filepath.Join(sites, "index/rpm/repodata/repomd.xml"))
	// The package is changed, and the index, which is not signed again, goes with it.
	run(t, "cp", "-r", filepath.Join(sites, "package"), filepath.Join(sites, "both"))
	run(t, "createrepo_c", "--quiet", filepath.Join(sites, "both/rpm"))
	unsigned := filepath.Join(sites, "unsigned")
	run(t, "cp", "-r", good, unsigned)
	run(t, "rpmsign", "--delsign", only(t, filepath.Join(unsigned, "rpm/jorc*x86_64.rpm")))
	run(t, "createrepo_c", "--quiet", filepath.Join(unsigned, "rpm"))

	install := func(root, name, key string, checkIndex bool) (string, error) {
		t.Helper()
		conf := t.TempDir()
		text := fmt.Sprintf("[jorc]\nname=jorc\nbaseurl=file://%s/%s/rpm\ngpgcheck=1\nrepo_gpgcheck=%d\ngpgkey=file://%s\n", sites, name, map[bool]int{true: 1}[checkIndex], key)
		if err := os.WriteFile(filepath.Join(conf, "jorc.repo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return output("dnf", "-y", "--installroot="+root, "--setopt=reposdir="+conf, "--setopt=cachedir="+t.TempDir(), "--releasever=1", "--forcearch=x86_64", "install", "jorc")
	}
	key := filepath.Join(good, "jorc-archive-keyring.asc")
	if out, err := install(newRoot(t), "good", key, true); err != nil {
		t.Errorf("dnf install: %v\n%s", err, out)
	}
	const badIndex, badPackage = "repomd.xml GPG signature verification error", "GPG check FAILED"
	for _, test := range []struct {
		what, name, key string
		checkIndex      bool
		want            string
	}{
		{"another key", "good", k.public(t, "other"), true, badIndex},
		{"another key, of the package alone", "good", k.public(t, "other"), false, badPackage},
		{"an expired key", "expired", filepath.Join(sites, "expired/jorc-archive-keyring.asc"), true, badIndex},
		{"a changed package", "package", key, true, "incorrect checksum"},
		{"a changed index", "index", key, true, badIndex},
		{"a changed package and index", "both", key, true, badIndex},
		{"an unsigned package", "unsigned", key, false, badPackage},
	} {
		// An empty root: nothing is to be installed, and no key is known from another case.
		if out, err := install(t.TempDir(), test.name, test.key, test.checkIndex); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: %v, %s; want %q", test.what, err, out, test.want)
		}
	}
}

// TestRelease makes a release of a clone with a tag, and verifies it from a folder and over
// HTTP; a tree without a tag or with changes is refused, and so is a release in which anything changed.
func TestRelease(t *testing.T) {
	k := newKeys(t)
	clone, to := filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "release")
	run(t, "git", "clone", "-q", ".", clone)
	git := func(args ...string) {
		t.Helper()
		run(t, append([]string{"git", "-C", clone, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	}
	release := func(key string) []string {
		return k.env("KEY="+key, "FORMATS=deb rpm", "make", "-s", "-C", clone, "release", "TO="+to)
	}
	git("commit", "-q", "--allow-empty", "-m", "not tagged")
	refused(t, "without a tag", "this commit has no tag", to, release("good"))
	git("tag", "v9.9.9")
	refused(t, "without a section of the changelog", `CHANGELOG.md has no section "## 9.9.9"`, to, release("good"))
	git("tag", "-d", "v9.9.9")
	git("tag", "v0.1.0")
	if err := os.WriteFile(filepath.Join(clone, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "with changes", "the tree has changes that are not committed", to, release("good"))
	if err := os.Remove(filepath.Join(clone, "new")); err != nil {
		t.Fatal(err)
	}
	refused(t, "without a key", "no key: give KEY=FINGERPRINT", to, release(""))
	refused(t, "an expired key", "the key expired has expired", to, release("expired"))
	run(t, release("good")...)
	if out, err := output(release("good")...); err == nil || !strings.Contains(out, "exists already") {
		t.Errorf("a release that exists: %v, %s", err, out)
	}

	server := httptest.NewServer(http.FileServer(http.Dir(to)))
	t.Cleanup(server.Close)
	good, other := k.public(t, "good"), k.public(t, "other")
	verify := func(from, key string) (string, error) {
		return output("env", "KEYRING="+key, "make", "-s", "verify-release", "FROM="+from)
	}
	for _, from := range []string{to, server.URL} {
		if out, err := verify(from, good); err != nil || !strings.Contains(out, "files are what") {
			t.Errorf("verify-release %s: %v\n%s", from, err, out)
		}
	}
	if got, want := run(t, only(t, filepath.Join(to, "jorc_0.1.0_linux_amd64")), "version", "-o", "json"), `"version": "0.1.0"`; !strings.Contains(got, want) {
		t.Errorf("jorc version = %s, want %s", got, want)
	}
	wrong := func(what, want, key string, change func(dir string)) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "release")
		run(t, "cp", "-r", to, dir)
		change(dir)
		if out, err := verify(dir, key); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s; want %q", what, err, out, want)
		}
	}
	nothing := func(string) {}
	wrong("another key", "is signed with another key", other, nothing)
	wrong("no key", "no key: give KEYRING=FILE", "", nothing)
	wrong("a key that is no key", "is not a public key", filepath.Join(clone, "LICENSE"), nothing)
	wrong("a changed file", "NOTICE is not what was signed", good, func(dir string) { flip(t, filepath.Join(dir, "NOTICE")) })
	wrong("a missing file", "has no NOTICE", good, func(dir string) { run(t, "rm", filepath.Join(dir, "NOTICE")) })
	wrong("another file", "extra is not part of the release", good, func(dir string) { run(t, "touch", filepath.Join(dir, "extra")) })
	wrong("changed checksums", "SHA256SUMS is not what was signed", good, func(dir string) { flip(t, filepath.Join(dir, "SHA256SUMS")) })
	wrong("an expired key", "has expired", k.public(t, "expired"), func(dir string) {
		run(t, "rm", filepath.Join(dir, "SHA256SUMS.asc"))
		run(t, append(k.env(past...), "gpg", "--batch", "--local-user", "expired", "--armor", "--detach-sign",
			"--output", filepath.Join(dir, "SHA256SUMS.asc"), filepath.Join(dir, "SHA256SUMS"))...)
	})
}
