package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
)

// TestFiles: who has which content of a file, the one that appeared last first, and who waits
// for new content; a host with too many files is damaged alone.
func TestFiles(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	at := func(minute int) time.Time { return time.Date(2026, 11, 25, 10, minute, 0, 0, time.UTC) }
	report := func(node string, files map[string]cluster.FileReport, stages map[string]cluster.StageReport) {
		t.Helper()
		_, err := c.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			r.Stages = stages
			return r.WithFiles(files), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := map[string]cluster.StageReport{"edge": {Wants: "new", State: cluster.StageDone}}
	done := map[string]cluster.StageReport{"edge": {State: cluster.StageDone}}
	report("a", map[string]cluster.FileReport{"/etc/a": {Content: "new", Since: at(30), Stage: "edge"}, "/etc/b": {Content: "x", Since: at(1)}}, done)
	report("b", map[string]cluster.FileReport{"/etc/a": {Content: "old", Since: at(59), Stage: "edge"}}, waits) // it joined late
	report("c", map[string]cluster.FileReport{"/etc/a": {Content: "old", Since: at(10), Stage: "edge"}}, waits)
	report("d", nil, nil)
	many := map[string]cluster.FileReport{}
	for i := range cluster.MostFiles + 1 {
		many[fmt.Sprint("/etc/", i)] = cluster.FileReport{Content: "y"}
	}
	report("e", many, nil)
	s, err := c.LoadReports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	show := func(destination string) string {
		all, _ := s.Files(destination)
		var lines []string
		for _, f := range all {
			lines = append(lines, fmt.Sprintf("%s %s %s %s %t", f.Destination, f.Content, f.Host, f.State, f.Newest))
		}
		return strings.Join(lines, "\n")
	}
	want := "/etc/a new a done true\n/etc/a old b waiting false\n/etc/a old c waiting false"
	if got := show("/etc/a"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := show(""); got != want+"\n/etc/b x a  true" {
		t.Errorf("got\n%s", got)
	}
	if _, unreadable := s.Files(""); len(unreadable) != 1 || !strings.Contains(unreadable[0].Error(), "files") {
		t.Errorf("a host with too many files: %v", unreadable)
	}
}
