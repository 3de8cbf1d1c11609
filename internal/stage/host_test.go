package stage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/watch"
)

// offeredHost is a host n1 of the stage edge that is offered a turn, with one fault in the
// transaction that takes it.
type offeredHost struct {
	t      *testing.T
	server *consultest.Server
	client *consul.Client
	hosts  *stage.Hosts
	fault  consultest.Fault
	staged watch.Staged

	mu      sync.Mutex
	body    []byte // of the first transaction that takes the turn
	permits int    // how often the turn was read together with the report
}

// newOfferedHost starts a host with a turn of the lock's holder, or without a session.
func newOfferedHost(t *testing.T, orchestrated bool, fault consultest.Fault) *offeredHost {
	t.Helper()
	h := &offeredHost{t: t, server: consultest.Start(t), fault: fault}
	h.client = h.server.Client()
	h.hosts = stage.NewHosts(t.TempDir(), hclog.NewNullLogger())
	edge := config.Stage{Name: "edge"}
	h.staged = watch.Staged{Stage: edge, Unit: "limit", Content: "new", Files: []replace.File{{Name: "limit", Destination: "/limit"}}}
	session := ""
	h.put(cluster.OrchestratorLock, "") // left by an orchestrator that ended
	if orchestrated {
		lock, err := kv.New(h.client, "jorc/default").Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Release(context.Background()) })
		session = lock.Session()
	}
	h.put(cluster.KeyControl, `{"format":1}`)
	h.put(cluster.StageStopsKey("edge"), `{"format":1}`)
	h.put(cluster.TurnKey("n1", "edge"), fmt.Sprintf(`{"format":1,"id":"1.a","content":"new","session":%q}`, session))
	proxy := h.server.Proxy()
	proxy.Do(h.take)
	through := proxy.Client()
	store := kv.New(through, "jorc/default")
	part := stage.Part{
		Stages: stage.New(store), Report: cluster.New(through, "jorc", "default").ReportWriter("n1"),
		Failing: func(context.Context, []string) ([]string, error) { return nil, nil },
	}
	h.hosts.Begin(stage.Files{Compare: func(replace.File) ([]byte, bool, error) { return []byte("old"), false, nil }}, []config.Stage{edge})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.hosts.Run(ctx, part, []config.Stage{edge}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

// take is the fault of the first transaction that takes a turn.
func (h *offeredHost) take(r *http.Request) consultest.Fault {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Contains(body, []byte("/turn-edge")) && bytes.Contains(body, []byte("/nodes/n1")) && !bytes.Contains(body, []byte(`"cas"`)) {
		h.permits++
	}
	if err != nil || h.body != nil || !bytes.Contains(body, []byte("check-session")) || !bytes.Contains(body, []byte("/nodes/n1")) {
		return consultest.Fault{}
	}
	h.body = body
	return h.fault
}

func (h *offeredHost) put(key, value string) {
	h.t.Helper()
	if err := h.client.KVPut(h.t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte(value)}); err != nil {
		h.t.Fatal(err)
	}
}

// taken returns what Take does once the host has noticed its turn.
func (h *offeredHost) taken(ctx context.Context) error {
	h.t.Helper()
	var taken error
	consultest.Eventually(h.t, "the turn", func(context.Context) error {
		taken = h.hosts.Take(ctx, h.staged)
		if taken != nil && strings.Contains(taken.Error(), "waits for its turn") {
			return taken
		}
		return nil
	})
	return taken
}

func (h *offeredHost) reported() cluster.StageReport {
	h.t.Helper()
	d, _, err := cluster.New(h.client, "jorc", "default").Report(h.t.Context(), "n1")
	if err != nil {
		h.t.Fatal(err)
	}
	return d.Stages["edge"]
}

// arriveLate brings the first transaction to Consul, which must not carry it out (again).
func (h *offeredHost) arriveLate() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.reported()
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPut, "http://"+h.server.HTTPAddr+"/v1/txn", bytes.NewReader(h.body))
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	_ = response.Body.Close()
	if after := h.reported(); response.StatusCode != http.StatusConflict || after.State != before.State || after.Turn != before.Turn {
		h.t.Errorf("the late transaction: %s; the report was %+v, is %+v", response.Status, before, after)
	}
}

// TestTurnTakenOnce: a turn is taken once, whatever becomes of the transaction's answer.
func TestTurnTakenOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]consultest.Fault{
		"at once": {}, "answer lost": {Cut: 1}, "request lost": {Status: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newOfferedHost(t, true, fault)
			if err := h.taken(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := h.reported(); got.Turn != "1.a" || got.State != cluster.StageChanging {
				t.Errorf("got %+v", got)
			}
			h.arriveLate()
			if err := h.hosts.Take(t.Context(), h.staged); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestTurnGivenUp: a host that gives up a turn of which it does not know whether it took it
// reports that, and the transaction that took it can no longer be carried out.
func TestTurnGivenUp(t *testing.T) {
	t.Parallel()
	h := newOfferedHost(t, true, consultest.Fault{Hang: true})
	ctx, giveUp := context.WithCancel(t.Context())
	var taking sync.WaitGroup
	taking.Go(func() {
		if err := h.taken(ctx); err == nil || errors.Is(err, watch.ErrTurn) {
			t.Errorf("got %v, want that the outcome is not known", err)
		}
	})
	consultest.Eventually(t, "the transaction", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.body == nil {
			return errors.New("none")
		}
		return nil
	})
	giveUp()
	taking.Wait()
	consultest.Eventually(t, "the end of the turn", func(context.Context) error {
		if got := h.reported(); got.Turn != "1.a" || got.State != "" {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	h.arriveLate()
}

// TestTurnVoid: a turn that was withdrawn, or that no orchestrator offered, is not taken.
func TestTurnVoid(t *testing.T) {
	t.Parallel()
	h := newOfferedHost(t, true, consultest.Fault{Status: http.StatusInternalServerError})
	var once sync.Once
	h.hosts.Begin(stage.Files{Compare: func(replace.File) ([]byte, bool, error) {
		once.Do(func() { h.put(cluster.KeyControl, `{"format":1,"paused":{"by":"ann"}}`) })
		return []byte("old"), false, nil
	}}, nil)
	if err := h.taken(t.Context()); !errors.Is(err, watch.ErrTurn) {
		t.Errorf("a turn whose offer became void: %v", err)
	}
	if got := h.reported(); got.Turn != "" {
		t.Errorf("got %+v", got)
	}
	h.arriveLate()

	byHand := newOfferedHost(t, false, consultest.Fault{})
	consultest.Eventually(t, "some decisions about the turn", func(context.Context) error {
		if err := byHand.hosts.Take(t.Context(), byHand.staged); !errors.Is(err, watch.ErrTurn) {
			t.Fatalf("a turn that no orchestrator offered: %v", err)
		}
		byHand.mu.Lock()
		defer byHand.mu.Unlock()
		if byHand.permits < 6 {
			return fmt.Errorf("%d", byHand.permits)
		}
		return nil
	})
	if got := byHand.reported(); got.Turn != "" {
		t.Errorf("got %+v", got)
	}
}
