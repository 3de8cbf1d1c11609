package web

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connections bounds how many connections are open. Above the limit the oldest
// connection that serves no request is closed, so that clients which hold idle
// connections, or never finish a request, do not lock others out.
type connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open *list.List // of *connection, the oldest first
}

// connection is one client's.
type connection struct {
	net.Conn
	all     *connections
	element *list.Element
	serving int // requests whose handler runs
}

func newConnections(l net.Listener, limit int) *connections {
	return &connections{Listener: l, limit: limit, open: list.New()}
}

// Accept implements net.Listener.
func (a *connections) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, all: a}
	a.mu.Lock()
	c.element = a.open.PushBack(c)
	excess := a.excess()
	a.mu.Unlock()
	if excess != nil {
		_ = excess.Close() // its client may have closed it
	}
	return c, nil
}

// excess returns the connection to close: the oldest that serves no request, or the
// newest if all others do; nil: none. The caller holds the lock.
func (a *connections) excess() *connection {
	if a.open.Len() <= a.limit {
		return nil
	}
	for e := a.open.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); c.serving == 0 {
			return c
		}
	}
	return nil // not reached: the newest serves nothing yet
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.mu.Lock()
	if c.element != nil {
		c.all.open.Remove(c.element)
		c.element = nil
	}
	c.all.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection implements http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// serving marks a request's connection while the request is served.
func serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.mark(1)
			defer c.mark(-1)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connection) mark(n int) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.serving += n
}
