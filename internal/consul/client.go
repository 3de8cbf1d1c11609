// Package consul is jorc's one way to Consul: a client with a connection
// budget and classified errors, and the one blocking-query loop.
package consul

import (
	"context"
	"crypto/tls"
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
	transport *http.Transport
	tokens    *tokenSource
	budget    *budget
	gate      *gate
	texts     sync.Pool // *bytes.Buffer

	local       atomic.Bool  // the last connection stayed on this host
	open        atomic.Int64 // connections
	max         int
	lastAnswer  atomic.Int64 // unix nanoseconds
	unreachable atomic.Int64 // unix nanoseconds since when; 0 while Consul answers
	failures    atomic.Uint64
	silent      atomic.Bool // since the last answer a request waited in vain
}

// scope is where requests go that do not say so.
type scope struct{ Datacenter, Namespace, Partition string }

// New returns a client for c. It reads certificates and does no other I/O.
func New(c config.Consul, opts ...Option) (*Client, error) {
	limit := c.MaxConnections
	if limit == 0 {
		limit = 64
	}
	cl := &Client{
		max:    limit,
		scope:  scope{c.Datacenter, c.Namespace, c.Partition},
		tokens: &tokenSource{file: c.TokenFile, fixed: string(c.Token)},
		budget: newBudget(limit - max(4, limit/8)),
		gate:   newGate(),
	}
	address, scheme, dial := endpoint(c)
	for _, o := range opts {
		dial = o(dial)
	}
	tlsConfig, err := tlsConfig(c, scheme)
	if err != nil {
		return nil, err
	}
	cl.transport = &http.Transport{
		DialContext:         cl.counted(dial),
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxConnsPerHost:     limit,
		MaxIdleConnsPerHost: limit,
		IdleConnTimeout:     90 * time.Second,
	}
	cl.http = &http.Client{Transport: &authorized{next: cl.transport, tokens: cl.tokens, local: &cl.local}}
	cl.base = scheme + "://" + address
	cl.api, err = api.NewClient(&api.Config{
		Address:    address,
		Scheme:     scheme,
		Datacenter: c.Datacenter,
		Namespace:  c.Namespace,
		Partition:  c.Partition,
		HttpClient: cl.http,
		TokenFile:  os.DevNull, // else the API reads CONSUL_HTTP_TOKEN_FILE itself, once, and fails without it
	})
	if err != nil {
		return nil, fmt.Errorf("consul address %q: %w", c.Address, err)
	}
	return cl, nil
}

// CheckToken reports a token file that is missing, empty or not readable. It
// does no request.
func (c *Client) CheckToken() error {
	_, err := c.tokens.get()
	return err
}

// Close drops idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// endpoint splits c.Address into host, scheme and the way to dial it.
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

// tlsConfig is that of an HTTPS client; HTTP/2 stays off so that the number of
// connections bounds the number of requests.
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
