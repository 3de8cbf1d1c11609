//go:build linux

package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Observer watches a fleet from outside through Consul's servers, with consistent
// reads, and checks its invariants.
type Observer struct {
	f       *Fleet
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	keys    Keys
	history map[string][]Change
	checks  []Check
	onKeys  map[string]func(Keys) error
	onCheck map[string]func([]Check) error
	broken  map[string]string // by rule, the first time
	samples int

	terms terms
}

// Keys is the cluster's part of Consul's KV at one moment, by key below the
// cluster's prefix.
type Keys map[string]Key

// Key is one key.
type Key struct {
	Value   string
	Session string // holds it as a lock
	Created uint64 // the index of the write that created it
}

// Change is a change of a key and when the observer read it.
type Change struct {
	At time.Time
	Key
	Deleted bool
}

// Check is a health check that is not passing.
type Check struct{ Node, CheckID, ServiceID, Status, Notes, Output string }

// observe starts an Observer, which runs until stop.
func observe(f *Fleet) *Observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{
		f: f, cancel: cancel, history: map[string][]Change{}, broken: map[string]string{},
		onKeys: map[string]func(Keys) error{"one version per node": oneVersion}, onCheck: map[string]func([]Check) error{},
		terms: terms{all: map[string]term{}, excused: map[string]bool{}},
	}
	for _, h := range f.Hosts {
		if h.spec.Orchestrator {
			o.workers.Go(func() { o.watchOrchestrators(ctx, h) })
		}
	}
	o.workers.Go(func() {
		o.follow(ctx, "/v1/kv/"+prefix+"?recurse", func(data []byte) error {
			var all []struct {
				Key, Session string
				CreateIndex  uint64
				Value        []byte
			}
			if err := json.Unmarshal(data, &all); err != nil {
				return err
			}
			keys := Keys{}
			for _, k := range all {
				keys[strings.TrimPrefix(k.Key, prefix)] = Key{string(k.Value), k.Session, k.CreateIndex}
			}
			o.sawKeys(keys)
			return nil
		})
	})
	o.workers.Go(func() {
		o.follow(ctx, "/v1/health/state/critical?", func(data []byte) error {
			var all []Check
			if err := json.Unmarshal(data, &all); err != nil {
				return err
			}
			o.sawChecks(all)
			return nil
		})
	})
	return o
}

// follow repeats a blocking query until ctx ends. If a server does not answer it uses
// the next one.
func (o *Observer) follow(ctx context.Context, path string, handle func([]byte) error) {
	c, err := o.f.client(o.f.Operator.Machine)
	if err != nil {
		o.f.failed(err)
		return
	}
	defer c.CloseIdleConnections()
	index := "0"
	for n := 0; ctx.Err() == nil; {
		server := o.f.Servers[n%len(o.f.Servers)]
		url := "https://" + server.IP + ":8501" + path + "&consistent&wait=5s&index=" + index
		next, err := o.once(ctx, c, url, handle)
		if err != nil {
			n, next = n+1, "0"
			_ = sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) // ctx is asked above
		}
		index = next
	}
}

func (o *Observer) once(ctx context.Context, c *http.Client, url string, handle func([]byte) error) (index string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	var data json.RawMessage
	index, err = request(ctx, c, http.MethodGet, url, o.f.acl.root, nil, &data)
	if e, ok := err.(*statusError); ok && e.code == http.StatusNotFound {
		data, err = []byte("[]"), nil
		index = "0"
		defer func() { _ = sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) }()
	}
	if err != nil {
		return "", err
	}
	return index, handle(data)
}

func (o *Observer) sawKeys(keys Keys) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.samples++
	for name, k := range keys {
		if was, had := o.keys[name]; !had || was != k {
			o.history[name] = append(o.history[name], Change{At: now, Key: k})
		}
	}
	for name, was := range o.keys {
		if _, has := keys[name]; !has {
			o.history[name] = append(o.history[name], Change{At: now, Key: was, Deleted: true})
		}
	}
	o.keys = keys
	for name, rule := range o.onKeys {
		o.hold(name, rule(keys))
	}
}

func (o *Observer) sawChecks(checks []Check) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checks = checks
	for name, rule := range o.onCheck {
		o.hold(name, rule(checks))
	}
}

func (o *Observer) hold(rule string, err error) {
	if err != nil && o.broken[rule] == "" {
		o.broken[rule] = fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err)
	}
}

// Always fails the test if, from now on, rule returns an error for any state of the
// cluster's keys.
func (o *Observer) Always(name string, rule func(Keys) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onKeys[name] = rule
	o.hold(name, rule(o.keys))
}

// AlwaysChecks is Always for the critical health checks.
func (o *Observer) AlwaysChecks(name string, rule func([]Check) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onCheck[name] = rule
	o.hold(name, rule(o.checks))
}

// Keys returns the keys as last seen.
func (o *Observer) Keys() Keys {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keys
}

// Checks returns the critical health checks as last seen.
func (o *Observer) Checks() []Check {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.checks
}

// History returns the changes of a key since the observer began.
func (o *Observer) History(key string) []Change {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Change(nil), o.history[key]...)
}

// Changes returns how many states of the keys were seen.
func (o *Observer) Changes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.samples
}

// stop ends the observation and reports the violated invariants.
func (o *Observer) stop() {
	o.f.t.Helper()
	o.cancel()
	o.workers.Wait()
	o.hold("one orchestrator at a time", o.terms.overlap())
	for name, err := range o.broken {
		o.f.t.Errorf("an invariant did not hold: %s: %s", name, err)
	}
	if o.samples == 0 {
		o.f.t.Errorf("fleettest: the observer saw nothing")
	}
}
