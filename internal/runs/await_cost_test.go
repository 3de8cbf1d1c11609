package runs

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

// TestAwaitOfARun: while reading takes long, as with thousands of members, a wait reads the
// members of a run less often than the run, but in time for its end.
func TestAwaitOfARun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		last   string // task of the last member
		failed []string
	}{"done": {"", nil}, "failed": {"exit 1", []string{"h"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			x := newSite(t, nodes...)
			x.orchestrate("o", quickDecider())
			for _, node := range nodes {
				script := "sleep 0.3" // the work of the task
				if node == "h" {
					script = test.last
				}
				x.work(node, sh("one", script))
			}
			x.ask("r", Request{Limits: Limits{MaxParallel: amount(t, "1")}})
			proxy := x.server.Proxy()
			proxy.Do(func(r *http.Request) (f consultest.Fault) {
				if !r.URL.Query().Has("index") {
					time.Sleep(50 * time.Millisecond) // Consul is as slow
				}
				return f
			})
			client := proxy.Client()
			w := &Waiter{Client: client, Cluster: fleet.New(client, "jorc", x.name), Rollouts: rollout.New(client, "jorc", x.name)}
			var seen []int
			w.Progress = func(d Detail) { seen = append(seen, d.Counts.Done) }
			v, err := w.Await(t.Context(), Goal{Run: "r"})
			var failed []string
			for _, f := range v.Failed {
				failed = append(failed, f.Node)
			}
			over := v.Over || len(test.failed) > 0 // a member that failed ends the wait, maybe before the run has ended
			if err != nil || !over || !slices.Equal(failed, test.failed) {
				t.Errorf("Await = %+v, %v; want that %q failed", v, err, test.failed)
			}
			prefix := fmt.Sprintf("/v1/kv/jorc/%s/runs/r/", x.name)
			members, run := proxy.Asked(prefix+"nodes/"), proxy.Asked(prefix+"spec")
			if len(seen) < 4 || members > run/2 {
				t.Errorf("of %d reads of the run %d were of its members, too; want half of them at most", run, members)
			}
		})
	}
}
