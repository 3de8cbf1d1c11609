package orchestrator_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestPolicy: what bootstrap-acl gives an orchestrator is all that it needs, for
// cycles, sinks, probes and requests.
func TestPolicy(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t, consultest.WithACL())
	s := &site{t: t, server: server, client: server.Client()}
	s.cluster, s.store, s.ledger = fleet.New(s.client, "jorc", "prod"), kv.New(s.client, "jorc/prod"), fleet.New(s.client, "jorc", "prod")
	s.must(s.cluster.Init(t.Context(), fleet.InitOptions{}))
	s.host("a", "127.0.0.9", "critical", "passing")
	s.join("a")
	policy := s.cluster.Policies(server.Node)[2] // agent, operator, orchestrator
	s.must(fleet.PutPolicy(t.Context(), s.client, policy))
	token, err := s.client.CreateToken(t.Context(), "orchestrator", 0, policy.Name)
	s.must(nil, err)
	var client *consul.Client
	consultest.Eventually(t, "the token to be known", func(ctx context.Context) error {
		client = server.ClientWithToken(token.SecretID)
		_, err := client.AgentSelf(ctx)
		return err
	})
	o := quick(client)
	o.Node, o.Lock = server.Node, kv.LeaseOptions{}
	path := filepath.Join(t.TempDir(), "events")
	o.Sinks = []orchestrator.Sink{orchestrator.FileSink{Path: path}}
	orch, _ := s.start(o)
	s.wantEvents(0, "cluster_created", "cluster_changed", "leaders_changed", "member_joined a", "node_down a", "service_changed web")
	if r, err := orchestrator.Ask(t.Context(), s.store, "ann"); err != nil {
		t.Errorf("Ask = %+v, %v", r, err)
	}
	s.eventually("the sink to have all events", func() error {
		if orch.Status().Sinks["file:"+path] != 6 || orch.Status().Last == nil {
			return errEventsPending
		}
		return nil
	})
	if last := orch.Status().Last; last.Error != "" || len(last.Problems) > 0 {
		t.Errorf("last report %+v", last)
	}
}
