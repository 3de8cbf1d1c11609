package kv_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// cutter stands between a client and a real Consul and cuts the connection
// around writes.
type cutter struct {
	store *kv.Store
	// before cuts that many writes before Consul receives them, after the ones which
	// Consul has carried out; between is called then.
	before, after atomic.Int64
	between       func()
	renewals      atomic.Int64 // seen so far
	blocking      atomic.Int64 // reads that block, seen so far
}

func newCutter(t *testing.T, srv *consultest.Server) *cutter {
	t.Helper()
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: srv.HTTPAddr})
	forward.ErrorLog = log.New(io.Discard, "", 0)
	c := &cutter{between: func() {}}
	front := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
			c.renewals.Add(1)
		}
		if r.URL.Query().Has("index") {
			c.blocking.Add(1)
		}
		write := r.Method == http.MethodPut
		if write && c.before.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		if write && c.after.Add(-1) >= 0 {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			c.between()
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	})))
	t.Cleanup(front.Close)
	client, err := consul.New(config.Consul{Address: strings.TrimPrefix(front.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c.store = kv.New(client, "jorc/default")
	return c
}
