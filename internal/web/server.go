// Package web shows the agent's status: a status API, health checks, Prometheus
// metrics, and a page for people. It is read-only and has its own structs. On a loopback address it can have
// the FleetLock protocol beside it, which another package answers.
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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/metrics"
)

// writeTimeout is longer than answerTimeout, and than FleetLock requests are held.
const writeTimeout = 30 * time.Second

// Options are what a Server needs.
type Options struct {
	Addr    string // host:port; port 0 takes a free one; empty switches the server off
	Source  Source
	Metrics *Metrics // optional; outlives the server
	// Fleet collects metrics of the clusters that the agent orchestrates. Optional.
	Fleet metrics.Collector
	// GCPercent is by how much the heap may grow until it is collected; 0: as the
	// environment says.
	GCPercent int
	// FleetLock answers below /fleetlock/, on a loopback address only. Its requests may take 20 s. Optional.
	FleetLock http.Handler
	Log       hclog.Logger
}

// Server is the HTTP server of the agent.
type Server struct {
	o        Options
	within   time.Duration // how long the source may take
	listener *Listener
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Server{o: o, within: answerTimeout, listener: NewListener("status API", o.Addr, o.Log)}
}

// Listen binds the address, so that an unusable one is an error before the agent
// starts. Run or Close releases it. A second call, or a call with an empty address,
// does nothing.
func (s *Server) Listen(ctx context.Context) error {
	if s.o.Addr == "" {
		return nil
	}
	if err := s.listener.Listen(ctx); err != nil {
		return listenError(s.o.Addr, err)
	}
	return nil
}

// listenError adds the remedy to the error of Listen.
func listenError(addr string, err error) error {
	remedy := "set address in the http block to an address of this host"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = "stop what listens there, or set address in the http block to a free one"
	case errors.Is(err, syscall.EACCES):
		remedy = "set address in the http block to a port above 1023"
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
func (s *Server) Addr() string { return s.listener.Addr() }

// Close releases the address of a server if Run is not called.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends, then waits up to two seconds for running requests and
// returns nil; only a call of a stuck source can outlast it. It calls Listen if the
// server does not listen yet. It returns the errors of Listen and of a broken
// listener.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	if s.o.Addr == "" {
		<-ctx.Done()
		return nil
	}
	s.o.Log.Info("the status API listens", "address", s.Addr())
	return s.listener.Serve(ctx, &http.Server{Handler: s.handler(s.listener.Local()), WriteTimeout: writeTimeout})
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
