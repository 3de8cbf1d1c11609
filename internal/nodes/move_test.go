package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
)

var errTest = errors.New("a test's own")

func TestReport(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for _, version := range []string{"v1", "v10", "v2", "v1"} {
		before := mustDocument(t, l, "n1")
		if changed, err := l.Report(t.Context(), "n1", version); !changed || err != nil {
			t.Fatalf("Report(%s) = %v, %v", version, changed, err)
		}
		d := mustDocument(t, l, "n1")
		if d.Version != version || d.Previous != before.Version || d.Since.IsZero() {
			t.Errorf("after Report(%s): %+v", version, d)
		}
		wantIndex(t, s, "jorc/default/", "n1", "running_version/"+version+"/n1")
		if at := keys(t, s.Client(), "jorc/default/")["running_version/"+version+"/n1"]; at != d.Since.Format(time.RFC3339) {
			t.Errorf("the index key says %q, the document %v", at, d.Since)
		}
	}
	mustState(t, l, "n1", "config", nodes.State{State: nodes.Running})
	mustState(t, l, "n1", "backup", nodes.State{State: nodes.Success, Detail: "42 files", LogURL: "http://logs/1"})
	wantIndex(t, s, "jorc/default/", "n1", "running_version/v1/n1", "status/config/running/n1", "status/backup/success/n1")
	unwritten(t, s, "reporting what is known", func() {
		for range 3 {
			if changed, err := l.Report(t.Context(), "n1", "v1"); changed || err != nil {
				t.Errorf("Report again = %v, %v", changed, err)
			}
			if changed, err := l.SetState(t.Context(), "n1", "config", nodes.State{State: nodes.Running}); changed || err != nil {
				t.Errorf("SetState again = %v, %v", changed, err)
			}
			mustState(t, l, "n1", "backup", nodes.State{State: nodes.Success, Detail: "42 files", LogURL: "http://logs/1"})
			if _, err := l.Repair(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, bad := range []string{"", "a/b", "v 1", ".."} {
		_, err := l.Report(t.Context(), "n1", bad)
		wantIs(t, "Report("+bad+")", err, nodes.ErrBadName)
		_, err = l.Report(t.Context(), bad, "v1")
		wantIs(t, "Report of "+bad, err, nodes.ErrBadName)
		_, err = l.SetState(t.Context(), "n1", bad, nodes.State{State: nodes.Success})
		wantIs(t, "SetState of category "+bad, err, nodes.ErrBadName)
	}
	_, err := l.SetState(t.Context(), "n1", "config", nodes.State{State: "fine"})
	wantIs(t, "an unknown state", err, nodes.ErrBadState)
	_, err = l.Move(t.Context(), "n1", func(d nodes.Document, _ string) (nodes.Document, error) { return d, errTest })
	wantIs(t, "a change that fails", err, errTest)
	wantWhole(t, s, "n1")
}

// TestStateVersion: a state is about the desired version, or else about the
// one that runs.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustReport(t, l, "n1", "v1")
	mustState(t, l, "n1", "config", nodes.State{State: nodes.Success})
	if got := mustDocument(t, l, "n1").States["config"].Version; got != "v1" {
		t.Errorf("without a desired version it is about %q", got)
	}
	put(t, s, "jorc/default/current_version", "v2\n")
	mustState(t, l, "n1", "config", nodes.State{State: nodes.Success})
	mustState(t, l, "n1", "validation", nodes.State{State: nodes.Success, Version: "v9"})
	d := mustDocument(t, l, "n1")
	if d.States["config"].Version != "v2" || d.States["validation"].Version != "v9" {
		t.Errorf("got %+v", d.States)
	}
}

func TestProvisionedStays(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustState(t, l, "n1", nodes.Provisioned, nodes.State{State: nodes.Running})
	mustState(t, l, "n1", nodes.Provisioned, nodes.State{State: nodes.Success, Detail: "by cloud-init"})
	unwritten(t, s, "provisioning again", func() {
		mustState(t, l, "n1", nodes.Provisioned, nodes.State{State: nodes.Success, Detail: "by hand"})
		_, err := l.SetState(t.Context(), "n1", nodes.Provisioned, nodes.State{State: nodes.Failed})
		wantIs(t, "a state after success", err, nodes.ErrProvisioned)
	})
	if got := mustDocument(t, l, "n1").States[nodes.Provisioned]; got.Detail != "by cloud-init" {
		t.Errorf("got %+v", got)
	}
}

// TestRacingReports: however many report for one node at the same time, whoever
// looks sees it at one version, and in one state per category.
func TestRacingReports(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t)
	const reporters, rounds = 4, 12
	ctx, cancel := context.WithCancel(t.Context())
	var looking, racing sync.WaitGroup
	looks := 0
	client := s.Client()
	looking.Go(func() {
		for ctx.Err() == nil {
			pairs, _, err := client.KVList(ctx, "jorc/default/", consul.Query{})
			if err != nil {
				continue // ctx has ended
			}
			all := map[string]string{}
			for _, p := range pairs {
				all[p.Key[len("jorc/default/"):]] = string(p.Value)
			}
			if err := broken(all, "n1"); err != nil {
				t.Error(err)
				return
			}
			looks++
		}
	})
	for r := range reporters {
		l := nodes.New(s.Server.Client(), "jorc", "default") // as of processes of their own
		racing.Go(func() {
			for i := range rounds {
				var err error
				switch i % 3 {
				case 0:
					_, err = l.Report(ctx, "n1", fmt.Sprintf("v%d", (i+r)%5))
				case 1:
					_, err = l.SetState(ctx, "n1", "config", nodes.State{State: nodes.States()[(i+r)%4]})
				default:
					_, err = l.Move(ctx, "n1", func(d nodes.Document, _ string) (nodes.Document, error) { return moved(d, i+r) })
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	racing.Wait()
	cancel()
	looking.Wait()
	if looks == 0 {
		t.Error("nobody looked")
	}
	wantWhole(t, s, "n1")
}

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

// TestAtTheRoot: without prefix and cluster the keys are where existing hosts
// know them.
func TestAtTheRoot(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t)
	l := nodes.New(s.Client(), "", "")
	if _, err := l.Trigger(t.Context(), "v2", false); err != nil {
		t.Fatal(err)
	}
	mustReport(t, l, "n1", "v1")
	mustState(t, l, "n1", "puppet", nodes.State{State: nodes.Failed})
	all := keys(t, s.Client(), "")
	for _, key := range []string{"current_version", "nodes/n1", "running_version/v1/n1", "status/puppet/failed/n1"} {
		if _, ok := all[key]; !ok {
			t.Errorf("%s is missing in %v", key, all)
		}
	}
	if len(all) != 4 {
		t.Errorf("got %v", all)
	}
	if failures, err := l.Failures(t.Context(), true); err != nil || len(failures) != 1 || failures[0].Host != "n1" {
		t.Errorf("Failures = %+v, %v", failures, err)
	}
	if _, err := l.Unaccounted(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	if removed, _, err := l.Decommission(t.Context(), "n1"); err != nil || len(removed) != 3 {
		t.Errorf("Decommission = %v, %v", removed, err)
	}
}
