package leaders

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// TestRelevance: while leaders are well and all places are filled only checks of
// leaders are news; otherwise those of all members.
func TestRelevance(t *testing.T) {
	t.Parallel()
	full, vacant := cluster.Leaders{Leader: []string{"a", "b"}, Count: 2}, cluster.Leaders{Leader: []string{"a"}, Count: 2}
	retired := cluster.Leaders{Leader: []string{"a"}, Count: 2, Retired: []cluster.Retired{{Node: "b"}}}
	for _, c := range []struct {
		leaders cluster.Leaders
		checks  []string // one after the other: node/check/notes, and whether that is news
	}{
		{full, []string{"x/web no", "x/web y/web no", "x/web a/web yes", "y/web a/web yes", "y/web a/web no", "y/web a/web/jorc:out yes", "y/web yes", "no"}},
		{vacant, []string{"x/web yes", "x/web no", "x/web/jorc:out yes", "yes", "no"}},
		{retired, []string{"x/web yes", "yes", "no"}},
	} {
		var r relevantChecks
		r.setLeaders(c.leaders)
		for _, step := range c.checks {
			f := strings.Fields(step)
			var checks consul.HealthChecks
			for _, text := range f[:len(f)-1] {
				part := strings.SplitN(text, "/", 3)
				check := &consul.HealthCheck{Node: part[0], CheckID: part[1]}
				if len(part) == 3 {
					check.Notes = part[2]
				}
				checks = append(checks, check)
			}
			if news := r.setFailing(checks); news != (f[len(f)-1] == "yes") {
				t.Errorf("leaders %v: %q: news %v", c.leaders, step, news)
			}
		}
	}
}
