package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// largeSpace is one service of many instances, each on a node of its own.
type largeSpace struct {
	consul    *consul
	name      string
	instances []instance
}

func newLargeSpace(n int) func(string, *consul) space {
	return func(name string, c *consul) space {
		s := &largeSpace{consul: c, name: name + "-web"}
		for i := range n {
			s.instances = append(s.instances, instance{
				node: fmt.Sprintf("%s-node-%05d", name, i), service: s.name, id: s.name + "-1",
				address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), port: 8080, status: "passing",
			})
		}
		return s
	}
}

func (s *largeSpace) fill(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, i := range s.instances {
		g.Go(func() error {
			return s.consul.putJSON(ctx, "/v1/catalog/register", map[string]any{
				"Node": i.node, "Address": i.address, "Service": i.definition(), "Checks": []any{
					i.check(),
					map[string]any{"Node": i.node, "CheckID": "disk", "Name": "free disk space", "Status": "passing", "Output": "41 % free"},
				},
			})
		})
	}
	return g.Wait()
}

func (s *largeSpace) template(int) string {
	return fmt.Sprintf("{{ range service %q }}server {{ .Address }}:{{ .Port }}\n{{ end }}", s.name)
}

func (s *largeSpace) content(int) string {
	var b strings.Builder
	for _, i := range s.instances {
		if i.status == "passing" {
			fmt.Fprintf(&b, "server %s:%d\n", i.address, i.port)
		}
	}
	return b.String()
}

// flip changes the check of the next instance.
func (s *largeSpace) flip(ctx context.Context, n int) error {
	i := &s.instances[n*stride%len(s.instances)]
	if i.status = "critical"; n/len(s.instances)%2 == 1 {
		i.status = "passing"
	}
	return s.consul.setCheck(ctx, *i)
}

// largeService is one service of n instances, one template.
func largeService(n int, s size) *work {
	name := fmt.Sprintf("one service of %d instances", n)
	return &work{
		name: name, templates: 1, space: newLargeSpace(n), own: "Each program has a Consul of its own, whose processor time is counted.",
		changes: true, memory: true,
		steps: []step{{
			what: "change → file, " + name + ", a check changes", limit: 40, samples: s.flips, gap: gapSame,
			change: func(ctx context.Context, s space, _, n int) error { return s.(*largeSpace).flip(ctx, n) },
		}},
	}
}

// usage is what a side has used up to a moment.
type usage struct {
	program, consul time.Duration // of a processor
	received        float64       // KB
}

func (s *side) used() (u usage, err error) {
	if u.program, err = s.proc.cpu(); err != nil {
		return u, err
	}
	if u.consul, err = s.consul.proc.cpu(); err != nil {
		return u, err
	}
	u.received, err = s.proc.received()
	return u, err
}

// perChange reports what n changes have cost each side since before.
func (w *work) perChange(b *bench, sides []*side, before []usage, n int) error {
	rows := []row{
		{what: "processor time per change, the program, " + w.name, unit: "ms", limit: noTarget},
		{what: "processor time per change, the program and its Consul, " + w.name, unit: "ms", limit: 60},
		{what: "received per change, " + w.name, unit: "KB", limit: noTarget},
	}
	for i, s := range sides {
		now, err := s.used()
		if err != nil {
			return err
		}
		program, both := now.program-before[i].program, now.program-before[i].program+now.consul-before[i].consul
		s.into(&rows[0], samples{float64(program) / float64(time.Millisecond) / float64(n)})
		s.into(&rows[1], samples{float64(both) / float64(time.Millisecond) / float64(n)})
		s.into(&rows[2], samples{(now.received - before[i].received) / float64(n)})
	}
	b.report.Rows = append(b.report.Rows, rows...)
	return nil
}

// received is how much the process has read so far, mostly from sockets, in KB.
func (p *process) received() (float64, error) {
	text, err := p.proc("io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "rchar: "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return n / 1000, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/io has no rchar", p.pid)
}

// watchersOfAgent measures what programs that watch one large service cost Consul: when
// they ask the server, and when they ask a client agent, with Consul's streaming, with
// the agent's cache, and with neither.
func watchersOfAgent(ctx context.Context, b *bench) error {
	server, err := b.startConsul(ctx, 0)
	if err != nil {
		return err
	}
	defer server.proc.kill()
	s := newLargeSpace(b.size.instances)("bench", server).(*largeSpace)
	if err := s.fill(ctx); err != nil {
		return err
	}
	m := &watcherModes{bench: b, server: server, space: s}
	if err := m.measure(ctx, "of the server", server, "", 0); err != nil {
		return err
	}
	for _, mode := range []struct {
		name, params string
		streaming    bool
		ofPeer       float64
	}{
		{"behind a client agent, streaming (Consul's default)", "", true, 20},
		{"behind a client agent, without streaming", "", false, 0},
		{"behind a client agent, without streaming, with its cache", "&cached", false, 20},
	} {
		agent, err := b.startClient(ctx, server, "bench-client", map[string]any{"use_streaming_backend": mode.streaming})
		if err != nil {
			return err
		}
		err = m.measure(ctx, mode.name, agent, mode.params, mode.ofPeer)
		agent.proc.kill()
		if err != nil {
			return err
		}
	}
	return nil
}

// watcherModes measures one way to watch after the other.
type watcherModes struct {
	bench  *bench
	server *consul
	space  *largeSpace
	flips  int
}

// measure starts watchers of an agent, which may be the server, and flips checks.
func (m *watcherModes) measure(ctx context.Context, name string, agent *consul, params string, ofPeer float64) error {
	b := m.bench
	watching, stop := context.WithCancel(ctx)
	w := &watchers{agent: agent, service: m.space.name, params: params, seen: make(chan uint64, b.size.watchers)}
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range b.size.watchers {
		running.Go(func() { w.watch(watching) })
	}
	var took samples
	var before [2]usage
	var err error
	for n := range 1 + b.size.flips/8 {
		if n == 1 { // all watch now
			if before, err = m.used(agent); err != nil {
				return err
			}
		}
		begin := time.Now()
		if err := m.space.flip(ctx, m.flips); err != nil {
			return err
		}
		m.flips++
		index, err := m.space.index(ctx)
		if err != nil {
			return err
		}
		for range b.size.watchers {
			if err := w.await(ctx, index); err != nil {
				return err
			}
		}
		if n >= 1 {
			took.addMillis(time.Since(begin))
		}
		sleep(ctx, gapSame)
	}
	after, err := m.used(agent)
	if err != nil {
		return err
	}
	per := float64(len(took)) * float64(b.size.watchers)
	name = fmt.Sprintf("%d watchers of %d instances, %s: ", b.size.watchers, b.size.instances, name)
	add := func(what, unit string, v samples, peer samples) {
		r := row{what: name + what, unit: unit, limit: noTarget, jorc: v, peer: peer, note: rawWatchers}
		if len(peer) > 0 {
			r.ofPeer = ofPeer
		}
		b.report.Rows = append(b.report.Rows, r)
	}
	millis := func(i int) samples {
		return samples{float64((after[i].program - before[i].program).Microseconds()) / 1000 / per}
	}
	add("change → last watcher", "ms", took, nil)
	if agent != m.server {
		add("server → agent per change and watcher; peer: a full answer", "KB", samples{(after[1].received - before[1].received) / per}, samples{w.answer() / 1000})
		add("the agent's processor time per change and watcher", "ms", millis(1), nil)
	}
	add("the server's processor time per change and watcher", "ms", millis(0), nil)
	return nil
}

// used is what the server and an agent have used so far.
func (m *watcherModes) used(agent *consul) (u [2]usage, err error) {
	if u[0], err = usedBy(m.server.proc); err == nil {
		u[1], err = usedBy(agent.proc)
	}
	return u, err
}

const rawWatchers = "The watchers are blocking queries as jorc sends them, whose answers are discarded. What the agent reads comes almost all from the server."

// index is the index of the service's last change at the server.
func (s *largeSpace) index(ctx context.Context) (uint64, error) {
	head, err := s.consul.do(ctx, http.MethodGet, "/v1/health/service/"+s.name+"?filter=Service.ID==none", nil, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(head.Get("X-Consul-Index"), 10, 64)
}

func usedBy(p *process) (u usage, err error) {
	if u.program, err = p.cpu(); err != nil {
		return u, err
	}
	u.received, err = p.received()
	return u, err
}

// watchers are blocking queries of one service.
type watchers struct {
	agent   *consul
	service string
	params  string      // of each query
	seen    chan uint64 // the index of each answer

	mu    sync.Mutex
	bytes int64 // of the last answer
	err   error
}

// watch asks again and again until ctx ends.
func (w *watchers) watch(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var index uint64
	for ctx.Err() == nil {
		next, n, err := ask(ctx, client, fmt.Sprintf("http://%s/v1/health/service/%s?passing=1&wait=60s&index=%d%s", w.agent.http, w.service, max(index, 1), w.params))
		w.mu.Lock()
		w.bytes, w.err = max(w.bytes, n), err
		w.mu.Unlock()
		if err != nil {
			return
		}
		if next != index {
			index = next
			select {
			case w.seen <- index:
			case <-ctx.Done():
			}
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) (index uint64, n int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if n, err = io.Copy(io.Discard, resp.Body); err != nil {
		return 0, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%s: %s", url, resp.Status)
	}
	index, err = strconv.ParseUint(resp.Header.Get("X-Consul-Index"), 10, 64)
	return index, n, err
}

// await returns when one more watcher has seen index.
func (w *watchers) await(ctx context.Context, index uint64) error {
	for {
		select {
		case got := <-w.seen:
			if got >= index {
				return nil
			}
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("%w; the last watcher's error: %v", context.Cause(ctx), w.err)
		}
	}
}

// answer is the length of a full answer in bytes.
func (w *watchers) answer() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return float64(w.bytes)
}
