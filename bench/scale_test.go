package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
)

// tinyScale proves that everything works, and measures nothing.
func tinyScale() scaleSize {
	return scaleSize{
		fleets: []int{3, 8}, perHost: 2, perAgent: 4, idle: 10 * time.Millisecond, rest: 100 * time.Millisecond,
		tabs: uiSize{changes: 1, streams: 3, idle: 10 * time.Millisecond},
		away: 100 * time.Millisecond, storm: 100 * time.Millisecond, stored: 20, changes: 2, interval: 100 * time.Millisecond, look: scaleLook{requests: true},
	}
}

// TestScale measures fleets of a few agents, and an orchestrator alone.
func TestScale(t *testing.T) {
	t.Parallel()
	program := buildJorc(t)
	b, err := newBench(programs{jorc: program, consul: consultest.Binary(t)}, tinySize(), t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	b.scale = tinyScale()
	r, err := b.measureScale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Fleets {
		for what, w := range map[string]window{
			"first version": f.first, "version change": f.change, "rollout": f.rollout.window, "run": f.run.window, "stage": f.stage,
		} {
			// Each member says at least that it begins and that it has done. Raft may have less
			// than was answered: a write of before may be answered in the window.
			if w.asked.Writes < float64(2*f.size) || w.writes+w.own < float64(2*f.size) || w.asked.Blocking == 0 || w.asked.Reads < w.asked.Blocking || w.took <= 0 {
				t.Errorf("%d agents, %s: %+v", f.size, what, w)
			}
		}
		if f.watches < 3 || f.watches > 20 { // its record, its queue, what is desired, and a few more
			t.Errorf("%d agents: %d queries of one block", f.size, f.watches)
		}
		o := f.rollout
		if o.served != float64(2*f.size) || len(o.next) != f.size-o.limit || len(o.cycles) == 0 || o.rss <= 0 {
			t.Errorf("%d agents, rollout: %+v", f.size, o)
		}
		if s := f.storm; s.took <= 0 || len(s.answers) == 0 {
			t.Errorf("%d agents, Consul's return: %+v", f.size, s)
		}
		if len(f.run.answers) != f.size || f.client <= 0 {
			t.Errorf("%d agents, run: %+v; RSS of a Consul agent %g", f.size, f.run, f.client)
		}
	}
	if s := r.Stored; s.largest == 0 || len(s.unchanged) == 0 || len(s.changed) == 0 {
		t.Errorf("the orchestrator alone: %+v", s)
	}
	if d := r.Dashboard; d.hosts != 8 || len(d.reached) != 1 || d.manyChange <= 0 || d.rssAfter <= 0 {
		t.Errorf("the dashboard: %+v", d)
	}
	text := r.markdown()
	for _, want := range []string{"| successful writes per node", "| 8 agents |", "| place free until the next node begins, p50", "| largest value (`", "50000 nodes, on paper", "## A run", "## Staged", "## Consul's servers return", "## The dashboard", "## Published records"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	r.scale.look.parts = "run,stage"
	if text := r.markdown(); !strings.Contains(text, "## A run") || !strings.Contains(text, "## Staged") || strings.Contains(text, "## A rollout") || strings.Contains(text, "on paper") {
		t.Errorf("a report of runs and stages alone:\n%s", text)
	}
}

// TestTraffic: what goes over a connection is counted by its answer.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request, answer string
		want            tally
	}{
		{"GET /v1/kv/a HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n", tally{Reads: 1}},
		{"GET /v1/kv/a?index=7 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n[]", tally{Reads: 1, Blocking: 1}},
		{"PUT /v1/txn HTTP/1.1\r\n\r\n[{\"KV\":{\"Verb\":\"get\"}}]", "HTTP/1.1 200 OK\r\n\r\n{}", tally{Reads: 1}},
		{"PUT /v1/txn HTTP/1.1\r\n\r\n[{\"KV\":{\"Verb\":\"cas\"}}]", "HTTP/1.1 200 OK\r\n\r\n{}", tally{Writes: 1}},
		{"PUT /v1/txn HTTP/1.1\r\n\r\n[{\"KV\":{\"Verb\":\"delete-cas\"}}]", "HTTP/1.1 409 Conflict\r\n\r\n{}", tally{Conflicts: 1}},
		{"PUT /v1/kv/a?cas=1 HTTP/1.1\r\n\r\nx", "HTTP/1.1 200 OK\r\n\r\nfalse\n", tally{Conflicts: 1}},
		{"PUT /v1/kv/a?cas=1 HTTP/1.1\r\n\r\nx", "HTTP/1.1 200 OK\r\n\r\ntrue\n", tally{Writes: 1}},
		{"PUT /v1/session/renew/1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n[]", tally{Other: 1}},
		{"GET /v1/kv/a HTTP/1.1\r\n\r\n", "HTTP/1.1 500 Internal Server Error\r\n\r\n", tally{Failures: 1}},
	} {
		tr := &traffic{}
		near, far := net.Pipe()
		w := &wire{Conn: near, traffic: tr}
		go func() {
			buf := make([]byte, 1000)
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte(c.answer))
			far.Close()
		}()
		if _, err := w.Write([]byte(c.request)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		got := tr.now()
		got.Sent, got.Received = 0, 0
		if got != c.want {
			t.Errorf("%q, %q: counted %+v, want %+v", c.request, c.answer, got, c.want)
		}
	}
}

// TestVerdict: targets hold for each size or some, and for how much a figure grows.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := scaleReport{Fleets: []fleetResult{{size: 10, memory: 1}, {size: 100, memory: 2}}}
	memory := func(f fleetResult) float64 { return f.memory }
	for _, c := range []struct {
		row  scaleRow
		want string
	}{
		{scaleRow{of: memory, limit: noTarget}, "– – –"},
		{scaleRow{of: memory, limit: 2}, "– ≤ 2.00 yes"},
		{scaleRow{of: memory, limit: 1}, "– ≤ 1.00 **no**"},
		{scaleRow{of: memory, limit: noTarget, sizes: map[int]float64{10: 1, 1000: 1}}, "– ≤ 1.00 at 10 yes"},
		{scaleRow{of: memory, limit: noTarget, sizes: map[int]float64{10: 1, 100: 1}}, "– ≤ 1.00 at 10, ≤ 1.00 at 100 **no**"},
		{scaleRow{of: memory, limit: noTarget, steady: true}, "2.00 ratio ≤ 1.25 **no**"},
	} {
		if got := strings.Join(r.verdict(c.row), " "); got != c.want {
			t.Errorf("verdict = %q, want %q", got, c.want)
		}
	}
}

// TestHostReportsWhatIsMissing: the error of a wait for agents names what it waits
// for.
func TestHostReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	h := &Host{traffic: &traffic{}, start: HostStart{Dir: t.TempDir(), Consul: "127.0.0.1:1", DNS: "127.0.0.1:1"}, outages: &maintenances{}}
	a, _, err := h.agent(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = h.await(ctx, []*agent.Simulated{a}, func(s converge.Status) bool { return s.Phase == converge.PhaseConverged })
	if err == nil || !strings.Contains(err.Error(), "0 of 1 agents are there") {
		t.Errorf("await = %v", err)
	}
}

// TestHostProcessEnds: a process of agents ends by itself when its requests end, as they do
// with the program that makes them.
func TestHostProcessEnds(t *testing.T) {
	t.Parallel()
	b, err := newBench(programs{jorc: "/bin/true", consul: consultest.Binary(t)}, tinySize(), t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	h := &hostProcess{}
	if err := h.launch(b); err != nil {
		t.Fatal(err)
	}
	defer h.proc.kill()
	var rss float64
	if err := h.call(t.Context(), "Memory", None{}, &rss); err != nil || rss <= 0 {
		t.Errorf("memory = %g MB, %v", rss, err)
	}
	if err := h.calls.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.proc.wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.call(t.Context(), "Memory", None{}, &rss); err == nil {
		t.Error("a process that ended answers")
	}
}
