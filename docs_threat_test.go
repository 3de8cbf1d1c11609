package jorc_test

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModel: each test that docs/threat-model.md names exists, each threat names one, and README
// and SECURITY.md lead there.
func TestThreatModel(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				exist[f.Name.Name] = true
			}
		}
	}
	// Modules of their own under tools are not among the sources.
	for _, file := range []string{"tools/licenses/main_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			exist[m[1]] = true
		}
	}
	text, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		tests := named.FindAllStringSubmatch(line, -1)
		for _, m := range tests {
			if !exist[m[1]] {
				t.Errorf("docs/threat-model.md names %s, which does not exist", m[1])
			}
		}
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| threat") {
			if rows++; len(tests) == 0 {
				t.Errorf("docs/threat-model.md: no test shows the defence in %q", line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("threats: got %d, want more", rows)
	}
	for _, file := range []string{"README.md", "SECURITY.md", "docs/security.md"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "threat-model.md") {
			t.Errorf("%s does not lead to the threat model: %v", file, err)
		}
	}
}
