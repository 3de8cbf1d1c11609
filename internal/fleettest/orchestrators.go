//go:build linux

package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/web"
)

// term is the time for which a host reports that it orchestrates.
type term struct {
	host        string
	since, seen time.Time // seen: it still did in an answer to a question asked then
}

// terms are those of all hosts.
type terms struct {
	mu      sync.Mutex
	all     map[string]term // by host and since
	excused map[string]bool // hosts that were frozen and may report a former term
}

// watchOrchestrators asks all agents, from within their hosts, whether they
// orchestrate, until ctx ends.
func (o *Observer) watchOrchestrators(ctx context.Context, h *Host) {
	client := &http.Client{Transport: &http.Transport{DialContext: h.space.dial}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		asked := time.Now()
		short, cancel := context.WithTimeout(ctx, time.Second)
		var s web.Status
		_, err := request(short, client, http.MethodGet, "http://127.0.0.1:8520/v1/status", "", nil, &s)
		cancel()
		if err == nil {
			o.terms.add(h.Name, s.Orchestrators, asked)
		}
		_ = sleepUntil(ctx, asked.Add(200*time.Millisecond)) // ctx is asked above
	}
}

func (t *terms) add(host string, all []web.Orchestrator, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range all {
		if !o.Active {
			delete(t.excused, host)
			continue
		}
		if !t.excused[host] {
			t.all[host+o.Since.String()] = term{host, o.Since, asked}
		}
	}
}

// excuse ignores the reports of a host that was frozen until it has noticed that it
// no longer orchestrates.
func (t *terms) excuse(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excused[host] = true
}

// overlap returns an error if two hosts orchestrated at the same moment.
func (t *terms) overlap() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		for _, b := range t.all {
			if a.host != b.host && b.since.After(a.since) && a.seen.After(b.since) {
				return fmt.Errorf("%s orchestrated from %v until after %v, %s from %v on", a.host, a.since, a.seen, b.host, b.since)
			}
		}
	}
	return nil
}
