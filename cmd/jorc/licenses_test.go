package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

// TestLicenses: the program prints NOTICE, which has each module that the linker put into it.
func TestLicenses(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	got := jorc(t, nil, "version", "--licenses")
	if got.code != exitOK || got.stdout != string(want) || got.stderr != "" {
		t.Errorf("exit %d, stderr %q, %d bytes on stdout; want the %d bytes of NOTICE", got.code, got.stderr, len(got.stdout), len(want))
	}
	var answer struct{ Notice string }
	if err := json.Unmarshal([]byte(jorc(t, nil, "version", "--licenses", "-o", "json").stdout), &answer); err != nil || answer.Notice != string(want) {
		t.Errorf("as JSON: %v, %d bytes; want the %d bytes of NOTICE", err, len(answer.Notice), len(want))
	}
	info, err := buildinfo.ReadFile(builtOnce(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) == 0 {
		t.Fatal("the program contains no module")
	}
	for _, m := range info.Deps {
		if row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m.Path) + ` +` + regexp.QuoteMeta(m.Version) + ` +\S`); !row.Match(want) {
			t.Errorf("NOTICE has no row of %s %s: run make notice", m.Path, m.Version)
		}
	}
}
