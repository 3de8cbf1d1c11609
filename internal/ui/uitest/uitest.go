// Package uitest has clusters in a real Consul for tests of what shows a fleet.
package uitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/ui"
)

// Secret is the value of the param "db_password", which its schema calls a secret.
const Secret = "s3cret-of-the-database"

// Cluster is a cluster of one test.
type Cluster struct {
	*fleet.Cluster
	Server *consultest.Server
	Client *consul.Client // with the rights of what shows the fleet
	Fleets *ui.Fleets     // after Run

	t testing.TB
}

// New creates a cluster of that name, without members, with the params "db_password" and
// "motd".
func New(t testing.TB, s *consultest.Server, client *consul.Client, name string) *Cluster {
	t.Helper()
	f := Of(t, s, client, name)
	f.Must(f.Init(t.Context(), fleet.InitOptions{Leaders: 1}))
	f.Param("db_password", Secret, `{"type":"string","secret":true}`)
	f.Param("motd", "welcome", "")
	return f
}

// Of returns a cluster that exists, for a client with other rights.
func Of(t testing.TB, s *consultest.Server, client *consul.Client, name string) *Cluster {
	return &Cluster{t: t, Server: s, Client: client, Cluster: fleet.New(s.Client(), "jorc", name)}
}

// Run runs fleets until the test ends.
func (f *Cluster) Run(o ui.FleetOptions) *ui.Fleets {
	f.Fleets = ui.NewFleets(o)
	f.background("the fleets", f.Fleets.Run)
	consultest.Eventually(f.t, "the fleets run", func(ctx context.Context) error {
		_, err := f.Fleets.Fleet(ctx, "", false)
		return err
	})
	return f.Fleets
}

// background runs a component until the test ends.
func (f *Cluster) background(what string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("%s: %v", what, err)
		}
	})
}

// Must ends the test if err is an error.
func (f *Cluster) Must(_ any, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// Node is the name of a host of this test: the catalog belongs to all tests.
func (f *Cluster) Node(name string) string { return f.Name() + "-" + name }

// Param sets a param of the cluster, with its schema if that is not empty.
func (f *Cluster) Param(key, value, schema string) {
	f.t.Helper()
	_, err := f.ChangeProfile(f.t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		v, err := profile.Text(value)
		if err == nil {
			d, err = e.Set(d, profile.Scope{}, key, v, profile.Ref{})
		}
		if err != nil || schema == "" {
			return d, err
		}
		text, err := profile.ParseValue(schema)
		if err != nil {
			return d, err
		}
		return e.SetSchema(d, key, text)
	})
	f.Must(nil, err)
}

// Rules sets the rules of the cluster.
func (f *Cluster) Rules(text string) {
	f.t.Helper()
	v, err := profile.ParseValue(text)
	f.Must(nil, err)
	f.Must(f.ChangeProfile(f.t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Set(d, profile.Scope{}, runs.ParamRules, v, profile.Ref{})
	}))
}

// Host is a host to join.
type Host struct {
	Name    string
	Role    string
	Service string // without the cluster's name
	Check   string // the state of the service's check
	// Requires is a service that the host requires; empty: none.
	Requires string
	// Gossip: it has the check of gossip. Consul's leader removes, once a minute, nodes that have one and that it does not
	// know.
	Gossip bool
}

// JoinHost registers a host with an agent and a service, and makes it a member.
func (f *Cluster) JoinHost(h Host) {
	f.t.Helper()
	node, presence, service := f.Node(h.Name), "jorc-"+f.Name(), h.Service+"-"+f.Name()
	for _, r := range []*consul.CatalogRegistration{
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: presence, Service: "jorc"},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + presence, ServiceID: presence, ServiceName: "jorc", Status: "passing"}},
		},
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: h.Service, Service: service, Port: 80},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + h.Service, Name: h.Service, ServiceID: h.Service, ServiceName: service, Status: h.Check}},
		},
	} {
		f.Must(nil, f.Server.Client().CatalogRegister(f.t.Context(), r))
	}
	if h.Gossip {
		f.Server.Bystanders(node)
		f.Must(nil, f.Server.Client().CatalogRegister(f.t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"}},
		}))
	}
	f.Must(f.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles, r.Zone, r.Provides = []string{h.Role}, "rack-"+h.Name, []string{service}
		if h.Requires != "" {
			r.Requires = []cluster.Requirement{{Target: h.Requires + "-" + f.Name(), Count: 1}}
		}
		v, err := profile.Text(Secret)
		if err == nil {
			r.Params, err = r.Params.Set("db_password", v, profile.Ref{})
		}
		return r, err
	}))
}

// Orchestrate runs an orchestrator on a host that paces rollouts until the test ends.
func (f *Cluster) Orchestrate(name string) {
	f.t.Helper()
	f.background("the orchestrator", orchestrator.New(orchestrator.Options{
		Client: f.Client, Prefix: "jorc", Cluster: f.Name(), Node: f.Node(name), Grants: true, Interval: time.Second,
	}).Run)
}

// Stage makes a host report a stage in which it waits for a grant because of what changed.
func (f *Cluster) Stage(name, stage string, changed ...string) {
	f.t.Helper()
	f.Must(f.ReportWriter(f.Node(name)).Change(f.t.Context(), func(r cluster.Report) (cluster.Report, error) {
		r.Stages = map[string]cluster.StageReport{stage: {
			Policy: cluster.StagePolicy{MaxParallel: "1"}, Wants: StageDigest, Changed: stageInputs(changed),
		}}
		return r, nil
	}))
}

// StageDigest is the digest of all content and of all inputs of stages.
const StageDigest = "0123456789abcdef"

func stageInputs(names []string) cluster.StageInputs {
	var list []cluster.StageInput
	for _, name := range names {
		list = append(list, cluster.StageInput{Name: name, Digest: StageDigest})
	}
	return cluster.StageInputsOf(list)
}

// FailStage makes a host take the turn that it is offered, and fail.
func (f *Cluster) FailStage(name, of, reason string, changed ...string) {
	f.t.Helper()
	id := cluster.FilesChange(of)
	var g change.Grant
	consultest.Eventually(f.t, f.Node(name)+" is offered a grant", func(ctx context.Context) error {
		grants, err := change.GrantsAt(f.Store(), f.Node(name)).Get(ctx)
		if g = grants.Value.Of(id); err == nil && g.State != pace.Offered {
			err = errors.New("no turn")
		}
		return err
	})
	f.Must(f.ReportWriter(f.Node(name)).Change(f.t.Context(), func(r cluster.Report) (cluster.Report, error) {
		r.Stages = map[string]cluster.StageReport{of: {
			Policy: cluster.StagePolicy{MaxParallel: "1"}, Taken: stageInputs(changed), State: cluster.StageRestored, Reason: reason,
			Wants: StageDigest, Changed: stageInputs(changed),
		}}
		now := time.Now().UTC().Truncate(time.Second)
		return r.WithAnswer(cluster.Answer{Change: id, ID: g.ID, Tag: g.Tag, State: cluster.GrantDone, Since: now, Ended: now}), nil
	}))
}

// Trigger begins a rollout with a canary.
func (f *Cluster) Trigger(version string) {
	f.t.Helper()
	f.Must(rollout.New(f.Client, "jorc", f.Name()).Trigger(f.t.Context(), rollout.Request{
		Version: version, By: "ann", Policy: func(p *pace.Policy) { p.Canary, p.MaxParallel = 1, pace.Amount{N: 3} },
		Exceptions: pace.Exceptions{DuringFreeze: "a hole in the fence", OverBudget: "the hole is open"},
	}))
}
