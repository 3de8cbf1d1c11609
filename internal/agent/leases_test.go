package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
)

// asking is a call of lease.Holder.Begin that has not returned.
type asking struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	status lease.Status
	err    error
}

// asks calls Begin on the host.
func (h *grantHost) asks(r lease.Request) *asking { return h.call(r, false) }

// asksOnce calls Begin on the host, and leaves with the first reason for which there is no place.
func (h *grantHost) asksOnce(id string) *asking { return h.call(lease.Request{ID: id}, true) }

func (h *grantHost) call(r lease.Request, once bool) *asking {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asking{t: h.fleet.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.status, a.err = h.simulated.Lease().Begin(ctx, r, func(s lease.Status) {
			if w := s.Waits; once && s.State == lease.Asked && w != nil && (w.Kind != lease.Waiting || w.Answered) {
				cancel()
			}
		})
	}()
	h.fleet.t.Cleanup(func() { cancel(); <-a.done })
	return a
}

// ready waits until the caller may go ahead.
func (a *asking) ready() {
	a.t.Helper()
	<-a.done
	if a.err != nil || a.status.State != lease.Ready {
		a.t.Fatalf("%+v, %v", a.status, a.err)
	}
}

// refused waits until the caller is refused, for a reason of that kind.
func (a *asking) refused(want lease.Kind) *lease.Refusal {
	a.t.Helper()
	<-a.done
	var r *lease.Refusal
	if !errors.As(a.err, &r) || r.Kind != want {
		a.t.Fatalf("%+v, %v; want %s", a.status, a.err, want)
	}
	return r
}

// waits waits until the host's lease waits for a reason of that kind.
func (h *grantHost) waits(want lease.Kind) *lease.Refusal {
	h.fleet.t.Helper()
	var last *lease.Refusal
	h.fleet.eventually("a lease that waits for "+string(want), func() error {
		s := h.simulated.Lease().Status()
		if last = s.Waits; last == nil || last.Kind != want {
			return fmt.Errorf("%+v: %+v", s, last)
		}
		return nil
	})
	return last
}

func (h *grantHost) endLease(id string) {
	h.fleet.t.Helper()
	ctx, cancel := context.WithTimeout(h.fleet.t.Context(), time.Minute)
	defer cancel()
	if err := h.simulated.Lease().End(ctx, id); err != nil {
		h.fleet.t.Fatal(err)
	}
}

// TestLease: without a budget one host at a time has a lease. It is out of service until its lease
// ends, and then the next gets its own; nothing of it is left in reports.
func TestLease(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	if refusal := f.hosts["h0"].asks(lease.Request{ID: "a"}).refused(lease.NoOrchestrator); !refusal.Final {
		t.Errorf("%+v is to be final", refusal)
	}
	f.orchestrate("boss", nil)
	f.eventually("an orchestrator", func() error {
		if ok, err := f.rollouts().Orchestrated(t.Context()); err != nil || !ok {
			return fmt.Errorf("%v, %w", ok, err)
		}
		return nil
	})
	f.toHosts.take()
	f.hosts["h0"].asks(lease.Request{ID: "a", Reason: "a patch", Drain: 50 * time.Millisecond}).ready()
	if !slices.Equal(f.isOut(), []string{"h0"}) {
		t.Errorf("%v are out", f.isOut())
	}
	f.hosts["h0"].asksOnce("b").refused(lease.HeldByOther)
	f.hosts["h0"].asks(lease.Request{ID: "a"}).ready() // again
	second := f.hosts["h1"].asks(lease.Request{ID: "c"})
	if why := f.hosts["h1"].waits(lease.Budget); !strings.Contains(why.Reason, "h0") || !why.Answered {
		t.Errorf("%+v does not name h0", why)
	}
	f.hosts["h2"].asksOnce("d").refused(lease.Budget)
	f.hosts["h0"].endLease("a")
	second.ready()
	if !slices.Equal(f.isOut(), []string{"h1"}) {
		t.Errorf("%v are out", f.isOut())
	}
	other := f.hosts["h1"].asks(lease.Request{ID: "other"}) // waits until the lease of this host is over
	f.hosts["h1"].endLease("c")
	other.ready()
	f.hosts["h1"].endLease("")
	if len(f.isOut()) > 0 {
		t.Errorf("%v are out", f.isOut())
	}
	f.eventually("reports without leases", func() error {
		for name := range f.hosts {
			if d := f.report(name); d.Lease != nil || len(d.Grants) > 0 {
				return fmt.Errorf("%s: %+v %+v", name, d.Lease, d.Grants)
			}
		}
		return nil
	})
	f.neverMore(1)
	requests, writes := f.toHosts.take()
	t.Logf("3 leases and 1 wish: %d requests, %d of them writes", requests, writes)
}

// isOut are the hosts in maintenance.
func (f *grantFleet) isOut() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.out {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// orchestrated starts an orchestrator and waits until it has its lock.
func (f *grantFleet) orchestrated() (stop func()) {
	f.t.Helper()
	stop = f.orchestrate("boss", nil)
	f.eventually("an orchestrator", func() error {
		if ok, err := f.rollouts().Orchestrated(f.t.Context()); err != nil || !ok {
			return fmt.Errorf("%v, %w", ok, err)
		}
		return nil
	})
	return stop
}

// again starts the host's agent again, as after a crash or an upgrade.
func (h *grantHost) again() {
	h.fleet.t.Helper()
	h.stop()
	h.start(h.fleet.toHosts.client(h.fleet), nil)
}

// reboot starts the host's agent in another boot.
func (h *grantHost) reboot() {
	h.stop()
	h.boot, h.booted = h.boot+"x", time.Now()
	h.start(h.fleet.toHosts.client(h.fleet), nil)
}

// isIn waits until the host's lease is in a state.
func (h *grantHost) isIn(want lease.State) {
	h.fleet.t.Helper()
	h.fleet.eventually(fmt.Sprintf("%s to be %q", h.name, want), func() error {
		if s := h.simulated.Lease().Status(); s.State != want {
			return fmt.Errorf("%+v: %+v", s, s.Waits)
		}
		return nil
	})
}

// free waits until no host has a lease, or is out of service.
func (f *grantFleet) free() {
	f.t.Helper()
	f.eventually("no lease", func() error {
		for name := range f.hosts {
			if d := f.report(name); d.Lease != nil || len(d.Grants) > 0 {
				return fmt.Errorf("%s: %+v %+v", name, d.Lease, d.Grants)
			}
		}
		if out := f.isOut(); len(out) > 0 {
			return fmt.Errorf("%v are out of service", out)
		}
		return nil
	})
}

// check sets a check of the host.
func (h *grantHost) check(status string) {
	h.fleet.t.Helper()
	err := h.fleet.client.CatalogRegister(h.fleet.t.Context(), &consul.CatalogRegistration{
		Node: h.name, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: h.name, CheckID: "disk", Name: "disk", Status: status}},
	})
	if err != nil {
		h.fleet.t.Fatal(err)
	}
}

// TestLeaseSurvives: an agent that is killed at any step of a lease continues with it, and another host
// gets its own only when it is over.
func TestLeaseSurvives(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	h, other := f.hosts["h0"], f.hosts["h1"]

	a := h.asks(lease.Request{ID: "a", Drain: time.Hour, Keep: time.Hour})
	h.isIn(lease.Draining)
	h.again()
	a.cancel()
	h.isIn(lease.Draining)
	if out := f.isOut(); !slices.Equal(out, []string{"h0"}) {
		t.Errorf("%v are out", out)
	}
	waiting := other.asks(lease.Request{ID: "b"})
	other.waits(lease.Budget)
	h.endLease("a")
	waiting.ready()
	other.again() // ready: it stays, without a call
	other.isIn(lease.Ready)
	next := h.asks(lease.Request{ID: "c", Keep: time.Hour}) // asked: it is kept
	h.waits(lease.Budget)
	h.again()
	next.cancel()
	h.waits(lease.Budget)
	other.check("critical")
	_ = expired(func(ctx context.Context) error { return other.simulated.Lease().End(ctx, "b") })
	other.waits(lease.NotHealthy)
	other.again() // ending: it waits for health
	other.isIn(lease.Ending)
	h.waits(lease.Budget)
	other.check("passing")
	h.isIn(lease.Placed) // no call is open: the host stays in service
	if out := f.isOut(); len(out) > 0 {
		t.Errorf("%v are out", out)
	}
	h.again()
	h.isIn(lease.Placed)
	h.asks(lease.Request{ID: "c"}).ready()
	h.reboot()
	f.free()
	f.neverMore(1)
}

// expired calls do with a context that ends at once.
func expired(do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return do(ctx)
}

// TestOfferOfNoPlaceArrivesLate: a host that is at work for a version is offered a lease, which takes no place. An offer that
// arrives when the version is done is void: it would take one, and the budget has none.
func TestOfferOfNoPlaceArrivesLate(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 2}})
	g := &gatekeeper{}
	late, passed := make(chan []byte, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(passed) })
	g.do(func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if !strings.HasPrefix(r.URL.Path, "/v1/txn") || !offersLease(body) {
			return false
		}
		select {
		case late <- body:
			<-passed
			panic(http.ErrAbortHandler) // the connection ends without an answer
		default:
			return false
		}
	})
	t.Cleanup(release)
	f.orchestrate("boss", g)
	f.trigger("v2", atOnce(2))
	f.atWork("v2", 2)
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 1}})
	waiting := f.hosts["h0"].asks(lease.Request{ID: "a"})
	body := <-late
	f.hosts["h0"].open("v2")
	f.eventually("h0 to be done", func() error {
		if d := f.report("h0"); d.AtWork() {
			return fmt.Errorf("%+v", d.Grants)
		}
		return nil
	})
	f.arriveLate(body)
	release()
	f.hosts["h0"].waits(lease.Budget)
	f.openAll("v2")
	waiting.ready()
	f.hosts["h0"].endLease("a")
	f.neverMore(2)
}

// offersLease reports whether a transaction offers h0 a lease.
func offersLease(body []byte) bool {
	var grants change.Grants
	value := written(body, cluster.GrantsKey("h0"))
	return json.Unmarshal(value, &grants) == nil && grants.Of(cluster.LeaseChange("h0")).State == pace.Offered
}

// written is what a transaction writes to a key of the cluster; nil: nothing.
func written(body []byte, key string) []byte {
	var ops []struct {
		KV struct {
			Verb, Key string
			Value     []byte
		}
	}
	_ = json.Unmarshal(body, &ops) // another request writes nothing
	for _, op := range ops {
		if op.KV.Verb == "cas" && strings.HasSuffix(op.KV.Key, "/"+key) {
			return op.KV.Value
		}
	}
	return nil
}

// TestLeaseEndsOnDiskFirst: when a host reports that its lease is over its record says so already. So it does not say again that it
// has it, where the answer to that is lost.
func TestLeaseEndsOnDiskFirst(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 1)
	f.orchestrated()
	h := f.hosts["h0"]
	h.asks(lease.Request{ID: "a"}).ready()
	var once sync.Once
	f.toHosts.do(func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if has, reports := reportsLease(body); strings.HasPrefix(r.URL.Path, "/v1/txn") && reports && !has {
			once.Do(func() {
				var record struct {
					Wish string
					Over bool
				}
				data, err := os.ReadFile(filepath.Join(h.dir, "state", "lease.json"))
				if err == nil {
					err = json.Unmarshal(data, &record)
				}
				if err != nil || record.Wish == "" || !record.Over {
					t.Errorf("as it reports that its lease is over the record is %s, %v", data, err)
				}
			})
		}
		return false
	})
	h.endLease("a")
	f.free()
	h.isIn(lease.None)
	once.Do(func() { t.Error("it did not report that its lease is over") })
}

// reportsLease reports whether a transaction writes the report of h0, and whether the host has a lease in it.
func reportsLease(body []byte) (has, reports bool) {
	var r cluster.Report
	reports = json.Unmarshal(written(body, cluster.ReportKey("h0")), &r) == nil
	return r.Answered(cluster.LeaseChange("h0")).Open(), reports
}

// TestLeaseEndsWithItsCall: a lease whose caller has left is not granted, or ends; one that is
// connected ends with its call also when it is ready.
func TestLeaseEndsWithItsCall(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	h, other := f.hosts["h0"], f.hosts["h1"]
	a := h.asks(lease.Request{ID: "a", Connected: true})
	h.isIn(lease.Ready)
	b := other.asks(lease.Request{ID: "b"})
	other.waits(lease.Budget)
	b.cancel()
	b.refused(lease.Budget)
	other.isIn(lease.None)
	a.cancel()
	f.free()
	c := h.asks(lease.Request{ID: "c", Drain: time.Hour})
	h.isIn(lease.Draining)
	c.cancel()
	f.free()
}

// TestLeaseIsOver: a lease whose time is over ends by itself when the host is healthy; otherwise it is
// trouble, and named.
func TestLeaseIsOver(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 1)
	f.orchestrated()
	h := f.hosts["h0"]
	h.check("critical")
	h.asks(lease.Request{ID: "a", Reason: "a patch", For: time.Millisecond}).ready()
	f.eventually("trouble", func() error {
		if d := f.report("h0"); d.Lease == nil || !strings.Contains(d.Lease.Trouble, "disk") {
			return fmt.Errorf("%+v", d.Lease)
		}
		return nil
	})
	if s := h.simulated.Lease().Status(); s.Trouble == "" || s.State != lease.Ready {
		t.Errorf("%+v", s)
	}
	h.check("passing")
	f.free()
}

// TestLeaseAdmitsItsCure: a lease that has ended but for the health of its host keeps nothing from it: the next version is what
// makes the host healthy.
func TestLeaseAdmitsItsCure(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	h := f.hosts["h0"]
	h.asks(lease.Request{ID: "a", Reason: "a reboot"}).ready()
	h.check("critical")
	_ = expired(func(ctx context.Context) error { return h.simulated.Lease().End(ctx, "a") })
	h.waits(lease.NotHealthy)
	f.trigger("v2", atOnce(1))
	f.openAll("v2")
	f.eventually("the host to begin with v2", func() error {
		if d := f.report("h0"); !slices.Contains(h.begun(), "v2") || d.Lease == nil || !d.Lease.Returns {
			return fmt.Errorf("%v, %+v, %+v: %s", h.begun(), d.Lease, d.Grants, f.show())
		}
		return nil
	})
	h.isIn(lease.Ending)
	h.check("passing")
	f.done("v2")
	f.eventually("no lease", func() error {
		if d := f.report("h0"); d.Lease != nil {
			return fmt.Errorf("%+v", d.Lease)
		}
		return nil
	})
	f.neverMore(1)
}

// TestLeaseHalts: a lease that waiting cannot help is refused at once.
func TestLeaseHalts(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	c := fleet.New(f.client, "jorc", "default")
	h := f.hosts["h0"]
	must := func(_ bool, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Pause(t.Context(), cluster.Hold{Reason: "a test"}))
	if r := h.asks(lease.Request{ID: "a"}).refused(lease.Paused); !r.Final || !strings.Contains(r.Reason, "a test") {
		t.Errorf("%+v", r)
	}
	f.free()
	must(c.Resume(t.Context()))
	must(c.Pause(t.Context(), cluster.Hold{Reason: "a test", Until: time.Now().Add(time.Hour)}))
	f.eventually("the host to know of the pause that ends", func() error {
		if r := h.asksOnce("a").refused(lease.Paused); r.At.IsZero() {
			return r
		}
		return nil
	})
	f.free()
	waiting := h.asks(lease.Request{ID: "a"})
	h.waits(lease.Paused) // it has no deadline, and the pause ends
	must(c.Resume(t.Context()))
	waiting.ready()
	h.endLease("a")
	f.free()
}

// TestLeaseWithinABudget: a rollout and leases never take out more hosts than the budget allows, and a host with
// a lease takes no part in the rollout meanwhile.
func TestLeaseWithinABudget(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 6)
	f.orchestrated()
	c := fleet.New(f.client, "jorc", "default")
	if _, err := c.SetBudget(t.Context(), &pace.Budget{MaxOut: pace.Amount{N: 2}}); err != nil {
		t.Fatal(err)
	}
	h := f.hosts["h0"]
	h.asks(lease.Request{ID: "a"}).ready()
	f.trigger("v2", atOnce(6))
	f.openAll("v2")
	f.eventually("all but the host with the lease to run v2", func() error {
		for name := range f.hosts {
			if v := f.report(name).Version; name != "h0" && v != "v2" {
				return fmt.Errorf("%s runs %s", name, v)
			}
		}
		return nil
	})
	if v := f.report("h0").Version; v != "v1" {
		t.Errorf("the host with the lease runs %s", v)
	}
	h.endLease("a")
	f.eventually("the host to follow", func() error { return f.at("v2") })
	f.neverMore(2)
}

// TestLeaseLost: a host that lost its record of a lease comes back into service, and its place is free.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	h := f.hosts["h0"]
	h.asks(lease.Request{ID: "a"}).ready()
	h.stop()
	if err := os.WriteFile(filepath.Join(h.dir, "state", "lease.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	waiting := f.hosts["h1"].asks(lease.Request{ID: "b"})
	f.hosts["h1"].waits(lease.Budget)
	h.start(f.toHosts.client(f), nil)
	waiting.ready()
	f.hosts["h1"].endLease("b")
	f.free()
	f.neverMore(1)
}

// TestLeaseRestored: a report that an old backup overwrote says again that the host has its lease, before
// another host gets one.
func TestLeaseRestored(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	before, _, err := f.client.KVGet(t.Context(), "jorc/default/nodes/h0", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	h := f.hosts["h0"]
	h.asks(lease.Request{ID: "a"}).ready()
	if err := f.client.KVPut(t.Context(), &consul.KVPair{Key: before.Key, Value: before.Value}); err != nil {
		t.Fatal(err)
	}
	h.again() // it reads its report
	f.eventually("the lease in the report", func() error {
		if d := f.report("h0"); d.Lease == nil || len(d.Grants) != 1 || !d.Grants[0].Open() {
			return fmt.Errorf("%+v %+v", d.Lease, d.Grants)
		}
		return nil
	})
	f.hosts["h1"].asksOnce("b").refused(lease.Budget)
	h.endLease("a")
	f.free()
}

// TestLeaseDelayed: an acceptance whose answer is lost is the acceptance; one that Consul carries out
// only after the host gave up on it changes nothing.
func TestLeaseDelayed(t *testing.T) {
	t.Parallel()
	for _, carried := range []bool{true, false} {
		t.Run(fmt.Sprint("carried out ", carried), func(t *testing.T) {
			t.Parallel()
			f := newGrantFleet(t, 2)
			f.orchestrated()
			h := f.hosts["h0"]
			var mu sync.Mutex
			var late []byte
			f.toHosts.do(func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				if late != nil || !writing(body) || !bytes.Contains(body, []byte("host/h0/grants")) {
					return false
				}
				late = body
				if carried {
					f.arrives(body, http.StatusOK)
				}
				panic(http.ErrAbortHandler)
			})
			h.asks(lease.Request{ID: "a"}).ready()
			mu.Lock()
			body := late
			mu.Unlock()
			if body == nil {
				t.Fatal("no acceptance was delayed")
			}
			h.endLease("a")
			f.free()
			if !carried {
				f.arriveLate(body)
				f.free()
			}
			f.hosts["h1"].asks(lease.Request{ID: "b"}).ready()
			f.neverMore(1)
		})
	}
}

// TestLeaseWaitsForJobs: a lease begins when the running task has ended, and no task begins while the host
// has it.
func TestLeaseWaitsForJobs(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 1)
	f.orchestrated()
	h := f.hosts["h0"]
	f.trigger("v2", atOnce(1))
	f.atWork("v2", 1)
	a := h.asks(lease.Request{ID: "a"})
	f.eventually("the lease to wait for the task", func() error {
		if s := h.simulated.Lease().Status(); s.Waits == nil || !strings.Contains(s.Waits.Reason, "a job runs") {
			return fmt.Errorf("%+v: %+v", s, s.Waits)
		}
		return nil
	})
	h.open("v2")
	a.ready()
	f.eventually("v2", func() error { return f.at("v2") })
	f.trigger("v3", atOnce(1))
	h.open("v3")
	if slices.Contains(h.begun(), "v3") {
		t.Error("a task began while the host had its lease")
	}
	h.endLease("a")
	f.eventually("v3", func() error { return f.at("v3") })
}

// TestLeaseTakeOver: a lease that was asked for, offered or accepted under another orchestrator is granted
// once.
func TestLeaseTakeOver(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	stop := f.orchestrated()
	first := f.hosts["h0"].asks(lease.Request{ID: "a"})
	first.ready()
	second := f.hosts["h1"].asks(lease.Request{ID: "b", Keep: time.Hour})
	f.hosts["h1"].waits(lease.Budget)
	stop()
	f.hosts["h0"].asks(lease.Request{ID: "a"}).ready() // the one that has its lease gets it again
	f.hosts["h1"].waits(lease.Waiting)                 // no orchestrator runs, and the next one is awaited
	f.orchestrated()
	f.hosts["h1"].waits(lease.Budget)
	f.hosts["h0"].endLease("a")
	second.ready()
	f.neverMore(1)
}

// TestLeaseOrdered: an operator orders the lease of another host. It is carried out once, also by the next agent
// and over a reboot, and ends with the order.
func TestLeaseOrdered(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrated()
	c := fleet.New(f.client, "jorc", "default")
	h, other := f.hosts["h0"], f.hosts["h1"]
	place := func(node, id string) error {
		return lease.Place(t.Context(), c, node, lease.NewOrder(lease.Request{ID: id, Reason: "a disk"}, "ann"))
	}
	drop := func(node string) {
		t.Helper()
		if was, err := lease.Withdraw(t.Context(), c, node, ""); err != nil || !was {
			t.Errorf("%v, %v", was, err)
		}
	}
	await := func(node, id string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := lease.AwaitOrder(ctx, c, node, id, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := place("h0", "o1"); err != nil {
		t.Fatal(err)
	}
	await("h0", "o1")
	if err := place("h0", "o1"); err != nil { // repeated
		t.Error(err)
	}
	var refusal *lease.Refusal
	if err := place("h0", "o2"); !errors.As(err, &refusal) || refusal.Kind != lease.HeldByOther || !strings.Contains(refusal.Reason, "ann") {
		t.Errorf("a second order: %v", err)
	}
	h.again()
	await("h0", "o1")
	waiting := other.asks(lease.Request{ID: "b"})
	other.waits(lease.Budget)
	drop("h0")
	waiting.ready()
	ctx, cancel := context.WithCancel(t.Context())
	reasons := make(chan string, 10)
	awaited := make(chan error, 1)
	if err := place("h0", "o3"); err != nil {
		t.Fatal(err)
	}
	go func() { awaited <- lease.AwaitOrder(ctx, c, "h0", "o3", func(why string) { reasons <- why }) }()
	for why := range reasons {
		if strings.Contains(why, "h1") {
			break
		}
	}
	cancel()
	if err := <-awaited; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	other.endLease("b")
	await("h0", "o3")
	h.reboot() // its lease ends, and the order is carried out no more
	f.free()
	h.isIn(lease.None) // which it is after its report says so
	h.again()
	f.eventually("the host to be up", func() error { return f.at("v1") })
	if s := h.simulated.Lease().Status(); s.State != lease.None {
		t.Errorf("the order is carried out again: %+v", s)
	}
	drop("h0")
	if err := place("h0", "o4"); err != nil {
		t.Fatal(err)
	}
	await("h0", "o4")
	drop("h0")
	f.free()
	f.neverMore(1)
}
