package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// member is a cluster "prod" with one member, the server's own node, and an
// orchestrator.
type member struct {
	t    *testing.T
	s    *consultest.Server
	runs *runs.Runs
}

func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{t: t, s: consultest.Start(t, consultest.WithACL())}
	client := m.s.Client()
	c := fleet.New(client, "jorc", "prod")
	m.runs = runs.New(c.Store())
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Join(t.Context(), m.s.Node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	m.background(orchestrator.New(orchestrator.Options{
		Client: client, Prefix: "jorc", Cluster: "prod", Node: m.s.Node, Interval: 200 * time.Millisecond,
		Grants: true,
	}).Run)
	return m
}

// background runs f until the test ends.
func (m *member) background(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("it ended with %v", err)
		}
	})
}

// work does the member's part in runs with that token.
func (m *member) work(token string, o runs.WorkerOptions) {
	client := m.s.ClientWithToken(token)
	o.Store, o.Node = kv.New(client, "jorc/prod"), m.s.Node
	o.Runner = workflow.New(workflow.Options{
		StateDir: filepath.Join(m.t.TempDir(), "state"), Node: m.s.Node, Tokens: workflow.TokensOf(client, "jorc", "prod"),
		Workflows: []config.Workflow{
			{Name: "token", Tasks: []config.Task{{Name: "one", Script: `echo {{.GenerateProfileToken "prod" 7200}}`}}},
			{Name: "say", Tasks: []config.Task{{Name: "one", Script: "echo hello"}}},
		},
	})
	m.background(runs.NewWorker(o).Run)
}

func (m *member) ask(id, name string) {
	m.t.Helper()
	if _, _, err := m.runs.Ask(m.t.Context(), id, runs.Request{Workflow: name}, "ann"); err != nil {
		m.t.Fatal(err)
	}
}

// becomes waits until a run is in a state for a reason.
func (m *member) becomes(id string, state runs.State, why string) {
	m.t.Helper()
	consultest.Eventually(m.t, "run "+id, func(ctx context.Context) error {
		d, err := m.runs.Show(ctx, id)
		if err != nil {
			return err
		}
		if len(d.Members) != 1 || d.State != state || !strings.Contains(d.Why+"\n"+d.Members[0].Why, why) {
			return fmt.Errorf("it is %+v, want %s and %q", d, state, why)
		}
		return nil
	})
}

const queueOnly = `key_prefix "jorc/prod/host/" { policy = "write" }`

// TestWaitsForRights: a run that the node may not read says so, and continues when
// the node has the rights.
func TestWaitsForRights(t *testing.T) {
	t.Parallel()
	m := newMember(t)
	m.work(m.s.NewToken(queueOnly), runs.WorkerOptions{})
	m.ask("r", "say")
	m.becomes("r", runs.Running, "this node cannot read the run: ")
	consultest.Eventually(t, "the run's own reason", func(ctx context.Context) error {
		d, err := m.runs.Show(ctx, "r")
		if err == nil && !strings.Contains(d.Why, consul.ErrDenied.Error()) {
			err = fmt.Errorf("the run waits because of %q", d.Why)
		}
		return err
	})
}

// TestNoTokenFailsTheJob: a job that needs a token which cannot be made fails, and
// the next run is not behind it.
func TestNoTokenFailsTheJob(t *testing.T) {
	t.Parallel()
	m := newMember(t)
	m.work(m.s.NewToken(queueOnly+` key_prefix "jorc/prod/" { policy = "read" }`), runs.WorkerOptions{})
	m.ask("token", "token")
	m.becomes("token", runs.Failed, "error calling GenerateProfileToken: make a token for the profile of cluster \"prod\": only callers with acl:write can")
	m.ask("next", "say")
	m.becomes("next", runs.Done, "")
}

// TestWaitsForHold: a run on a node that is on hold says so.
func TestWaitsForHold(t *testing.T) {
	t.Parallel()
	m := newMember(t)
	free := make(chan struct{})
	m.work(m.s.RootToken, runs.WorkerOptions{
		Held: func() string { return "by ann: disks are replaced" },
		Begin: func(ctx context.Context) (uint64, error) {
			select {
			case <-free:
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
	})
	m.ask("r", "say")
	m.becomes("r", runs.Running, m.s.Node+": by ann: disks are replaced")
	close(free)
	m.becomes("r", runs.Done, "")
	if d, err := m.runs.Show(t.Context(), "r"); err != nil || d.Why != "" || d.Members[0].Why != "" {
		t.Errorf("it is done, and waits: %+v", errors.Join(err, fmt.Errorf("%+v", d)))
	}
}
