package stage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/watch"
)

// offeredHost is a host n1 of the stage edge that is offered a grant, with one fault in the
// transaction that takes it.
type offeredHost struct {
	t      *testing.T
	server *consultest.Server
	client *consul.Client
	hosts  *stage.Hosts
	fault  consultest.Fault
	staged watch.Staged

	mu       sync.Mutex
	body     []byte // of the first transaction that accepts the grant
	withdraw bool   // the orchestrator withdraws it meanwhile
	session  string // of the lock; empty: no orchestrator has it
}

// newOfferedHost starts a host with an offer of the lock's holder, or without a session. said is its report; empty: it has none.
func newOfferedHost(t *testing.T, orchestrated bool, fault consultest.Fault, said ...string) *offeredHost {
	t.Helper()
	h := &offeredHost{t: t, server: consultest.Start(t), fault: fault}
	h.client = h.server.Client()
	h.hosts = stage.NewHosts(t.TempDir(), nil, hclog.NewNullLogger())
	edge := config.Stage{Name: "edge", NodeDeadline: time.Hour}
	h.staged = watch.Staged{Stage: edge, Unit: "limit", Content: "new", Files: []replace.File{{Name: "limit", Destination: "/limit"}}}
	h.put(cluster.OrchestratorLock, "") // left by an orchestrator that ended
	if orchestrated {
		lock, err := kv.New(h.client, "jorc/default").Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Release(context.Background()) })
		h.session = lock.Session()
	}
	h.put(cluster.KeyControl, `{"format":1}`)
	h.put(cluster.StageStopsKey("edge"), `{"format":1}`)
	h.offer("1.1.a", pace.Offered)
	for _, report := range said {
		h.put(cluster.ReportKey("n1"), report)
	}
	proxy := h.server.Proxy()
	proxy.Do(h.take)
	through := proxy.Client()
	c := fleet.New(through, "jorc", "default")
	part := stage.Part{
		Host:    change.NewHost(change.HostOptions{Cluster: c, Report: c.ReportWriter("n1")}),
		Failing: func(context.Context, []string) ([]string, error) { return nil, nil },
	}
	h.hosts.Begin(stage.Files{Compare: func(replace.File) ([]byte, bool, error) { return []byte("old"), false, nil }}, []config.Stage{edge})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = part.Host.Run(ctx) }) // ends with ctx
	running.Go(func() {
		if err := h.hosts.Run(ctx, part, []config.Stage{edge}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

// take is the fault of the first transaction that accepts a grant.
func (h *offeredHost) take(r *http.Request) consultest.Fault {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || h.body != nil || !bytes.Contains(body, []byte("check-session")) || !bytes.Contains(body, []byte("/nodes/n1")) {
		return consultest.Fault{}
	}
	h.body = body
	if h.withdraw {
		h.offer("1.1.a", pace.Withdrawn)
	}
	return h.fault
}

// offer writes a grant of the present content.
func (h *offeredHost) offer(id string, state pace.Offering) {
	h.t.Helper()
	stops, _, err := h.client.KVGet(h.t.Context(), "jorc/default/"+cluster.StageStopsKey("edge"), consul.Query{})
	if err != nil || stops == nil {
		h.t.Fatal(stops, err)
	}
	g := change.Grant{Change: cluster.FilesChange("edge"), Tag: "new", ID: id, State: state, Since: time.Now().UTC(), Session: h.session, Spec: stops.ModifyIndex}
	raw, err := json.Marshal([]change.Grant{g})
	if err != nil {
		h.t.Fatal(err)
	}
	h.put(cluster.GrantsKey("n1"), `{"format":1,"grants":`+string(raw)+`}`)
}

func (h *offeredHost) put(key, value string) {
	h.t.Helper()
	if err := h.client.KVPut(h.t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte(value)}); err != nil {
		h.t.Fatal(err)
	}
}

// taken returns what Take does once the host has noticed its offer.
func (h *offeredHost) taken(ctx context.Context) error {
	h.t.Helper()
	var taken error
	consultest.Eventually(h.t, "the grant", func(context.Context) error {
		taken = h.hosts.Take(ctx, h.staged)
		if taken != nil && (strings.Contains(taken.Error(), "waits for its grant") || strings.Contains(taken.Error(), "has not begun")) {
			return taken
		}
		return nil
	})
	return taken
}

func (h *offeredHost) reported() (cluster.StageReport, cluster.Answer) {
	h.t.Helper()
	d, _, err := fleet.New(h.client, "jorc", "default").Report(h.t.Context(), "n1")
	if err != nil {
		h.t.Fatal(err)
	}
	return d.Stages["edge"], d.Answered(cluster.FilesChange("edge"))
}

// arriveLate brings the first transaction to Consul, which must not carry it out (again).
func (h *offeredHost) arriveLate() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	_, before := h.reported()
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPut, "http://"+h.server.HTTPAddr+"/v1/txn", bytes.NewReader(h.body))
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	_ = response.Body.Close()
	if _, after := h.reported(); response.StatusCode != http.StatusConflict || after != before {
		h.t.Errorf("the late transaction: %s; the answer was %+v, is %+v", response.Status, before, after)
	}
}

// TestGrantTakenOnce: a grant is accepted once, whatever becomes of the transaction's answer.
func TestGrantTakenOnce(t *testing.T) {
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
			if got, a := h.reported(); a.ID != "1.1.a" || !a.Open() || got.State != cluster.StageChanging {
				t.Errorf("got %+v, %+v", got, a)
			}
			h.arriveLate()
			if err := h.hosts.Take(t.Context(), h.staged); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestGrantTakenBeforeTheDiskWasLost: a host whose disk was wiped does not accept again what it said before is over, although
// that is still offered as it was. What is offered next it accepts.
func TestGrantTakenBeforeTheDiskWasLost(t *testing.T) {
	t.Parallel()
	h := newOfferedHost(t, true, consultest.Fault{}, `{"format":1,"grants":[{"change":"files.edge","id":"1.1.a","tag":"new","state":"done",
		"since":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:01:00Z"}],"stages":{"edge":{"policy":{},"rendered":true,"state":"done"}}}`)
	consultest.Eventually(t, "a report of what the host wants", func(ctx context.Context) error {
		if err := h.hosts.Take(ctx, h.staged); !errors.Is(err, watch.ErrNotTaken) {
			t.Fatalf("got %v, want that it waits", err)
		}
		if got, a := h.reported(); got.Wants != "new" || a.ID != "1.1.a" || a.State != cluster.GrantDone {
			return fmt.Errorf("%+v, %+v", got, a)
		}
		return nil
	})
	h.offer("1.2.a", pace.Offered)
	if err := h.taken(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, a := h.reported(); a.ID != "1.2.a" || !a.Open() {
		t.Errorf("got %+v, want the second offer", a)
	}
}

// TestGrantWithdrawn: an offer that is withdrawn while its acceptance is on its way is not accepted, also not late.
func TestGrantWithdrawn(t *testing.T) {
	t.Parallel()
	h := newOfferedHost(t, true, consultest.Fault{Status: http.StatusInternalServerError})
	h.mu.Lock()
	h.withdraw = true
	h.mu.Unlock()
	consultest.Eventually(t, "the transaction", func(ctx context.Context) error {
		if err := h.hosts.Take(ctx, h.staged); !errors.Is(err, watch.ErrNotTaken) {
			t.Fatalf("got %v, want that it waits", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.body == nil {
			return errors.New("none")
		}
		return nil
	})
	h.arriveLate()
	h.offer("1.2.a", pace.Offered)
	if err := h.taken(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, a := h.reported(); a.ID != "1.2.a" {
		t.Errorf("got %+v, want the second offer", a)
	}
}

// TestGrantVoid: an offer is void as soon as the cluster is paused, something of the stage is stopped, or no orchestrator has the
// lock.
func TestGrantVoid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, value string }{
		{cluster.KeyControl, `{"format":1,"paused":{"by":"ann"}}`},
		{cluster.StageStopsKey("edge"), `{"format":1,"stops":[{"node":"n2","grant":"1.1.b","content":"new"}]}`},
	} {
		t.Run(tt.key, func(t *testing.T) {
			t.Parallel()
			h := newOfferedHost(t, true, consultest.Fault{})
			var once sync.Once
			h.hosts.Begin(stage.Files{Compare: func(replace.File) ([]byte, bool, error) { // the old files are kept
				once.Do(func() { h.put(tt.key, tt.value) })
				return []byte("old"), false, nil
			}}, nil)
			consultest.Eventually(t, "the transaction", func(ctx context.Context) error {
				if err := h.hosts.Take(ctx, h.staged); !errors.Is(err, watch.ErrNotTaken) {
					t.Fatalf("got %v, want that it waits", err)
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.body == nil {
					return errors.New("none")
				}
				return nil
			})
			h.arriveLate()
			if got, a := h.reported(); a.ID != "" || got.State != "" {
				t.Errorf("got %+v, %+v", got, a)
			}
		})
	}
}

// TestGrantByHand: an offer that no orchestrator made is not taken.
func TestGrantByHand(t *testing.T) {
	t.Parallel()
	byHand := newOfferedHost(t, false, consultest.Fault{})
	for i := range 5 {
		if err := byHand.hosts.Take(t.Context(), byHand.staged); !errors.Is(err, watch.ErrNotTaken) {
			t.Fatalf("a grant that no orchestrator offered: %v", err)
		}
		consultest.Eventually(t, "a report of what it wants", func(context.Context) error {
			if got, _ := byHand.reported(); got.Wants != "new" {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		byHand.offer(fmt.Sprintf("1.%d.a", i+2), pace.Offered)
		<-byHand.hosts.Changes() // it has seen the offer
	}
	if _, a := byHand.reported(); a.ID != "" {
		t.Errorf("got %+v", a)
	}
}
