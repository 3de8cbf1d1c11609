package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// TestClusterFiles: which hosts have which content, and what `cluster files` answers about a
// file that no host reports.
func TestClusterFiles(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "[]\n", ""}, "files", "-o", "json")
	c := fleet.New(s.Client(), "jorc", "default")
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for node, content := range map[string]string{"n1": "aaaa", "n2": "aaaa", "n3": "bbbb"} {
		since := at
		if content == "bbbb" {
			since = at.Add(time.Hour)
		}
		_, err := c.ReportWriter(node).Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			return r.WithFiles(map[string]cluster.FileReport{"/etc/app.conf": {Content: content, Since: since}}), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	do(result{0, "/etc/app.conf\tbbbb\tyes\t1\t2026-11-25T11:00:00Z\t2026-11-25T11:00:00Z\t\t0\tn3\n" +
		"/etc/app.conf\taaaa\tno\t2\t2026-11-25T10:00:00Z\t2026-11-25T10:00:00Z\t\t0\tn1, n2\n", ""}, "files", "-o", "plain")
	do(result{0, "n3\tbbbb\t2026-11-25T11:00:00Z\t\t\tyes\nn1\taaaa\t2026-11-25T10:00:00Z\t\t\tno\nn2\taaaa\t2026-11-25T10:00:00Z\t\t\tno\n", ""}, "files", "/etc/app.conf", "-o", "plain")
	do(result{1, "", "jorc: file \"/etc/ap.conf\": no host reports this file, did you mean \"/etc/app.conf\"?; files: /etc/app.conf\n"}, "files", "/etc/ap.conf")
	var list []map[string]any
	got := jorc(t, env, "cluster", "files", "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list) != 3 || list[0]["host"] != "n3" || list[0]["newest"] != true || list[0]["cluster"] != "default" {
		t.Errorf("%s: %v", strings.TrimSpace(got.stdout), err)
	}
}
