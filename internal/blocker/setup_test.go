package blocker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// blockerOf returns a Blocker for s, with DNS at addr.
func blockerOf(t testing.TB, c *consul.Client, addr string) *blocker.Blocker {
	t.Helper()
	r, err := catalog.NewResolver(addr)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return blocker.New(r, nil)
	}
	return blocker.New(r, blocker.FromClient(c))
}

// host is a Consul with instances of "web" on it.
type host struct {
	*consultest.Server
	t      testing.TB
	client *consul.Client
}

func newHost(t testing.TB, opts ...consultest.Option) host {
	t.Helper()
	s := consultest.Start(t, opts...)
	return host{s, t, s.Client()}
}

func (h host) blocker() *blocker.Blocker { return blockerOf(h.t, h.client, h.DNSAddr) }

// serve registers instance n of web, with a TTL check in the given state, or
// none when state is empty.
func (h host) serve(n int, state string) {
	h.t.Helper()
	h.serveAt(n, 1000+n, state)
}

func (h host) serveAt(n, port int, state string) {
	h.t.Helper()
	r := &consul.ServiceRegistration{ID: id(n), Name: "web", Port: port, Address: h.IP, Tags: []string{"v1.2"}}
	if state != "" {
		r.Check = &consul.ServiceCheck{CheckID: r.ID, TTL: "1h", Status: state}
	}
	if err := h.client.RegisterService(h.t.Context(), r); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) withdraw(n int) {
	h.t.Helper()
	if err := h.client.DeregisterService(h.t.Context(), id(n)); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) health(n int, state, output string) {
	h.t.Helper()
	if err := h.client.UpdateTTL(h.t.Context(), id(n), output, state); err != nil {
		h.t.Fatal(err)
	}
}

// sick registers instance n in the catalog, critical with an output: an agent
// would delay the output for minutes.
func (h host) sick(n int, output string) {
	h.t.Helper()
	r := &consul.CatalogRegistration{
		Node: "ext", Address: h.IP,
		Service: &consul.AgentService{ID: id(n), Service: "web", Port: n},
		Check:   &consul.AgentCheck{Node: "ext", CheckID: "c", ServiceID: id(n), Status: consul.HealthCritical, Output: output},
	}
	if err := h.client.CatalogRegister(h.t.Context(), r); err != nil {
		h.t.Fatal(err)
	}
}

func id(n int) string { return fmt.Sprintf("web-%d", n) }

// waiting is a Wait in the background.
type waiting struct {
	done   chan error
	states chan []blocker.State
}

// start waits in the background until the test ends.
func start(t testing.TB, b *blocker.Blocker, o blocker.Options, needs ...blocker.Need) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{done: make(chan error, 1), states: make(chan []blocker.State)}
	var wg sync.WaitGroup
	wg.Go(func() {
		w.done <- b.Wait(ctx, needs, o, func(s []blocker.State) {
			select {
			case w.states <- s:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// until returns the first states for which ok holds; the wait must not end.
func (w *waiting) until(t testing.TB, what string, ok func([]blocker.State) bool) {
	t.Helper()
	for {
		select {
		case s := <-w.states:
			if ok(s) {
				return
			}
			t.Logf("not yet %s: %v", what, s)
		case err := <-w.done:
			t.Fatalf("the wait ended with %v, before %s", err, what)
		}
	}
}

// end returns how the wait ended.
func (w *waiting) end(t testing.TB) error {
	t.Helper()
	for {
		select {
		case s := <-w.states:
			t.Logf("state: %v", s)
		case err := <-w.done:
			return err
		}
	}
}

func have(n int) func([]blocker.State) bool {
	return func(s []blocker.State) bool { return s[0].Have == n && s[0].Answered }
}

// dnsProxy forwards DNS over TCP to a server, and counts the queries.
type dnsProxy struct {
	addr  string
	count atomic.Int64
}

func newDNSProxy(t testing.TB, upstream string) *dnsProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &dnsProxy{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.count.Add(1)
			wg.Go(func() { forward(conn, upstream) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return p
}

// forward copies one query and its answer, until the client closes the connection.
func forward(conn net.Conn, upstream string) {
	defer conn.Close()
	up, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(conn, up) }) // ends when up is closed
	_, _ = io.Copy(up, conn)
	up.Close()
	wg.Wait()
}

// listen accepts connections until the test ends, and returns the port.
func listen(t testing.TB, ip string) int {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
