package agent

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/workflow"
)

// TestEventsRestart: a trigger that has handled more events than the journal has
// observes a restart of the journal, and then the events that follow.
func TestEventsRestart(t *testing.T) {
	t.Parallel()
	store := kv.New(consultest.Start(t).Client(), "jorc/default")
	held, err := store.Lock(t.Context(), "orchestrate/lock", kv.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j, _, err := orchestrator.OpenJournal(t.Context(), held.Store(), orchestrator.JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	happens := func(kinds ...string) {
		t.Helper()
		events := make([]orchestrator.Event, len(kinds))
		for i, kind := range kinds {
			events[i] = orchestrator.Event{Kind: kind}
		}
		if _, err := j.Save(t.Context(), orchestrator.View{}, events, time.Now(), nil); err != nil {
			t.Fatal(err)
		}
	}
	happens("wanted", "other", "wanted")
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan workflow.Observation, 10), make(chan error, 1)
	go func() {
		e := events{store: store, kind: "wanted", after: 50, known: true, log: hclog.NewNullLogger()}
		done <- e.Watch(ctx, func(o workflow.Observation) { seen <- o })
	}()
	if o := <-seen; !o.Restarted || !o.Happened || o.UpTo != 3 || len(o.Items) > 0 {
		t.Errorf("got %+v, want that events begin anew after 3", o)
	}
	happens("other", "wanted")
	if o := <-seen; o.Restarted || !o.Happened || len(o.Items) != 1 || o.Items["5"] == nil {
		t.Errorf("got %+v, want event 5", o)
	}
	cancel()
	<-done
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
