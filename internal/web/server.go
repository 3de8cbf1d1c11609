// Package web shows how the agent stands: a status API, health, Prometheus
// metrics, and a page for people. It only reads, on view structs of its own.
//
//	GET /v1/status      JSON, see Status
//	GET /healthz        200 while jorc itself works, whatever Consul does; 503 with the reason when a loop of
//	                    its own has stopped or is stuck
//	GET /healthz?ready  200 when the services are registered, the files rendered and, on an orchestrator,
//	                    cycles finished as well; 503 with the reasons, one a line
//	GET /metrics        Prometheus
//	GET /               a page for people
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds of what a client can cost.
const (
	maxConnections    = 1024
	maxHeaderBytes    = 16 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second // longer than answerTimeout
	idleTimeout       = 2 * time.Minute  // longer than the usual intervals between scrapes
	shutdownTimeout   = 2 * time.Second
)

// Options are what a Server is made of.
type Options struct {
	Addr    string // host:port; port 0 takes a free one; empty switches the server off
	Source  Source
	Metrics *Metrics // optional; outlives the server
	Log     hclog.Logger
}

// Server is the HTTP server of the agent.
type Server struct {
	o      Options
	within time.Duration // how long the source may take

	mu       sync.Mutex
	listener net.Listener // nil: none yet
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Server{o: o, within: answerTimeout}
}

// Listen takes the address, so that one that cannot be had is an error before
// anything has started. Run or Close gives it back. Listening twice, or with
// an empty address, does nothing.
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

// listenError adds what to do.
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

// cause leaves out what net says of the address, which stands in the message.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Addr returns the address that is listened on, with its real port; empty when
// there is none.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close gives back the address of a server that Run was not called for.
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

// Run serves until ctx ends, then lets requests under way end for at most two
// seconds and returns nil; only a source that does not answer can outlast it.
// It listens if Listen was not called. Errors are those of Listen, and a
// listener that broke.
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
		Handler:           serving(s.handler(loopback(l.Addr()))),
		ConnContext:       withConnection,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(newConnections(l, maxConnections)) }()
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
