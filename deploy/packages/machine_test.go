//go:build packages

package packages_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// run runs a command in the repository and returns what it printed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := output(args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func output(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// built are directories of packages: an older build for this machine, and two builds of
// the current commit for all machines. The second one has another umask and time zone.
type built struct{ old, new, again string }

var build = sync.OnceValues(func() (built, error) {
	b := built{filepath.Join(workDir, "old"), filepath.Join(workDir, "new"), filepath.Join(workDir, "again")}
	arch, err := output("go", "env", "GOARCH")
	if err != nil {
		return built{}, fmt.Errorf("go env GOARCH: %w: %s", err, arch)
	}
	for _, args := range [][]string{
		{"env", "PACKAGE_VERSION=0.0.0~a", "ARCHES=" + arch, "tools/packages", b.old},
		{"tools/packages", b.new},
		{"env", "TZ=Asia/Tokyo", "sh", "-c", `umask 077; exec tools/packages "$1"`, "sh", b.again},
	} {
		if out, err := output(args...); err != nil {
			return built{}, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return b, nil
})

// workDir holds the packages and the archive of a Debian.
var workDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "jorc-packages-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func packages(t *testing.T) built {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// native returns the package of this machine's architecture in dir.
func native(t *testing.T, dir, format string) string {
	t.Helper()
	arch := run(t, "go", "env", "GOARCH")
	if format == "rpm" {
		arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"+arch+"."+format))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages in %s for %s: %v, %v; want one", dir, arch, found, err)
	}
	return found[0]
}

// debian makes an archive of a minimal Debian with systemd, nginx, Python for Ansible, Puppet, and what jorc depends on.
var debian = sync.OnceValues(func() (string, error) {
	archive := filepath.Join(workDir, "debian.tar")
	if out, err := output("mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,procps,nginx-light,python3-apt,puppet-agent", "bookworm", archive); err != nil {
		return "", fmt.Errorf("mmdebstrap: %w\n%s", err, out)
	}
	return archive, nil
})

// newRoot makes the file system of a Debian.
func newRoot(t *testing.T) string {
	t.Helper()
	archive, err := debian()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "mkdir", root)
	run(t, "tar", "-C", root, "-xpf", archive)
	return root
}

// machine is a booted Debian in namespaces of its own, without a network.
type machine struct {
	t      *testing.T
	root   string
	leader string     // the PID of its first process
	ended  chan error // has what systemd-nspawn ended with
}

func boot(t *testing.T, root string) *machine {
	t.Helper()
	m := &machine{t: t, root: root, ended: make(chan error, 1)}
	var console bytes.Buffer
	cmd := exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--private-network", "-D", root, "--boot")
	cmd.Stdout, cmd.Stderr = &console, &console
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := m.ended
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		end := syscall.SIGTERM // powers the machine off
		if t.Failed() {
			end = syscall.SIGKILL // the reason has to be out before the deadline of `go test`
		}
		_ = cmd.Process.Signal(end)
		<-ended
		if t.Failed() {
			t.Logf("console:\n%s", console.String())
		}
	})
	consultest.Eventually(t, "the machine boots", func(context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("systemd-nspawn ended: %v\n%s", err, console.String())
		default:
		}
		pid := strconv.Itoa(cmd.Process.Pid)
		children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		if err != nil {
			return err
		}
		m.leader = strings.TrimSpace(string(children))
		if m.leader == "" || strings.Contains(m.leader, " ") {
			return fmt.Errorf("children of systemd-nspawn: %q", m.leader)
		}
		if state, _ := m.output("systemctl", "is-system-running"); state != "running" && state != "degraded" {
			return errors.New(state)
		}
		return nil
	})
	return m
}

// output runs a command inside the machine.
func (m *machine) output(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"-a", "-t", m.leader, "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.output(args...)
	if err != nil {
		log, _ := m.output("journalctl", "--no-pager", "-n", "40", "-u", "jorc*")
		m.t.Fatalf("%s: %v\n%s\njournal:\n%s", strings.Join(args, " "), err, out, log)
	}
	return out
}

// get requests an address of the loopback interface.
func (m *machine) get(port, path string) (string, error) {
	return m.output("bash", "-c", `exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3 && cat <&3`, "bash", port, path)
}

// eventually waits until a command inside the machine prints what ok accepts.
func (m *machine) eventually(what string, ok func(string) bool, args ...string) string {
	m.t.Helper()
	var out string
	consultest.Eventually(m.t, what, func(context.Context) error {
		var err error
		if out, err = m.output(args...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !ok(out) {
			return errors.New(out)
		}
		return nil
	})
	return out
}

// property returns a property of a unit.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "--value", "-p", name, unit)
}

// write writes a file of the machine, in place of a link that may point to a file
// of this one.
func (m *machine) write(path, text string) {
	m.t.Helper()
	root, err := os.OpenRoot(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	defer root.Close()
	path = strings.TrimPrefix(path, "/")
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	if err := root.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// exists reports whether the machine has a file, a link without its target included.
func (m *machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}
