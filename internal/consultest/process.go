package consultest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopTimeout is when a server that is asked to stop is killed. A Consul under load
// can hang in its shutdown.
const stopTimeout = 20 * time.Second

// Stop ends the server as systemd would, with SIGTERM, then SIGKILL, and waits for
// its end.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Restart starts a server that was stopped or killed, at the same addresses
// and on the same data; one in memory comes back empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.RestartNoWait()
	s.WaitLeader()
}

// RestartNoWait is Restart without waiting for a leader, for members of a
// cluster that has none yet.
func (s *Server) RestartNoWait() {
	s.t.Helper()
	if !s.ended() {
		s.Kill()
	}
	s.launch()
}

// Wipe removes the data of a stopped server: it restarts empty.
func (s *Server) Wipe() {
	s.t.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
		s.t.Fatalf("consultest: %v", err)
	}
}

// runTimeout is how long Consul may take for a request of an operator. On a crowded machine
// 1.22.6 had not answered one to restore a snapshot after 38 minutes: a test that waits for ever
// ends all tests of its package, one that fails can be run again.
const runTimeout = 2 * time.Minute

// Run runs the consul program with args against this server and returns what
// it printed; the test fails when it does.
func (s *Server) Run(args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(s.t), args...)
	cmd.Env = append(os.Environ(), "CONSUL_HTTP_ADDR="+s.HTTPAddr, "CONSUL_HTTP_TOKEN="+s.RootToken, "CONSUL_CACERT="+s.CAFile)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("consul %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (s *Server) end(sig syscall.Signal) {
	s.t.Helper()
	s.refuseShared()
	if s.ended() {
		return
	}
	s.signal(sig)
	s.Thaw()
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		s.signal(syscall.SIGKILL)
		<-s.done
	}
}

// refuseShared fails a test that is about to stop the server of other tests.
func (s *Server) refuseShared() {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("consultest: a shared server must not be stopped: use Start")
	}
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !s.ended() {
		s.t.Fatalf("consultest: signal %v to consul: %v", sig, err)
	}
}

func (s *Server) ended() bool {
	if s.done == nil {
		return true
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *Server) cleanup() {
	if s.t.Failed() {
		s.t.Logf("log of consul at %s ends with:\n%s", s.HTTPAddr, s.logTail())
	}
	if s.ended() {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended meanwhile
	<-s.done
}

func (s *Server) logTail() []byte {
	data, err := os.ReadFile(filepath.Join(s.dir, "consul.log"))
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-2000):])
}

// startLocked starts cmd and keeps the goroutine on its thread until it ends:
// Pdeathsig is sent when the thread that started the process goes away.
func startLocked(cmd *exec.Cmd, started chan<- error) error {
	runtime.LockOSThread()
	err := cmd.Start()
	started <- err
	return err
}

// Binary returns the path of the consul program: CONSUL_BIN, the project's
// bin/consul, or the one on PATH.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("CONSUL_BIN"); path != "" {
		return path
	}
	built := filepath.Join(Root(t), "bin", "consul")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	path, err := exec.LookPath("consul")
	if err != nil {
		t.Fatal("consultest: no consul program: run 'make consul', or set CONSUL_BIN")
	}
	return path
}

// Root returns the project's directory: from a test's directory upward, the
// first one with a go.mod. The paths of the test binary do not lead there: they
// depend on -trimpath.
func Root(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatal("consultest: ", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("consultest: no go.mod in %s or above", start)
		}
	}
}

// Build builds programs of the project, named by their directories, such as cmd/jorc, into dir. Without cgo, as make build does:
// with it, or with a race detector, all modules would be compiled once more.
func Build(t testing.TB, dir string, programs ...string) {
	t.Helper()
	args := []string{"build", "-ldflags=-w", "-o", dir + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "./"+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = Root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("consultest: go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func free(ip string) bool {
	l, err := net.Listen("tcp", ip+":8500")
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Die ends the test's process at once, as kill -9 does.
func Die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}
