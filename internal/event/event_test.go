package event_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/event"
)

// TestKinds: Kinds returns all constants, and each says what it means.
func TestKinds(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			if name := value.Names[0].Name; !strings.HasPrefix(value.Doc.Text(), name+": ") {
				t.Errorf("%s does not say what it means", name)
			}
			kind, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, kind)
		}
	}
	slices.Sort(want)
	if got := event.Kinds(); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestKindsInGuide: the guide lists each kind once.
func TestKindsInGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/orchestrator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(guide), "\n## Events\n")
	list, _, _ = strings.Cut(list, "\n## ")
	for _, kind := range event.Kinds() {
		if n := strings.Count(list, "`"+kind+"`"); n != 1 {
			t.Errorf("the chapter on events names %s %d times", kind, n)
		}
	}
}
