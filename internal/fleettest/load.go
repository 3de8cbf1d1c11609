//go:build linux

package fleettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Load is HTTP requests at a steady rate from the operator's host, half of
// them on connections that stay open.
type Load struct {
	f       *Fleet
	url     string
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu       sync.Mutex
	requests int
	failures []string
	failed   int
	served   map[string]int // by who answered and with which version
}

// loadWithin bounds the duration of a load.
const loadWithin = 10 * time.Minute

// Load begins to ask url, about 200 times a second, until Stop.
func (f *Fleet) Load(url string) *Load {
	ctx, cancel := context.WithTimeout(context.Background(), loadWithin)
	l := &Load{f: f, url: url, cancel: cancel, served: map[string]int{}}
	for _, keepAlive := range []bool{true, true, false, false} {
		client := &http.Client{
			Transport: &http.Transport{DisableKeepAlives: !keepAlive, DialContext: f.Operator.space.dial},
			Timeout:   10 * time.Second,
		}
		l.workers.Go(func() {
			defer client.CloseIdleConnections()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				l.ask(client)
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	f.t.Cleanup(func() { l.cancel(); l.workers.Wait() })
	return l
}

// ask makes one request. A request that has begun is completed when the load ends.
func (l *Load) ask(c *http.Client) {
	who, err := get(c, l.url)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if err == nil {
		l.served[who]++
		return
	}
	if l.failed++; l.failed <= 10 {
		l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+err.Error())
	}
}

func get(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return strings.TrimSpace(string(data)), err
}

// Served is how many requests each host has answered, by "NAME VERSION".
func (l *Load) Served() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int, len(l.served))
	for who, n := range l.served {
		all[who] = n
	}
	return all
}

// WaitServed returns when who, "NAME" or "NAME VERSION", has answered another
// request.
func (l *Load) WaitServed(who string) {
	l.f.t.Helper()
	count := func() (n int) {
		for name, times := range l.Served() {
			if name == who || strings.HasPrefix(name, who+" ") {
				n += times
			}
		}
		return n
	}
	before := count()
	l.f.Eventually(who+" to serve", func(context.Context) error {
		if count() == before {
			return fmt.Errorf("it gets no request: %v", l.Served())
		}
		return nil
	})
}

// Stop ends the load and fails the test if a request failed, or there were
// fewer than least.
func (l *Load) Stop(least int) {
	l.f.t.Helper()
	l.cancel()
	l.workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.t.Logf("%d requests, %d failed; served: %v", l.requests, l.failed, l.served)
	if l.failed > 0 || l.requests < least {
		l.f.t.Errorf("%d of %d requests failed, want 0 of at least %d:\n%s", l.failed, l.requests, least, strings.Join(l.failures, "\n"))
	}
}
