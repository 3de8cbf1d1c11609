package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// most is what a template of these tests may read.
const most = 1 << 20

func bounded(t *testing.T) *host {
	h := newHost(t, consultest.Start(t))
	h.edit = func(o *watch.Options) { o.Allow.MaxData = most }
	return h
}

// fill puts n keys of size bytes below prefix.
func (h *host) fill(prefix string, n, size int) {
	h.t.Helper()
	for i := range n {
		p := &consul.KVPair{Key: fmt.Sprintf("%s%03d", prefix, i), Value: bytes.Repeat([]byte{'x'}, size)}
		if err := h.server.Client().KVPut(h.t.Context(), p); err != nil {
			h.t.Fatal(err)
		}
	}
}

// wantHeld waits until a template is held as it reads too much, at the data named.
func (h *host) wantHeld(e *watch.Engine, name, data string) {
	h.t.Helper()
	consultest.Eventually(h.t, name+" to be held", func(context.Context) error {
		for _, s := range e.Status() {
			if s.Name != name {
				continue
			}
			want := fmt.Sprintf("the template reads more than template_options { max_data = %d } allows, with %s: let it read less, or raise the limit", most, data)
			if s.State != watch.StateHeld || len(s.Held) != 1 || s.Held[0] != want || !strings.Contains(s.Failure, "its file is held: ") {
				return fmt.Errorf("%+v; want held: %s", s, want)
			}
			return nil
		}
		return errors.New("no such template")
	})
}

// TestTooMuchBelowAPrefix: a list that has grown too large holds its file with that reason.
// Others that are read with it continue, and it continues when the list is small again.
func TestTooMuchBelowAPrefix(t *testing.T) {
	t.Parallel()
	h := bounded(t)
	h.fill("app/big/", 2, 10)
	h.put("app/one", "1")
	list := h.tmpl("list", `{{ range ls "app/big" }}{{ .Key }} {{ end }}`)
	both := h.tmpl("both", `{{ key "app/one" }} {{ range ls "app/small" }}{{ .Key }} {{ end }}`)
	e, _ := h.run(list, both)
	h.want("list", "000 001 ")
	h.want("both", "1 ")
	h.fill("app/big/", 12, 400_000)
	h.wantHeld(e, "list", "key prefix app/big")
	h.put("app/one", "2")
	h.put("app/small/a", "x")
	h.want("both", "2 a ")
	h.want("list", "000 001 ")
	if err := h.server.Client().KVDeleteTree(t.Context(), "app/big/00"); err != nil {
		t.Fatal(err)
	}
	h.want("list", "010 011 ")
}

// TestTooMuchTogether: no key is too large, all that one template reads are. What is
// beyond the bound is not kept, and read when there is room.
func TestTooMuchTogether(t *testing.T) {
	t.Parallel()
	h := bounded(t)
	h.fill("a/", 1, 400_000)
	h.fill("b/", 1, 400_000)
	h.fill("c/", 1, 100)
	all := h.tmpl("all", `{{ len (key "a/000") }} {{ len (key "b/000") }} {{ len (key "c/000") }}`)
	c := h.tmpl("c", `{{ len (key "c/000") }}`)
	e, _ := h.run(all, c)
	h.want("all", "400000 400000 100")
	h.fill("c/", 1, 500_000)
	h.want("c", "500000") // it is not too much for this template
	h.wantHeld(e, "all", "key c/000")
	h.fill("a/", 1, 50)
	h.want("all", "50 400000 500000")
}

// TestTooMuchNamedByData: the list of keys comes from Consul, too.
func TestTooMuchNamedByData(t *testing.T) {
	t.Parallel()
	h := bounded(t)
	h.fill("data/", 40, 100_000)
	for i := range 40 {
		h.put(fmt.Sprintf("index/%03d", i), "")
	}
	e, _ := h.run(h.tmpl("all", `{{ range ls "index" }}{{ key (printf "data/%s" .Key) }}{{ end }}`))
	consultest.Eventually(t, "the template to be held", func(context.Context) error {
		if s := e.Status()[0]; s.State != watch.StateHeld {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if _, err := os.Stat(h.path("all")); err == nil {
		t.Error("the file was written")
	}
	if err := h.server.Client().KVDeleteTree(t.Context(), "index/0"); err != nil {
		t.Fatal(err)
	}
	h.want("all", "")
}

// TestTooMuchOnce: a render that ends names the reason.
func TestTooMuchOnce(t *testing.T) {
	t.Parallel()
	h := bounded(t)
	h.fill("app/", 4, 400_000)
	err := h.once(h.tmpl("list", `{{ range ls "app" }}{{ .Key }} {{ end }}`))
	if err == nil || !strings.Contains(err.Error(), `template "list": the template reads more than template_options { max_data = 1048576 } allows, with key prefix app`) {
		t.Errorf("got %v", err)
	}
}

// TestTooMuchIsNotRead: an answer is cut off while it is read.
func TestTooMuchIsNotRead(t *testing.T) {
	t.Parallel()
	h := bounded(t)
	h.fill("app/", 60, 500_000)
	var read atomic.Int64
	client, err := consul.New(h.server.Config(), consul.WithDialer(func(dial consul.DialFunc) consul.DialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return countedConn{conn, &read}, err
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	h.client = client
	e, stop := h.run(h.tmpl("list", `{{ range ls "app" }}{{ .Key }} {{ end }}`))
	h.wantHeld(e, "list", "key prefix app")
	stop()
	// The list is asked for twice: with what it shares a query with, and alone.
	if got := read.Load(); got > 5*most {
		t.Errorf("%d bytes of 30 MB were read; want at most %d", got, 5*most)
	} else {
		t.Logf("%d bytes of 30 MB were read", got)
	}
}

type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}
