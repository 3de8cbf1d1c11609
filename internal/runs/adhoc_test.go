package runs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/workflow"
)

// TestDocumentedAdHoc: the ad-hoc command of the document runs with its params as they
// are, on a host that defines it, and a host that allows no params refuses them.
func TestDocumentedAdHoc(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/runs.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- tested: adhoc -->\n```hcl\n(.*?)```\n").FindSubmatch(data)
	if m == nil {
		t.Fatal("the document has no ad-hoc command to test")
	}
	x := newSite(t, "allows", "refuses")
	du := filepath.Join(x.dir, "du")
	if err := os.WriteFile(du, []byte("#!/bin/sh\nfor a in \"$@\"; do printf '[%s]' \"$a\"; done >>$DIR/called\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`"du", `, fmt.Sprintf("%q, ", du), "user    = \"nobody\"\n", "").Replace(string(m[1]))
	for node, text := range map[string]string{"allows": text, "refuses": regexp.MustCompile(`allow_params.*\n`).ReplaceAllString(text, "")} {
		dir := filepath.Join(x.dir, node)
		if err := os.MkdirAll(filepath.Join(dir, "traces"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "jorc.hcl")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{file}, config.Options{Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		w := NewWorker(WorkerOptions{Store: kv.New(x.server.Client(), "jorc/"+x.name), Node: node, Runner: workflow.New(workflow.Options{
			StateDir: filepath.Join(dir, "state"), Workflows: c.Workflows, Node: node, Environ: []string{"DIR=" + filepath.Join(dir, "traces")},
		})})
		x.background(func(ctx context.Context) { _ = w.Run(ctx) })
	}
	x.orchestrate("o", quickDecider())
	for i, test := range []struct{ path, want string }{
		{"/var", "[-xh][--max-depth=1][--][/var]"},
		{"-rf", "[-xh][--max-depth=1][--][-rf]"},
		{"/a b; touch pwned\n$(touch pwned)'\"", "[-xh][--max-depth=1][--][/a b; touch pwned\n$(touch pwned)'\"]"},
	} {
		id := fmt.Sprint("r", i)
		p := params(t, fmt.Sprintf(`{"depth": 1, "path": %q}`, test.path))
		if _, _, err := x.runs.Ask(t.Context(), id, Request{Workflow: "disk-usage", Params: p}, "ann"); err != nil {
			t.Fatal(err)
		}
		d := x.becomes(id, "failed: allows=done refuses=failed")
		if want := `workflow "disk-usage": invalid: it does not allow param "depth" of a run`; !strings.HasPrefix(d.Members[1].Why, want) {
			t.Errorf("got %q, want %q", d.Members[1].Why, want)
		}
		called := filepath.Join(x.dir, "allows", "traces", "called")
		if got := x.traces("allows", "called"); got != test.want {
			t.Errorf("du was called with %s, want %s", got, test.want)
		}
		if err := os.Remove(called); err != nil {
			t.Fatal(err)
		}
		if got := x.traces("refuses", "called"); got != "" {
			t.Errorf("a host that refuses the params ran %s", got)
		}
	}
}

// TestGateParams: a gate needs no allow_params for what the rollout tells it.
func TestGateParams(t *testing.T) {
	t.Parallel()
	hosts := make([]string, 1000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("%0120d", i)
	}
	q, err := GateRequest("w", pace.GateFacts{Version: "v2", Hosts: hosts, Count: len(hosts)})
	if err != nil {
		t.Fatal(err)
	}
	r := workflow.New(workflow.Options{StateDir: t.TempDir(), Workflows: []config.Workflow{{Name: "w", Tasks: []config.Task{{Name: "t", Command: []string{"true"}}}}}})
	res, err := r.Drive(t.Context(), workflow.Job{ID: "j", Workflow: "w", Params: q.Params, FromRun: true}, workflow.Hooks{})
	if err != nil || res.State != workflow.Success {
		t.Errorf("got %v, %v", res.State, err)
	}
}
