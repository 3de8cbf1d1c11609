package budget_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestGoneMembers: a member that left the catalog counts as out of service and in shares for a day; after that,
// and if it never had a host, it does neither. One that is down for longer stays.
func TestGoneMembers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		absent  bool
		version string        // that it ran
		since   time.Duration // that it is absent or down; 0: that is not known
		out     int           // of the cluster
		allowed int           // half of it
	}{
		{"absent for almost a day", true, "v1", 24*time.Hour - time.Second, 1, 2},
		{"absent for a day", true, "v1", 24 * time.Hour, 0, 1},
		{"absent since an unknown time", true, "v1", 0, 1, 2},
		{"never had a host", true, "", 0, 0, 1},
		{"down for a week", false, "v1", 7 * 24 * time.Hour, 1, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.State{Hosts: map[string]*cluster.Host{}, Control: cluster.Control{Budget: &pace.Budget{MaxOut: pace.Amount{N: 50, Percent: true}}}}
			for _, node := range []string{"a", "b", "c", "d"} {
				h := &cluster.Host{Node: node, Member: true, Reported: true, Report: cluster.Report{Version: "v1"}}
				signals := well
				if node == "d" {
					h.Report.Version = test.version
					signals.Cataloged, signals.Gossip, signals.Agent = !test.absent, cluster.SignalFailing, cluster.SignalFailing
				}
				h.Condition = cluster.Assess(signals)
				s.Hosts[node] = h
			}
			members, err := rollout.StateOf(&s, rollout.Stored{})
			if err != nil {
				t.Fatal(err)
			}
			life := func(node string) (liveness, health time.Time) {
				if node == "d" && test.since > 0 {
					liveness = now.Add(-test.since)
				}
				return liveness, health
			}
			asked := false
			read := budget.ReadLife(func(context.Context, *fleet.Cluster) (budget.Life, error) { asked = true; return life, nil })
			known, err := read.Of(t.Context(), nil, members)
			if err != nil || asked != test.absent || (known != nil) != test.absent {
				t.Errorf("since when members are away was read: %t (%v), want %t", asked, err, test.absent)
			}
			use := budget.Count(&s, members, budget.Documents{}, "", life, now).Uses()[0]
			if use.Out != test.out || use.Allowed != test.allowed {
				t.Errorf("%d are out of service of %d that may be; want %d of %d", use.Out, use.Allowed, test.out, test.allowed)
			}
		})
	}
}

// TestOffersTakeNoPlaceTwice: of two hosts one may be out, and the first is. The other is granted something only if it is
// out for certain: what it was offered may be void, as the lock or the budget is another one since.
func TestOffersTakeNoPlaceTwice(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	grant := func(h *cluster.Host, all ...change.Grant) {
		text, err := json.Marshal(change.Grants{All: all})
		if err != nil {
			t.Fatal(err)
		}
		h.Grants = kv.Entry[string]{Value: string(text), Exists: true}
	}
	lease, files := cluster.LeaseChange("b"), cluster.FilesChange("edge")
	offer := func(h *cluster.Host, session string) {
		h.Report.Lease = &cluster.Wish{ID: "w", Since: now}
		grant(h, change.Grant{Change: lease, Tag: "w", ID: "1.1." + session, State: pace.Offered, Session: session, Since: now})
	}
	givenUp := func(h *cluster.Host) { // in a stage, beside an offer of a lease
		offer(h, "present")
		h.Report = h.Report.WithAnswer(cluster.Answer{Change: files, ID: "1.2.present", State: cluster.GrantAccepted, Since: now})
		grant(h, change.GrantsIn(h).Value.With(change.Grant{Change: files, ID: "1.2.present", State: pace.GivenUp, Since: now}).All...)
	}
	accept := func(h *cluster.Host) {
		h.Report = h.Report.WithAnswer(cluster.Answer{Change: lease, ID: "1.1.old", Tag: "w", State: cluster.GrantAccepted, Since: now})
	}
	acceptLater := func(h *cluster.Host) { // in a stage, a lease given up before
		h.Report.Lease = &cluster.Wish{ID: "w", Since: now}
		h.Report = h.Report.WithAnswer(cluster.Answer{Change: lease, ID: "1.1.present", Tag: "w", State: cluster.GrantAccepted, Since: now})
		h.Report = h.Report.WithAnswer(cluster.Answer{Change: files, ID: "1.2.present", State: cluster.GrantAccepted, Since: now.Add(time.Second)})
		grant(h, change.Grant{Change: files, ID: "1.2.present", State: pace.Offered, Session: "present", Since: now},
			change.Grant{Change: lease, ID: "1.1.present", Tag: "w", State: pace.GivenUp, Since: now})
	}
	for name, test := range map[string]struct {
		host     func(h *cluster.Host)
		out      int // of the cluster
		admitted bool
	}{
		"in service":                {func(*cluster.Host) {}, 1, false},
		"offered a lease":           {func(h *cluster.Host) { offer(h, "present") }, 2, false},
		"offered one by another":    {func(h *cluster.Host) { offer(h, "old") }, 1, false},
		"with a lease":              {func(h *cluster.Host) { offer(h, "old"); accept(h) }, 2, true},
		"offered one, and critical": {func(h *cluster.Host) { offer(h, "present"); critical(h) }, 2, true},
		"offered one, and given up": {givenUp, 2, false},
		"with one, and given up":    {func(h *cluster.Host) { givenUp(h); accept(h) }, 1, false},
		"given up, and then one":    {acceptLater, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cluster.State{Hosts: map[string]*cluster.Host{}, Control: cluster.Control{Budget: &pace.Budget{MaxOut: pace.Amount{N: 1}}}}
			for _, node := range []string{"a", "b"} {
				h := &cluster.Host{Node: node, Member: true, Reported: true, Report: cluster.Report{Version: "v1"}}
				h.Condition = cluster.Assess(well)
				s.Hosts[node] = h
			}
			critical(s.Hosts["a"])
			test.host(s.Hosts["b"])
			members, err := rollout.StateOf(&s, rollout.Stored{Session: "present"})
			if err != nil {
				t.Fatal(err)
			}
			account := budget.Count(&s, members, budget.Documents{}, "", nil, now)
			if _, admitted := account.Admit("b"); admitted != test.admitted || account.Uses()[0].Out != test.out {
				t.Errorf("admitted: %t, out: %d; want %t, %d", admitted, account.Uses()[0].Out, test.admitted, test.out)
			}
		})
	}
}

// well are the signals of a host that is up and healthy.
var well = cluster.Signals{Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceNone, Checks: consul.HealthPassing}

// critical lets a check of a host fail.
func critical(h *cluster.Host) {
	signals := well
	signals.Checks = consul.HealthCritical
	h.Condition = cluster.Assess(signals)
}
