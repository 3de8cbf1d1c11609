package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestRights: with the least policies, under default deny, an orchestrator and
// a node carry out a run, and a node writes what it says of its jobs and nothing else of
// runs.
func TestRights(t *testing.T) {
	t.Parallel()
	x := newSiteOn(t, newServer(t, consultest.WithACL()), "a")
	client := map[string]*consul.Client{}
	for i, kind := range []string{fleet.PolicyAgent, fleet.PolicyOperator, fleet.PolicyOrchestrator} {
		p := x.cluster.Policies("a")[i]
		if _, err := fleet.PutPolicy(t.Context(), x.server.Client(), p); err != nil {
			t.Fatal(err)
		}
		token, err := x.server.Client().CreateToken(t.Context(), kind, 0, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		client[kind] = x.server.ClientWithToken(token.SecretID)
	}
	w := x.worker(client[fleet.PolicyAgent], "a", sh("one", ""))
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	if _, _, err := New(kv.New(client[fleet.PolicyOperator], "jorc/default")).Ask(t.Context(), "r", Request{Workflow: "w"}, "ann"); err != nil {
		t.Fatal(err)
	}
	d := quickDecider()
	consultest.Eventually(t, "the run", func(ctx context.Context) error {
		if _, err := x.decide(ctx, kv.New(client[fleet.PolicyOrchestrator], "jorc/default"), client[fleet.PolicyOrchestrator], "a", d); err != nil {
			return err
		}
		got, err := x.runs.Show(ctx, "r")
		if err == nil && got.State != Done {
			err = errors.New(string(got.State))
		}
		return err
	})
	node := kv.New(client[fleet.PolicyAgent], "jorc/default")
	for _, key := range []string{"host/b/results", "host/aa/results", "host/a/grants", "runs/r/spec", "runs/r/nodes/a", "runs/new/spec", keyActive + "new", keyEnded + "r"} {
		if _, err := node.Txn().Set(key, []byte("x")).Commit(t.Context()); !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a node may write %s: %v", key, err)
		}
	}
	if _, _, err := New(node).Ask(t.Context(), "s", Request{Workflow: "w"}, "a"); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("a node may ask for runs: %v", err)
	}
}

// TestPlantedResults: with a node's token its own results can be written. That ends its
// own jobs with any result; what it says of other jobs counts as nothing, and no other node's job changes.
func TestPlantedResults(t *testing.T) {
	t.Parallel()
	x := newSiteOn(t, newServer(t, consultest.WithACL()), "a", "b")
	p := x.cluster.Policies("a")[0]
	if _, err := fleet.PutPolicy(t.Context(), x.server.Client(), p); err != nil {
		t.Fatal(err)
	}
	token, err := x.server.Client().CreateToken(t.Context(), "a", 0, p.Name)
	if err != nil {
		t.Fatal(err)
	}
	stolen := kv.New(x.server.ClientWithToken(token.SecretID), "jorc/default")
	plant := func(r Results) {
		t.Helper()
		doc, err := json.Marshal(struct {
			Format int `json:"format"`
			Results
		}{1, r})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stolen.Txn().Set(cluster.ResultsKey("a"), doc).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := stolen.Txn().Set(cluster.GrantsKey("a"), doc).Commit(t.Context()); !errors.Is(err, consul.ErrDenied) {
			t.Fatalf("a node can grant itself a job: %v", err)
		}
	}
	x.orchestrate("o", quickDecider())
	x.work("b", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done"))
	x.ask("r", Request{})
	x.becomes("r", "running: a=pending b=running") // no agent works on a
	q, err := x.runs.queueAt(t.Context(), "a")
	if err != nil || len(q.Jobs) != 1 {
		t.Fatalf("the queue is %+v, %v", q, err)
	}
	planted := q.Jobs[0].Result
	planted.State, planted.Why, planted.Ended = Failed, "planted", time.Now().UTC()
	plant(Results{[]Result{planted, {Job: "run-unknown", State: Running}}})
	x.becomes("r", "running: a=failed b=running")
	consultest.Eventually(t, "the queue to hold nothing that was planted", func(ctx context.Context) error {
		q, err := x.runs.queueAt(ctx, "a")
		if err == nil && len(q.Jobs) > 0 {
			err = fmt.Errorf("it holds %+v", q.Jobs)
		}
		return err
	})
	touch(t, x, "b", "go")
	x.becomes("r", "failed: a=failed b=done")
	if all, _, err := x.runs.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the runs are %+v, %v", all, err)
	}
}
