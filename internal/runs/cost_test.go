package runs

import (
	"context"
	"testing"
)

// TestCost: a node creates its queue once, and a run costs it two writes,
// however many tasks it has.
func TestCost(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	x.orchestrate("o", quickDecider())
	proxy := x.server.Proxy()
	w := x.worker(proxy.Client(), "a", sh("one", ""), sh("two", ""), sh("three", ""))
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	for i, id := range []string{"r1", "r2"} {
		x.ask(id, Request{})
		x.becomes(id, "done: a=done")
		if got, most := proxy.Asked("/v1/txn"), 1+2*(i+1); got > most {
			t.Errorf("%d writes after %d runs, want at most %d", got, i+1, most)
		}
	}
}
