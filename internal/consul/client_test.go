package consul_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c, ctx := s.Client(), t.Context()

	if p, m, err := c.KVGet(ctx, "absent", consul.Query{}); p != nil || err != nil || m.Index == 0 {
		t.Errorf("KVGet of an absent key = %v, %+v, %v; want nil, an index, nil", p, m, err)
	}
	pair := &consul.KVPair{Key: "a/b", Value: []byte("1")}
	if ok, err := c.KVCAS(ctx, pair); !ok || err != nil {
		t.Fatalf("KVCAS on an absent key = %v, %v; want true, nil", ok, err)
	}
	if ok, err := c.KVCAS(ctx, pair); ok || err != nil {
		t.Errorf("KVCAS with index 0 on a key that exists = %v, %v; want false, nil", ok, err)
	}
	p, m, err := c.KVGet(ctx, "a/b", consul.Query{})
	if err != nil || string(p.Value) != "1" || m.Index != p.ModifyIndex {
		t.Errorf("KVGet = %+v, %+v, %v", p, m, err)
	}
	if err := c.DeregisterService(ctx, "nobody"); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("DeregisterService of an unknown id = %v; want ErrNotFound", err)
	}
	if err := c.UpdateTTL(ctx, "nothing", "", consul.HealthPassing); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("UpdateTTL of an unknown check = %v; want ErrNotFound", err)
	}
	if err := c.KVPut(ctx, &consul.KVPair{Key: "big", Value: make([]byte, 513<<10)}); !errors.Is(err, consul.ErrTooLarge) {
		t.Errorf("KVPut of 513 KiB = %v; want ErrTooLarge", err)
	}
}

func TestServiceNamesWithOddCharacters(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c, ctx := s.Client(), t.Context()
	for _, name := range []string{"a b", "100%", "a/b", "ü", "a?b=c", "a#b"} {
		if err := c.RegisterService(ctx, &consul.ServiceRegistration{ID: name, Name: name, Port: 1}); err != nil {
			t.Errorf("RegisterService(%q) = %v", name, err)
			continue
		}
		consultest.Eventually(t, name+" in the catalog", func(ctx context.Context) error {
			got, _, err := c.HealthService(ctx, name, "", true, consul.Query{})
			if err == nil && (len(got) != 1 || got[0].Service.Service != name) {
				err = errors.New("not there yet")
			}
			return err
		})
		if err := c.DeregisterService(ctx, name); err != nil {
			t.Errorf("DeregisterService(%q) = %v", name, err)
		}
	}
}

// TestWithoutACLs: a server that has no ACLs, as one that was restarted and has not read its log yet, knows no token. That says nothing
// about the token: a watch keeps what is known, as in an outage.
func TestWithoutACLs(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithConfig(map[string]any{"acl": map[string]any{"enabled": true}}))
	c := s.ClientWithToken("12345678-0000-0000-0000-000000000000")
	_, _, read := c.KVGet(t.Context(), "k", consul.Query{})
	for op, err := range map[string]error{"read": read, "write": c.KVPut(t.Context(), &consul.KVPair{Key: "k"})} {
		if !errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrDenied) || !consul.IsTransient(err) || !strings.Contains(err.Error(), "ACL system must be bootstrapped") {
			t.Errorf("%s before ACLs are bootstrapped: %v; want ErrUnreachable, and transient", op, err)
		}
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	ctx := t.Context()
	nobody := s.ClientWithToken("")
	stranger := s.ClientWithToken("12345678-0000-0000-0000-000000000000")
	if _, _, err := nobody.KVGet(ctx, "k", consul.Query{}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("anonymous KVGet = %v; want ErrDenied", err)
	}
	if _, _, err := stranger.KVGet(ctx, "k", consul.Query{}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("KVGet with an unknown token = %v; want ErrDenied", err)
	}
	rights := []consul.Right{{Resource: "key", Access: "read", Segment: "k"}, {Resource: "acl", Access: "write"}}
	reader := s.ClientWithToken(s.NewToken(`key_prefix "" { policy = "read" }`))
	got, err := reader.Authorize(ctx, rights...)
	if err != nil || len(got) != 2 || !got[0] || got[1] {
		t.Errorf("Authorize of a reader = %v, %v; want [true false]", got, err)
	}
	if err := reader.KVPut(ctx, &consul.KVPair{Key: "k"}); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("KVPut of a reader = %v; want ErrDenied", err)
	}

	c := s.Client()
	s.Kill()
	_, _, err = c.KVGet(ctx, "k", consul.Query{})
	if !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("KVGet of a dead server = %v; want ErrUnreachable", err)
	}
	if strings.Contains(err.Error(), s.RootToken) {
		t.Errorf("the error %q contains the token", err)
	}
	if err := c.KVPut(ctx, &consul.KVPair{Key: "k"}); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("KVPut to a dead server = %v; want ErrUnreachable: it was never sent", err)
	}
	if c.Stats().UnreachableSince.IsZero() {
		t.Error("Stats().UnreachableSince is zero; want a time")
	}
}

func TestOutcomeUnknownWhenTheAnswerNeverComes(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	s.Freeze()
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := c.KVCAS(ctx, &consul.KVPair{Key: "k", Value: []byte("v")})
		errs <- err
	}()
	consultest.Eventually(t, "an open connection", func(context.Context) error {
		if c.Stats().Connections == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	cancel()
	if err := <-errs; !errors.Is(err, consul.ErrOutcomeUnknown) {
		t.Errorf("KVCAS whose answer never came = %v; want ErrOutcomeUnknown", err)
	}
	s.Thaw()
}

func TestAuthorizeWithoutACLs(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	got, err := c.Authorize(t.Context(), consul.Right{Resource: "key", Access: "write", Segment: "k"})
	if err != nil || len(got) != 1 || !got[0] {
		t.Errorf("Authorize without ACLs = %v, %v; want [true]", got, err)
	}
}

// TestAuthorizeOnABrokenConnection: the question for rights is sent again when the connection, which
// was kept open, ends before the answer; on a new connection it is an error.
func TestAuthorizeOnABrokenConnection(t *testing.T) {
	t.Parallel()
	const path = "/v1/internal/acl/authorize"
	p := consultest.Start(t, consultest.WithACL()).Proxy()
	c := p.Client()
	right := consul.Right{Resource: "key", Access: "read", Segment: "k"}
	if allowed, err := c.Authorize(t.Context(), right); err != nil || !allowed[0] {
		t.Fatal(allowed, err)
	}
	breaks := 1
	p.Do(func(*http.Request) (f consultest.Fault) {
		if breaks > 0 {
			breaks--
			f.Cut = 1
		}
		return f
	})
	allowed, err := c.Authorize(t.Context(), right)
	if err != nil || !allowed[0] || p.Asked(path) != 3 {
		t.Errorf("after one broken connection: %v, %v with %d requests; want true with 3", allowed, err, p.Asked(path))
	}
	p.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Cut: 1} })
	c.Close()
	if _, err := c.Authorize(t.Context(), right); !errors.Is(err, consul.ErrUnreachable) || p.Asked(path) != 4 {
		t.Errorf("on a new connection that breaks: %v with %d requests; want ErrUnreachable with 4", err, p.Asked(path))
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithTLS())
	if leader, err := s.Client().Leader(t.Context()); leader == "" || err != nil {
		t.Errorf("Leader over TLS = %q, %v", leader, err)
	}
	c, err := consul.New(config.Consul{Address: s.HTTPAddr})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Leader(t.Context()); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("Leader without the authority's certificate = %v; want ErrUnreachable", err)
	}
}

// TestWithDialer: the caller's function opens all connections, and they are
// counted.
func TestWithDialer(t *testing.T) {
	t.Parallel()
	var from atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from.Store(r.RemoteAddr)
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 8, 7)}}
	c, err := consul.New(config.Consul{Address: server.URL}, consul.WithDialer(func(consul.DialFunc) consul.DialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Datacenters(t.Context()); err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(from.Load().(string))
	if err != nil || host != "127.9.8.7" || c.Stats().Connections != 1 {
		t.Errorf("the server saw %v, %d connections are open; want one from 127.9.8.7", from.Load(), c.Stats().Connections)
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	c := s.ClientWithToken("") // needs no rights
	before := time.Now().Truncate(time.Second)
	got, err := c.Date(t.Context())
	if after := time.Now(); err != nil || got.Before(before) || got.After(after) {
		t.Errorf("got %v, %v; want %v to %v", got, err, before, after)
	}
}

// TestTokenFileOfTheEnvironment: the client reads the token file itself, which
// may appear later; the API must not read it.
func TestTokenFileOfTheEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", "/no/such/file")
	c, err := consul.New(config.Consul{Address: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestBasicAuthentication: a proxy before Consul gets user and password beside the token,
// and new ones as soon as the file has them.
func TestBasicAuthentication(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	target, err := url.Parse("http://" + s.HTTPAddr)
	if err != nil {
		t.Fatal(err)
	}
	var password atomic.Value
	password.Store("fir:st")
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, given, _ := r.BasicAuth(); user != "joe" || given != password.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	file := filepath.Join(t.TempDir(), "auth")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("joe:fir:st\n")
	for name, c := range map[string]config.Consul{"file": {AuthFile: file}, "fixed": {Auth: "joe:fir:st"}} {
		c.Address, c.Token = proxy.URL, config.Secret(s.RootToken)
		client, err := consul.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		if err := client.KVPut(t.Context(), &consul.KVPair{Key: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "file" {
			continue
		}
		password.Store("second")
		if err := client.KVPut(t.Context(), &consul.KVPair{Key: name}); err == nil || strings.Contains(err.Error(), "fir:st") {
			t.Errorf("the old password: error = %v, want one without it", err)
		}
		write("joe:second")
		if err := client.KVPut(t.Context(), &consul.KVPair{Key: name}); err != nil {
			t.Errorf("the new password: %v", err)
		}
		write("")
		if err := client.CheckToken(); err == nil || !strings.Contains(err.Error(), "auth file "+file+" is empty") {
			t.Errorf("an empty file: %v", err)
		}
		password.Store("fir:st")
	}
}

// TestTooManyConnections: Consul closes surplus connections from one address
// before their first request; the error names the limit.
func TestTooManyConnections(t *testing.T) {
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
	for range 50 { // Consul's refusal arrives before the request or just after
		c, err := consul.New(s.Config(), consul.WithDialer(turnedAway))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		_, _, read := c.KVGet(t.Context(), "k", consul.Query{})
		write := c.KVPut(t.Context(), &consul.KVPair{Key: "k", Value: []byte("v")})
		for name, err := range map[string]error{"a read": read, "a write": write} {
			said := err != nil && (strings.Contains(err.Error(), "http_max_conns_per_client") || strings.Contains(err.Error(), "too many concurrent connections"))
			if !errors.Is(err, consul.ErrRateLimited) || !said {
				t.Fatalf("%s: error %v", name, err)
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

// turnedAway opens connections, waits for their first byte, and discards what is
// written to them: Consul would answer a write with a reset.
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
