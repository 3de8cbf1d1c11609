package consul

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// errCrowded: Consul ended a new connection unasked, because there are as many
// from this address as it takes.
var errCrowded = errors.New("it takes no more connections from this address (limits.http_max_conns_per_client): " +
	"close those of other programs, lower consul.max_connections, or raise that limit")

// counted keeps Client.open true to the number of connections.
func (c *Client) counted(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.open.Add(1)
		c.local.Store(sameHost(conn))
		return &countedConn{Conn: conn, closed: func() { c.open.Add(-1) }}, nil
	}
}

type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
	asked  atomic.Bool // a request was begun
}

// Read tells by errCrowded of an answer that came before any request, which
// net/http would only call unsolicited. With TLS Consul's words are not seen
// here, and such a connection counts as one that broke.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.asked.Load() && bytes.HasPrefix(b[:n], []byte("HTTP/1.1 429 ")) {
		return 0, errCrowded
	}
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}
