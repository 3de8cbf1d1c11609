package consultest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// Fault is what a Proxy does to one request; the zero value is nothing.
type Fault struct {
	Status int           // above zero: answer with this status instead of asking Consul
	Text   string        // of that answer
	Cut    int           // above zero: end the connection after so many bytes of the answer
	Hang   bool          // do not answer until the client gives up
	Slow   time.Duration // how much later than otherwise the answer comes
	Late   func()        // not nil: called when Consul has answered, before the client gets anything of the answer
}

// Proxy stands between a client and a server that serves plain HTTP, and does
// to requests what networks and overloaded servers do.
type Proxy struct {
	Addr string // "127.0.0.1:port"

	server *Server
	front  *httptest.Server
	mu     sync.Mutex
	faults func(*http.Request) Fault
	asked  map[string]int
	open   map[string]int // blocking queries that Consul has not answered, by path
	most   map[string]int // of open
}

// Proxy starts a proxy in front of s.
func (s *Server) Proxy() *Proxy {
	s.t.Helper()
	p := &Proxy{server: s, asked: map[string]int{}, open: map[string]int{}, most: map[string]int{}}
	target := &url.URL{Scheme: "http", Host: s.HTTPAddr}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if answered, ok := r.Request.Context().Value(answeredKey{}).(func()); ok {
				answered()
			}
			if late, ok := r.Request.Context().Value(lateKey{}).(func()); ok {
				late()
			}
			return cutAnswer(r)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
		Transport:    &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
	}
	p.front = httptest.NewServer(WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, forward)
	})))
	s.t.Cleanup(p.front.CloseClientConnections)
	p.Addr = strings.TrimPrefix(p.front.URL, "http://")
	return p
}

// WholeBody reads the body of each request before next gets it. A httputil.ReverseProxy needs that:
// it looks for the end of the body when the server has already answered, but the body is closed
// once its own answer begins, and then it cuts that answer.
func WholeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}

// Do makes the proxy do to each request what faults says; nil: nothing.
func (p *Proxy) Do(faults func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = faults
}

// Away ends all connections, and answers as a Consul without a leader until Do says otherwise.
func (p *Proxy) Away() {
	p.Do(func(*http.Request) Fault {
		return Fault{Status: http.StatusInternalServerError, Text: "No cluster leader"}
	})
	p.front.CloseClientConnections()
}

// LoseWrites returns faults that lose every third write: of these the first before
// Consul has it, the second when Consul has carried it out, and so on.
func LoseWrites() func(*http.Request) Fault {
	writes := 0
	return func(r *http.Request) Fault {
		if r.Method != http.MethodPut {
			return Fault{}
		}
		writes++
		switch writes % 6 {
		case 2:
			return Fault{Status: http.StatusInternalServerError}
		case 5:
			return Fault{Cut: 1}
		}
		return Fault{}
	}
}

// Asked is how many requests have come whose path begins with prefix.
func (p *Proxy) Asked(prefix string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for path, times := range p.asked {
		if strings.HasPrefix(path, prefix) {
			n += times
		}
	}
	return n
}

// MostBlocking returns how many blocking queries for each path were open at the same time,
// at most, since the last call.
func (p *Proxy) MostBlocking() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.most
	p.most = maps.Clone(p.open)
	return most
}

// WaitBlocking waits until a blocking query for path is open.
func (p *Proxy) WaitBlocking(path string) {
	p.server.t.Helper()
	Eventually(p.server.t, "a blocking query for "+path, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open[path] == 0 {
			return fmt.Errorf("open are %v", p.open)
		}
		return nil
	})
}

type (
	answeredKey struct{}
	lateKey     struct{}
)

// blocking counts a blocking query as open until answered is called.
func (p *Proxy) blocking(path string) (answered func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[path]++
	p.most[path] = max(p.most[path], p.open[path])
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open[path]--
	})
}

// Client returns a client that asks the proxy, with the root token.
func (p *Proxy) Client() *consul.Client {
	p.server.t.Helper()
	return p.server.clientOf(p.Config())
}

// Config is that of a client which goes through the proxy.
func (p *Proxy) Config() config.Consul {
	c := p.server.Config()
	c.Address = p.Addr
	return c
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	var f Fault
	if p.faults != nil {
		f = p.faults(r)
	}
	p.mu.Unlock()
	if f.Slow > 0 {
		select {
		case <-time.After(f.Slow):
		case <-r.Context().Done(): // a Consul would continue, but nothing reads what it answers
			panic(http.ErrAbortHandler)
		}
	}
	switch {
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Status > 0:
		http.Error(w, cmp.Or(f.Text, "a fault of the test"), f.Status)
	default:
		if f.Cut > 0 {
			r.Header.Set(cutHeader, strings.Repeat("x", f.Cut))
		}
		if r.URL.Query().Has("index") {
			answered := p.blocking(r.URL.Path)
			defer answered()
			r = r.WithContext(context.WithValue(r.Context(), answeredKey{}, answered))
		}
		if f.Late != nil {
			r = r.WithContext(context.WithValue(r.Context(), lateKey{}, f.Late))
		}
		forward.ServeHTTP(w, r)
	}
}

// cutHeader carries the length of an answer that is to be cut.
const cutHeader = "X-Test-Cut"

func cutAnswer(r *http.Response) error {
	if n := len(r.Request.Header.Get(cutHeader)); n > 0 {
		r.Body = &cutBody{ReadCloser: r.Body, left: n}
	}
	return nil
}

type cutBody struct {
	io.ReadCloser
	left int
}

var errCut = errors.New("cut by the test")

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errCut
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Writes returns what a request writes into Consul's KV, by key, and leaves its body to be read.
func Writes(r *http.Request) map[string]string {
	if r.Method != http.MethodPut {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	if key, one := strings.CutPrefix(r.URL.Path, "/v1/kv/"); one {
		return map[string]string{key: string(body)}
	}
	var ops []struct {
		KV struct {
			Verb, Key string
			Value     []byte
		}
	}
	if r.URL.Path != "/v1/txn" || json.Unmarshal(body, &ops) != nil {
		return nil
	}
	all := map[string]string{}
	for _, op := range ops {
		switch op.KV.Verb {
		case "set", "cas":
			all[op.KV.Key] = string(op.KV.Value)
		}
	}
	return all
}
