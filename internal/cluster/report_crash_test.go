package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestKilledInTheMiddle kills a process that moves a node, again and again, at
// moments that nobody chose: the node is at exactly one version and in one
// state per category each time, and the next process goes on from there.
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
	through := cluster.New(proxy.Client(), "jorc", "default")
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
