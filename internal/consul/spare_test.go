package consul_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// TestSpareConnection: of two requests at the same time, the second takes the connection of
// the first, and the one that was opened for it is left. It is used while it is young. Later
// nothing is written on it, because Consul closes it at any moment: a write goes through a new one.
func TestSpareConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after time.Duration
		conns int
	}{
		"young": {after: 4 * time.Second, conns: 2},
		"old":   {after: 9 * time.Second, conns: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { checkSpare(t, test.after, test.conns) })
		})
	}
}

func checkSpare(t *testing.T, after time.Duration, conns int) {
	answer := make(chan struct{})
	c, p, running := newPiped(t, answer)
	running.Go(putter(t, c, "first"))
	synctest.Wait() // it has the only connection
	running.Go(putter(t, c, "second"))
	synctest.Wait() // it waits for another
	answer <- struct{}{}
	answer <- struct{}{}
	p.more <- struct{}{} // too late: the second has the connection of the first
	time.Sleep(after)
	running.Go(putter(t, c, "third"))
	synctest.Wait()
	running.Go(putter(t, c, "fourth")) // at least one of them has the spare connection
	if conns > 2 {
		p.more <- struct{}{}
	}
	answer <- struct{}{}
	answer <- struct{}{}
	synctest.Wait()
	p.want(c, conns, 2)
}

func putter(t *testing.T, c *consul.Client, key string) func() {
	return func() {
		if err := c.KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte("v")}); err != nil {
			t.Errorf("KVPut(%s) = %v", key, err)
		}
	}
}

// TestStalledConnection: a process stands still between the opening of a connection and its
// first request. A read, and a write whole, go through another connection.
func TestStalledConnection(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(ctx context.Context, c *consul.Client) error{
		"read": func(ctx context.Context, c *consul.Client) error { _, err := c.Datacenters(ctx); return err },
		"write": func(ctx context.Context, c *consul.Client) error {
			return c.KVPut(ctx, &consul.KVPair{Key: "k", Value: []byte("v")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answer := make(chan struct{})
				close(answer)
				c, p, running := newPiped(t, answer)
				var once sync.Once
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(httptrace.GotConnInfo) { once.Do(func() { time.Sleep(9 * time.Second) }) },
				})
				running.Go(func() {
					if err := ask(ctx, c); err != nil {
						t.Error(err)
					}
				})
				p.more <- struct{}{}
				synctest.Wait()
				p.want(c, 2, 1)
			})
		})
	}
}

// newPiped returns a client whose Consul answers each request when answer allows, and what
// connects them. All ends with the test.
func newPiped(t *testing.T, answer <-chan struct{}) (*consul.Client, *pipes, *sync.WaitGroup) {
	p := &pipes{t: t, conns: make(chan net.Conn), more: make(chan struct{}), done: make(chan struct{})}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, // Consul's default
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-answer
			text := "[]"
			if r.Method == http.MethodPut {
				value, err := io.ReadAll(r.Body)
				if text = "true"; err != nil || string(value) != "v" {
					t.Errorf("Consul received %q, %v; want v", value, err)
				}
			}
			_, _ = w.Write([]byte(text))
		}),
	}
	c, err := consul.New(config.Consul{}, consul.WithDialer(func(consul.DialFunc) consul.DialFunc { return p.dial }))
	if err != nil {
		t.Fatal(err)
	}
	running := new(sync.WaitGroup)
	running.Go(func() { _ = server.Serve(p) })
	t.Cleanup(func() {
		c.Close()
		_ = server.Close()
		running.Wait()
	})
	return c, p, running
}

// pipes is a listener within the process.
type pipes struct {
	t      *testing.T
	conns  chan net.Conn
	more   chan struct{} // allows a connection after the first
	done   chan struct{}
	once   sync.Once
	opened atomic.Int64
}

// want checks how many connections were opened and how many are open.
func (p *pipes) want(c *consul.Client, opened, open int) {
	p.t.Helper()
	if got := int(p.opened.Load()); got != opened {
		p.t.Errorf("%d connections were opened; want %d", got, opened)
	}
	if got := c.Stats().Connections; got != open {
		p.t.Errorf("%d connections are open; want %d", got, open)
	}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	if p.opened.Add(1) > 1 {
		<-p.more
	}
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
