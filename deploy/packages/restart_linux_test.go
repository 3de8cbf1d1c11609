package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/workflow"
)

// TestRestartWhenIdle: the agent is restarted once none of its jobs is running. What an operator runs by hand is a
// process of its own.
func TestRestartWhenIdle(t *testing.T) {
	t.Parallel()
	// A line of 'jorc workflow jobs -o plain'.
	job := func(state workflow.State, origin string) string {
		return strings.Join([]string{"running", "running", "running", string(state), "running", "running", origin}, "\t") + "\n"
	}
	byRun, byHand := job(workflow.Running, "run running"), job(workflow.Running, workflow.ByHand)
	for name, test := range map[string]struct {
		answers []string // of jorc, one after the other; then none
		asked   int
	}{
		"no job":                 {nil, 1},
		"no job that runs":       {[]string{job(workflow.Success, "run r1") + job(workflow.Interrupted, "jorc converge")}, 1},
		"a job":                  {[]string{byRun, byRun, job(workflow.Success, "run running")}, 3},
		"a job without origin":   {[]string{job(workflow.Running, "")}, 2},
		"a job by hand":          {[]string{byHand, byHand}, 1},
		"a job beside one":       {[]string{byHand + byRun, byRun + byHand, byHand}, 3},
		"a name that looks like": {[]string{job(workflow.Running, workflow.ByHand+"s"), job(workflow.Running, "not "+workflow.ByHand)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for i, answer := range test.answers {
				write("answer-"+strconv.Itoa(i), answer)
			}
			write("jorc", `#!/bin/sh
[ "$*" = "workflow jobs -o plain" ] || exit 2
n=$(wc -l <"$DIR/asked")
echo >>"$DIR/asked"
[ ! -e "$DIR/answer-$n" ] || cat "$DIR/answer-$n"
`)
			write("asked", "")
			write("sleep", "#!/bin/sh\n")
			write("systemctl", "#!/bin/sh\necho \"$*\"\n")
			script := exec.CommandContext(t.Context(), "./restart-when-idle")
			script.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "DIR=" + dir}
			out, err := script.CombinedOutput()
			if err != nil || string(out) != "try-restart jorc.service\n" {
				t.Errorf("%v: %s", err, out)
			}
			if asked, err := os.ReadFile(filepath.Join(dir, "asked")); err != nil || len(asked) != test.asked {
				t.Errorf("asked %d times, want %d: %v", len(asked), test.asked, err)
			}
		})
	}
}
