package pages_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// TestExitCodesOfARun: the page of a run has each member's exit code: none while its task
// runs, and another than 0 of a task that was killed, even if that ends with 0.
func TestExitCodesOfARun(t *testing.T) {
	t.Parallel()
	f, dir := newSite(t, false), t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		_ = orchestrator.New(orchestrator.Options{
			Client: f.Client, Prefix: "jorc", Cluster: f.name, Node: f.Node("db"), Interval: 200 * time.Millisecond,
			Grants: true,
		}).Run(ctx)
	})
	script := fmt.Sprintf(`case $JORC_NODE in
*web-1) exit 3 ;;
*web-2) trap "exit 0" TERM; touch %s/waits; while :; do sleep 0.05; done ;;
esac`, dir)
	for _, node := range []string{f.Node("db"), f.Node("web-1"), f.Node("web-2")} {
		runner := workflow.New(workflow.Options{
			StateDir: filepath.Join(dir, node), Node: node,
			Workflows: []config.Workflow{{Name: "check", Tasks: []config.Task{{Name: "one", Script: script}}}},
		})
		all.Go(func() {
			_ = runs.NewWorker(runs.WorkerOptions{Store: f.Store(), Node: node, Runner: runner}).Run(ctx)
		})
	}
	asked := runs.New(f.Store())
	_, _, err := asked.Ask(t.Context(), "r1", runs.Request{Workflow: "check"}, "ann")
	f.Must(nil, err)
	wants := func(want map[string]string) {
		t.Helper()
		consultest.Eventually(t, "the exit codes", func(context.Context) error {
			_, page, _ := f.get("/change?id=run.r1")
			for name, cells := range want {
				row := regexp.MustCompile(`(?s)<tr id="host-` + regexp.QuoteMeta(f.Node(name)) + `">.*?</tr>`).FindString(page)
				if !regexp.MustCompile(`<td><span class="[^"]*">` + strings.Replace(cells, ",", `</span></td><td><time[^>]*>[^<]*</time></td>\s*<td>`, 1) + "</td>").MatchString(row) {
					return fmt.Errorf("%s: got %q, want %s", name, row, cells)
				}
			}
			return nil
		})
	}
	consultest.Eventually(t, "the task that is to be killed", func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "waits"))
		return err
	})
	wants(map[string]string{"db": "done,0", "web-1": "failed,3", "web-2": "working,"})
	_, _, err = asked.Cancel(t.Context(), "r1", "ann", true)
	f.Must(nil, err)
	wants(map[string]string{"db": "done,0", "web-1": "failed,3", "web-2": "(failed|given up),143"})
}
