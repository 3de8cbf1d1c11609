package runs

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestCost: a run costs a node two writes, however many tasks it has; it reads once what it said before, and of each run what is
// asked for, and what it is granted before each task after the first.
func TestCost(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	proxy := x.server.Proxy()
	var reads atomic.Int32
	proxy.Do(func(r *http.Request) (none consultest.Fault) {
		if r.Method == http.MethodGet && !r.URL.Query().Has("index") {
			reads.Add(1)
		}
		return none
	})
	w := x.worker(proxy.Client(), "a", sh("one", ""), sh("two", ""), sh("three", ""))
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	for i, id := range []string{"r1", "r2"} {
		x.ask(id, Request{})
		x.becomes(id, "done: a=done")
		if got, most := proxy.Asked("/v1/txn"), 2*(i+1); got > most {
			t.Errorf("%d writes after %d runs, want at most %d", got, i+1, most)
		}
		if got, most := int(reads.Load()), 2+(1+2)*(i+1); got > most { // the first one is that of the watch
			t.Errorf("%d reads after %d runs, want at most %d", got, i+1, most)
		}
	}
}
