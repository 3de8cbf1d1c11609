package blocker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

func TestWaitLeavesWhenTheServiceAnswers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var waits []*waiting
	for _, n := range []blocker.Need{
		need(t, "web=2", catalog.Functional), need(t, "v1.2.web@dc1=2", catalog.Functional), need(t, "web=3", catalog.Addressable),
		need(t, "web.service.consul.", catalog.Functional), need(t, "v1.2.web.service.dc1.consul.", catalog.Functional),
		need(t, h.Node+".node.consul.", catalog.Functional),
	} {
		waits = append(waits, start(t, h.blocker(), blocker.Options{}, n))
	}
	waits[0].until(t, "seeing that there is none", have(0))
	h.serve(1, consul.HealthPassing)
	h.serve(2, consul.HealthCritical)
	waits[0].until(t, "seeing one", func(s []blocker.State) bool {
		return s[0].Have == 1 && s[0].Why == "1 of 2: 2 registered (1 passing, 1 critical)"
	})
	h.sick(3, "disk full\nmore")
	waits[0].until(t, "telling why", func(s []blocker.State) bool {
		return s[0].Why == "1 of 2: 3 registered (1 passing, 2 critical), web-3 on ext: disk full"
	})
	h.health(2, consul.HealthWarning, "")
	for i, w := range waits {
		if err := w.end(t); err != nil {
			t.Errorf("wait %d: %v", i, err)
		}
	}
}

func TestOddNamesAreAddressable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := start(t, h.blocker(), blocker.Options{}, need(t, "my wéb", catalog.Addressable))
	w.until(t, "seeing none", have(0))
	if err := h.client.RegisterService(t.Context(), &consul.ServiceRegistration{Name: "my wéb"}); err != nil {
		t.Fatal(err)
	}
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

func TestPassingLeavesOutWarnings(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, consul.HealthWarning)
	h.serve(2, consul.HealthPassing)
	n := need(t, "web=2", catalog.Functional)
	if err := h.blocker().Wait(t.Context(), []blocker.Need{n}, blocker.Options{}, nil); err != nil {
		t.Error(err)
	}
	n.Passing = true
	w := start(t, h.blocker(), blocker.Options{}, n)
	w.until(t, "seeing the one that passes", have(1))
	h.health(1, consul.HealthPassing, "")
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

// More instances than a DNS answer holds: Consul sends 1,024 and says nothing.
func TestMoreInstancesThanDNSHolds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	add := func(from, to int) {
		for i := from; i <= to; i++ {
			r := &consul.CatalogRegistration{Node: fmt.Sprint("ext-", i%7), Address: "10.0.0.1", Service: &consul.AgentService{
				ID: id(i), Service: "web", Address: fmt.Sprintf("10.0.0.%d", i%7), Port: i,
			}}
			if err := h.client.CatalogRegister(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(1, 600)
	wait := func(text string, b *blocker.Blocker, o blocker.Options) error {
		return b.Wait(t.Context(), []blocker.Need{need(t, text, catalog.Functional)}, o, nil)
	}
	if err := wait("web=600", h.blocker(), blocker.Options{}); err != nil {
		t.Error(err)
	}
	if err := wait("web=600", blockerOf(t, nil, h.DNSAddr), blocker.Options{DNSOnly: true}); err != nil {
		t.Error(err)
	}
	err := wait("web=601", h.blocker(), blocker.Options{Tries: 1})
	if err == nil || !strings.Contains(err.Error(), ": 600 of 601: ") {
		t.Errorf("601 of 600: %v", err)
	}
	add(601, 1100)
	if err := wait("web=1100", h.blocker(), blocker.Options{}); err != nil {
		t.Error(err)
	}
	err = wait("web=1100", blockerOf(t, nil, h.DNSAddr), blocker.Options{DNSOnly: true, Tries: 1})
	if err == nil || !strings.Contains(err.Error(), "at least 1024 of 1100") {
		t.Errorf("over DNS only: %v", err)
	}
	err = wait("web=1101", h.blocker(), blocker.Options{Tries: 1})
	if err == nil || !strings.Contains(err.Error(), ": 1100 of 1101: ") {
		t.Errorf("1101 of 1100: %v", err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serveAt(1, listen(t, h.IP), "")
	h.serveAt(2, 1, "")
	w := start(t, h.blocker(), blocker.Options{}, need(t, "web=2", catalog.Reachable))
	w.until(t, "seeing one refused", func(s []blocker.State) bool {
		return s[0].Have == 1 && strings.HasPrefix(s[0].Why, "1 of 2: "+h.IP+":1: connect: connection refused")
	})
	h.serveAt(3, listen(t, h.IP), "")
	if err := w.end(t); err != nil {
		t.Error(err)
	}
	if err := h.blocker().Wait(t.Context(), []blocker.Need{need(t, "web.service.consul.=2", catalog.Reachable)}, blocker.Options{}, nil); err != nil {
		t.Errorf("by DNS name: %v", err)
	}
}

func TestAnyAndAll(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, "")
	web, db := need(t, "web", catalog.Functional), need(t, "db", catalog.Functional)
	if err := h.blocker().Wait(t.Context(), []blocker.Need{db, web}, blocker.Options{Any: true}, nil); err != nil {
		t.Errorf("any: %v", err)
	}
	err := h.blocker().Wait(t.Context(), []blocker.Need{db, web}, blocker.Options{Tries: 2}, nil)
	var timeout *blocker.TimeoutError
	if !errors.As(err, &timeout) {
		t.Fatalf("all: %v", err)
	}
	if got := strings.Join(blocker.Lines(timeout.States), "\n"); got != "db: 0 of 1: none registered" {
		t.Errorf("lines:\n%s", got)
	}
	if errors.Is(err, consul.ErrUnreachable) || !errors.Is(err, blocker.ErrTimedOut) {
		t.Errorf("Consul answered: %v", err)
	}
}

func TestStableStartsOver(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve(1, consul.HealthPassing)
	w := start(t, h.blocker(), blocker.Options{Stable: 2 * time.Second}, need(t, "web", catalog.Functional))
	w.until(t, "seeing it", have(1))
	h.health(1, consul.HealthCritical, "")
	w.until(t, "seeing it leave", have(0))
	again := time.Now()
	h.health(1, consul.HealthPassing, "")
	if err := w.end(t); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(again); took < 2*time.Second {
		t.Errorf("it was there for %v only", took)
	}
}

func TestContextEndsAWait(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := h.blocker().Wait(ctx, []blocker.Need{need(t, "web", catalog.Functional)}, blocker.Options{}, func([]blocker.State) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestWatchFollows(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan []blocker.State)
	var wg sync.WaitGroup
	wg.Go(func() {
		needs := []blocker.Need{need(t, "web", catalog.Functional)}
		err := h.blocker().Watch(ctx, needs, blocker.Options{}, func(s []blocker.State) {
			select {
			case states <- s:
			case <-ctx.Done():
			}
		})
		if err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()
	until := func(satisfied bool) {
		for s := range states {
			if s[0].Satisfied == satisfied {
				return
			}
		}
	}
	until(false)
	for range 3 {
		h.serve(1, "")
		until(true)
		h.withdraw(1)
		until(false)
	}
}
