package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Limits on the resources that clients use.
const (
	maxConnections    = 1024
	maxHeaderBytes    = 16 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = 2 * time.Minute // longer than the usual intervals between scrapes
	shutdownTimeout   = 2 * time.Second
)

// Listener is the address of an HTTP server and its life, with bounds on what clients
// use. It is safe for concurrent use.
type Listener struct {
	name, address string
	log           hclog.Logger

	mu    sync.Mutex
	bound net.Listener // nil: not listening
}

// NewListener returns a listener on a host:port that is not bound yet; port 0 takes a
// free one. Errors begin with name.
func NewListener(name, address string, log hclog.Logger) *Listener {
	return &Listener{name: name, address: address, log: log}
}

// Listen binds the address; Serve or Close releases it. A second call does nothing.
// Its error is that of package net.
func (l *Listener) Listen(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound != nil {
		return nil
	}
	var listen net.ListenConfig
	bound, err := listen.Listen(ctx, "tcp", l.address)
	if err == nil {
		l.bound = bound
	}
	return err
}

// Addr returns the address with its actual port; empty if it is not bound.
func (l *Listener) Addr() string {
	if bound := l.current(); bound != nil {
		return bound.Addr().String()
	}
	return ""
}

// Local reports whether only this host can reach the address.
func (l *Listener) Local() bool {
	bound := l.current()
	if bound == nil {
		return false
	}
	tcp, ok := bound.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (l *Listener) current() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound
}

// Close releases the address if Serve is not called.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound == nil {
		return nil
	}
	bound := l.bound
	l.bound = nil
	if err := bound.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%s on %s: close: %w", l.name, l.address, err)
	}
	return nil
}

// Serve serves on the bound address until ctx ends, then waits up to two seconds for
// running requests, releases the address and returns nil. Handler, WriteTimeout and
// TLSConfig are the server's own; the rest is set here. It returns the error of a
// broken listener.
func (l *Listener) Serve(ctx context.Context, server *http.Server) error {
	bound := l.current()
	if bound == nil {
		return fmt.Errorf("%s on %s: it does not listen", l.name, l.address)
	}
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server.Handler = serving(server.Handler)
	server.ConnContext = withConnection
	server.ReadHeaderTimeout, server.ReadTimeout, server.IdleTimeout = readHeaderTimeout, readTimeout, idleTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	server.ErrorLog = l.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
	server.BaseContext = func(net.Listener) context.Context { return requests }
	served := make(chan error, 1)
	go func() {
		limited := &connections{Listener: bound, limit: maxConnections, open: list.New()}
		if server.TLSConfig != nil {
			served <- server.ServeTLS(limited, "", "")
			return
		}
		served <- server.Serve(limited)
	}()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("%s on %s: %w", l.name, bound.Addr(), err), l.Close())
	case <-ctx.Done():
	}
	until, done := context.WithTimeout(requests, shutdownTimeout)
	defer done()
	if err := server.Shutdown(until); err != nil {
		cancel()
		if err := server.Close(); err != nil {
			l.log.Debug("closing connections", "server", l.name, "error", err)
		}
	}
	<-served
	return l.Close()
}

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

// withConnection implements http.Server.ConnContext, below TLS too.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
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
