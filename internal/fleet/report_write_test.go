package fleet_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/text"
)

func TestReport(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for _, version := range []string{"v1", "v10", "v2", "v1"} {
		before := mustDocument(t, l, "n1")
		if changed, err := l.ReportVersion(t.Context(), "n1", version); !changed || err != nil {
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
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateRunning})
	mustState(t, l, "n1", "backup", cluster.CategoryState{State: cluster.StateSuccess, Detail: "42 files", LogURL: "http://logs/1"})
	wantIndex(t, s, "jorc/default/", "n1", "running_version/v1/n1", "status/config/running/n1", "status/backup/success/n1")
	unwritten(t, s, "reporting what is known", func() {
		for range 3 {
			if changed, err := l.ReportVersion(t.Context(), "n1", "v1"); changed || err != nil {
				t.Errorf("Report again = %v, %v", changed, err)
			}
			if changed, err := l.SetState(t.Context(), "n1", "config", cluster.CategoryState{State: cluster.StateRunning}); changed || err != nil {
				t.Errorf("SetState again = %v, %v", changed, err)
			}
			mustState(t, l, "n1", "backup", cluster.CategoryState{State: cluster.StateSuccess, Detail: "42 files", LogURL: "http://logs/1"})
			if _, err := l.Repair(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, bad := range []string{"", "a/b", "v 1", ".."} {
		_, err := l.ReportVersion(t.Context(), "n1", bad)
		clustertest.WantIs(t, "Report("+bad+")", err, text.ErrName)
		_, err = l.ReportVersion(t.Context(), bad, "v1")
		clustertest.WantIs(t, "Report of "+bad, err, text.ErrName)
		_, err = l.SetState(t.Context(), "n1", bad, cluster.CategoryState{State: cluster.StateSuccess})
		clustertest.WantIs(t, "SetState of category "+bad, err, text.ErrName)
	}
	_, err := l.SetState(t.Context(), "n1", "config", cluster.CategoryState{State: "fine"})
	clustertest.WantIs(t, "an unknown state", err, cluster.ErrBadState)
	_, err = l.ReportWriter("n1").Change(t.Context(), func(d cluster.Report) (cluster.Report, error) { return d, errTest })
	clustertest.WantIs(t, "a change that fails", err, errTest)
	wantWhole(t, s, "n1")
}

// TestStateVersion: a state is about the desired version, or else about the
// one that runs.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustReport(t, l, "n1", "v1")
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess})
	if got := mustDocument(t, l, "n1").States["config"].Version; got != "v1" {
		t.Errorf("without a desired version it is about %q", got)
	}
	put(t, s, "jorc/default/current_version", "v2\n")
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess})
	mustState(t, l, "n1", "validation", cluster.CategoryState{State: cluster.StateSuccess, Version: "v9"})
	d := mustDocument(t, l, "n1")
	if d.States["config"].Version != "v2" || d.States["validation"].Version != "v9" {
		t.Errorf("got %+v", d.States)
	}
}

func TestProvisionedStays(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustState(t, l, "n1", cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateRunning})
	mustState(t, l, "n1", cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess, Detail: "by cloud-init"})
	unwritten(t, s, "provisioning again", func() {
		mustState(t, l, "n1", cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess, Detail: "by hand"})
		_, err := l.SetState(t.Context(), "n1", cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateFailed})
		clustertest.WantIs(t, "a state after success", err, cluster.ErrProvisioned)
	})
	if got := mustDocument(t, l, "n1").States[cluster.CategoryProvisioned]; got.Detail != "by cloud-init" {
		t.Errorf("got %+v", got)
	}
}

// TestRacingReports: however many processes report for one node at the same time, a
// reader sees it at one version, and in one state per category.
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
		l := fleet.New(s.Server.Client(), "jorc", "default") // as of processes of their own
		racing.Go(func() {
			for i := range rounds {
				var err error
				switch i % 3 {
				case 0:
					_, err = l.ReportVersion(ctx, "n1", fmt.Sprintf("v%d", (i+r)%5))
				case 1:
					_, err = l.SetState(ctx, "n1", "config", cluster.CategoryState{State: cluster.States()[(i+r)%4]})
				default:
					_, err = l.ReportWriter("n1").Change(ctx, func(d cluster.Report) (cluster.Report, error) { return moved(d, i+r) })
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
		t.Error("no client looked")
	}
	wantWhole(t, s, "n1")
}

// TestAtTheRoot: without prefix and cluster the keys are where existing hosts
// know them.
func TestAtTheRoot(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t)
	l := fleet.New(s.Client(), "", "")
	put(t, s, "current_version", "v2")
	mustReport(t, l, "n1", "v1")
	mustState(t, l, "n1", "puppet", cluster.CategoryState{State: cluster.StateFailed})
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
	if _, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL()); err != nil {
		t.Error(err)
	}
	if _, err := l.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	if removed, _, err := l.Decommission(t.Context(), "n1"); err != nil || len(removed) != 3 {
		t.Errorf("Decommission = %v, %v", removed, err)
	}
}

// TestKilledInTheMiddle kills a process that moves a node, again and again, at
// moments that are random: the node is at exactly one version and in one
// state per category each time, and the next process continues from there.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for range 15 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), moverOf+"="+s.HTTPAddr)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 1 + rand.IntN(30); n > 0 && lines.Scan(); n-- {
			if !strings.HasPrefix(lines.Text(), "moved ") {
				t.Errorf("the process says %q", lines.Text())
			}
		}
		_ = cmd.Process.Kill() // it runs without end
		_ = cmd.Wait()
		settled(t, s, "n1")
		wantWhole(t, s, "n1")
	}
	mustReport(t, l, "n1", "final")
	wantWhole(t, s, "n1")
	if got := mustDocument(t, l, "n1").Version; got != "final" {
		t.Errorf("it is at %q", got)
	}
}

// settled waits until what a killed process had sent has been carried out.
func settled(t *testing.T, s *server, node string) {
	t.Helper()
	last := uint64(0)
	consultest.Eventually(t, "the last write of a killed process", func(ctx context.Context) error {
		p, _, err := s.Client().KVGet(ctx, "jorc/default/nodes/"+node, consul.Query{Consistent: true})
		if err != nil || p == nil {
			return fmt.Errorf("no document: %w", err)
		}
		if p.ModifyIndex != last {
			last = p.ModifyIndex
			return fmt.Errorf("index %d", last)
		}
		return nil
	})
}

// TestEveryInterruption ends each request that a move makes, in each way: the
// move says whether it was made, and the node is whole.
func TestEveryInterruption(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustReport(t, l, "n1", "v0")
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateRunning})
	proxy := s.Proxy()
	through := fleet.New(proxy.Client(), "jorc", "default")
	for i, fault := range []consultest.Fault{{Status: 500}, {Status: 429}, {Cut: 1}, {Status: 403}} {
		for nth := 1; ; nth++ {
			f := &nthRequest{n: nth, fault: fault}
			proxy.Do(f.of)
			version := fmt.Sprintf("v%d-%d", i, nth)
			before := mustDocument(t, l, "n1").Version
			_, err := through.ReportVersion(t.Context(), "n1", version)
			proxy.Do(nil)
			wantWhole(t, s, "n1")
			now := mustDocument(t, l, "n1").Version
			switch {
			case err == nil && now != version:
				t.Errorf("fault %+v in request %d: no error, and the node is at %s, not %s", fault, nth, now, version)
			case err != nil && now != before:
				t.Errorf("fault %+v in request %d: %v, and the node went from %s to %s", fault, nth, err, before, now)
			}
			if !f.met() {
				break // the move makes no more requests
			}
		}
	}
}

// nthRequest is a fault in the nth request from now on, and in no other.
type nthRequest struct {
	n     int
	fault consultest.Fault

	mu   sync.Mutex
	seen int
}

func (f *nthRequest) of(*http.Request) consultest.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.seen == f.n {
		return f.fault
	}
	return consultest.Fault{}
}

// met reports whether there were so many requests.
func (f *nthRequest) met() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen >= f.n
}
