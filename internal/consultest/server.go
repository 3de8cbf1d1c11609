// Package consultest runs real Consul servers for tests: in memory or on
// disk, with ACLs, with TLS, or three of them, each on a loopback address of
// its own, and does to them what happens to servers.
package consultest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Server is one Consul server agent. Tests that use one may run in parallel.
type Server struct {
	Node      string // its node name
	IP        string // a loopback address of its own
	HTTPAddr  string // "ip:port", or "https://ip:port" with TLS
	DNSAddr   string
	RootToken string // with ACLs: may do everything
	CAFile    string // with TLS

	t      testing.TB
	shared bool // by Shared: other tests use the same process
	dir    string
	args   []string
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
}

// Start runs a server in memory and waits until it has a leader and knows
// itself. It is killed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, options(opts), freeIP(t), nil)
	s.launch()
	s.WaitLeader()
	return s
}

// StartCluster runs n servers on disk that form one cluster.
func StartCluster(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	o := options(opts)
	o.persistent, o.expect = true, n
	ips := make([]string, n)
	for i := range ips {
		ips[i] = freeIP(t)
	}
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newServer(t, o, ips[i], ips)
		servers[i].launch()
	}
	for _, s := range servers {
		s.WaitLeader()
	}
	return servers
}

func newServer(t testing.TB, o *settings, ip string, join []string) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{
		Node: "node-" + strings.ReplaceAll(ip, ".", "-"), IP: ip, HTTPAddr: ip + ":8500", DNSAddr: ip + ":8600",
		RootToken: o.rootToken, t: t, dir: dir,
	}
	conf := o.config(s, join)
	if o.tls {
		s.CAFile = writeCertificates(t, dir, ip, conf)
		s.HTTPAddr = "https://" + ip + ":8501"
	}
	data, err := json.Marshal(conf)
	if err != nil {
		t.Fatalf("consultest: %v", err)
	}
	file := filepath.Join(dir, "consul.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatalf("consultest: %v", err)
	}
	s.args = []string{"agent", "-config-file=" + file}
	if !o.persistent {
		s.args = append(s.args, "-dev")
	}
	t.Cleanup(s.cleanup)
	return s
}

func (s *Server) launch() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "consul.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatalf("consultest: %v", err)
	}
	defer log.Close()
	cmd := exec.Command(Binary(s.t), s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GOGC=" + os.Getenv("GOGC")}
	// A test binary that is killed takes its servers with it.
	cmd.SysProcAttr = command.Attached()
	done := make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(done)
		if err := startLocked(cmd, started); err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in the log; tests end it themselves
	}()
	if err := <-started; err != nil {
		s.t.Fatalf("consultest: start %s: %v", cmd.Path, err)
	}
	s.cmd, s.done = cmd, done
}

// Client returns a client of this server with the root token.
func (s *Server) Client() *consul.Client { return s.ClientWithToken(s.RootToken) }

// ClientWithToken returns a client that uses token.
func (s *Server) ClientWithToken(token string) *consul.Client {
	s.t.Helper()
	conf := s.Config()
	conf.Token = config.Secret(token)
	return s.clientOf(conf)
}

// clientOf returns a client that is closed when the server's test ends.
func (s *Server) clientOf(conf config.Consul) *consul.Client {
	s.t.Helper()
	c, err := consul.New(conf)
	if err != nil {
		s.t.Fatalf("consultest: %v", err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// Config returns what a client of this server needs, with the root token.
func (s *Server) Config() config.Consul {
	return config.Consul{Address: s.HTTPAddr, CAFile: s.CAFile, Token: config.Secret(s.RootToken), MaxConnections: 64}
}

// WaitLeader returns when the server answers from a cluster with a leader.
func (s *Server) WaitLeader() {
	s.t.Helper()
	c := s.Client()
	Eventually(s.t, "a leader at "+s.HTTPAddr, func(ctx context.Context) error {
		nodes, _, err := c.CatalogNode(ctx, s.Node, consul.Query{Consistent: true})
		if err == nil && nodes == nil {
			err = errors.New("the server is not in its own catalog yet")
		}
		if s.ended() {
			return fmt.Errorf("%w; its log ends with:\n%s", err, s.logTail())
		}
		return err
	})
}

// toReport is the time before the deadline of `go test` that a failed test needs
// to report the reason.
const toReport = 30 * time.Second

// Eventually calls check until it returns nil. There is no limit but the deadline
// of `go test`: a busy machine is slow, not wrong.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if test, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, limited := test.Deadline(); limited {
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(-toReport))
		}
	}
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // before the deadline, which is an error itself
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s: %v", what, last)
		case <-tick.C:
		}
	}
}

// freeIP picks an unused address of the loopback network.
func freeIP(t testing.TB) string {
	t.Helper()
	for range 100 {
		ip := fmt.Sprintf("127.%d.%d.%d", 64+rand.N(64), rand.N(256), 1+rand.N(254))
		if free(ip) {
			return ip
		}
	}
	t.Fatal("consultest: no free loopback address found")
	return ""
}
