package stage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
)

// TestHeldHosts: steps of a stage leave out hosts that are held or drained, shares are of the
// others, and a zone of which every host is held does not pass.
func TestHeldHosts(t *testing.T) {
	t.Parallel()
	inputs := cluster.StageInputsOf([]cluster.StageInput{{Name: "a", Digest: "1"}})
	hosts := func(n int, p cluster.StagePolicy, change func(i int, h *stage.Host)) (all []stage.Host) {
		for i := range n {
			h := stage.Host{Host: pace.Host{Node: fmt.Sprintf("n%d", i+1), Zone: []string{"x", "y"}[i/2%2], Up: true}}
			h.Report = cluster.StageReport{Policy: p, Wants: "new", Changed: inputs}
			change(i, &h)
			all = append(all, h)
		}
		return all
	}
	taken := func(h *stage.Host) {
		h.Report.Wants, h.Report.Changed = "", cluster.StageInputs{}
		h.Report.State, h.Report.Taken, h.Answer = cluster.StageDone, inputs, took("1.1.s", "new")
	}
	held := func(i int, h *stage.Host) {
		switch i {
		case 0:
			h.Hold = "since noon by ann: disk"
		case 1:
			h.Drained, h.Service = cluster.DrainedText, pace.OutMaintenance
		}
	}
	zones := cluster.StagePolicy{MaxParallel: "100%", ZoneByZone: true}
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		hosts []stage.Host
		want  int               // offers
		waits map[string]string // by host
	}{
		{
			"a held canary is replaced", hosts(4, cluster.StagePolicy{MaxParallel: "4", Canary: 1}, held), 1,
			map[string]string{"n1": "it is held: since noon by ann: disk", "n2": "it is in maintenance that jorc did not begin"},
		},
		{"a share is of the others", hosts(4, cluster.StagePolicy{MaxParallel: "75%"}, func(i int, h *stage.Host) {
			if i < 2 {
				h.Hold = "by ann"
			}
		}), 1, nil},
		{"all are held", hosts(4, cluster.StagePolicy{MaxParallel: "4"}, func(_ int, h *stage.Host) { h.Hold = "by ann" }), 0, map[string]string{"n4": "it is held: by ann"}},
		{"a zone of which every host is held", hosts(4, zones, held), 0, map[string]string{"n3": `zone "x" comes first, and all its hosts are held or drained`}},
		{"a zone of which one host is held", hosts(4, zones, func(i int, h *stage.Host) {
			if i == 0 {
				h.Hold = "by ann"
			}
			if i == 1 {
				taken(h)
			}
		}), 2, nil},
		{"a zone of held hosts that have what they want", hosts(4, zones, func(i int, h *stage.Host) {
			if held(i, h); i < 2 {
				taken(h)
				h.Drained, h.Service = "", pace.InService
			}
		}), 2, nil},
	} {
		s := stage.State{Stage: "edge", Session: "s", Hosts: test.hosts}
		p := stage.Plan(stage.Book{}, stage.Stops{}, s, now)
		aside := func(node string) bool {
			return slices.ContainsFunc(test.hosts, func(h stage.Host) bool { return h.Node == node && (h.Hold != "" || h.Drained != "") })
		}
		if len(p.Offers) != test.want || slices.ContainsFunc(p.Offers, aside) {
			t.Errorf("%s: grants are offered to %v, want %d", test.name, p.Offers, test.want)
		}
		for _, h := range stage.Describe(stage.Documents{}, s, true, now).Hosts {
			if want := test.waits[h.Node]; !strings.Contains(h.Waits, want) {
				t.Errorf("%s: %s waits for %q, want %q", test.name, h.Node, h.Waits, want)
			}
		}
	}
}
