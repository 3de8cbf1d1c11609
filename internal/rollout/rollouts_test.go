package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
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
		"Apply": testApply, "Void": testVoid, "GiveUp": testGiveUp, "Strangers": testStrangers, "ApplyRollback": testApplyRollback, "Damaged": testDamaged, "Wait": testWait, "Race": testRace, "FailedOnly": testFailedOnly,
		"Halted": testHalted, "NoVersion": testNoVersion, "Flags": testFlags, "HistoryOfLargeFleet": testHistoryOfLargeFleet,
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
	server  *consultest.Server
	client  *consul.Client
	name    string
	cluster *fleet.Cluster
	ledger  *fleet.Cluster
	*rollout.Rollouts
}

var systems atomic.Int64

func newSystem(t *testing.T, s *shared) *system {
	t.Helper()
	name := fmt.Sprintf("c%d", systems.Add(1))
	f := &system{
		t: t, server: s.Server, client: s.client, name: name, cluster: fleet.New(s.client, "jorc", name), ledger: fleet.New(s.client, "jorc", name),
		Rollouts: rollout.New(s.client, "jorc", name),
	}
	if _, err := f.cluster.Init(t.Context(), fleet.InitOptions{}); err != nil {
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
		f.server.Bystanders(node)
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
		if _, err := f.ledger.ReportVersion(f.t.Context(), node, version); err != nil {
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
	next := rollout.Plan(s.Document, v, time.Now()).Document
	f.replace(s, next)
	return next
}

// replace carries out the document of a plan that was made of s.
func (f *system) replace(s rollout.Stored, next rollout.Document) {
	f.t.Helper()
	if do := f.Replace(s, next); do != nil {
		t := f.cluster.Store().Txn()
		do(t)
		if _, err := t.Commit(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
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

func canary(n int) func(*pace.Policy) {
	return func(p *pace.Policy) { p.Canary, p.MaxParallel = n, pace.Amount{N: 2} }
}

func testTrigger(t *testing.T, f *system) {
	f.join("a1", "a2", "a3")
	_, err := f.Load(t.Context())
	if err != nil {
		t.Error(err)
	}
	_, err = f.Show(t.Context())
	f.wantIs("Show before any", err, rollout.ErrNone, "begins one")
	dry := f.trigger(rollout.Request{Version: "v1", Policy: canary(1), DryRun: true})
	if s, err := f.Load(t.Context()); err != nil || s.Exists || s.Desired != "" {
		t.Errorf("a dry run wrote %+v, %v", s, err)
	}
	if !dry.Changed || len(dry.Plan) != 2 || dry.Plan[0].Count != 1 || dry.Plan[1].Count != 2 {
		t.Errorf("a dry run plans %+v", dry)
	}
	got := f.trigger(rollout.Request{Version: "v1", By: "ann"})
	if !got.Changed || got.Previous != "" || got.Document.By != "ann" || !got.Document.Policy.Plain() {
		t.Errorf("the first trigger: %+v", got)
	}
	s, err := f.Load(t.Context())
	if err != nil || s.Desired != "v1" || !s.Exists {
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
		f.wantIs("Trigger "+q.Version, err, text.ErrName, "")
	}
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v3", Policy: func(p *pace.Policy) { p.Canary = -1 }})
	f.wantIs("a bad policy", err, pace.ErrPolicy, "canary")
}

func testSupersede(t *testing.T, f *system) {
	f.join("b1", "b2", "b3")
	f.report("v1", "b1", "b2", "b3")
	f.trigger(rollout.Request{Version: "v1"})
	f.trigger(rollout.Request{Version: "v2", Policy: canary(1)})
	f.report("v2", "b1")
	if _, err := f.ledger.SetState(t.Context(), "b2", cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "exit 4"}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v3", RequireConverged: true})
	f.wantIs("require converged", err, rollout.ErrNotConverged, "2 are not at v2: b")
	if s, err := f.Load(t.Context()); err != nil || s.Desired != "v2" {
		t.Errorf("a refused trigger wrote %+v, %v", s, err)
	}
	got := f.trigger(rollout.Request{Version: "v3"}).Superseded
	if got == nil || got.Version != "v2" || got.Count != 2 || len(got.Behind) != 2 {
		t.Errorf("superseded: %+v", got)
	}
	if s, err := f.Load(t.Context()); err != nil || s.Desired != "v3" || s.Document.Version != "v3" || s.Document.Previous != "v1" {
		t.Errorf("after it: %+v, %v", s, err)
	}
	f.put("current_version", "v9\n") // as an old script does
	s, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, ok := s.Adopted(time.Now())
	if !ok || next.Version != "v9" || !next.Policy.Plain() || next.Previous != "v1" {
		t.Errorf("adopted: %+v, %v", next, ok)
	}
	_, err = f.Show(t.Context())
	f.wantIs("Show of another version", err, rollout.ErrNone, `says "v9"`)
	f.replace(s, next)
	if status, err := f.Show(t.Context()); err != nil || status.Version != "v9" || status.Now.Waiting != 3 {
		t.Errorf("Show = %+v, %v", status, err)
	}
}

func testNobody(t *testing.T, f *system) {
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canary(1)})
	f.wantIs("no member", err, rollout.ErrNoMembers, "join")
	f.join("d1")
	order := func(text string) func(*pace.Policy) {
		return func(p *pace.Policy) { p.Order, _ = pace.ParseOrder(text) }
	}
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: order("db")})
	f.wantIs("an unknown role", err, rollout.ErrNoMembers, `role "db"`)
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: order("web=0")})
	f.wantIs("all kept back", err, rollout.ErrNoMembers, "none of 1 member takes part")
	f.put("profile", `{"format":1,"name":"`+f.name+`","params":{"cluster/filter":"Zone == \"x\"","cluster/profile":"`+f.name+`"}}`)
	_, err = f.Trigger(t.Context(), rollout.Request{Version: "v1", Policy: canary(1)})
	f.wantIs("all filtered", err, rollout.ErrNoMembers, "filter")
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
	promote := func() (rollout.Document, bool, error) { return f.Promote(t.Context(), "ann") }
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
	if s, err := f.Load(t.Context()); err != nil || s.Desired != "v1" || s.Document.Phase != pace.Aborted {
		t.Errorf("after abort: %+v, %v", s, err)
	}
	if got := f.trigger(rollout.Request{Version: "v1", Policy: canary(1)}); !got.Changed || got.Document.Phase != pace.Waiting {
		t.Errorf("triggered anew: %+v", got)
	}
}

// testHalted: a rollout of a cluster that is paused, or only observed, says what
// continues it.
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
	if _, err := f.cluster.SetObserveOnly(t.Context(), true, cluster.Hold{Since: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	want("'jorc cluster observe-only off': the orchestrator only observes: since 1970-01-01T00:00:00Z")
	if _, err := f.cluster.Pause(t.Context(), cluster.Hold{Since: time.Unix(0, 0), Reason: "storage is moved", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	want("'jorc cluster resume': the cluster is paused: since 1970-01-01T00:00:00Z by ann: storage is moved")
}

func testPolicyHalfWay(t *testing.T, f *system) {
	f.join("g1", "g2", "g3", "g4")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	canaryDoc := f.cycle()
	got := f.trigger(rollout.Request{Version: "v1", Policy: func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }})
	d := got.Document
	if !got.Changed || d.Policy.Canary != 1 || d.Policy.MaxParallel.N != 1 || d.Phase != pace.Canary || !d.Started.Equal(canaryDoc.Started) {
		t.Errorf("another limit: %+v", d)
	}
	if d := f.cycle(); d.Phase != pace.Canary {
		t.Errorf("the plan after it: %+v", d)
	}
	d = f.trigger(rollout.Request{Version: "v1", Policy: func(p *pace.Policy) { p.Canary = 0 }}).Document
	if d.Phase != pace.Waiting || d.Policy.MaxParallel.N != 1 {
		t.Errorf("other steps: %+v", d)
	}
}

// held is the rollout in the store of the orchestrator's lock.
func (f *system) held() (*rollout.Rollouts, *kv.Lease) {
	f.t.Helper()
	h, err := f.cluster.Store().Lock(f.t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = h.Release(context.Background()) })
	return f.Held(h), h
}

// offering is an orchestrator that offers what it planned on one state.
type offering struct {
	*change.Offers

	held   *kv.Lease
	ledger kv.Entry[change.Ledger]
	stored rollout.Stored
	state  rollout.State
	plan   rollout.Planned
}

// offering prepares what the holder of a lock would offer now.
func (f *system) offering(r *rollout.Rollouts, h *kv.Lease) *offering {
	f.t.Helper()
	o := &offering{Offers: change.NewOffers(h), held: h}
	var err error
	if o.ledger, err = o.Get(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	o.stored, o.state, o.plan = f.prepare(r)
	return o
}

// write offers it.
func (o *offering) write(t *testing.T) (kv.Entry[change.Ledger], error) {
	t.Helper()
	grants := o.stored.Grants(o.state, o.plan, time.Now())
	if len(grants) == 0 {
		return o.ledger, nil
	}
	txn := o.held.Store().Txn()
	o.stored.Fence(txn)
	offered := o.Add(txn, o.ledger, grants)
	done, err := txn.Commit(t.Context())
	if err != nil {
		return o.ledger, err
	}
	ledger, _ := offered.Written(done)
	return ledger, nil
}

// prepare plans what r would offer now.
func (f *system) prepare(r *rollout.Rollouts) (rollout.Stored, rollout.State, rollout.Planned) {
	f.t.Helper()
	s, err := r.Load(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	state, err := r.Observe(f.t.Context(), s)
	if err != nil {
		f.t.Fatal(err)
	}
	return s, state, rollout.Plan(s.Document, state, time.Now())
}

// accept is what a host does with its offer.
func (f *system) accept(node string) error {
	p, err := f.Permit(f.t.Context(), node)
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.ledger.ReportWriter(node).ChangeFenced(f.t.Context(), func(d cluster.Report) (cluster.Report, error) {
		return d.WithAnswer(cluster.Answer{Change: cluster.VersionChange, ID: p.Grant.ID, Tag: p.Grant.Tag, State: cluster.GrantAccepted, Since: time.Now()}), nil
	}, f.fence(node, p))
	return err
}

func parallel(n int) func(*pace.Policy) {
	return func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: n} }
}

// testApply: of all plans that were made of one state one is carried out, and none
// once something of it changed.
func testApply(t *testing.T, f *system) {
	f.join("h1", "h2", "h3")
	f.trigger(rollout.Request{Version: "v1", Policy: parallel(1)})
	f.cycle()
	r, lock := f.held()
	if _, err := change.NewOffers(lock).Renew(t.Context(), change.Renewal{Begin: true}); err != nil {
		t.Fatal(err)
	}
	o := f.offering(r, lock)
	if len(o.plan.Offers) != 1 {
		t.Fatalf("offers: %+v", o.plan)
	}
	if ledger, err := o.write(t); ledger.Value.Seq != o.ledger.Value.Seq+1 || err != nil {
		t.Fatalf("Write = %+v, %v", ledger, err)
	}
	before := f.index()
	_, err := o.write(t) // as a late one
	f.wantIs("Write again", err, kv.ErrConflict, "")
	other := *o
	other.plan.Offers = []pace.Offer{{Node: "h1"}, {Node: "h2"}, {Node: "h3"}}
	_, err = other.write(t)
	f.wantIs("another plan of the same state", err, kv.ErrConflict, "")
	if f.index() != before {
		t.Error("they wrote")
	}
	status, err := f.Show(t.Context())
	if err != nil || len(status.Grants) != 1 || status.Grants[0].State != string(pace.Offered) || status.Limit != 1 || status.Now.Working != 1 {
		t.Errorf("Show = %+v, %v", status, err)
	}
	// nothing to do: nothing is written
	o = f.offering(r, lock)
	if ledger, err := o.write(t); ledger.Value != o.ledger.Value || err != nil || f.index() != before {
		t.Errorf("a plan without changes: %+v, %v", ledger, err)
	}
	// whatever changes in between makes an offer late
	for what, meanwhile := range map[string]func(){
		"the ledger":  func() { _, _ = o.Renew(t.Context(), change.Renewal{}) },
		"the rollout": func() { f.trigger(rollout.Request{Version: "v1", Policy: parallel(2)}) },
		"the version": func() { f.put("current_version", "v1\n") },
		"a pause": func() {
			_, _ = f.cluster.Pause(t.Context(), cluster.Hold{})
			_, _ = f.cluster.Resume(t.Context())
		},
		"the filter": func() { f.put("profile", `{"format":1,"name":"`+f.name+`","params":{"cluster/profile":"`+f.name+`"}}`) },
		"leaders":    func() { f.put("current/leaders", `{"format":1}`) },
	} {
		o := f.offering(r, lock)
		meanwhile()
		before := f.index()
		o.plan.Offers = []pace.Offer{{Node: "h1"}, {Node: "h2"}, {Node: "h3"}}
		_, err := o.write(t)
		f.wantIs("after a change of "+what, err, kv.ErrConflict, "")
		if f.index() != before {
			t.Errorf("after a change of %s: it wrote", what)
		}
	}
}

// fence is what an acceptance of p depends on as a host carries it out: what its watches delivered, and p.
func (f *system) fence(node string, p rollout.Permit) func(*kv.Txn) {
	f.t.Helper()
	store := f.cluster.Store()
	grants, err := change.GrantsAt(store, node).Get(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	control, err := kv.NewDoc[cluster.Control](store, cluster.KeyControl, 1).Get(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return func(t *kv.Txn) {
		change.Accept(t, node, p.Grant, grants.Index, control.Index)
		p.Fence(t)
	}
}

// testVoid: an offer cannot be accepted once the lock, the rollout, the version,
// the control or the grant itself has changed.
func testVoid(t *testing.T, f *system) {
	f.join("h1")
	f.trigger(rollout.Request{Version: "v1", Policy: parallel(1)})
	f.cycle()
	r, lock := f.held()
	offer := func() {
		o := f.offering(r, lock)
		o.plan.Offers = []pace.Offer{{Node: "h1"}}
		if _, err := o.write(t); err != nil {
			t.Fatal(err)
		}
	}
	for _, meanwhile := range []struct {
		what string
		do   func()
	}{
		{"the rollout", func() { f.trigger(rollout.Request{Version: "v1", Policy: parallel(2)}) }},
		{"the version", func() { f.put("current_version", "v1\n") }},
		{"the control", func() { _, _ = f.cluster.Pause(t.Context(), cluster.Hold{}); _, _ = f.cluster.Resume(t.Context()) }},
		{"the grant", func() { _ = f.Retry(t.Context(), "h1", false) }},
		{"the lock", func() { _ = lock.Release(context.Background()) }},
	} {
		offer()
		p, err := f.Permit(t.Context(), "h1")
		if ok, why := p.Offer("v1", time.Now()); err != nil || !ok {
			t.Fatalf("the offer is %v, %q, %v", ok, why, err)
		}
		fence := f.fence("h1", p)
		meanwhile.do()
		_, err = f.ledger.ReportWriter("h1").ChangeFenced(t.Context(), func(d cluster.Report) (cluster.Report, error) {
			return d.WithAnswer(cluster.Answer{Change: cluster.VersionChange, ID: p.Grant.ID, State: cluster.GrantAccepted}), nil
		}, fence)
		f.wantIs("accepting after a change of "+meanwhile.what, err, kv.ErrConflict, "")
		if d, _, err := f.ledger.Report(t.Context(), "h1"); err != nil || d.Answered(cluster.VersionChange).Open() {
			t.Errorf("after a change of %s the report says %+v, %v", meanwhile.what, d.Answered(cluster.VersionChange), err)
		}
	}
	p, err := f.Permit(t.Context(), "h1")
	if err != nil {
		t.Fatal(err)
	}
	f.put("host/h1/grants", fmt.Sprintf(`{"format":1,"grants":[{"change":"version","id":"by hand","tag":"v1","state":"offered","spec":%d}]}`, p.Grant.Spec))
	if p, err = f.Permit(t.Context(), "h1"); err != nil || p.Grant.ID != "by hand" {
		t.Fatalf("got %+v, %v", p.Grant, err)
	}
	if ok, why := p.Offer("v1", time.Now()); ok {
		t.Errorf("an offer without a session can be accepted: %q", why)
	}
}

// testGiveUp: a host that an operator gave up on no longer counts, and its
// place goes to the next.
func testGiveUp(t *testing.T, f *system) {
	f.join("h1", "h2")
	_, err := f.GiveUp(t.Context(), "h1", "ann", "")
	f.wantIs("without a grant", err, change.ErrNoGrant, "h1")
	f.trigger(rollout.Request{Version: "v1", Policy: parallel(1)})
	f.cycle()
	r, lock := f.held()
	o := f.offering(r, lock)
	if _, err := o.write(t); err != nil {
		t.Fatal(err)
	}
	first := o.plan.Offers[0].Node
	if err := f.accept(first); err != nil {
		t.Fatal(err)
	}
	if _, _, plan := f.prepare(r); len(plan.Offers) > 0 {
		t.Fatalf("beside %s: %+v", first, plan.Offers)
	}
	version, err := f.GiveUp(t.Context(), first, "ann", "disk")
	if again, err := f.GiveUp(t.Context(), first, "bob", ""); err != nil || again != version {
		t.Errorf("again: %q, %v", again, err)
	}
	_, _, plan := f.prepare(r)
	if version != "v1" || err != nil || len(plan.Offers) != 1 || plan.Offers[0].Node == first {
		t.Errorf("GiveUp = %q, %v; then %+v", version, err, plan.Offers)
	}
	status, err := f.Show(t.Context())
	if err != nil || len(status.Grants) != 1 || status.Grants[0].State != string(pace.GivenUp) || status.Grants[0].Reason != "ann: disk" || status.Now.GivenUp != 1 {
		t.Errorf("Show = %+v, %v", status, err)
	}
}

// testStrangers: a grant of a host that is not a member takes no place, and is
// named.
func testStrangers(t *testing.T, f *system) {
	f.join("h1")
	for i := range 20 {
		f.put(fmt.Sprintf("nodes/ghost%d", i), `{"format":1,"grants":[{"change":"version","id":"x","tag":"v1","state":"accepted"}]}`)
		f.put(fmt.Sprintf("host/ghost%d/grants", i), `{"format":1,"grants":[{"change":"version","id":"y","tag":"v1","state":"offered"}]}`)
	}
	f.trigger(rollout.Request{Version: "v1", Policy: parallel(1)})
	f.cycle()
	r, _ := f.held()
	if _, state, plan := f.prepare(r); len(plan.Offers) != 1 || len(state.Strangers) != 20 {
		t.Errorf("beside strangers: %+v, %v", plan.Offers, state.Strangers)
	}
}

func testApplyRollback(t *testing.T, f *system) {
	f.join("i1", "i2")
	f.report("v1", "i1", "i2")
	f.trigger(rollout.Request{Version: "v1"})
	f.trigger(rollout.Request{Version: "v2", Policy: func(p *pace.Policy) { p.OnFailure = pace.OnFailureRollback }})
	f.cycle()
	f.report("v2", "i1")
	if _, err := f.ledger.SetState(t.Context(), "i1", cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed}); err != nil {
		t.Fatal(err)
	}
	if d := f.cycle(); d.Version != "v1" || d.Phase != pace.RollingBack || d.RollbackOf == nil || d.RollbackOf.Version != "v2" {
		t.Errorf("after a failure: %+v", d)
	}
	if v, err := f.ledger.Desired(t.Context()); err != nil || v != "v1" {
		t.Errorf("desired is %q, %v", v, err)
	}
	f.report("v1", "i1")
	if d := f.cycle(); d.Phase != pace.Done {
		t.Errorf("after it: %+v", d)
	}
}

func testDamaged(t *testing.T, f *system) {
	f.join("j1")
	f.trigger(rollout.Request{Version: "v1", Policy: canary(1)})
	for _, rubbish := range []string{"rubbish", `{"policy":{"max_parallel":"0%"}}`, `[]`} {
		f.put("current/version", rubbish)
		s, err := f.Load(t.Context())
		if err != nil || s.Exists {
			t.Errorf("Load of %s = %+v, %v", rubbish, s, err)
		}
		f.wantIs("Load of "+rubbish, s.Damaged, kv.ErrDamaged, "")
		_, _, err = f.Resume(t.Context())
		f.wantIs("Resume of "+rubbish, err, kv.ErrDamaged, "writes a new one")
	}
	if got := f.trigger(rollout.Request{Version: "v1", Policy: canary(1)}); !got.Changed {
		t.Errorf("triggered over rubbish: %+v", got)
	}
	f.put("current/version", `{"format":3}`)
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v2"})
	f.wantIs("a newer format", err, kv.ErrNewer, "upgrade jorc on this host")
	f.put("current/version", `{"format":1,"version":"v1","finished":"2026-01-01T00:00:00Z","later":{"x":1}}`)
	f.put("current_version", "v1")
	f.trigger(rollout.Request{Version: "v2"})
	p, _, err := f.client.KVGet(t.Context(), "jorc/"+f.name+"/current/version", consul.Query{})
	if err != nil || !strings.Contains(string(p.Value), `"later":{"x":1}`) {
		t.Errorf("what a newer jorc wrote is gone: %s, %v", p.Value, err)
	}
}

// testNoVersion: the desired version is invalid. The rollout stays as it
// is, and continues once it is triggered again.
func testNoVersion(t *testing.T, f *system) {
	f.join("v1", "v2", "v3")
	f.trigger(rollout.Request{Version: "1.0", Policy: canary(1)})
	want := f.cycle()
	f.put("current_version", "{\"x")
	s, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := s.Adopted(time.Now()); ok {
		t.Errorf("adopted: %+v", next)
	}
	f.wantIs("Load", s.Damaged, kv.ErrDamaged, "current_version")
	_, err = f.Show(t.Context())
	f.wantIs("Show", err, kv.ErrDamaged, "'jorc update trigger 1.0' continues")
	if got := f.trigger(rollout.Request{Version: "2.0", DryRun: true}); got.Superseded == nil || got.Superseded.Version != "1.0" {
		t.Errorf("another version: %+v", got)
	}
	if got := f.trigger(rollout.Request{Version: "1.0"}); !got.Changed {
		t.Errorf("triggered again: %+v", got)
	}
	s, err = f.Load(t.Context())
	if err != nil || s.Desired != "1.0" || s.Document.StateText() != want.StateText() || s.Document.Policy.Canary != 1 || !s.Document.Started.Equal(want.Started) {
		t.Errorf("after it: %+v, %v, want %+v", s, err, want)
	}
}

// testFlags: a flag whose value is the default makes a policy, too; and a dry run
// that admits no host says why.
func testFlags(t *testing.T, f *system) {
	f.join("f1", "f2")
	got := f.trigger(rollout.Request{Version: "v1", Policy: func(p *pace.Policy) { p.MaxFailures = 0 }})
	if p := got.Document.Policy; p.Plain() || p.MaxParallel.String() != "25%" || p.OnFailure != pace.OnFailurePause {
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
	s, err := f.Load(t.Context())
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
			ended <- f.Wait(t.Context(), func(rollout.Status, []rollout.HostProgress) {
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
	f.trigger(rollout.Request{Version: "v4", Policy: func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }})
	want("superseded", ended, rollout.ErrFailed, "superseded by v4")
	ended = wait()
	f.cycle()
	f.report("v4", "l1", "l2")
	f.cycle()
	want("done", ended, nil, "")
	want("done before", wait(), nil, "")

	ctx, cancel := context.WithCancel(t.Context())
	f.trigger(rollout.Request{Version: "v5", Policy: canary(1)})
	err = f.Wait(ctx, func(rollout.Status, []rollout.HostProgress) { cancel() })
	f.wantIs("given up", err, context.Canceled, "")
}
