package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// TestEventKinds: an unknown kind is refused with the known ones;
// what a newer jorc journalled is shown.
func TestEventKinds(t *testing.T) {
	t.Parallel()
	s, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "[]\n", ""}, "events", "--kind", "node_down", "--kind", "change_taken_back", "--kind", "change_host_failed", "-o", "json")
	for _, args := range [][]string{{"--kind", "nodedown"}, {"--kind", "node_down", "--kind", "nodedown"}, {"-f", "--kind", "nodedown"}} {
		got := jorc(t, env, append([]string{"cluster", "events"}, args...)...)
		want := `jorc: events of kind "nodedown": there are none, and no such kind is known; did you mean "node_down"?; known are agent_down, agent_up, `
		if got.code != exitFailed || got.stdout != "" || !strings.HasPrefix(got.stderr, want) || !strings.HasSuffix(got.stderr, ", version_changed\n") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	j, _, err := orchestrator.OpenJournal(t.Context(), kv.New(s.Client(), env["JORC_PREFIX"]+"/default"), orchestrator.JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	events := []orchestrator.Event{
		{Kind: "comet_seen", Text: "far away"},
		{Kind: "node_down", Node: "web1", Text: "web1 is down"},
		{Kind: "operator_change", Audit: &cluster.AuditEntry{Command: "jorc cluster hold --node=web1", Keys: []string{"host/web1/hold"}}},
		{Kind: "node_down", Node: "web10", Text: "web10 is down"},
	}
	if _, err := j.Save(t.Context(), j.View(), events, at, nil); err != nil {
		t.Fatal(err)
	}
	do(result{0, "2\t2026-01-02T03:04:05Z\tnode_down\tweb1 is down\n3\t2026-01-02T03:04:05Z\toperator_change\t\n", ""}, "events", "--host", "web1", "-o", "plain")
	do(result{0, "2\t2026-01-02T03:04:05Z\tnode_down\tweb1 is down\n", ""}, "events", "--host", "web1", "--kind", "node_down", "-o", "plain")
	if got := jorc(t, env, "cluster", "events", "--host", "web2"); got.code != exitFailed || !strings.HasPrefix(got.stderr, `jorc: host "web2"`) {
		t.Errorf("events of a host that does not exist: %+v", got)
	}
	want := result{0, "1\t2026-01-02T03:04:05Z\tcomet_seen\tfar away\n", ""}
	do(want, "events", "--kind", "comet_seen", "-o", "plain")
}

// TestDamagedJournal: what is kept of view and events is damaged, and who asks is
// told that nothing has to be done.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	do := doer(t, onServer(t, s))
	do(result{0, "", ""}, "init", "default")
	s.Run("kv", "put", "jorc/default/view/commit", "xx")
	want := "jorc: read key \"jorc/default/view/commit\": damaged document: not a JSON object; the orchestrator writes it again when something changes\n"
	do(result{1, "", want}, "view")
	do(result{1, "", want}, "events")
}
