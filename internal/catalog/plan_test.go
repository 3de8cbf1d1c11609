package catalog

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	want := newRegistration(config.Service{Name: "web", Checks: []config.Check{{TTL: time.Minute}}}, "me", leastTTL)
	ours := func(hash string) *consul.AgentService {
		return &consul.AgentService{ID: "web", Meta: map[string]string{MetaOwner: "me", MetaHash: hash}}
	}
	check := func(id, notes string) *consul.AgentCheck {
		return &consul.AgentCheck{CheckID: id, ServiceID: "web", Notes: notes}
	}
	maint := maintenanceCheck("web")
	for _, tc := range []struct {
		name string
		want []*registration
		have atAgent
		act  []action
	}{
		{"missing", []*registration{want}, atAgent{}, []action{{verb: doRegister, id: "web", want: want}}},
		{
			"as it should be",
			[]*registration{want},
			atAgent{map[string]*consul.AgentService{"web": ours(want.hash)}, map[string]*consul.AgentCheck{"service:web": check("service:web", ""), "sidecar": check("sidecar", "")}},
			[]action{{verb: doNothing, id: "web", want: want}},
		},
		{
			"a check is missing",
			[]*registration{want},
			atAgent{map[string]*consul.AgentService{"web": ours(want.hash)}, map[string]*consul.AgentCheck{"b": check("b", ""), "a": check("a", "")}},
			[]action{{verb: doRegister, id: "web", want: want, stale: []string{"a", "b"}}},
		},
		{
			"changed, in somebody's maintenance",
			[]*registration{want},
			atAgent{map[string]*consul.AgentService{"web": ours("old")}, map[string]*consul.AgentCheck{maint: check(maint, "jorc is being upgraded")}},
			[]action{{verb: doRegister, id: "web", want: want}},
		},
		{
			"in jorc's maintenance",
			[]*registration{want},
			atAgent{map[string]*consul.AgentService{"web": ours(want.hash)}, map[string]*consul.AgentCheck{"service:web": check("service:web", ""), maint: check(maint, stopNote)}},
			[]action{{verb: doNothing, id: "web", want: want, lift: true}},
		},
		{
			"held by another jorc",
			[]*registration{want},
			atAgent{services: map[string]*consul.AgentService{"web": {Meta: map[string]string{MetaOwner: "you"}}}},
			[]action{{verb: doRefuse, id: "web", want: want, owner: "you"}},
		},
		{
			"its check is another owner's",
			[]*registration{want},
			atAgent{
				map[string]*consul.AgentService{"other": {}},
				map[string]*consul.AgentCheck{"service:web": {CheckID: "service:web", ServiceID: "other"}},
			},
			[]action{{verb: doRefuse, id: "web", want: want, check: "service:web"}},
		},
		{
			"its check moves from one of ours",
			[]*registration{want},
			atAgent{
				map[string]*consul.AgentService{"other": {Meta: map[string]string{MetaOwner: "me"}}},
				map[string]*consul.AgentCheck{"service:web": {CheckID: "service:web", ServiceID: "other"}},
			},
			[]action{{verb: doRegister, id: "web", want: want}, {verb: doRemove, id: "other"}},
		},
		{
			"its check is one of the node",
			[]*registration{want},
			atAgent{checks: map[string]*consul.AgentCheck{"service:web": {CheckID: "service:web"}}},
			[]action{{verb: doRefuse, id: "web", want: want, check: "service:web"}},
		},
		{
			"left the configuration",
			nil,
			atAgent{services: map[string]*consul.AgentService{"web": ours("x"), "other": {}, "yours": {Meta: map[string]string{MetaOwner: "you"}}}},
			[]action{{verb: doRemove, id: "web"}},
		},
	} {
		got := plan(tc.want, tc.have, "me")
		if len(got)+len(tc.act) > 0 && !reflect.DeepEqual(got, tc.act) {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.act)
		}
	}
}

func TestHashFollowsWhatConsulIsTold(t *testing.T) {
	t.Parallel()
	base := func() config.Service {
		return config.Service{
			Name: "web", Port: 1, Tags: []string{"a"}, Meta: map[string]string{"a": "1", "b": "2"},
			Checks: []config.Check{{Script: []string{"true"}}},
		}
	}
	hash := func(change func(*config.Service)) string {
		s := base()
		change(&s)
		return newRegistration(s, "me", leastTTL).hash
	}
	same := hash(func(*config.Service) {})
	for name, tc := range map[string]struct {
		change func(*config.Service)
		want   bool // the same
	}{
		"nothing":         {func(*config.Service) {}, true},
		"script's args":   {func(s *config.Service) { s.Checks[0].Script = []string{"false"} }, true},
		"initial state":   {func(s *config.Service) { s.Checks[0].Status = consul.HealthPassing }, true},
		"on_stop":         {func(s *config.Service) { s.OnStop = OnStopDeregister }, true},
		"somebody's hash": {func(s *config.Service) { s.Meta[MetaHash] = "x" }, true},
		"port":            {func(s *config.Service) { s.Port++ }, false},
		"tag":             {func(s *config.Service) { s.Tags[0] = "b" }, false},
		"meta":            {func(s *config.Service) { s.Meta["a"] = "2" }, false},
		"check's kind":    {func(s *config.Service) { s.Checks[0] = config.Check{TCP: "x:1"} }, false},
		"check's TTL":     {func(s *config.Service) { s.Checks[0].Interval = time.Hour }, false},
	} {
		if got := hash(tc.change) == same; got != tc.want {
			t.Errorf("%s: the hash is the same = %v, want %v", name, got, tc.want)
		}
	}
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	// p, w, c: results and states; '.' = the state does not change.
	states := map[byte]string{'p': consul.HealthPassing, 'w': consul.HealthWarning, 'c': consul.HealthCritical, '.': ""}
	for _, tc := range []struct {
		t       thresholds
		in, out string
	}{
		{thresholds{}, "pcwcp", "pcwcp"},
		{thresholds{successBeforePassing: 2}, "pcppcwp", "pc.pc.p"},
		{thresholds{successBeforePassing: 2}, "cppc", "c.pc"},
		{thresholds{failuresBeforeCritical: 3}, "pcpcccp", "p.p..cp"},
		{thresholds{failuresBeforeCritical: 3}, "cpccc", "cp..c"},
		{thresholds{failuresBeforeWarning: 2, failuresBeforeCritical: 4}, "pccccp", "p.wwcp"},
		{thresholds{2, 1, 3}, "pcccpp", "pwwc.p"},
	} {
		var s streak
		for i := range len(tc.in) {
			if got, want := tc.t.next(&s, states[tc.in[i]]), states[tc.out[i]]; got != want {
				t.Errorf("%+v, %s: result %d gives %q, want %q", tc.t, tc.in, i+1, got, want)
			}
		}
	}
}

func TestNextDueLeavesOutWhatASlowRunAte(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, tc := range []struct{ due, now, want int }{
		{10, 5, 10}, {10, 10, 10}, {10, 11, 20}, {10, 20, 20}, {10, 21, 30}, {10, 1005, 1010},
	} {
		if got := nextDue(at(tc.due), at(tc.now), 10*time.Second); !got.Equal(at(tc.want)) {
			t.Errorf("due %d, now %d: %d, want %d", tc.due, tc.now, got.Unix(), tc.want)
		}
	}
}

func TestTTLLeavesRoomForLostHeartbeats(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ interval, timeout, want time.Duration }{
		{0, 0, time.Minute},
		{time.Second, time.Second, 30 * time.Second},
		{10 * time.Second, 5 * time.Second, 35 * time.Second},
		{time.Minute, 10 * time.Second, 190 * time.Second},
	} {
		r := newRegistration(config.Service{Name: "web", Checks: []config.Check{
			{Script: []string{"true"}, Interval: tc.interval, Timeout: tc.timeout},
		}}, "me", leastTTL)
		if got := r.wire.Checks[0].TTL; got != tc.want.String() {
			t.Errorf("interval %s, timeout %s: TTL %s, want %s", tc.interval, tc.timeout, got, tc.want)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		res           command.Result
		err           error
		state, output string
	}{
		{command.Result{Output: " fine\n"}, nil, consul.HealthPassing, "fine"},
		{command.Result{}, nil, consul.HealthPassing, ""},
		{command.Result{ExitCode: 1, Output: "hm"}, nil, consul.HealthWarning, "hm"},
		{command.Result{ExitCode: 1}, nil, consul.HealthWarning, "exit code 1"},
		{command.Result{ExitCode: 2}, nil, consul.HealthCritical, "exit code 2"},
		{command.Result{ExitCode: 124, TimedOut: true, Output: "x"}, nil, consul.HealthCritical, "timed out after 5s\nx"},
		{command.Result{ExitCode: 127}, command.ErrNotFound, consul.HealthCritical, command.ErrNotFound.Error()},
	} {
		state, output := classify(tc.res, tc.err, 5*time.Second)
		if state != tc.state || output != tc.output {
			t.Errorf("%+v: %s %q, want %s %q", tc.res, state, output, tc.state, tc.output)
		}
	}
}

func TestOwnerDiffersByStateDirectory(t *testing.T) {
	t.Parallel()
	if a, b := Owner("/var/lib/jorc"), Owner("/var/lib/jorc/"); a != b || !strings.HasSuffix(a, ":/var/lib/jorc") {
		t.Errorf("%q and %q", a, b)
	}
	if Owner("/a") == Owner("/b") {
		t.Error("two directories, one owner")
	}
	if got := fmt.Sprintf("%s %s %s", PresenceID(""), PresenceID("default"), PresenceID("prod")); got != "jorc jorc jorc-prod" {
		t.Error(got)
	}
}

func TestIDsThatAreTakenAreSaid(t *testing.T) {
	t.Parallel()
	ttl := func(ids ...string) (checks []config.Check) {
		for _, id := range ids {
			checks = append(checks, config.Check{ID: id, TTL: time.Minute})
		}
		return checks
	}
	r := NewRegistrar(nil, []config.Service{
		{Name: "jorc"}, {Name: "a", Checks: ttl("x")}, {Name: "a2", ID: "a"}, {Name: "b", Checks: ttl("x")}, {Name: "c", Checks: ttl("y", "y")}, {Name: "d"},
	}, RegistrarOptions{StateDir: t.TempDir()})
	r.loadStored()
	var got []string
	for _, s := range r.Status() {
		got = append(got, s.ID+" "+s.Error)
	}
	want := []string{
		"jorc ", "a ", "d ",
		`jorc service "jorc": its id is already used by jorc itself`,
		`a service "a": its id is already used by the configuration`,
		`b service "b": the id of its check "x" is already used by service "a"`,
		`c service "c": the id of its check "y" is already used by another check of this service`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
