package runs

import "testing"

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
	if _, err := d.Decide(t.Context(), x.cluster.Store(), o); err != nil {
		t.Fatal(err)
	}
	x.becomes("r", "running: a=pending b=pending")
}
