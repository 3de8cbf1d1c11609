//go:build system

package main

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// isolated are the tests that TestHostIsUntouched runs: together they call every
// command, with and without a configuration, and run agents.
const isolated = "^(TestVerbose|TestWrongConfigEverywhere|TestNamesThatDoNotExist|TestOldCommands|TestAgentOnce|TestHoldFile|TestPing)$"

// poisonedEnv, set to the directory where the child may mount, makes
// TestHostIsUntouched that child.
const poisonedEnv = "JORC_TEST_POISONED"

// TestHostIsUntouched runs tests on a host on which jorc seems to be installed:
// /etc/jorc and /var/lib/jorc hold nonsense, and what answers on port 8500 is no
// Consul. The tests pass, read no file there and ask nothing there. The host is a
// mount namespace and a network namespace of its own.
func TestHostIsUntouched(t *testing.T) {
	if dir := os.Getenv(poisonedEnv); dir != "" {
		poisonedHost(t, dir)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--", self, "-test.run", "^TestHostIsUntouched$", "-test.v")
	cmd.Env = append(os.Environ(), poisonedEnv+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestHostIsUntouched") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// poisonedHost runs in the namespaces; dir is an empty directory.
func poisonedHost(t *testing.T, dir string) {
	do := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	do("ip", "link", "set", "lo", "up")
	do("mount", "-t", "tmpfs", "-o", "strictatime", "tmpfs", dir) // so that each read leaves a trace
	do("cp", "-a", "/etc", dir)
	do("rm", "-rf", filepath.Join(dir, "etc", "jorc"))
	for name, text := range map[string]string{
		"etc/jorc/jorc.hcl": "cluster = nonsense {\n", "etc/jorc/token": "nonsense\n", "lib/jorc/version": "nonsense\n",
		"lib/jorc/hold": "nonsense\n", "lib/jorc/node": "nonsense\n", "lib/jorc/services/web.json": "nonsense\n", "lib/jorc/jobs/j/job.json": "nonsense\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	do("mount", "--bind", filepath.Join(dir, "etc"), "/etc")
	do("mount", "--bind", filepath.Join(dir, "lib"), "/var/lib")

	var asked atomic.Int64
	for _, port := range []string{"8500", "8520"} { // Consul's API, and jorc's
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			t.Logf("a request to 127.0.0.1:%s: %s %s", port, r.Method, r.URL.Path)
			fmt.Fprint(w, "nonsense")
		})}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close(); <-done })
	}

	before := touched(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", isolated, "-test.v")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, poisonedEnv+"=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.CombinedOutput()
	if ran := strings.Count(string(out), "\n--- PASS: "); err != nil || ran != strings.Count(isolated, "|")+1 {
		t.Errorf("%v, %d tests passed:\n%s", err, ran, out)
	}
	for file, at := range touched(t) {
		if at != before[file] {
			t.Errorf("the tests used %s: %s, before %s", file, at, before[file])
		}
		delete(before, file)
	}
	for file := range before {
		t.Errorf("the tests removed %s", file)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the tests asked the host's own Consul or jorc %d times", n)
	}
}

// touched are the files of the installed jorc with when each was last read and
// written.
func touched(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range []string{"/etc/jorc", "/var/lib/jorc"} {
		var files []string
		err := filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
			files = append(files, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			stat, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				t.Fatalf("%s: no stat", file)
			}
			text := fmt.Sprintf("written %v", info.ModTime())
			if !info.IsDir() { // this function itself reads directories
				text += fmt.Sprintf(", read %v", time.Unix(stat.Atim.Unix()))
			}
			all[file] = text
		}
	}
	return all
}
