package runs

import (
	"context"
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// TestRights: with the least policies, under default deny, an orchestrator and
// a node carry out a run, and a node writes its own queue and nothing else of
// runs.
func TestRights(t *testing.T) {
	t.Parallel()
	x := newSiteOn(t, newServer(t, consultest.WithACL()), "a")
	client := map[string]*consul.Client{}
	for i, kind := range []string{cluster.PolicyAgent, cluster.PolicyOperator, cluster.PolicyOrchestrator} {
		p := x.cluster.Policies("a")[i]
		if _, err := cluster.PutPolicy(t.Context(), x.server.Client(), p); err != nil {
			t.Fatal(err)
		}
		token, err := x.server.Client().CreateToken(t.Context(), kind, 0, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		client[kind] = x.server.ClientWithToken(token.SecretID)
	}
	w := x.worker(client[cluster.PolicyAgent], "a", sh("one", ""))
	x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	if _, _, err := New(kv.New(client[cluster.PolicyOperator], "jorc/default")).Ask(t.Context(), "r", Request{Workflow: "w"}, "ann"); err != nil {
		t.Fatal(err)
	}
	d := quickDecider()
	consultest.Eventually(t, "the run", func(ctx context.Context) error {
		if _, err := x.decide(ctx, kv.New(client[cluster.PolicyOrchestrator], "jorc/default"), client[cluster.PolicyOrchestrator], "a", d); err != nil {
			return err
		}
		got, err := x.runs.Show(ctx, "r")
		if err == nil && got.State != Done {
			err = errors.New(string(got.State))
		}
		return err
	})
	node := kv.New(client[cluster.PolicyAgent], "jorc/default")
	for _, key := range []string{"host/b/queue", "host/aa/queue", "runs/r/spec", "runs/r/nodes/a", "runs/new/spec", keyActive + "new", keyEnded + "r"} {
		if _, err := node.Txn().Set(key, []byte("x")).Commit(t.Context()); !errors.Is(err, consul.ErrDenied) {
			t.Errorf("a node may write %s: %v", key, err)
		}
	}
	if _, _, err := New(node).Ask(t.Context(), "s", Request{Workflow: "w"}, "a"); !errors.Is(err, consul.ErrDenied) {
		t.Errorf("a node may ask for runs: %v", err)
	}
}
