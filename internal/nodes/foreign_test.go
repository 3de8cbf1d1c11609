package nodes_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
)

// TestForeignWrites: keys that somebody wrote past the document are put right
// by the node's next report, of whatever kind.
func TestForeignWrites(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for _, test := range []struct {
		name   string
		damage func(node string)
		want   []string // index keys afterwards; NODE stands for the node
	}{
		{"another version", func(n string) { put(t, s, "jorc/default/running_version/v7/"+n, "x") }, nil},
		{"a version in another's name", func(n string) { put(t, s, "jorc/default/running_version/v 7/"+n, "x") }, nil},
		{"another state", func(n string) { put(t, s, "jorc/default/status/config/failed/"+n, "x") }, nil},
		{"a state that is none", func(n string) { put(t, s, "jorc/default/status/config/weird/"+n, "x") }, nil},
		{"other values", func(n string) {
			put(t, s, "jorc/default/running_version/v1/"+n, "yesterday")
			put(t, s, "jorc/default/status/config/success/"+n, "ok")
		}, nil},
		{"keys deleted", func(n string) {
			for _, key := range []string{"running_version/v1/", "status/config/success/"} {
				if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/"+key+n); err != nil {
					t.Fatal(err)
				}
			}
		}, nil},
		{"a hundred versions", func(n string) {
			for i := range 100 {
				put(t, s, fmt.Sprintf("jorc/default/running_version/x%d/%s", i, n), "x")
			}
		}, nil},
		{"a damaged document", func(n string) { put(t, s, "jorc/default/nodes/"+n, "not JSON") }, nil},
		{"a document deleted", func(n string) {
			if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/nodes/"+n); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"a category of their own", func(n string) { put(t, s, "jorc/default/status/backup/failed/"+n, "disk full") }, []string{"status/backup/failed/"}},
	} {
		node := "n" + strconv.Itoa(len(test.name)) + test.name[:1]
		for _, how := range []string{"report", "state", "repair"} {
			mustReport(t, l, node, "v1")
			mustState(t, l, node, "config", nodes.State{State: nodes.Success})
			mustReport(t, l, "other", "v1")
			mustReport(t, l, "other", "v7") // so that places stay that somebody uses
			test.damage(node)
			want := []string{"running_version/v1/" + node, "status/config/success/" + node}
			for _, w := range test.want {
				want = append(want, w+node)
			}
			switch how {
			case "report":
				mustReport(t, l, node, "v1")
			case "state":
				mustState(t, l, node, "config", nodes.State{State: nodes.Success})
			default:
				r, err := l.Repair(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if test.name == "a document deleted" { // then the keys are all there is
					if len(r.Orphans) != 1 || r.Orphans[0] != node || len(r.Fixed) > 0 {
						t.Errorf("%s: Repair = %+v", test.name, r)
					}
					wantIndex(t, s, "jorc/default/", node, want...)
					continue
				}
				if len(r.Fixed) != 1 || r.Fixed[0] != node {
					t.Errorf("%s: Repair = %+v", test.name, r)
				}
			}
			wantIndex(t, s, "jorc/default/", node, want...)
			wantWhole(t, s, node)
			wantWhole(t, s, "other")
			if t.Failed() {
				t.Fatalf("%s, put right by a %s", test.name, how)
			}
		}
		if _, _, err := l.Decommission(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		wantIndex(t, s, "jorc/default/", node)
	}
}

// TestHostsOfOldScripts: a host that reported to scripts without documents
// loses nothing when it reports to jorc.
func TestHostsOfOldScripts(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	put(t, s, "jorc/default/running_version/v1/n1", "2026-01-01T00:00:00Z")
	put(t, s, "jorc/default/running_version/v2/n1", "1730000000.5")
	put(t, s, "jorc/default/status/puppet/failed/n1", "1730000000.5")
	put(t, s, "jorc/default/status/puppet/success/n1", `{"since":"2026-02-02T00:00:00Z","detail":"fine"}`)
	mustState(t, l, "n1", "validation", nodes.State{State: nodes.Success})
	d := mustDocument(t, l, "n1")
	if d.Version != "v2" || d.States["puppet"].State != nodes.Success || d.States["puppet"].Detail != "fine" || d.States["puppet"].Since.Year() != 2026 {
		t.Errorf("got %+v", d)
	}
	wantIndex(t, s, "jorc/default/", "n1", "running_version/v2/n1", "status/puppet/success/n1", "status/validation/success/n1")
	wantWhole(t, s, "n1")
}

func TestNewerDocuments(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	newer := `{"format":2,"version":{"name":"v1"}}`
	put(t, s, "jorc/default/nodes/n1", newer)
	_, err := l.Report(t.Context(), "n1", "v2")
	wantIs(t, "Report over a newer format", err, kv.ErrNewer)
	_, _, err = l.Document(t.Context(), "n1")
	wantIs(t, "Document of a newer format", err, kv.ErrNewer)
	put(t, s, "jorc/default/nodes/n2", `{"format":1,"version":"v1","hue":{"a":1}}`)
	mustReport(t, l, "n2", "v2")
	all := keys(t, s.Client(), "jorc/default/")
	if all["nodes/n1"] != newer {
		t.Errorf("it was overwritten: %s", all["nodes/n1"])
	}
	if got := all["nodes/n2"]; got[:len(`{"format":1,"hue":{"a":1},"version":"v2"`)] != `{"format":1,"hue":{"a":1},"version":"v2"` {
		t.Errorf("what a newer jorc wrote is gone: %s", got)
	}
	r, err := l.Repair(t.Context())
	if err != nil || len(r.Strange) != 1 || r.Strange[0] != "nodes/n1" {
		t.Errorf("Repair = %+v, %v", r, err)
	}
}
