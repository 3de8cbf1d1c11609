// Package web shows the agent's status: a status API, health checks, Prometheus
// metrics, and a page for people. It is read-only and has its own structs.
//
//	GET /v1/status      JSON, see Status
//	GET /healthz        200 while jorc itself works, even if Consul is unreachable; 503 with the reason when
//	                    one of its loops has stopped or is stuck
//	GET /healthz?ready  200 when the services are registered, the files rendered and, on an orchestrator,
//	                    cycles finished as well; 503 with the reasons, one a line
//	GET /metrics        Prometheus
//	GET /               a page for people
package web

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Limits on the resources that clients use.
const (
	maxConnections    = 1024
	maxHeaderBytes    = 16 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second // longer than answerTimeout
	idleTimeout       = 2 * time.Minute  // longer than the usual intervals between scrapes
	shutdownTimeout   = 2 * time.Second
)

// Options are what a Server needs.
type Options struct {
	Addr    string // host:port; port 0 takes a free one; empty switches the server off
	Source  Source
	Metrics *Metrics // optional; outlives the server
	// Fleet collects metrics of the clusters that the agent orchestrates. Optional.
	Fleet prometheus.Collector
	Log   hclog.Logger
}

// Server is the HTTP server of the agent.
type Server struct {
	o      Options
	within time.Duration // how long the source may take

	mu       sync.Mutex
	listener net.Listener // nil: not listening
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Server{o: o, within: answerTimeout}
}

// Listen binds the address, so that an unusable one is an error before the agent
// starts. Run or Close releases it. A second call, or a call with an empty address,
// does nothing.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Addr == "" || s.listener != nil {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.o.Addr)
	if err != nil {
		return listenError(s.o.Addr, err)
	}
	s.listener = l
	return nil
}

// listenError adds the remedy to the error of Listen.
func listenError(addr string, err error) error {
	remedy := "set addr in the http block to an address of this host"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = "stop what listens there, or set addr in the http block to a free one"
	case errors.Is(err, syscall.EACCES):
		remedy = "set addr in the http block to a port above 1023"
	}
	return fmt.Errorf(`status API on %s: %w; %s ("" switches it off)`, addr, cause(err), remedy)
}

// cause strips the address from an error of net: the message names it already.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Addr returns the listener's address with its actual port; empty if the server does
// not listen.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close releases the address of a server if Run is not called.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	l := s.listener
	s.listener = nil
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("status API on %s: close: %w", s.o.Addr, err)
	}
	return nil
}

// Run serves until ctx ends, then waits up to two seconds for running requests and
// returns nil; only a call of a stuck source can outlast it. It calls Listen if the
// server does not listen yet. It returns the errors of Listen and of a broken
// listener.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l == nil {
		<-ctx.Done()
		return nil
	}
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           Serving(s.handler(Loopback(l.Addr()))),
		ConnContext:       WithConnection,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(LimitConnections(l, maxConnections)) }()
	s.o.Log.Info("the status API listens", "address", l.Addr().String())
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("status API on %s: %w", l.Addr(), err), s.Close())
	case <-ctx.Done():
	}
	bound, done := context.WithTimeout(requests, shutdownTimeout)
	defer done()
	if err := server.Shutdown(bound); err != nil {
		cancel()
		if err := server.Close(); err != nil {
			s.o.Log.Debug("closing the status API's connections", "error", err)
		}
	}
	<-served
	return s.Close()
}

// LocalOnly refuses requests whose Host header names another host. A foreign web
// page, open in a browser on this host, can point its own name at 127.0.0.1 (DNS
// rebinding). The browser then treats the answers as same-origin, but it still
// sends the page's name.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localHost(r.Host) {
			http.Error(w, "jorc listens on a loopback address and answers to localhost and IP addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localHost reports whether the value of a Host header is localhost, a name below
// it, or an IP address. It accepts an empty value: HTTP/1.0 clients, which browsers
// are not, send none.
func localHost(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Loopback reports whether a is reachable only from this host.
func Loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Connections bounds how many connections are open. Above the limit the oldest
// connection that serves no request is closed, so that clients which hold idle
// connections, or never finish a request, do not lock others out.
type Connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open *list.List // of *connection, the oldest first
}

// connection is one client's.
type connection struct {
	net.Conn
	all     *Connections
	element *list.Element
	serving int // requests whose handler runs
}

// LimitConnections returns a listener with at most limit open connections, for a
// server whose handler is Serving and whose ConnContext is WithConnection.
func LimitConnections(l net.Listener, limit int) *Connections {
	return &Connections{Listener: l, limit: limit, open: list.New()}
}

// Accept implements net.Listener.
func (a *Connections) Accept() (net.Conn, error) {
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
func (a *Connections) excess() *connection {
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

// WithConnection implements http.Server.ConnContext.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// Serving marks a request's connection while the request is served.
func Serving(next http.Handler) http.Handler {
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
