package templatetree_test

import (
	"slices"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/jorc/jorc/internal/templatetree"
)

// TestWalk: every function that a template calls is visited, wherever it stands.
func TestWalk(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"no action":                  "",
		`{{ a }}`:                    "a",
		`{{ a (b "x") | c }}`:        "a b c",
		`{{ (a).Field }}`:            "a",
		`{{ $x := a }}`:              "a",
		`{{ if a }}{{ b }}{{ end }}`: "a b",
		`{{ if a }}{{ b }}{{ else if c }}{{ d }}{{ else }}{{ e }}{{ end }}`: "a b c d e",
		`{{ range a }}{{ b }}{{ else }}{{ c }}{{ end }}`:                    "a b c",
		`{{ with a }}{{ b }}{{ else }}{{ c }}{{ end }}`:                     "a b c",
		`{{ define "sub" }}{{ b }}{{ end }}{{ template "sub" a }}`:          "a b",
		`{{ template "sub" }}`:                                              "",
	} {
		trees, err := templatetree.Parse(text, "", "")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got []string
		for _, tree := range trees {
			templatetree.Walk(tree.Root, func(n parse.Node) {
				if f, ok := n.(*parse.IdentifierNode); ok {
					got = append(got, f.Ident)
				}
			})
		}
		slices.Sort(got)
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%s: got %q, want %q", text, all, want)
		}
	}
	if _, err := templatetree.Parse("<< if >>", "<<", ">>"); err == nil {
		t.Error("got no error for an if without a condition")
	}
}
