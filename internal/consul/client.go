// Package consul is the client of Consul for all of jorc: it limits its
// connections, classifies errors, and has the only loop of blocking queries.
package consul

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/jorc/jorc/internal/config"
)

// Client talks to the local Consul agent. It is safe for concurrent use.
type Client struct {
	api       *api.Client
	http      *http.Client
	base      string // scheme://host:port
	scope     scope
	transport *http.Transport // nil with WithTransport
	tokens    *secretSource
	auth      *secretSource // of HTTP basic authentication
	budget    *budget
	breaker   *breaker
	texts     sync.Pool // *bytes.Buffer

	local       atomic.Bool  // the last connection is within this host
	open        atomic.Int64 // number of connections
	max         int
	lastAnswer  atomic.Int64 // unix nanoseconds
	unreachable atomic.Int64 // unix nanoseconds of the first failure; 0 while Consul answers
	failures    atomic.Uint64
	timedOut    atomic.Bool // a request has timed out since the last answer
}

// scope holds the defaults of requests that do not name theirs.
type scope struct{ Datacenter, Namespace, Partition string }

// New returns a client for c. It reads certificates and does no other I/O.
func New(c config.Consul, opts ...Option) (*Client, error) {
	limit := c.MaxConnections
	if limit == 0 {
		limit = 64
	}
	cl := &Client{
		max:     limit,
		scope:   scope{c.Datacenter, c.Namespace, c.Partition},
		tokens:  &secretSource{what: "token", file: c.TokenFile, fixed: string(c.Token)},
		auth:    &secretSource{what: "auth", file: c.AuthFile, fixed: string(c.Auth)},
		budget:  newBudget(limit - max(4, limit/8)),
		breaker: newBreaker(),
	}
	address, scheme, dial := endpoint(c)
	way := connections{dial: dial}
	for _, option := range opts {
		option(&way)
	}
	tlsConfig, err := tlsConfig(c, scheme)
	if err != nil {
		return nil, err
	}
	if way.transport == nil {
		cl.transport = &http.Transport{
			DialContext:         cl.counted(way.dial),
			TLSClientConfig:     tlsConfig,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxConnsPerHost:     limit,
			MaxIdleConnsPerHost: limit,
			IdleConnTimeout:     90 * time.Second,
		}
		way.transport = cl.transport
	}
	cl.http = &http.Client{
		Transport:     &authorized{next: way.transport, tokens: cl.tokens, auth: cl.auth, local: &cl.local},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	cl.base = scheme + "://" + address
	cl.api, err = api.NewClient(&api.Config{
		Address:    address,
		Scheme:     scheme,
		Datacenter: c.Datacenter,
		Namespace:  c.Namespace,
		Partition:  c.Partition,
		HttpClient: cl.http,
		TokenFile:  os.DevNull, // otherwise the API reads CONSUL_HTTP_TOKEN_FILE, once, and fails if it does not exist
	})
	if err != nil {
		return nil, fmt.Errorf("consul address %q: %w", c.Address, err)
	}
	return cl, nil
}

// CheckToken returns an error if the file of the token, or of HTTP basic authentication,
// is missing, empty or not readable. It sends no request.
func (c *Client) CheckToken() error {
	_, err := c.tokens.get()
	_, autherr := c.auth.get()
	return errors.Join(err, autherr)
}

// Close closes idle connections.
func (c *Client) Close() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// endpoint splits c.Address into host and scheme, and returns how to dial it.
func endpoint(c config.Consul) (address, scheme string, dial DialFunc) {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	address, scheme = c.Address, "http"
	if address == "" {
		address = "127.0.0.1:8500"
	}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return "localhost", "http", func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	if i := strings.Index(address, "://"); i >= 0 {
		address, scheme = address[i+3:], address[:i]
	}
	return address, scheme, d.DialContext
}

// tlsConfig returns the configuration of an HTTPS client. HTTP/2 stays off so
// that the number of connections limits the number of requests.
func tlsConfig(c config.Consul, scheme string) (*tls.Config, error) {
	if scheme != "https" {
		return nil, nil
	}
	t, err := api.SetupTLSConfig(&api.TLSConfig{
		Address: c.TLSServerName, CAFile: c.CAFile, CAPath: c.CAPath,
		CertFile: c.ClientCert, KeyFile: c.ClientKey, InsecureSkipVerify: c.TLSSkipVerify,
	})
	if err != nil {
		return nil, fmt.Errorf("TLS to consul: %w", err)
	}
	return t, nil
}

// DialFunc opens a connection to address.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Option changes how a Client reaches Consul.
type Option func(*connections)

// connections are how a Client reaches Consul.
type connections struct {
	dial      DialFunc
	transport http.RoundTripper // nil: connections that dial opens
}

// WithDialer makes a client open its connections with the function that wrap
// returns, for example from another address of this host.
func WithDialer(wrap func(standard DialFunc) DialFunc) Option {
	return func(c *connections) { c.dial = wrap(c.dial) }
}

// WithTransport makes a client send its requests with t and open no connections itself:
// a model of Consul in the same process answers them.
func WithTransport(t http.RoundTripper) Option {
	return func(c *connections) { c.transport = t }
}

// secretSource holds the current token, or user and password: from a file that may be
// replaced at any time, or a fixed string.
type secretSource struct {
	what  string // for errors
	file  string
	fixed string

	mu     sync.Mutex
	secret string
	stamp  time.Time
	size   int64
}

// get returns the current secret. A file is read again when it has changed.
func (t *secretSource) get() (string, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.file)
	if err != nil {
		return "", fmt.Errorf("%s file: %w", t.what, err)
	}
	if t.secret != "" && info.ModTime().Equal(t.stamp) && info.Size() == t.size {
		return t.secret, nil
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return "", fmt.Errorf("%s file: %w", t.what, err)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%s file %s is empty", t.what, t.file)
	}
	t.secret, t.stamp, t.size = secret, info.ModTime(), info.Size()
	return secret, nil
}

// authorized adds the current token, and user and password, to every request. The client
// follows no redirect with them: Consul redirects only from the name of a key to that of
// another one ("a//b" to "a/b"), and a proxy may redirect to another host.
type authorized struct {
	next         http.RoundTripper
	tokens, auth *secretSource
	local        *atomic.Bool // see disableCompression
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.tokens.get()
	if err != nil {
		return nil, &Error{Op: "authorize", Class: ErrNoToken, Err: err}
	}
	auth, err := a.auth.get()
	if err != nil {
		return nil, &Error{Op: "authorize", Class: ErrNoToken, Err: err}
	}
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token")
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if auth != "" {
		user, password, _ := strings.Cut(auth, ":")
		r.SetBasicAuth(user, password)
	}
	if a.local.Load() {
		disableCompression(r)
	}
	resp, err := a.next.RoundTrip(r)
	for errors.Is(err, errSpare) && (r.Body == nil || r.GetBody != nil) { // net/http itself takes another connection only in place of one that was idle
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err = a.next.RoundTrip(r)
	}
	if err != nil {
		return nil, err
	}
	return bounded(resp), nil
}

// errTooManyConnections: Consul closed a new connection because it has the
// maximum number of connections from this address.
var errTooManyConnections = errors.New("too many connections from this address (limits.http_max_conns_per_client): " +
	"close connections of other programs, lower consul.max_connections, or raise that limit")

// counted wraps dial so that Client.open counts the connections.
func (c *Client) counted(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.open.Add(1)
		c.local.Store(sameHost(conn))
		return &countedConn{Conn: conn, closed: func() { c.open.Add(-1) }, since: time.Now()}, nil
	}
}

// spareLife is how old a connection may be when its first request is written. net/http may
// open one that no request needs in the end, and keeps it for a later one. Consul closes a
// connection on which it has received no request for ten seconds
// (http_config.read_header_timeout), and what became of a write that is sent at that moment
// would be unknown.
const spareLife = 5 * time.Second

// errSpare: nothing was written, so the request is sent on another connection.
var errSpare = errors.New("the connection was open for too long without a request")

type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
	since  time.Time
	asked  atomic.Bool // a request was written, or with TLS the handshake
}

// Read returns errTooManyConnections for a 429 that arrives before any request,
// which net/http would only call unsolicited. With TLS the text is encrypted
// here, and such a connection counts as broken. When an old connection ends before any
// request, Read returns errSpare.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.asked.Load() && bytes.HasPrefix(b[:n], []byte("HTTP/1.1 429 ")) {
		return 0, errTooManyConnections
	}
	if err != nil && c.spare() {
		return n, errSpare
	}
	return n, err
}

// Write refuses the first request on an old connection with errSpare, and all that follows.
func (c *countedConn) Write(b []byte) (int, error) {
	if c.spare() {
		return 0, errSpare
	}
	c.asked.Store(true)
	return c.Conn.Write(b)
}

// spare reports whether c is old and without a request.
func (c *countedConn) spare() bool { return !c.asked.Load() && time.Since(c.since) > spareLife }

func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// disableCompression makes Consul send its answer uncompressed. Within a host
// compression costs time: it doubles that of a small answer, and takes longer
// than writing a large one.
func disableCompression(r *http.Request) { r.Header.Set("Accept-Encoding", "identity") }

// sameHost reports whether both ends of conn are on this host.
func sameHost(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return conn.LocalAddr().Network() == "unix"
	}
	far, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && (far.IP.IsLoopback() || far.IP.Equal(near.IP))
}

// Stats counts the client's connections, watches and failures.
type Stats struct {
	Connections    int       // open now
	MaxConnections int       // the budget
	Places         int       // of the budget: how many queries may block concurrently
	Watches        int       // blocking-query loops now running
	LastAnswer     time.Time // zero: none yet
	// UnreachableSince is zero while Consul answers.
	UnreachableSince time.Time
	Failures         uint64 // requests without an answer
}

// Stats returns the current figures.
func (c *Client) Stats() Stats {
	return Stats{
		Connections: int(c.open.Load()), MaxConnections: c.max, Places: cap(c.budget.places), Watches: c.budget.watches(),
		LastAnswer: timeOf(c.lastAnswer.Load()), UnreachableSince: timeOf(c.unreachable.Load()),
		Failures: c.failures.Load(),
	}
}

// record updates the statistics and the breaker with the result of a request. A
// refusal counts as an answer. An HTTP error of one request, for example on an
// unreachable datacenter, does not count as an outage; nor does a request that took too long
// while Consul answered others: it is slow.
func (c *Client) record(err error) {
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOutcomeUnknown) {
		c.failures.Add(1)
		if !outage(err) {
			c.breaker.reset()
			return
		}
		if timedOut(err) && time.Since(timeOf(c.lastAnswer.Load())) < requestTimeout {
			return
		}
		c.unreachable.CompareAndSwap(0, time.Now().UnixNano())
		c.breaker.trip()
		if timedOut(err) {
			c.timedOut.Store(true)
		}
		return
	}
	var known *Error
	if err != nil && !errors.As(err, &known) {
		return // the caller's context ended: Consul's state is unknown
	}
	c.lastAnswer.Store(time.Now().UnixNano())
	c.unreachable.Store(0)
	if c.timedOut.Swap(false) {
		c.budget.interrupt() // their connections may be dead without a reset
	}
	c.breaker.reset()
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
