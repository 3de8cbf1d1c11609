package consul_test

import (
	"context"
	"net"
	"net/http"
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
	listener := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	answer := make(chan struct{})
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, // Consul's default
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-answer
			_, _ = w.Write([]byte("true"))
		}),
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = server.Serve(listener) })
	defer server.Close()
	dialled := make(chan struct{})
	c, err := consul.New(config.Consul{}, consul.WithDialer(func(consul.DialFunc) consul.DialFunc { return listener.dial(dialled) }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	put := func(key string) func() {
		return func() {
			if err := c.KVPut(t.Context(), &consul.KVPair{Key: key, Value: []byte("v")}); err != nil {
				t.Errorf("KVPut(%s) = %v", key, err)
			}
		}
	}
	running.Go(put("first"))
	synctest.Wait() // it has the only connection
	running.Go(put("second"))
	synctest.Wait() // it waits for another
	answer <- struct{}{}
	answer <- struct{}{}
	dialled <- struct{}{} // too late: the second has the connection of the first
	time.Sleep(after)
	running.Go(put("third"))
	synctest.Wait()
	running.Go(put("fourth")) // at least one of them has the spare connection
	if conns > 2 {
		dialled <- struct{}{}
	}
	answer <- struct{}{}
	answer <- struct{}{}
	synctest.Wait()
	if got := int(listener.opened.Load()); got != conns {
		t.Errorf("%d connections were opened; want %d", got, conns)
	}
	if got := c.Stats().Connections; got != 2 {
		t.Errorf("%d connections are open; want 2", got)
	}
}

// pipes is a listener within the process.
type pipes struct {
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	opened atomic.Int64
}

// dial opens the first connection at once, and each later one when ready allows.
func (p *pipes) dial(ready <-chan struct{}) consul.DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		if p.opened.Add(1) > 1 {
			<-ready
		}
		near, far := net.Pipe()
		p.conns <- far
		return near, nil
	}
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
