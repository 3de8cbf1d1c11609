package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// session types commands, one per line, and holds what they print and how they
// exit to a golden file; go test -update writes it. A line "< words" is the
// standard input of the next one; % is a space within an argument.
func session(t *testing.T, s *consultest.Server, env map[string]string, name, lines string) {
	t.Helper()
	var text strings.Builder
	stdin := ""
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		line = strings.TrimSpace(line)
		if words, ok := strings.CutPrefix(line, "< "); ok {
			stdin = words
			continue
		}
		var stdout, stderr bytes.Buffer
		h := testHost(env, &stdout, &stderr)
		h.stdin = strings.NewReader(strings.NewReplacer(" ", "\n", "NODE", s.Node).Replace(stdin))
		stdin = ""
		args := strings.Fields(strings.ReplaceAll(line, "NODE", s.Node))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "%", " ")
		}
		code := run(t.Context(), args, h)
		fmt.Fprintf(&text, "$ jorc %s\n%s%s[exit %d]\n\n", line, stdout.String(), stderr.String(), code)
	}
	got := strings.NewReplacer(s.HTTPAddr, "HTTP", s.Node, "NODE", s.IP, "IP", env["JORC_STATE_DIR"], "STATE").Replace(text.String())
	got = padding.ReplaceAllString(instant.ReplaceAllString(got, "TIME"), "  ")
	file := filepath.Join("testdata", "update", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v: run go test ./cmd/jorc -update", err)
		return
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./cmd/jorc -update\n%s", file, diff)
	}
}

func TestUpdateSession(t *testing.T) {
	t.Parallel()
	s, env := onShared(t)
	session(t, s, env, "update", `
		update current
		update current -o json
		update pending
		update local
		update report
		update running
		update single v1
		update why
		update trigger v1 --dry-run
		update trigger v1
		update trigger v1 -o json
		update trigger a/b
		update trigger v%1
		update current
		update pending
		update pending -o json
		update local v1
		update local
		update local -o json
		update local ../v1
		update pending
		update report
		update report --node n2 --version v10
		update report --node n3 --version v1
		update report --version a/b
		update running
		update running -o json
		update hosts v1
		update hosts v1 -o json
		update hosts v
		update verify v1 NODE
		update verify v1 NODE n2 n4
		update verify v1 NODE n2 -o json
		< NODE n3
		update verify v1
		< n2
		update verify v1 NODE -
		update verify v1
		update verify v1 -o json
		update single v1
		update single v1 -o json
		update single v7
		update trigger v2
		update why
		update why -o json
		update why n2
	`)
	if err := os.WriteFile(filepath.Join(env["JORC_STATE_DIR"], "hold"), []byte("disks are replaced\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "why", `
		cluster init prod --cluster prod
		update why
		cluster pause --reason maintenance
		cluster hold --node NODE
		status set config failed --detail task%puppet
		update why
		update why NODE
	`)
}

// TestRubbish: an invalid version file and an invalid desired version.
func TestRubbish(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	if err := os.WriteFile(filepath.Join(env["JORC_STATE_DIR"], "version"), []byte("\x7fELF\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "rubbish", `
		update local
		update pending
		update report
		update trigger v1
		update pending
		update local v1
		update pending
	`)
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/current_version", Value: []byte("a b")}); err != nil {
		t.Fatal(err)
	}
	session(t, s, env, "rubbish-desired", `
		update current
		update pending
		update why
		update show
		update wait
		update trigger v2
		update current
	`)
}
