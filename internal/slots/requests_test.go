package slots_test

import (
	"fmt"
	"testing"
)

// TestRequests counts what a claim costs: without others, and for each of many
// that pass a slot on.
func TestRequests(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	p := srv.Proxy()
	s := steady(t, p.Client())
	mustRelease(t, mustAcquire(t, s, "g", 1, holder("sets the number")))
	cost := func(f func()) (requests, writes int) {
		t.Helper()
		before := []int{p.Asked("/v1/"), p.Asked("/v1/session/") + p.Asked("/v1/txn")}
		f()
		return p.Asked("/v1/") - before[0], p.Asked("/v1/session/") + p.Asked("/v1/txn") - before[1]
	}
	requests, writes := cost(func() { mustRelease(t, mustAcquire(t, s, "g", 1, holder("alone"))) })
	if requests > 8 || writes != 3 { // with the watch of its own key
		t.Errorf("a claim that does not wait: %d requests, %d writes; want at most 8 and 3", requests, writes)
	}
	const waiters = 30
	first := mustAcquire(t, s, "g", 1, holder("first"))
	var waits []<-chan got
	for i := range waiters {
		waits = append(waits, waiting(t, t.Context(), steady(t, p.Client()), "g", holder(fmt.Sprint(i))))
	}
	requests, writes = cost(func() {
		mustRelease(t, first)
		for _, w := range waits {
			mustRelease(t, mustGet(t, w))
		}
	})
	// Each hand-over: the session's end, the note of the next holder, and its watch
	// of its own key again; the next but one reads the group and watches it. On a busy
	// machine watches come to the end of their waits meanwhile, and are asked again.
	if requests > 6*waiters || writes > 2*waiters+2 {
		t.Errorf("%d hand-overs: %d requests, %d writes", waiters, requests, writes)
	}
	t.Logf("%d hand-overs: %d requests, %d writes", waiters, requests, writes)
}
