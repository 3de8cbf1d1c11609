package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/consulmodel"
)

// network carries requests to the model of Consul. Each takes a time, and what becomes of it, that follow from the
// seed and its name alone: not from what else happens.
type network struct {
	seed    uint64
	without map[string]bool // kinds of faults that do not happen
	tasks   sync.WaitGroup  // what still arrives after its sender is gone

	mu      sync.Mutex
	model   *consulmodel.Model
	waiting map[*consulmodel.Query]chan struct{}
	steps   uint64 // requests that were carried out
	faults  map[string]int
	rate    float64 // of faults of single requests
	late    bool    // the fault of a write is that it arrives after its sender has given up
	failing bool    // tasks fail now and then
	outage  time.Time
	from    string          // who sends the request that is carried out now
	heard   map[string]bool // processes that have had an index of Consul's
	trace   func(format string, args ...any)
	sent    func(from, method, path string, body []byte) // before a request is carried out
	lacks   func(what string)                            // the model does not know a request
}

func newNetwork(seed uint64, without map[string]bool) *network {
	return &network{seed: seed, without: without, model: consulmodel.New(), waiting: map[*consulmodel.Query]chan struct{}{}, faults: map[string]int{}, heard: map[string]bool{}, trace: func(string, ...any) {}, sent: func(string, string, string, []byte) {}}
}

// chance returns a source of random numbers that depend on the seed and a name only.
func chance(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// fate is what becomes of one request.
type fate struct {
	there, back time.Duration // how long it and its answer take
	lost        bool          // it never arrives
	unanswered  bool          // its answer never arrives
	twice       time.Duration // it arrives once more after this time; 0: it does not
	orphan      bool          // it arrives although its sender no longer waits
}

func (n *network) fateOf(name string, write bool) fate {
	r := chance(n.seed, name)
	f := fate{there: latency(r), back: latency(r), orphan: r.IntN(2) == 0}
	if r.Float64() >= n.rate {
		return f
	}
	if n.late {
		if write {
			f.there, f.orphan = f.there+givesUp+slow(r), true
			n.count("write late")
		}
		return f
	}
	kinds := 4
	if write {
		kinds = 6
	}
	switch kind := r.IntN(kinds); {
	case n.without[[]string{"delay", "delay", "loss", "loss", "loss", "double"}[kind]]:
	case kind == 0:
		f.there += slow(r)
		n.count("request delayed")
	case kind == 1:
		f.back += slow(r)
		n.count("answer delayed")
	case kind == 2:
		f.lost = true
		n.count("request lost")
	case kind < 5:
		f.unanswered = true
		n.count("answer lost")
	default:
		f.twice = slow(r)
		n.count("request doubled")
	}
	return f
}

// latency is mostly below a millisecond.
func latency(r *rand.Rand) time.Duration {
	return 50*time.Microsecond + time.Duration(r.ExpFloat64()*float64(400*time.Microsecond))
}

// givesUp is after what time a client no longer waits for the answer to a write.
const givesUp = 10 * time.Second

// slow is up to a minute, and mostly some seconds.
func slow(r *rand.Rand) time.Duration {
	return time.Duration(min(r.ExpFloat64()*float64(6*time.Second), float64(time.Minute)))
}

func (n *network) count(fault string) { n.faults[fault]++ }

// link is how one process reaches Consul. It is the transport of its client.
type link struct {
	*network
	name string
	dead atomic.Bool // the process was killed

	counts map[string]int
	cut    time.Time // until then the network carries nothing
	frozen time.Time // until then the process stands still, see thaw
}

func (n *network) link(name string) *link {
	return &link{network: n, name: name, counts: map[string]int{}}
}

var (
	errDead  = errors.New("the process was killed")
	errReset = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	errCut   = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
)

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	l.thaw()
	if l.dead.Load() {
		return nil, errDead
	}
	l.mu.Lock()
	kind := r.Method + " " + r.URL.Path
	l.counts[kind]++
	f := l.fateOf(l.name+" "+kind+" "+strconv.Itoa(l.counts[kind]), r.Method != http.MethodGet)
	cut := time.Now().Before(l.cut)
	l.mu.Unlock()
	switch {
	case cut && f.orphan: // a refusal by the kernel
		return nil, errCut
	case cut || f.lost:
		f.lost = true
	}
	answer, err := l.carry(r.Context(), r, body, f)
	l.thaw()
	if err != nil {
		return nil, err
	}
	resp := &http.Response{
		Status: http.StatusText(answer.Status), StatusCode: answer.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(answer.Body)), ContentLength: int64(len(answer.Body)), Request: r,
	}
	if answer.Index > 0 {
		l.mu.Lock()
		l.heard[l.name] = true
		l.mu.Unlock()
		resp.Header["X-Consul-Index"] = []string{strconv.FormatUint(answer.Index, 10)}
	}
	resp.Header["X-Consul-Knownleader"] = []string{"true"}
	resp.Header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	return resp, nil
}

// thaw returns when the process is no longer frozen. What it does beside timers passes here: requests, answers,
// tasks. Their ctx does not matter, as it does not to a process that is stopped between two instructions.
func (l *link) thaw() {
	for {
		l.mu.Lock()
		left := time.Until(l.frozen)
		l.mu.Unlock()
		if left <= 0 || l.dead.Load() {
			return
		}
		time.Sleep(min(left, time.Second)) // it may end sooner
	}
}

// carry brings a request to Consul and its answer back.
func (l *link) carry(ctx context.Context, r *http.Request, body []byte, f fate) (*consulmodel.Answer, error) {
	do := func() *consulmodel.Query { return l.do(l.name, r.Method, r.URL.Path, r.URL.RawQuery, body) }
	if f.lost {
		if err := sleep(ctx, f.there+30*time.Second); err != nil {
			return nil, err
		}
		return nil, errReset
	}
	sent := time.Now()
	if err := sleep(ctx, f.there); err != nil {
		if f.orphan && r.Method != http.MethodGet {
			l.later(f.there-time.Since(sent), do)
		}
		return nil, err
	}
	q := do()
	if f.twice > 0 {
		l.later(f.twice, do)
	}
	answer, err := l.await(ctx, q)
	if err != nil {
		return nil, err
	}
	if f.unanswered {
		if err := sleep(ctx, f.back); err != nil {
			return nil, err
		}
		return nil, errReset
	}
	if err := sleep(ctx, f.back); err != nil {
		return nil, err
	}
	if l.dead.Load() {
		return nil, errDead
	}
	return answer, nil
}

// later has a request arrive whose sender no longer waits.
func (n *network) later(after time.Duration, do func() *consulmodel.Query) {
	n.tasks.Go(func() {
		time.Sleep(after)
		n.mu.Lock()
		n.trace("late or doubled request arrives")
		n.mu.Unlock()
		n.forget(do())
	})
}

// do carries out a request.
func (n *network) do(from, method, path, query string, body []byte) *consulmodel.Query {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Now().Before(n.outage) {
		return consulmodel.Answered(http.StatusInternalServerError, "No cluster leader")
	}
	n.steps++
	if path == "/v1/agent/checks" {
		name, _, _ := strings.Cut(from, "#")
		return n.model.AgentChecks(name)
	}
	n.from = from
	n.sent(from, method, path, body)
	q := n.model.Do(method, path, query, body, time.Now())
	n.from = ""
	if q.Answer() == nil {
		n.waiting[q] = make(chan struct{})
	}
	n.wake()
	if a := q.Answer(); a != nil && a.Status == http.StatusNotFound && bytes.HasPrefix(a.Body, []byte("the model has no")) {
		n.lacks(string(a.Body))
	}
	if method != http.MethodGet {
		status := 0
		if a := q.Answer(); a != nil {
			status = a.Status
		}
		n.trace("%s %s %s %d %s", from, method, path, status, brief(body))
	}
	return q
}

func brief(body []byte) string {
	const most = 300
	if len(body) > most {
		return fmt.Sprintf("%s… (%d bytes)", body[:most], len(body))
	}
	return string(body)
}

// change changes the model beside the requests.
func (n *network) change(do func(m *consulmodel.Model)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n.model)
	n.wake()
}

// wake tells the senders of queries that have been answered.
func (n *network) wake() {
	for _, q := range n.model.TakeReady() {
		if ready := n.waiting[q]; ready != nil {
			close(ready)
			delete(n.waiting, q)
		}
	}
}

// await returns the answer to a query, or ctx's error.
func (n *network) await(ctx context.Context, q *consulmodel.Query) (*consulmodel.Answer, error) {
	n.mu.Lock()
	ready := n.waiting[q]
	n.mu.Unlock()
	if ready == nil {
		return q.Answer(), nil
	}
	ended := time.NewTimer(time.Until(q.Deadline))
	defer ended.Stop()
	select {
	case <-ready:
	case <-ended.C:
		n.change(func(m *consulmodel.Model) { m.Expire(time.Now()) })
		<-ready
	case <-ctx.Done():
		n.forget(q)
		return nil, ctx.Err()
	}
	return q.Answer(), nil
}

// forget gives up a query that blocks.
func (n *network) forget(q *consulmodel.Query) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.model.GiveUp(q)
	delete(n.waiting, q)
}

// sleep returns ctx's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
