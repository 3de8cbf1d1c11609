package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/web"
)

// working is an agent without troubles.
type working struct{}

func (working) Status() web.Status { return web.Status{} }

// crowded is a server that many connect to.
type crowded struct {
	t    *testing.T
	addr string
}

func newCrowded(t *testing.T) *crowded {
	t.Helper()
	s := web.New(web.Options{Addr: "127.0.0.1:0", Source: working{}, Log: hclog.NewNullLogger()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return &crowded{t, s.Addr()}
}

// connect opens a connection, which stays open until the test ends, and sends text.
func (c *crowded) connect(text string) net.Conn {
	c.t.Helper()
	conn, err := new(net.Dialer).DialContext(c.t.Context(), "tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if _, err := io.WriteString(conn, text); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

const healthRequest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// ask gets /healthz on a connection of its own, which stays open.
func (c *crowded) ask() net.Conn {
	c.t.Helper()
	conn := c.connect(healthRequest)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(body) != "ok\n" {
		c.t.Fatalf("healthz: %d, %q, %v; want 200, ok", answer.StatusCode, body, err)
	}
	return conn
}

// closed counts the connections that the server has closed.
func (c *crowded) closed(all []net.Conn) (n int) {
	c.t.Helper()
	for _, conn := range all {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			c.t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// TestHealthInCrowd: clients with idle connections and with requests that they
// never finish do not keep /healthz from answering, and are not closed for it;
// however many there are, /healthz answers.
func TestHealthInCrowd(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	var idle []net.Conn
	for range 256 {
		idle = append(idle, c.ask())
	}
	for range 400 {
		c.connect("GET /healthz HTTP/1.1\r\nHost: local")
	}
	c.ask()
	if n := c.closed(idle); n > 0 {
		t.Errorf("%d of 256 idle connections were closed before /healthz answered", n)
	}
	for range 800 {
		c.connect("")
	}
	for range 10 {
		c.ask()
	}
}
