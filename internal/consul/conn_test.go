package consul_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestCrowded: Consul turns connections away that are too many from one
// address, before they ask for anything; that is said.
func TestCrowded(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	held := make([]net.Conn, 200) // Consul's default, limits.http_max_conns_per_client
	for i := range held {
		conn, err := net.Dial("tcp", s.HTTPAddr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		held[i] = conn
	}
	for range 50 { // Consul's word comes before the request, or just after
		c, err := consul.New(s.Config(), consul.Dialing(turnedAway))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		_, _, read := c.KVGet(t.Context(), "k", consul.Query{})
		write := c.KVPut(t.Context(), &consul.KVPair{Key: "k", Value: []byte("v")})
		for name, err := range map[string]error{"a read": read, "a write": write} {
			said := err != nil && (strings.Contains(err.Error(), "http_max_conns_per_client") || strings.Contains(err.Error(), "too many concurrent connections"))
			if !errors.Is(err, consul.ErrRateLimited) || !said {
				t.Fatalf("%s says %v", name, err)
			}
		}
	}
	for _, conn := range held {
		conn.Close()
	}
	c := s.Client()
	consultest.Eventually(t, "Consul to take connections again", func(ctx context.Context) error {
		_, _, err := c.KVGet(ctx, "k", consul.Query{})
		return err
	})
}

// turnedAway opens connections whose first byte has come, and that never reach
// a Consul that ended them: it would answer with a reset.
func turnedAway(dial consul.DialFunc) consul.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(conn)
		_, err = r.Peek(1)
		return &ended{conn, r}, err
	}
}

type ended struct {
	net.Conn
	r *bufio.Reader
}

func (e *ended) Read(b []byte) (int, error) { return e.r.Read(b) }

func (e *ended) Write(b []byte) (int, error) { return len(b), nil }
