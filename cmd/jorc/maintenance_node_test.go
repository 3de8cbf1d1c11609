package main

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/lease"
)

// TestOrderID: each order has an ID of its own that a lease may have, however long the operator's name is.
func TestOrderID(t *testing.T) {
	t.Parallel()
	for by, begin := range map[string]string{
		"": "", "ann": "ann ", strings.Repeat("x", lease.MostID): strings.Repeat("x", 100),
		strings.Repeat("ä", 100): strings.Repeat("ä", 50), "x" + strings.Repeat("ä", 100): "x" + strings.Repeat("ä", 50),
	} {
		id := orderID(by)
		if err := (lease.Request{ID: id}).Check(); err != nil || !utf8.ValidString(id) || !strings.HasPrefix(id, begin) || id == orderID(by) {
			t.Errorf("of %q: %q, %v", by, id, err)
		}
	}
}

// TestMaintenanceOnNode: an operator orders the lease of another host, and the audit has that. What the host makes of the
// order is tested with agents (TestLeaseOrdered).
func TestMaintenanceOnNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "web-1")
	cl := fleet.New(f.server.Client(), "jorc", "prod")
	want := func(code int, part string, args ...string) {
		t.Helper()
		if got := jorc(t, f.env, append([]string{"maintenance"}, args...)...); got.code != code || !strings.Contains(got.stdout+got.stderr, part) {
			t.Errorf("maintenance %v: got %+v, want code %d and %q", args, got, code, part)
		}
	}
	want(0, "web-1\tnone", "show", "--node", "web-1", "-o", "plain")
	want(0, "", "end", "--node", "web-1")
	want(1, "web-9", "begin", "--node", "web-9")
	want(exitUsage, "--for is -1s", "begin", "--node", "web-1", "--for=-1s")
	f.env["USER"] = "token 6a1253d2-1785-24fd-91c2-f8e78c745511 (" + strings.Repeat("the operators of München, ", 3) + "…), ann@desk"
	want(exitStopped, "no orchestrator runs", "begin", "--node", "web-1")
	f.env["USER"] = "ann"
	if _, err := cl.Pause(t.Context(), cluster.Hold{Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	want(exitStopped, "the cluster is paused", "begin", "--node", "web-1")

	order := lease.NewOrder(lease.Request{ID: "bob X", Reason: "a disk"}, "bob")
	if err := lease.Place(t.Context(), cl, "web-1", order); err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	report := func(w *cluster.Wish, a cluster.Answer) {
		t.Helper()
		if _, err := cl.ReportWriter("web-1").Change(t.Context(), func(r cluster.Report) (cluster.Report, error) {
			return r.Wishing(w).WithAnswer(a), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	accepted := cluster.Answer{Change: "lease.web-1", ID: "g1", Tag: "w", State: cluster.GrantAccepted, Since: since}
	report(&cluster.Wish{ID: "w", Reason: "a disk", Since: since, Order: "bob X", Ready: true}, accepted)
	want(0, "web-1\tgranted\ta disk\t", "show", "--node", "web-1", "-o", "plain")
	want(exitTimeout, "is not over yet", "end", "--node", "web-1", "--timeout", "1ms", "--reason", "the disk is new")
	ended := []string{"jorc maintenance end --node=web-1|ann|the disk is new|host/web-1/maintenance"}
	if got := auditLines(audited(t, f.env, "--command", "jorc maintenance")); !slices.Equal(got, ended) {
		t.Errorf("audit:\n%q\nwant\n%q", got, ended)
	}
	if was, err := lease.Withdraw(t.Context(), cl, "web-1", ""); was || err != nil {
		t.Errorf("the order is still there: %v, %v", was, err)
	}
	report(&cluster.Wish{ID: "w", Reason: "a kernel", Since: since}, accepted)
	want(exitStopped, "was begun there: a kernel", "end", "--node", "web-1")
	report(&cluster.Wish{ID: "w", Since: since, Trouble: "a check fails"}, accepted)
	want(1, "a check fails", "show", "--node", "web-1", "-o", "plain")
	report(nil, cluster.Answer{Change: "lease.web-1"})
	want(0, "", "end", "--node", "web-1")

	if _, err := cl.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.orchestrate()
	want(exitTimeout, "web-1 stays in service", "begin", "--node", "web-1", "--reason", "a new disk", "--timeout", "1ms")
	const began = "jorc maintenance begin --node=web-1|ann|a new disk|host/web-1/maintenance"
	if got := auditLines(audited(t, f.env, "--command", "jorc maintenance begin")); !slices.Equal(got, []string{began, began}) { // and withdrawn
		t.Errorf("audit:\n%q\nwant twice\n%q", got, began)
	}
}
