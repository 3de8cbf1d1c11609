package fleetlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleetlock"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/leasetest"
	"github.com/jorc/jorc/internal/web"
)

// host is one whose agent answers FleetLock clients. It is a web.Source.
type host struct {
	*leasetest.Holder
	t    *testing.T
	addr string
}

func (h *host) Status() web.Status { return web.Status{} }

// newHost runs the agent's listener. Tests run as root, or as one of users.
func newHost(t *testing.T, hold time.Duration, users ...string) *host {
	t.Helper()
	h := &host{Holder: &leasetest.Holder{}, t: t}
	handler := fleetlock.New(fleetlock.Options{Holder: h.Holder, Users: users, Drain: time.Millisecond, Log: hclog.NewNullLogger()})
	handler.HoldFor(hold)
	s := web.New(web.Options{Addr: "127.0.0.1:0", Source: h, FleetLock: handler, Log: hclog.NewNullLogger()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.addr = s.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

// answer is what a client makes of an answer.
type answer struct {
	code        int
	Kind, Value string
}

// ask sends a request as Zincati does: no Content-Type, the body as indented JSON.
func (h *host) ask(path, body string, change ...func(*http.Request)) answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://"+h.addr+"/fleetlock/"+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("fleet-lock-protocol", "true")
	for _, c := range change {
		c(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode}
	if a.code != http.StatusOK {
		if err := json.Unmarshal(text, &a); err != nil || resp.Header.Get("Content-Type") != "application/json" {
			h.t.Errorf("%s: %s is not the JSON of the protocol: %v", path, text, err)
		}
	}
	return a
}

func body(id string) string {
	return "{\n  \"client_params\": {\n    \"id\": \"" + id + "\",\n    \"group\": \"default\"\n  }\n}"
}

const (
	preReboot   = "v1/pre-reboot"
	steadyState = "v1/steady-state"
	zincati     = "c988d2509fdf5cdcbed39037c56406fb"
)

// TestZincati replays an update: refused, then granted, the reboot, and steady.
func TestZincati(t *testing.T) {
	t.Parallel()
	h := newHost(t, 20*time.Millisecond)
	if got := h.ask(steadyState, body(zincati)); got.code != 200 {
		t.Errorf("at the boot: %+v", got)
	}
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	for range 2 {
		if got := h.ask(preReboot, body(zincati)); got != (answer{503, "budget", "the budget is used up"}) {
			t.Errorf("without a place: %+v", got)
		}
	}
	h.Refuse(nil)
	asked := 2
	for range 2 {
		consultest.Eventually(t, "a place", func(context.Context) error { // the host may take longer than an answer waits
			asked++
			got := h.ask(preReboot, body(zincati))
			if got.code != 200 && got.Value != "this host drains" {
				t.Errorf("with a place: %+v", got)
			}
			if got.code != 200 {
				return errors.New(got.Value)
			}
			return nil
		})
	}
	want := lease.Request{ID: zincati, Reason: "FleetLock, group default", Drain: time.Millisecond, Keep: 10 * time.Minute}
	requests := h.Requests()
	for _, r := range requests {
		if r != want {
			t.Errorf("the request is %+v, want %+v", r, want)
		}
	}
	if s := h.Holder.Status(); len(requests) != asked || s.State != lease.Ready || s.ID != zincati {
		t.Errorf("%d requests, and the lease is %+v", len(requests), s)
	}
	other := answer{409, "held_by_other", "this host is out of service for " + zincati}
	if got := h.ask(preReboot, body("another")); got != other {
		t.Errorf("another client: %+v", got)
	}
	if got := h.ask(steadyState, body("another")); got != other {
		t.Errorf("another client: %+v", got)
	}
	h.Sicken("check web is critical")
	if got := h.ask(steadyState, body(zincati)); got != (answer{503, "not_healthy", "check web is critical"}) {
		t.Errorf("after the reboot: %+v", got)
	}
	h.Sicken("")
	for range 2 {
		if got := h.ask(steadyState, body(zincati)); got.code != 200 {
			t.Errorf("in health: %+v", got)
		}
	}
	if s := h.Holder.Status(); s.State != lease.None {
		t.Errorf("the lease is %+v", s)
	}
}

// TestHeld: a request is answered as soon as the answer is yes.
func TestHeld(t *testing.T) {
	t.Parallel()
	h := newHost(t, time.Hour)
	h.Refuse(&lease.Refusal{Kind: lease.Budget, Reason: "the budget is used up"})
	answered := make(chan answer, 1)
	go func() { answered <- h.ask(preReboot, body(zincati)) }()
	consultest.Eventually(t, "the request", func(context.Context) error {
		if h.Open() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	h.Refuse(nil)
	if got := <-answered; got.code != 200 {
		t.Errorf("got %+v", got)
	}
}

// TestKinds: each refusal has a kind of the short list.
func TestKinds(t *testing.T) {
	t.Parallel()
	h := newHost(t, time.Hour)
	for kind, want := range map[lease.Kind]answer{
		lease.Budget: {503, "budget", "why"}, lease.Waiting: {503, "budget", "why"}, lease.Freeze: {503, "freeze", "why"},
		lease.Paused: {503, "paused", "why"}, lease.Held: {503, "paused", "why"},
		lease.NoOrchestrator: {503, "no_orchestrator", "why"}, lease.Unreachable: {503, "no_orchestrator", "why"},
		lease.NotHealthy: {503, "not_healthy", "why"}, lease.NotMember: {503, "not_member", "why"}, lease.HeldByOther: {409, "held_by_other", "why"},
		lease.InvalidRequest: {400, "invalid_request", "why"}, lease.InsideJob: {400, "invalid_request", "why"},
	} {
		h.Refuse(&lease.Refusal{Kind: kind, Reason: "why", Final: true})
		if got := h.ask(preReboot, body(zincati)); got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
}

// TestWrong: what is not the protocol gets no lease.
func TestWrong(t *testing.T) {
	t.Parallel()
	h := newHost(t, time.Hour)
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("fleet-lock-protocol", value) }
	}
	for _, test := range []struct {
		name, path, body string
		change           func(*http.Request)
		code             int
		value            string
	}{
		{"no header", preReboot, body(zincati), func(r *http.Request) { r.Header.Del("fleet-lock-protocol") }, 400, `the header "fleet-lock-protocol" is not "true"`},
		{"header", preReboot, body(zincati), header("1"), 400, `the header "fleet-lock-protocol" is not "true"`},
		{"method", steadyState, "", func(r *http.Request) { r.Method = http.MethodGet }, 405, "the method is GET: use POST"},
		{"no body", preReboot, "", nil, 400, "the body is not the JSON of the protocol: EOF"},
		{"two bodies", preReboot, body("a") + body("b"), nil, 400, "the body is not the JSON of the protocol: there is more behind the object"},
		{"no id", preReboot, `{"client_params":{"group":"default"}}`, nil, 400, "client_params has no id"},
		{"no group", preReboot, `{"client_params":{"id":"a"}}`, nil, 400, "client_params has no group"},
		{"no params", preReboot, `{}`, nil, 400, "client_params has no id"},
		{"group", preReboot, `{"client_params":{"id":"a","group":"a/b"}}`, nil, 400, "the group has other characters than a-z, A-Z, 0-9, '.' and '-'"},
		{"group of two lines", preReboot, `{"client_params":{"id":"a","group":"a\n"}}`, nil, 400, "the group has other characters than a-z, A-Z, 0-9, '.' and '-'"},
		{"long id", preReboot, body(strings.Repeat("x", lease.MostID+1)), nil, 400, "its ID has 129 bytes, and may have 128"},
		{"large body", preReboot, body(strings.Repeat("x", 4<<10)), nil, 413, "the body has more than 4096 bytes"},
		{"path", "v2/pre-reboot", body(zincati), nil, 404, "there is no /fleetlock/v2/pre-reboot: there are /fleetlock/v1/pre-reboot and /fleetlock/v1/steady-state; the base URL of a client ends with /fleetlock/"},
	} {
		change := func(*http.Request) {}
		if test.change != nil {
			change = test.change
		}
		if got, want := h.ask(test.path, test.body, change), (answer{test.code, "invalid_request", test.value}); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.name, got, want)
		}
	}
	if s := h.Holder.Status(); s.State != lease.None {
		t.Errorf("the lease is %+v", s)
	}
	// Other fields are for other servers.
	if got := h.ask(preReboot, `{"client_params":{"id":"a","group":"w.1-A","os":"fcos"},"version":2}`); got.code != 200 {
		t.Errorf("with more fields: %+v", got)
	}
}

// TestBrowser: a web page that points its name at this host is refused.
func TestBrowser(t *testing.T) {
	t.Parallel()
	h := newHost(t, time.Hour)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+h.addr+"/fleetlock/"+preReboot, strings.NewReader(body("a")))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	r.Header.Set("fleet-lock-protocol", "true")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || len(h.Requests()) > 0 {
		t.Errorf("status %d, requests %+v", resp.StatusCode, h.Requests())
	}
}

// TestElsewhere: without the block, and on an address that other hosts can reach, there is no such endpoint.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	h := &host{Holder: &leasetest.Holder{}, t: t}
	handler := fleetlock.New(fleetlock.Options{Holder: h.Holder, Log: hclog.NewNullLogger()})
	for _, o := range []web.Options{{Addr: "127.0.0.1:0"}, {Addr: "0.0.0.0:0", FleetLock: handler}} {
		o.Source, o.Log = h, hclog.NewNullLogger()
		s := web.New(o)
		if err := s.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		_, port, _ := strings.Cut(strings.TrimPrefix(s.Addr(), "[::]"), ":")
		resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%s/fleetlock/%s", port, preReboot), "", strings.NewReader(body("a")))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", o.Addr, resp.StatusCode)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestUnknownUsers: they are named.
func TestUnknownUsers(t *testing.T) {
	t.Parallel()
	errs := fleetlock.Unknown([]string{"root", "no-such-user", "4711"})
	if len(errs) != 1 || errs[0].Error() != `user "no-such-user": there is no such user` {
		t.Errorf("got %v", errs)
	}
}

// TestDrainBound: the configuration and a lease have the same bound of a drain.
func TestDrainBound(t *testing.T) {
	t.Parallel()
	if config.MostDrain != lease.MostDrain {
		t.Errorf("%v in the configuration, %v of a lease", config.MostDrain, lease.MostDrain)
	}
}
