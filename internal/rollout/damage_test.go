package rollout_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// FuzzDocument: whatever a document says, nothing panics on it, and a plan that
// was carried out has nothing to add.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{"version":"v2","policy":{"canary":2,"max_parallel":"10%"},"phase":"canary"}`,
		`{"version":"v2","policy":{"order":["web=1"],"zone_by_zone":true},"phase":"batch","batch":-3}`,
		`{"version":"v2","previous":"v1","policy":{"on_failure":"rollback","max_failures":-1},"phase":"?","forgiven":-5,"forgive":true}`,
		`{"version":"v2","policy":{"batches":["100%","1"],"windows":["22:00-06:00"],"progress_deadline":"1s"},"phase":"waiting"}`,
	} {
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		var d rollout.Document
		if json.Unmarshal([]byte(text), &d) != nil {
			return
		}
		v := fleetOf(int(n%12), func(i int, m *rollout.Member) {
			set(m, i%3 != 0, i%4 == 0)
			if i%5 == 0 {
				grant(m)
			}
			m.Version, m.Zone = []string{"v1", "v2"}[i%2], []string{"a", ""}[i%2]
		})
		plan, _ := planned(d, v, noon)
		if again := rollout.Plan(plan.Document, v, noon); len(again.Decisions) > 0 || again.Document.StateText() != plan.Document.StateText() {
			t.Errorf("planned again: %v", again.Decisions)
		}
		rollout.Describe(plan.Document, v, noon)
		rollout.Explain(plan.Document, v, "n1", noon)
	})
}

// TestExplain: why a host does not run the version yet, by what a plan is made of.
func TestExplain(t *testing.T) {
	t.Parallel()
	v := fleetOf(4, nil)
	all, _ := planned(started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}}), v, noon)
	first, _ := planned(started(t, pace.Policy{Canary: 1, MaxParallel: pace.Amount{N: 1}}), v, noon)
	d, canary := all.Document, first.Document
	in := admitted(canary, v)[0]
	out := "n1"
	if in == out {
		out = "n2"
	}
	paused := d
	paused.Stopped = &rollout.Stop{Reason: "lunch", By: "ann", Since: noon}
	busy := changed(v, []string{in}, grant)
	broken := changed(busy, []string{in}, fail)
	set := func(node string, f func(m *rollout.Member)) rollout.State { return changed(v, []string{node}, f) }
	for _, test := range []struct {
		name  string
		doc   rollout.Document
		state rollout.State
		node  string
		want  string // reason and detail
	}{
		{"next", d, v, offered(all)[0], "rollout: the orchestrator offers it a grant next"},
		{"no place is free", d, busy, out, "rollout: 1 may be out of service at one time, and are: " + in + " (grant since 2026-11-21T12:00:00Z)"},
		{"it has one", d, busy, in, "grant: it has a grant of v2 since 2026-11-21T12:00:00Z and is at work"},
		{
			"it failed and keeps its grant", d, broken, in,
			"grant: it has its grant since 2026-11-21T12:00:00Z, stays out of service and tries again by itself until it succeeds: config failed: task puppet: exit 4: broken",
		},
		{
			"the one that failed has the place", d, broken, out,
			"rollout: 1 may be out of service at one time, and are: " + in + " (grant since 2026-11-21T12:00:00Z, failed)",
		},
		{
			"behind the canary", canary, busy, out,
			"rollout: not admitted yet: phase canary, 1 of 4 members are admitted; it waits for " + in + " to finish",
		},
		{"paused", paused, v, out, "stopped: the rollout is paused since 2026-11-21T12:00:00Z by ann: lunch"},
		{"not a member", canary, v, "x", "rollout: it is not a member of the cluster: 'jorc cluster join' makes it one"},
		{"a manager", d, set("n1", func(m *rollout.Member) { m.Roles = []string{"manager"} }), "n1", "rollout: managers take no part in a rollout"},
		{"held", d, set("n1", func(m *rollout.Member) { m.Hold = "by ann: disks" }), "n1", "rollout: it is held: by ann: disks"},
		{
			"it declined", d, set("n1", func(m *rollout.Member) {
				m.Grant, m.Answer = change.Grant{ID: "1", State: pace.Offered}, cluster.Answer{Change: cluster.VersionChange, Declined: "1", Reason: "waiting for mysql"}
			}), "n1", "rollout: it cannot begin: waiting for mysql",
		},
		{
			"it does not answer", d, set("n1", func(m *rollout.Member) {
				m.Grant = change.Grant{ID: "1", State: pace.Withdrawn, Tries: 2, Since: noon}
			}), "n1", "rollout: it did not answer 2 offers; the next is at 2026-11-21T12:01:00Z",
		},
		{
			"given up", d, set("n1", func(m *rollout.Member) {
				grant(m)
				m.Grant.State, m.Grant.By = pace.GivenUp, "ann"
			}), "n1", "grant: an operator gave up on it at 2026-11-21T12:00:00Z (ann): it continues without counting",
		},
	} {
		var got []string
		for _, r := range rollout.Explain(test.doc, test.state, test.node, noon.Add(time.Second)) {
			got = append(got, r.Reason+": "+r.Detail)
		}
		if strings.Join(got, "; ") != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestBlocked: a rollout that was resumed waits for the hosts that failed while
// they have all places, and says so.
func TestBlocked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit int
		want  string
	}{
		{1, "n2, n3, n4 to begin; n1 to be in service again: 1 may be out of it, and 'jorc update give-up' frees the place of a host with a grant"},
		{2, "n2, n3, n4 to begin"},
	} {
		d := started(t, pace.Policy{MaxParallel: pace.Amount{N: test.limit}, MaxFailures: 1})
		v := changed(fleetOf(4, nil), []string{"n1"}, func(m *rollout.Member) { grant(m); fail(m) })
		d = rollout.Plan(d, v, noon).Document
		if got := strings.Join(rollout.Describe(d, v, noon).Waits, "; "); got != test.want {
			t.Errorf("with %d places: %q, want %q", test.limit, got, test.want)
		}
	}
}
