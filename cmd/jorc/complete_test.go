package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		words []string
		want  string // the words, without what they are
	}{
		{nil, "agent change cluster completion config debug dev doctor health maintenance man migrate ping render service stage status template ui update version wait workflow"},
		{[]string{"co"}, "completion config"},
		{[]string{"config", ""}, "validate explain schema"},
		{[]string{"config", "validate", ""}, ""},
		{[]string{"completion", "f"}, "fish"},
		{[]string{"version", "--out"}, "--output"},
		{[]string{"--http-addr", "x", "ver"}, "version"},
		{[]string{"--http-addr", ""}, ""},
		{[]string{"version", "-o", "j"}, "json"},
		{[]string{"version", "--output", "=", "p"}, "plain"},
		{[]string{"--log-level", "e"}, "error"},
		{[]string{"version", "--", "--o"}, ""},
		{[]string{"nosuch", "co"}, "completion config"},
	} {
		got := jorc(t, nil, append([]string{completeCommand}, test.words...)...)
		var words []string
		for line := range strings.Lines(got.stdout) {
			word, _, _ := strings.Cut(line, "\t")
			words = append(words, word)
		}
		if strings.Join(words, " ") != test.want || got.code != exitOK || got.stderr != "" {
			t.Errorf("%q: got %+v, want %s", test.words, got, test.want)
		}
	}
}

// TestBashCompletion sources the script into a real bash, with the program
// beside it.
func TestBashCompletion(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(builtOnce(t))
	script := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(script, []byte(jorc(t, nil, "completion", "bash").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("bash -n: %v\n%s", err, out)
	}
	for words, want := range map[string]string{
		"jorc conf":              "config",
		"jorc completion ''":     "bash zsh fish",
		"jorc version --outp":    "--output",
		"jorc version -o = js":   "json",
		"jorc --output =":        "table json plain",
		"jorc version '$(exit)'": "",
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c",
			`set -u; source "$1"; COMP_WORDS=(`+words+`); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _jorc; echo "${COMPREPLY[*]-}"`, "bash", script)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", words, got, err, want)
		}
	}
}

// TestCompletionScripts: each shell's script calls the completion; TestCompletionInShells
// presses the keys.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := jorc(t, nil, "completion", shell)
		if got.code != exitOK || got.stderr != "" || !strings.Contains(got.stdout, "jorc "+completeCommand) {
			t.Errorf("%s: got %+v", shell, got)
		}
	}
}
