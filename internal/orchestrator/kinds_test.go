package orchestrator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/orchestrator"
)

// TestKinds: all kinds of events and decisions that packages declare are known.
func TestKinds(t *testing.T) {
	t.Parallel()
	want := []string{orchestrator.RolloutAdopted, orchestrator.RolloutBudgeted, orchestrator.OperatorChange}
	for file, prefix := range map[string]string{"events.go": "", "../pace/plan.go": "rollout_", "../rollout/plan.go": "rollout_", "../runs/plan.go": "", "../stage/plan.go": ""} {
		n := len(want)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST || !strings.HasPrefix(group.Doc.Text(), "Kinds of ") {
				continue
			}
			for _, spec := range group.Specs {
				literal, ok := spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit)
				if !ok { // declared in the package that it names
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, prefix+strings.ReplaceAll(text, " ", "_"))
			}
		}
		if len(want) == n {
			t.Errorf("%s declares none", file)
		}
	}
	slices.Sort(want)
	if got := orchestrator.Kinds(); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestKindsInGuide: the guide names all kinds.
func TestKindsInGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/orchestrator.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range orchestrator.Kinds() {
		if !strings.Contains(string(guide), "`"+kind+"`") {
			t.Errorf("docs/orchestrator.md says nothing of %s", kind)
		}
	}
}
