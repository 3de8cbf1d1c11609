package blocker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// Without changes DNS is queried at most once a second.
func TestIdleWaitAsksOnceASecond(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	proxy := newDNSProxy(t, h.DNSAddr)
	begin := time.Now()
	err := blockerOf(t, h.client, proxy.addr).Wait(t.Context(), []blocker.Need{need(t, "web", catalog.Functional)},
		blocker.Options{Timeout: 3500 * time.Millisecond}, nil)
	if !errors.Is(err, blocker.ErrTimedOut) {
		t.Fatal(err)
	}
	if got, most := proxy.count.Load(), int64(time.Since(begin)/time.Second)+1; got > most || got < 2 {
		t.Errorf("%d questions, want 2 to %d", got, most)
	}
}

// Changes of the catalog that do not concern the target cause no DNS queries.
func TestOtherChangesAskNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, consul.HealthPassing)
	proxy := newDNSProxy(t, h.DNSAddr)
	begin := time.Now()
	w := start(t, blockerOf(t, h.client, proxy.addr), blocker.Options{}, need(t, "web=2", catalog.Functional))
	w.until(t, "seeing one", have(1))
	for i := range 50 {
		why := fmt.Sprint("try ", i)
		h.sick(2, why)
		w.until(t, why, func(s []blocker.State) bool { return strings.HasSuffix(s[0].Why, why) })
	}
	if got, most := proxy.count.Load(), int64(time.Since(begin)/time.Second)+1; got > most {
		t.Errorf("%d questions, want at most %d", got, most)
	}
	h.serve(3, consul.HealthPassing)
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}
