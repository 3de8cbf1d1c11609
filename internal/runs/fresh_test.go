package runs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFresh: who joined after the orchestrator looked, and before the run was
// asked for, has a part in it.
func TestFresh(t *testing.T) {
	t.Parallel()
	x := newSite(t, "a")
	client, d := x.server.Client(), quickDecider()
	o, err := x.observe(t.Context(), client, "o")
	if err != nil {
		t.Fatal(err)
	}
	x.join("b")
	x.ask("r", Request{})
	late, err := x.observe(t.Context(), client, "o")
	if err != nil {
		t.Fatal(err)
	}
	o.State = late.State
	if _, err := d.Decide(t.Context(), x.cluster.Store(), o); err != nil {
		t.Fatal(err)
	}
	x.becomes("r", "running: a=pending b=pending")
}

// TestStaleQueue: who read a queue before a job was put into it, and the job
// after that, does not say of the job that it is lost; not either when the queue
// as it read it has room for the next run.
func TestStaleQueue(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string][]string{"alone": {"r"}, "and the next run": {"r", "s"}} {
		t.Run(name, func(t *testing.T) { t.Parallel(); staleQueue(t, runs) })
	}
}

func staleQueue(t *testing.T, ids []string) {
	x := newSite(t, "a")
	stop := x.orchestrate("o", quickDecider())
	x.work("a", sh("one", "until [ -e $DIR/go ]; do sleep 0.02; done"))
	x.ask("before", Request{})
	touch(t, x, "a", "go")
	x.becomes("before", "done: a=done")
	ctx, client, slow := t.Context(), x.server.Client(), quickDecider()
	o, err := x.observe(ctx, client, "o2")
	if err != nil {
		t.Fatal(err)
	}
	early := slow.queuesOf(x.runs, &o.State)
	if err := os.Remove(filepath.Join(x.dir, "a", "traces", "go")); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		x.ask(id, Request{})
	}
	x.becomes("r", "running: a=running")
	if len(ids) > 1 {
		x.becomes("s", "running: a=pending")
	}
	stop()
	if o, err = x.observe(ctx, client, "o2"); err != nil {
		t.Fatal(err)
	}
	st, err := slow.read(ctx, x.runs, o, o.Now)
	if err != nil {
		t.Fatal(err)
	}
	st.said, st.good = early, map[string]Queue{"a": early["a"].queue}
	changes := Plan(slow.situation(o, st, o.Now), st.runs(), st.good)
	if len(changes.Jobs["r"]) == 0 {
		t.Fatalf("nothing was to be written: %+v", changes)
	}
	if _, changed := changes.Queues["a"]; changed != (len(ids) > 1) {
		t.Errorf("the queue was to be written: %v", changed)
	}
	if told, err := slow.write(ctx, x.runs, st, changes); err != nil || len(told) > 0 {
		t.Errorf("it told %+v, %v", told, err)
	}
	x.becomes("r", "running: a=running")
}
