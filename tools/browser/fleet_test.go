// Package browser_test drives the dashboard with Chromium.
package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

// program is the jorc that is tested: JORC_BIN.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("JORC_BIN")
	if path == "" {
		t.Fatal("JORC_BIN is not set; 'make test-browser' sets it")
	}
	return path
}

// host is one host with its Consul and its directory.
type host struct {
	t      testing.TB
	server *consultest.Server
	dir    string
	env    []string
	last   *exec.Cmd // that was started last
}

const clusterName = "prod"

func newHost(t testing.TB, s *consultest.Server, token string) *host {
	dir := t.TempDir()
	return &host{t: t, server: s, dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CONSUL_HTTP_ADDR=" + s.HTTPAddr, "CONSUL_HTTP_TOKEN=" + token, consultest.NoConfig,
		"JORC_CLUSTER=" + clusterName, "JORC_STATE_DIR=" + filepath.Join(dir, "state"), "JORC_NODE=" + s.Node, "JORC_DNS_ADDR=" + s.DNSAddr,
	}}
}

// jorc runs a command to its end.
func (h *host) jorc(args ...string) string {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), program(h.t), args...)
	cmd.Env = h.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("jorc %q: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// path is a file in the host's directory; the tasks of its workflows look for some.
func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) create(name string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(name string) {
	h.t.Helper()
	if err := os.Remove(h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// agent starts the host's agent, with the service of its role. Its configuration fails
// while the file "fail" is there, and waits while the file "wait" is; the service is
// critical while the file "broken" is.
func (h *host) agent(role, more string) {
	h.t.Helper()
	text := fmt.Sprintf(`
cluster = %q
http {
  addr = ""
}
service %q {
  port = 8080
  check {
    script   = ["sh", "-c", "if test -e %[4]s/broken; then echo connection refused; exit 2; fi"]
    interval = "1s"
    timeout  = "5s"
  }
}
static {
  workflow = "converge"
}
workflow "converge" {
  task "install" {
    command = ["sh", "-c", "while test -e %[4]s/wait; do sleep 0.1; done; if test -e %[4]s/fail; then echo 'E: no space left on device' >&2; exit 1; fi"]
  }
}
workflow "smoke" {
  task "ask" {
    script = <<EOT
{{template "cluster-utilities.tmpl" .}}
test -e %[4]s/pass || jorc_not_yet "3 of 1240 documents are missing"
echo "all documents are there"
EOT
  }
}
workflow "reindex" {
  task "reindex" {
    command = ["sh", "-c", "echo 1240 documents; echo done"]
  }
}
member {
  roles = [%[2]q]
  zone  = "rack-%[3]s"
}
%[5]s
`, clusterName, role, h.server.Node[len(h.server.Node)-1:], h.dir, more)
	file := h.path("jorc.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.start("agent", "--config", file)
}

// start starts a program that runs until the test ends, and returns its stdout.
func (h *host) start(args ...string) io.Reader {
	h.t.Helper()
	cmd := exec.Command(program(h.t), args...)
	cmd.Env = h.env
	var said bytes.Buffer
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.last = cmd
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by the signal
		if h.t.Failed() {
			h.t.Logf("jorc %q said:\n%s", args, tail(said.String()))
		}
	})
	return stdout
}

// stop ends the program that was started last.
func (h *host) stop() {
	h.t.Helper()
	if err := h.last.Process.Signal(syscall.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
	_ = h.last.Wait() // the exit code is not of interest
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// ui starts `jorc ui` and returns its address with the key.
func (h *host) ui(args ...string) string {
	h.t.Helper()
	lines := bufio.NewScanner(h.start(append([]string{"ui"}, args...)...))
	for lines.Scan() {
		for word := range strings.FieldsSeq(lines.Text()) {
			if strings.HasPrefix(word, "http://") {
				return word
			}
		}
	}
	h.t.Fatal("jorc ui printed no address")
	return ""
}

// stagedPool is a template whose changes reach the hosts one after the other. Without
// workers the service of a host is critical.
func stagedPool(h *host) string {
	return strings.ReplaceAll(`
template "pool" {
  contents    = "workers {{ paramOr \"workers\" 4 }}\n"
  destination = "DIR/pool.conf"
  reload      = ["sh", "-c", "if grep -q 'workers 0' DIR/pool.conf; then touch DIR/broken; else rm -f DIR/broken; fi"]
  stage "pool" {
    max_parallel  = 1
    min_healthy   = "2s"
    node_deadline = "4s"
  }
}
`, "DIR", h.dir)
}

// newFleet returns three hosts with their agents; the first one orchestrates. more is
// added to the configuration of each.
func newFleet(t testing.TB, more func(*host) string) []*host {
	t.Helper()
	var hosts []*host
	for _, s := range consultest.StartCluster(t, 3) {
		hosts = append(hosts, newHost(t, s, ""))
	}
	hosts[0].jorc("cluster", "init", clusterName, "--leaders", "1")
	requires := "requires \"db\" {\n  count = 1\n}\n"
	hosts[0].agent("db", "orchestrator {\n  enabled  = true\n  interval = \"1s\"\n}\n"+more(hosts[0]))
	hosts[1].agent("web", requires+more(hosts[1]))
	hosts[2].agent("web", requires+more(hosts[2]))
	hosts[0].jorc("cluster", "wait", "--for", "members=3", "--timeout", "0")
	return hosts
}

// proxy passes connections on to the dashboard until it is cut.
type proxy struct {
	t        testing.TB
	to       string
	address  string
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	cut      bool
}

func newProxy(t testing.TB, address string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, to: u.Host, address: l.Addr().String(), listener: l, conns: map[net.Conn]bool{}}
	go p.accept()
	t.Cleanup(func() { _ = l.Close(); p.setCut(true) })
	u.Host = p.address
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(c)
	}
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	cut, to := p.cut, p.to
	if !cut {
		p.conns[c] = true
	}
	p.mu.Unlock()
	if cut {
		return
	}
	defer func() { p.mu.Lock(); delete(p.conns, c); p.mu.Unlock() }()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, c); _ = server.Close() }() // the end of either ends both
	_, _ = io.Copy(c, server)
}

// lead cuts all connections and leads new ones to another server.
func (p *proxy) lead(address string) {
	p.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.setCut(true)
	p.mu.Lock()
	p.to = u.Host
	p.mu.Unlock()
	p.setCut(false)
}

// setCut cuts all connections and refuses new ones, or lets them through again.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	consultest.Eventually(t, what, func(context.Context) error { return check() })
}
