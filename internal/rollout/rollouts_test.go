package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// shared is the one Consul of the tests that do not harm it.
type shared struct {
	*consultest.Server
	client *consul.Client
}

// TestRollouts runs the tests that share a Consul: a server lives as long as
// the test that started it.
func TestRollouts(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	s := &shared{server, server.Client()}
	for name, test := range map[string]func(*testing.T, *system){
		"Trigger": testTrigger, "Supersede": testSupersede, "Nobody": testNobody, "Operate": testOperate, "Policy": testPolicyHalfWay,
		"Apply": testApply, "ApplyRollback": testApplyRollback, "Damaged": testDamaged, "Wait": testWait, "Race": testRace, "FailedOnly": testFailedOnly,
		"Halted": testHalted, "NoVersion": testNoVersion, "Flags": testFlags,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSystem(t, s))
		})
	}
}

// system is a cluster of the test's own with its rollouts.
type system struct {
	t       *testing.T
	client  *consul.Client
	name    string
	cluster *cluster.Cluster
	ledger  *nodes.Ledger
	*rollout.Rollouts
}

var systems atomic.Int64

func newSystem(t *testing.T, s *shared) *system {
	t.Helper()
	name := fmt.Sprintf("c%d", systems.Add(1))
	f := &system{
		t: t, client: s.client, name: name, cluster: cluster.New(s.client, "jorc", name), ledger: nodes.New(s.client, "jorc", name),
		Rollouts: rollout.New(s.client, "jorc", name),
	}
	if _, err := f.cluster.Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// join makes nodes members whose hosts and agents are there.
func (f *system) join(names ...string) {
	f.t.Helper()
	for _, node := range names {
		_, err := f.cluster.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
			r.Roles = []string{"web"}
			return r, nil
		})
		if err != nil {
			f.t.Fatal(err)
		}
		id := "jorc-" + f.name
		err = f.client.CatalogRegister(f.t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: id, Service: "jorc"},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"},
				{Node: node, CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: "passing"},
			},
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *system) report(version string, names ...string) {
	f.t.Helper()
	for _, node := range names {
		if _, err := f.ledger.Report(f.t.Context(), node, version); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *system) trigger(q rollout.Request) rollout.Triggered {
	f.t.Helper()
	got, err := f.Trigger(f.t.Context(), q)
	if err != nil {
		f.t.Fatalf("Trigger(%+v): %v", q, err)
	}
	return got
}

// cycle is what an orchestrator does.
func (f *system) cycle() rollout.Document {
	f.t.Helper()
	s, err := f.Load(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := f.Observe(f.t.Context(), s)
	if err != nil {
		f.t.Fatal(err)
	}
	next, limit, _ := rollout.Plan(s.Document, v, time.Now())
	if _, err := f.Apply(f.t.Context(), s, next, limit); err != nil {
		f.t.Fatal(err)
	}
	return next
}

func (f *system) put(key, value string) {
	f.t.Helper()
	if err := f.client.KVPut(f.t.Context(), &consul.KVPair{Key: "jorc/" + f.name + "/" + key, Value: []byte(value)}); err != nil {
		f.t.Fatal(err)
	}
}

// index is that of the last write to any of the cluster's keys.
func (f *system) index() uint64 {
	f.t.Helper()
	_, meta, err := f.client.KVList(f.t.Context(), "jorc/"+f.name+"/", consul.Query{Consistent: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return meta.Index
}

func (f *system) wantIs(what string, err, want error, says string) {
	f.t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		f.t.Errorf("%s = %v; want %v with %q", what, err, want, says)
	}
}

func canary(n int) func(*rollout.Policy) {
	return func(p *rollout.Policy) { p.Canary, p.MaxParallel = n, rollout.Amount{N: 2} }
}

func testTrigger(t *testing.T, f *system) {
	f.join("a1", "a2", "a3")
	_, err := f.Read(t.Context())
	if err != nil {
		t.Error(err)
	}
	_, err = f.Show(t.Context())
	f.wantIs("Show before any", err, rollout.ErrNone, "begins one")
	dry := f.trigger(rollout.Request{Version: "v1", Policy: canary(1), DryRun: true})
	if s, err := f.Read(t.Context()); err != nil || s.Exists || s.Desired != "" {
		t.Errorf("a dry run wrote %+v, %v", s, err)
	}
	if !dry.Changed || len(dry.Plan) != 2 || dry.Plan[0].Count != 1 || dry.Plan[1].Count != 2 {
		t.Errorf("a dry run plans %+v", dry)
	}
	got := f.trigger(rollout.Request{Version: "v1", By: "ann"})
	if !got.Changed || got.Previous != "" || got.Document.By != "ann" || !got.Document.Policy.Plain() {
		t.Errorf("the first trigger: %+v", got)
	}
	s, err := f.Read(t.Context())
	if err != nil || s.Desired != "v1" || !s.Exists || !rollout.Admit(s, rollout.Self{}, time.Now()).OK() {
		t.Errorf("after a plain trigger: %+v, %v", s, err)
	}
	f.report("v1", "a1", "a2", "a3")
	got = f.trigger(rollout.Request{Version: "v2", Policy: canary(1), RequireConverged: true})
	if !got.Changed || got.Previous != "v1" || got.Document.Previous != "v1" || got.Superseded != nil {
		t.Errorf("with a policy: %+v", got)
	}
	before := f.index()
	if got := f.trigger(rollout.Request{Version: "v2", Policy: canary(1)}); got.Changed || got.Note != "" {
		t.Errorf("the same again: %+v", got)
	}
	if got := f.trigger(rollout.Request{Version: "v2"}); got.Changed || !strings.Contains(got.Note, "keeps its policy") {
		t.Errorf("the same without a policy: %+v", got)
	}
	if after := f.index(); after != before {
		t.Errorf("triggering the same again wrote: index %d, then %d", before, after)
	}
	for _, q := range []rollout.Request{{Version: "a/b"}, {}} {
		_, err := f.Trigger(t.Context(), q)
		f.wantIs("Trigger "+q.Version, err, nodes.ErrBadName, "")
	}
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v3", Policy: func(p *rollout.Policy) { p.Canary = -1 }})
	f.wantIs("a bad policy", err, rollout.ErrPolicy, "canary")
}

func testSupersede(t *testing.T, f *system) {
	f.join("b1", "b2", "b3")
	f.report("v1", "b1", "b2", "b3")
	f.trigger(rollout.Request{Version: "v1"})
	f.trigger(rollout.Request{Version: "v2", Policy: canary(1)})
	f.report("v2", "b1")
	if _, err := f.ledger.SetState(t.Context(), "b2", nodes.Config, nodes.State{State: nodes.Failed, Detail: "exit 4"}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v3", RequireConverged: true})
	f.wantIs("require converged", err, rollout.ErrNotConverged, "2 are not at v2: b")
	if s, err := f.Read(t.Context()); err != nil || s.Desired != "v2" {
		t.Errorf("a refused trigger wrote %+v, %v", s, err)
	}
	got := f.trigger(rollout.Request{Version: "v3"}).Superseded
	if got == nil || got.Version != "v2" || got.Count != 2 || len(got.Behind) != 2 {
		t.Errorf("superseded: %+v", got)
	}
	if s, err := f.Read(t.Context()); err != nil || s.Desired != "v3" || s.Document.Version != "v3" || s.Document.Previous != "v1" {
		t.Errorf("after it: %+v, %v", s, err)
	}
	f.put("current_version", "v9\n") // as an old script does
	s, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, ok := rollout.Adopt(s.Snapshot, time.Now())
	if !ok || next.Version != "v9" || !next.Policy.Plain() || next.Previous != "v1" {
		t.Errorf("adopted: %+v, %v", next, ok)
	}
	_, err = f.Show(t.Context())
	f.wantIs("Show of another version", err, rollout.ErrNone, `says "v9"`)
	if _, err := f.Apply(t.Context(), s, next, slots.Keep); err != nil {
		t.Error(err)
	}
	if status, err := f.Show(t.Context()); err != nil || status.Version != "v9" || status.Now.Pending != 3 {
		t.Errorf("Show = %+v, %v", status, err)
	}
}

func testNobody(t *testing.T, f *system) {
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canary(1)})
	f.wantIs("no member", err, rollout.ErrNobody, "join")
	f.join("d1")
	order := func(text string) func(*rollout.Policy) {
		return func(p *rollout.Policy) { p.Order, _ = rollout.ParseOrder(text) }
	}
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: order("db")})
	f.wantIs("an unknown role", err, rollout.ErrNobody, `role "db"`)
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: order("web=0")})
	f.wantIs("all kept back", err, rollout.ErrNobody, "of 1 members none")
	f.put("profile", `{"format":1,"name":"`+f.name+`","params":{"cluster/filter":"Zone == \"x\"","cluster/profile":"`+f.name+`"}}`)
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canary(1)})
	f.wantIs("all filtered", err, rollout.ErrNobody, "filter")
	f.put("profile", `{"format":1,"name":"`+f.name+`","params":{"cluster/filter":"Zone ==","cluster/profile":"`+f.name+`"}}`)
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canary(1)})
	f.wantIs("a bad filter", err, cluster.ErrInvalid, "cluster/filter")
}

func testOperate(t *testing.T, f *system) {
	f.join("e1", "e2")
	_, _, err := f.Pause(t.Context(), rollout.Stop{})
	f.wantIs("pause of nothing", err, rollout.ErrNone, "trigger")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	f.cycle()
	type step struct {
		name    string
		do      func() (rollout.Document, bool, error)
		changed bool
		state   string
	}
	pause := func() (rollout.Document, bool, error) {
		return f.Pause(t.Context(), rollout.Stop{Reason: "lunch", By: "ann"})
	}
	resume := func() (rollout.Document, bool, error) { return f.Resume(t.Context()) }
	promote := func() (rollout.Document, bool, error) { return f.Promote(t.Context()) }
	abort := func() (rollout.Document, bool, error) { return f.Abort(t.Context(), rollout.Stop{By: "ann"}) }
	for _, s := range []step{
		{"resume", resume, false, "canary"},
		{"pause", pause, true, "paused"},
		{"pause again", pause, false, "paused"},
		{"resume", resume, true, "canary"},
		{"promote", promote, true, "canary"},
		{"promote again", promote, false, "canary"},
		{"abort", abort, true, "aborted"},
		{"abort again", abort, false, "aborted"},
	} {
		before := f.index()
		d, changed, err := s.do()
		if err != nil || changed != s.changed || d.State() != s.state || (f.index() != before) != changed {
			t.Errorf("%s: %s, %v, %v; want %s, %v", s.name, d.State(), changed, err, s.state, s.changed)
		}
	}
	_, _, err = resume()
	f.wantIs("resume of what was aborted", err, rollout.ErrNone, "aborted")
	if s, err := f.Read(t.Context()); err != nil || s.Desired != "v1" || rollout.Admit(s, rollout.Self{Member: true}, time.Now()).OK() {
		t.Errorf("after abort: %+v, %v", s, err)
	}
	if got := f.trigger(rollout.Request{Version: "v1", Policy: canary(1)}); !got.Changed || got.Document.Phase != rollout.Waiting {
		t.Errorf("triggered anew: %+v", got)
	}
}

// testHalted: a rollout of a cluster that is paused, or only observed, says what
// goes on with it.
func testHalted(t *testing.T, f *system) {
	f.join("h1", "h2")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	want := func(want string) {
		t.Helper()
		s, err := f.Show(t.Context())
		if got := strings.Join(s.Waits, "; "); err != nil || got != want {
			t.Errorf("it waits for %q, %v; want %q", got, err, want)
		}
	}
	want("the orchestrator")
	if _, err := f.cluster.SetObserveOnly(t.Context(), true, cluster.Hold{Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	want("'jorc cluster observe-only off': the orchestrator admits nobody meanwhile")
	if _, err := f.cluster.Pause(t.Context(), cluster.Hold{Since: time.Now(), Reason: "storage is moved", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	want("'jorc cluster resume': the cluster is paused: by ann: storage is moved")
}

func testPolicyHalfWay(t *testing.T, f *system) {
	f.join("g1", "g2", "g3", "g4")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	canaryDoc := f.cycle()
	got := f.trigger(rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.MaxParallel = rollout.Amount{N: 1} }})
	d := got.Document
	if !got.Changed || d.Policy.Canary != 1 || d.Policy.MaxParallel.N != 1 || d.Phase != rollout.Canary || !d.Rule.Full || !d.Started.Equal(canaryDoc.Started) {
		t.Errorf("another limit: %+v", d)
	}
	if d := f.cycle(); d.Rule.Full || d.Phase != rollout.Canary {
		t.Errorf("the plan after it: %+v", d)
	}
	if s, err := f.Load(t.Context()); err != nil || s.Group.Max != 1 {
		t.Errorf("slots: %+v, %v", s.Group, err)
	}
	d = f.trigger(rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.Canary = 0 }}).Document
	if d.Phase != rollout.Waiting || d.Rule.To != nil || d.Policy.MaxParallel.N != 1 {
		t.Errorf("other steps: %+v", d)
	}
}

func testApply(t *testing.T, f *system) {
	f.join("h1", "h2", "h3")
	f.trigger(rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.MaxParallel = rollout.Amount{N: 1} }})
	f.cycle()
	group := slots.New(f.cluster.Store(), slots.Options{})
	defer group.Close(context.Background())
	held, err := group.Acquire(t.Context(), rollout.Slots, slots.Keep, slots.Holder{Node: "h1", ID: rollout.ClaimID, Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	// a plan of before the slot was taken is refused, whatever it admits
	s, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := f.index()
	next := s.Document
	next.Rule = rollout.Rule{All: true}
	_, err = f.Apply(t.Context(), s, next, slots.Keep)
	f.wantIs("a plan that is too late", err, kv.ErrConflict, "")
	if f.index() != before {
		t.Error("it wrote")
	}
	// more slots let those go who wait
	first, err := group.Acquire(t.Context(), rollout.Slots, slots.Keep, slots.Holder{Node: "h1", ID: rollout.ClaimID, Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := group.Acquire(t.Context(), rollout.Slots, slots.Keep, slots.Holder{Node: "h2", ID: rollout.ClaimID, Durable: true})
		second <- err
	}()
	consultest.Eventually(t, "h2 waits", func(ctx context.Context) error {
		if v, _, err := group.Show(ctx, rollout.Slots); err != nil || len(v.Queue) != 1 {
			return fmt.Errorf("%+v, %w", v, err)
		}
		return nil
	})
	status, err := f.Show(t.Context())
	if err != nil || len(status.Holders) != 1 || status.Holders[0].Node != "h1" || status.Limit != 1 || status.Now.Working != 1 {
		t.Errorf("Show = %+v, %v", status, err)
	}
	f.trigger(rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.MaxParallel = rollout.Amount{N: 2} }})
	f.cycle()
	if err := <-second; err != nil {
		t.Errorf("h2: %v", err)
	}
	// nothing to do: nothing is written
	before = f.index()
	f.cycle()
	if f.index() != before {
		t.Error("a cycle without a change wrote")
	}
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func testApplyRollback(t *testing.T, f *system) {
	f.join("i1", "i2")
	f.report("v1", "i1", "i2")
	f.trigger(rollout.Request{Version: "v1"})
	f.trigger(rollout.Request{Version: "v2", Policy: func(p *rollout.Policy) { p.OnFailure = rollout.OnFailureRollback }})
	f.cycle()
	f.report("v2", "i1")
	if _, err := f.ledger.SetState(t.Context(), "i1", nodes.Config, nodes.State{State: nodes.Failed}); err != nil {
		t.Fatal(err)
	}
	if d := f.cycle(); d.Version != "v1" || d.Phase != rollout.RollingBack || d.RollbackOf == nil || d.RollbackOf.Version != "v2" {
		t.Errorf("after a failure: %+v", d)
	}
	if v, err := f.ledger.Desired(t.Context()); err != nil || v != "v1" {
		t.Errorf("desired is %q, %v", v, err)
	}
	f.report("v1", "i1")
	if d := f.cycle(); d.Phase != rollout.Done {
		t.Errorf("after it: %+v", d)
	}
}

func testDamaged(t *testing.T, f *system) {
	f.join("j1")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	for _, rubbish := range []string{"rubbish", `{"policy":{"max_parallel":"0%"}}`, `[]`} {
		f.put("current/rollout", rubbish)
		_, err := f.Read(t.Context())
		f.wantIs("Read of "+rubbish, err, kv.ErrDamaged, "")
		_, _, err = f.Resume(t.Context())
		f.wantIs("Resume of "+rubbish, err, kv.ErrDamaged, "writes a new one")
	}
	if got := f.trigger(rollout.Request{Version: "v1", Policy: canary(1)}); !got.Changed {
		t.Errorf("triggered over rubbish: %+v", got)
	}
	f.put("slots/rollout", "rubbish")
	f.cycle()
	if s, err := f.Load(t.Context()); err != nil || s.Group.Max != 1 && s.Group.Max != 2 {
		t.Errorf("slots after rubbish: %+v, %v", s.Group, err)
	}
	f.put("current/rollout", `{"format":2}`)
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v2"})
	f.wantIs("a newer format", err, kv.ErrNewer, "upgrade jorc on this host")
	f.put("current/rollout", `{"format":1,"version":"v1","phase":"done","later":{"x":1}}`)
	f.put("current_version", "v1")
	f.trigger(rollout.Request{Version: "v2"})
	p, _, err := f.client.KVGet(t.Context(), "jorc/"+f.name+"/current/rollout", consul.Query{})
	if err != nil || !strings.Contains(string(p.Value), `"later":{"x":1}`) {
		t.Errorf("what a newer jorc wrote is gone: %s, %v", p.Value, err)
	}
}

// testNoVersion: what somebody wrote as the desired version is none. The rollout
// stays as it is, and goes on once it is triggered again.
func testNoVersion(t *testing.T, f *system) {
	f.join("v1", "v2", "v3")
	f.trigger(rollout.Request{Version: "1.0", Policy: canary(1)})
	want := f.cycle()
	f.put("current_version", "{\"x")
	s, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := rollout.Adopt(s.Snapshot, time.Now()); ok {
		t.Errorf("adopted: %+v", next)
	}
	f.wantIs("Load", s.Damaged, kv.ErrDamaged, "current_version")
	_, err = f.Show(t.Context())
	f.wantIs("Show", err, kv.ErrDamaged, "'jorc update trigger 1.0' goes on")
	if got := f.trigger(rollout.Request{Version: "2.0", DryRun: true}); got.Superseded == nil || got.Superseded.Version != "1.0" {
		t.Errorf("another version: %+v", got)
	}
	if got := f.trigger(rollout.Request{Version: "1.0"}); !got.Changed {
		t.Errorf("triggered again: %+v", got)
	}
	s, err = f.Load(t.Context())
	if err != nil || s.Desired != "1.0" || s.Document.StateText() != want.StateText() || s.Document.Policy.Canary != 1 || !s.Document.Started.Equal(want.Started) {
		t.Errorf("after it: %+v, %v, want %+v", s.Snapshot, err, want)
	}
}

// testFlags: a flag whose value is the default makes a policy, too; and a dry run
// that admits nobody says what for.
func testFlags(t *testing.T, f *system) {
	f.join("f1", "f2")
	got := f.trigger(rollout.Request{Version: "v1", Policy: func(p *rollout.Policy) { p.MaxFailures = 0 }})
	if p := got.Document.Policy; p.Plain() || p.MaxParallel.String() != "25%" || p.OnFailure != rollout.OnFailurePause {
		t.Errorf("with at most 0 failures: %+v", p)
	}
	f.cycle()
	if _, _, err := f.Pause(t.Context(), rollout.Stop{}); err != nil {
		t.Fatal(err)
	}
	got = f.trigger(rollout.Request{Version: "v1", Policy: canary(1), DryRun: true})
	if len(got.Plan) != 0 || len(got.Waits) != 1 || !strings.Contains(got.Waits[0], "resume") {
		t.Errorf("a dry run of what is paused: %+v", got)
	}
}

// testRace: of many triggers at once each is whole.
func testRace(t *testing.T, f *system) {
	f.join("k1")
	errs := make(chan error)
	for i := range 8 {
		go func() {
			_, err := f.Trigger(t.Context(), rollout.Request{Version: fmt.Sprintf("v%d", i), Policy: canary(1 + i)})
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s, err := f.Read(t.Context())
	if err != nil || s.Desired != s.Document.Version || s.Desired != fmt.Sprintf("v%d", s.Document.Policy.Canary-1) {
		t.Errorf("in the end: %+v, %v", s, err)
	}
}

func testWait(t *testing.T, f *system) {
	_, err := f.Show(t.Context())
	f.wantIs("nothing", err, rollout.ErrNone, "")
	f.join("l1", "l2")
	wait := func() chan error {
		seen := make(chan struct{}, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- f.Wait(t.Context(), func(rollout.Status) {
				select {
				case seen <- struct{}{}:
				default:
				}
			})
		}()
		select {
		case <-seen:
		case err := <-ended:
			ended <- err
		}
		return ended
	}
	want := func(what string, ended chan error, target error, says string) {
		t.Helper()
		err := <-ended
		if target == nil && err == nil {
			return
		}
		f.wantIs(what, err, target, says)
	}
	f.trigger(rollout.Request{Version: "v1"})
	ended := wait()
	f.report("v1", "l1", "l2")
	want("plain, without an orchestrator", ended, nil, "")

	f.trigger(rollout.Request{Version: "v2", Policy: canary(1)})
	ended = wait()
	if _, _, err := f.Pause(t.Context(), rollout.Stop{Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	want("paused", ended, rollout.ErrStopped, "lunch")
	want("paused before", wait(), rollout.ErrStopped, "resume")
	if _, _, err := f.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended = wait()
	if _, _, err := f.Abort(t.Context(), rollout.Stop{}); err != nil {
		t.Fatal(err)
	}
	want("aborted", ended, rollout.ErrStopped, "aborted")

	f.trigger(rollout.Request{Version: "v3", Policy: canary(1)})
	ended = wait()
	if _, err := f.cluster.Pause(t.Context(), cluster.Hold{Reason: "storm"}); err != nil {
		t.Fatal(err)
	}
	want("the cluster is paused", ended, rollout.ErrStopped, "storm")
	if _, err := f.cluster.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended = wait()
	f.trigger(rollout.Request{Version: "v4", Policy: func(p *rollout.Policy) { p.MaxParallel = rollout.Amount{N: 1} }})
	want("superseded", ended, rollout.ErrFailed, "superseded by v4")
	ended = wait()
	f.cycle()
	f.report("v4", "l1", "l2")
	f.cycle()
	want("done", ended, nil, "")
	want("done before", wait(), nil, "")

	ctx, cancel := context.WithCancel(t.Context())
	f.trigger(rollout.Request{Version: "v5", Policy: canary(1)})
	err = f.Wait(ctx, func(rollout.Status) { cancel() })
	f.wantIs("given up", err, context.Canceled, "")
}
