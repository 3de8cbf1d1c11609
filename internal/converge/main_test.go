package converge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/workflow"
)

// TestMain lets the test binary be its own child, one that dies at a step.
func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		os.Exit(crashMain())
	}
	os.Exit(consultest.Main(m))
}

var clusters atomic.Int64

// host is a state directory, a directory where tasks leave traces, and a
// Converger with a cluster of its own.
type host struct {
	t       testing.TB
	node    string
	cluster string
	client  *consul.Client
	ledger  *fleet.Cluster
	runner  *workflow.Runner
	dir     string
	flows   []config.Workflow
	options Options
	hold    *source[Hold]
	checks  *source[Health]
	quick   func(*timing)

	*Converger
	stop func()
}

func newHost(t testing.TB) *host {
	t.Helper()
	s, name := consultest.Shared(t)
	return newHostOn(t, s.Client(), name, "n1", t.TempDir())
}

func newHostOn(t testing.TB, client *consul.Client, name, node, dir string) *host {
	h := &host{t: t, node: node, cluster: name, client: client, dir: dir}
	h.ledger = fleet.New(client, "jorc", name)
	h.hold, h.checks = newSource(Hold{}), newSource(Health{})
	h.flows = []config.Workflow{
		{Name: "static", Reboots: true, Tasks: []config.Task{sh("one", ""), sh("two", "")}},
		{Name: "validation", Tasks: []config.Task{sh("check", "[ ! -e $DIR/broken ]")}},
	}
	h.options.Static = config.Static{Workflow: "static", Validation: "validation"}
	return h
}

// sh is a task that a shell runs; it leaves its name and version in the file ran.
func sh(name, script string) config.Task {
	return config.Task{Name: name, Command: []string{"sh", "-c", "echo " + name + "@$JORC_VERSION >>$DIR/ran; " + script}}
}

// build makes a Converger as a new process would.
func (h *host) build() *host {
	o := h.options
	o.Node, o.StateDir, o.VersionFile = h.node, filepath.Join(h.dir, "state"), filepath.Join(h.dir, "version")
	o.Report, o.Desired, o.Holds, o.Checks = h.ledger.ReportWriter(h.node), h.ledger.WatchDesired, h.hold, h.checks
	o.Log = hclog.NewNullLogger()
	if os.Getenv("CONVERGE_TEST_LOG") != "" {
		o.Log = hclog.New(&hclog.LoggerOptions{Name: h.cluster + "/" + h.node, Output: os.Stderr})
	}
	h.runner = workflow.New(workflow.Options{
		StateDir: o.StateDir, Workflows: h.flows, Node: h.node, Environ: []string{"DIR=" + h.dir},
		Held: func() string { return h.hold.get().Held },
	})
	if o.Runner == nil {
		o.Runner = h.runner
	}
	h.Converger = New(o)
	h.drift.pollEvery = 100 * time.Millisecond // all on this machine share what can be listened to
	h.timing.trouble, h.timing.maxTrouble = 20*time.Millisecond, 200*time.Millisecond
	if h.quick != nil {
		h.quick(&h.timing)
	}
	return h
}

// start runs it until stop is called or the test ends.
func (h *host) start() *host {
	h.t.Helper()
	h.build()
	return h.run()
}

// run runs what was built.
func (h *host) run() *host {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = h.Run(ctx)
	}()
	var once sync.Once
	h.stop = func() {
		once.Do(func() {
			cancel()
			<-done
			if err != nil {
				h.t.Errorf("Run = %v", err)
			}
		})
	}
	h.t.Cleanup(h.stop)
	return h
}

func (h *host) trigger(version string) {
	h.t.Helper()
	if _, err := rollout.New(h.client, "jorc", h.cluster).Trigger(context.Background(), rollout.Request{Version: version}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// ran is what tasks left.
func (h *host) ran() string {
	data, err := os.ReadFile(h.path("ran"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

func (h *host) document() cluster.Report {
	h.t.Helper()
	d, _, err := h.ledger.Report(context.Background(), h.node)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// until waits for a status.
func (h *host) until(what string, ok func(Status) bool) Status {
	h.t.Helper()
	var s Status
	consultest.Eventually(h.t, what, func(context.Context) error {
		if s = h.Status(); !ok(s) {
			text, _ := json.Marshal(s)
			return fmt.Errorf("status is %s; ran: %s", text, h.ran())
		}
		return nil
	})
	return s
}

// untilPhase waits for a phase and for what there is to say of it.
func (h *host) untilPhase(p Phase, version string) Status {
	h.t.Helper()
	return h.until(fmt.Sprintf("phase %s at %s", p, version), func(s Status) bool {
		switch {
		case s.Phase != p || !s.Reported || s.Desired != version:
			return false
		case p == PhaseConverged:
			return s.Version == version && s.Outcome == Converged
		case p == PhasePending:
			return len(s.Missing) > 0 // before that it asks whether anything is
		}
		return true
	})
}

// modified is the index at which the node's document was written last; 0:
// never.
func (h *host) modified() uint64 {
	h.t.Helper()
	p, _, err := h.client.KVGet(context.Background(), "jorc/"+h.cluster+"/nodes/"+h.node, consul.Query{Consistent: true})
	if err != nil {
		h.t.Fatal(err)
	}
	if p == nil {
		return 0
	}
	return p.ModifyIndex
}

// reportCount counts the transactions of hosts that write their reports.
type reportCount struct {
	mu    sync.Mutex
	times map[string]int // by key
}

// countReports counts the reports that are sent through p.
func countReports(p *consultest.Proxy) *reportCount {
	c := &reportCount{times: map[string]int{}}
	p.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path != "/v1/txn" {
			return consultest.Fault{}
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var ops []struct{ KV struct{ Verb, Key string } }
		if err != nil || json.Unmarshal(body, &ops) != nil {
			return consultest.Fault{} // Consul refuses it
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, op := range ops {
			if op.KV.Verb == "cas" {
				c.times[op.KV.Key]++
			}
		}
		return consultest.Fault{}
	})
	return c
}

// of is how often h wrote its report.
func (c *reportCount) of(h *host) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times["jorc/"+h.cluster+"/nodes/"+h.node]
}

// source hands out a value and its changes.
type source[T any] struct {
	mu    sync.Mutex
	value T
	next  chan struct{}
}

func newSource[T any](v T) *source[T] { return &source[T]{value: v, next: make(chan struct{})} }

func (s *source[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

func (s *source[T]) set(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = v
	close(s.next)
	s.next = make(chan struct{})
}

func (s *source[T]) Watch(ctx context.Context, handle func(T)) error {
	for {
		s.mu.Lock()
		v, next := s.value, s.next
		s.mu.Unlock()
		handle(v)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next:
		}
	}
}

// needs are Requirements that a test sets.
type needs struct{ *source[[]Missing] }

func (n needs) Watch(ctx context.Context, _ []config.Requires, handle func([]Missing)) error {
	return n.source.Watch(ctx, handle)
}

func lacking(name string, have, want int) []Missing {
	return []Missing{{Target: name, Have: have, Want: want, For: "functional"}}
}

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantText(t testing.TB, what, got string, parts ...string) {
	t.Helper()
	if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(got, p) }) {
		t.Errorf("%s: got %q, want %q in it", what, got, parts)
	}
}

// lastIndex is the index of the last entry in Consul's log.
func lastIndex(t testing.TB, s *consultest.Server) int {
	t.Helper()
	_, after, _ := strings.Cut(s.Run("info"), "last_log_index = ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
