package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/web"
)

// orchestrating is a real jorc agent that orchestrates a fleet without being a
// member.
type orchestrating struct {
	proc *process
	addr string // of its status API

	mu      sync.Mutex
	cycles  map[string]samples // durations in ms, by outcome
	last    uint64             // the cycle that was seen last
	seen    uint64             // cycles seen
	err     error
	stop    context.CancelFunc
	running sync.WaitGroup
}

// orchestrate starts such an agent with Consul at an address, and returns after its
// first cycle.
func (b *bench) orchestrate(ctx context.Context, c *consul, address string, interval time.Duration) (*orchestrating, error) {
	dir, err := b.place("orchestrator")
	if err != nil {
		return nil, err
	}
	ip, err := freeIP()
	if err != nil {
		return nil, err
	}
	o := &orchestrating{addr: ip + ":8520", cycles: map[string]samples{}}
	file := filepath.Join(dir, "jorc.hcl")
	text := fmt.Sprintf("state_dir = %q\nlog_level = \"warn\"\nhttp { address = %q }\nconsul { address = %q }\ndns { address = %q }\norchestrator { interval = %q }\n",
		filepath.Join(dir, "state"), o.addr, address, c.dns, interval)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if o.proc, err = start(dir, "jorc", []string{b.programs.jorc, "agent", "--config", file}); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop = stop
	o.running.Go(func() { o.watch(watching) })
	if err := o.await(ctx, 1); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *orchestrating) close() {
	o.stop()
	o.running.Wait()
	o.proc.kill()
}

// watch collects the cycles until ctx ends. The orchestrator rests for 100 ms after each.
func (o *orchestrating) watch(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := o.ask(ctx)
		o.mu.Lock()
		o.err = err
		if err == nil && s.Cycles != o.last && s.Cycles > 0 {
			o.last = s.Cycles
			o.seen++
			list := o.cycles[s.Outcome]
			list.addMillis(time.Duration(s.Took * float64(time.Second)))
			o.cycles[s.Outcome] = list
		}
		o.mu.Unlock()
		sleep(ctx, 50*time.Millisecond) // the answers take processor time of what is measured
	}
}

func (o *orchestrating) ask(ctx context.Context) (s web.Orchestrator, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.addr+"/v1/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	var all web.Status
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return s, err
	}
	if len(all.Orchestrators) > 0 {
		s = all.Orchestrators[0]
	}
	return s, nil
}

// await returns after that many more cycles.
func (o *orchestrating) await(ctx context.Context, more uint64) error {
	o.mu.Lock()
	want := o.last + more
	o.mu.Unlock()
	for {
		o.mu.Lock()
		last, err := o.last, o.err
		o.mu.Unlock()
		if last >= want {
			return nil
		}
		if sleep(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("the orchestrator has made %d cycles, %d are waited for (%v): %w; its output ends with:\n%s",
				last, want, err, context.Cause(ctx), o.proc.tail())
		}
	}
}

// reset forgets the cycles seen so far.
func (o *orchestrating) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cycles = map[string]samples{}
}

// seenCycles returns the durations since reset of the cycles that changed nothing,
// or of the others.
func (o *orchestrating) seenCycles(unchanged bool) (all samples) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for outcome, list := range o.cycles {
		if (outcome == "unchanged") == unchanged {
			all = append(all, list...)
		}
	}
	return all
}
