package workflow

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// puppetOutput is what puppet apply prints when a resource fails.
const puppetOutput = "\x1b[mNotice: Compiled catalog for db-1 in environment production in 0.05 seconds\x1b[0m\n" +
	"\x1b[1;31mError: '/bin/false' returned 1 instead of one of [0]\x1b[0m\n" +
	"\x1b[1;31mError: /Stage[main]/Main/Exec[bad]/returns: change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]\x1b[0m\n" +
	"\x1b[mNotice: /Stage[main]/Main/Notify[after]: Dependency Exec[bad] has failures: true\x1b[0m\n" +
	"\x1b[1;33mWarning: /Stage[main]/Main/Notify[after]: Skipping because of failed dependencies\x1b[0m\n"

const (
	puppetReason = "Error: /Stage[main]/Main/Exec[bad]/returns: change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]"
	puppetEnd    = "\x1b[mNotice: Applied catalog in 0.15 seconds\x1b[0m\n"
)

// TestReason: the reason of a failed task is the last line that says an error, however
// much follows it, and otherwise the last line.
func TestReason(t *testing.T) {
	t.Parallel()
	skipped := strings.Repeat("\x1b[1;33mWarning: /Stage[main]/Main/Notify[after]: Skipping because of failed dependencies\x1b[0m\n", 2000)
	long := strings.Repeat("x", 2*maxErrorOutput)
	for name, test := range map[string]struct{ prints, exit, want string }{
		"Puppet":              {puppetOutput + puppetEnd, "4", "exit code 4: " + puppetReason},
		"Puppet changed":      {puppetOutput + puppetEnd, "6", "exit code 6: " + puppetReason},
		"a large catalog":     {puppetOutput + skipped + puppetEnd, "4", "exit code 4: " + puppetReason},
		"any case":            {"fatal ERROR: no disk\nbye\n", "1", "exit code 1: fatal ERROR: no disk"},
		"the last":            {"Error: one\nError: two\nbye\n", "1", "exit code 1: Error: two"},
		"without a newline":   {"Error: one\nError: two", "1", "exit code 1: Error: two"},
		"no error":            {"0 errors\nfailed: no disk\n", "1", "exit code 1: failed: no disk"},
		"coloured word":       {"\x1b[31merror\x1b[0m: no disk\nbye\n", "1", "exit code 1: error: no disk"},
		"a very long line":    {"Error: one\nerror: " + long + "\nbye\n", "1", "exit code 1: Error: one"},
		"only long lines":     {"error: " + long + "\nbye\n", "1", "exit code 1: bye"},
		"of not yet":          {"Error: one\nno disk yet\n", "196", "not yet: no disk yet"},
		"of an early end":     {"Error: one\nenough\n", "195", "the task requested to stop here: enough"},
		"a cut, long message": {"Error: " + strings.Repeat("ä", maxLine) + "\nbye\n", "1", "exit code 1: Error: " + strings.Repeat("ä", maxLine-8) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Options{}, config.Task{Name: "one", Command: []string{"sh", "-c", "cat $DIR/prints; exit " + test.exit}})
			if err := os.WriteFile(filepath.Join(h.dir, "prints"), []byte(test.prints), 0o600); err != nil {
				t.Fatal(err)
			}
			res := h.run()
			want(t, "why", res.Why, test.want)
			want(t, "why of the task", res.Tasks[0].Why, test.want)
		})
	}
}

// TestReasonAfterRetry: the reason is that of the last attempt.
func TestReasonAfterRetry(t *testing.T) {
	t.Parallel()
	task := sh("one", `[ -e $DIR/again ] && { echo failed otherwise; exit 1; }; touch $DIR/again; echo Error: at first; exit 1`)
	task.Retries = 1
	want(t, "why", newHost(t, Options{}, task).run().Why, "exit code 1: failed otherwise (attempt 2)")
}

// TestReasonWithoutSecrets: a value that a task was given is not in its reason, also
// where it is encoded and wrapped, far before the output's end.
func TestReasonWithoutSecrets(t *testing.T) {
	t.Parallel()
	const secret = "correct horse battery staples."
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	h := newHost(t, Options{}, config.Task{
		Name: "one", Env: map[string]string{"PASSWORD": `{{.Param "password"}}`},
		Command: []string{"sh", "-c", `printf 'Error: refused <%s>\nError: refused <` + encoded[:30] + `\n` + encoded[30:] + `>\n' "$PASSWORD"; seq 3000; exit 1`},
	})
	res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, "password: "+secret)})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "why", res.Why, "exit code 1: Error: refused <[redacted]>")
}
