//go:build fleet

package fleet_test

import (
	"bufio"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// holds reads what notes in a host's file say: from granted to released, in
// turn.
func holds(t *testing.T, h *fleettest.Host, file string) []fleettest.Hold {
	t.Helper()
	var all []fleettest.Hold
	lines := bufio.NewScanner(strings.NewReader(h.File(file)))
	for lines.Scan() {
		what, text, _ := strings.Cut(lines.Text(), " ")
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s on %s: %v", file, h.Name, err)
		}
		at, n := time.Unix(0, ns), len(all)
		switch {
		case what == "granted":
			all = append(all, fleettest.Hold{Who: h.Name, Granted: at})
		case n > 0 && all[n-1].Released.IsZero():
			all[n-1].Released, all[n-1].Given = at, at
		}
	}
	return all
}

// contents collects what files of hosts hold, all the time until stop.
type contents struct {
	cancel  context.CancelFunc
	workers sync.WaitGroup
	mu      sync.Mutex
	seen    map[string][]string // by host, in turn
}

func watchFiles(hosts []*fleettest.Host, file string) *contents {
	ctx, cancel := context.WithCancel(context.Background())
	c := &contents{cancel: cancel, seen: map[string][]string{}}
	for _, h := range hosts {
		c.workers.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				c.add(h.Name, h.File(file))
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return c
}

func (c *contents) add(host, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.seen[host]; len(all) == 0 || all[len(all)-1] != content {
		c.seen[host] = append(all, content)
	}
}

// stop returns all contents that were seen, by host and in turn.
func (c *contents) stop() map[string][]string {
	c.cancel()
	c.workers.Wait()
	return c.seen
}

// wantOnly fails the test for a host whose file held anything else.
func (c *contents) wantOnly(t *testing.T, allowed ...string) {
	t.Helper()
	for host, all := range c.stop() {
		for _, content := range all {
			if !slices.Contains(allowed, content) {
				t.Errorf("the file on %s held %q, in turn %q", host, content, all)
			}
		}
	}
}
