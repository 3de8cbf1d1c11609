package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
)

// operatorChange is the event of the nth change of a command.
func operatorChange(n uint64) orchestrator.Event {
	return orchestrator.Event{Kind: event.OperatorChange, Text: "c", Audit: &cluster.AuditEntry{Log: "log", Number: n, Command: "c", Keys: []string{"profile"}}}
}

// changeNumbers are the numbers of changes among events.
func changeNumbers(events []orchestrator.Event) (all []uint64) {
	for _, e := range events {
		if e.Audit != nil {
			all = append(all, e.Audit.Number)
		}
	}
	return all
}

// TestAuditOutlivesEvents: a flood of other events pushes no audit event out, a flood of
// audit events leaves the newest, and a follower of the audit that was away during both
// resumes with what is kept, once and in order.
func TestAuditOutlivesEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.lock()
	j, _ := f.open(h.Store(), orchestrator.JournalOptions{MaxEvents: 200, MaxAge: time.Hour, MaxAudit: 200})
	at := now
	save := func(events ...orchestrator.Event) {
		t.Helper()
		at = at.Add(time.Minute)
		if _, err := j.Save(t.Context(), j.View(), events, at, nil); err != nil {
			t.Fatal(err)
		}
	}
	audit := func() []uint64 {
		t.Helper()
		got, err := orchestrator.ReadAudit(t.Context(), f.store, fleet.New(f.client, "jorc", "none"))
		if err := errors.Join(err, got.Problems); err != nil {
			t.Fatal(err)
		}
		return changeNumbers(got.Events)
	}
	var want []uint64
	for n := range uint64(5) {
		save(operatorChange(n + 1))
		want = append(want, n+1)
	}
	after := j.Commit().Seq
	for range 30 {
		save(make([]orchestrator.Event, 100)...)
	}
	save(operatorChange(6))
	at = at.Add(48 * time.Hour)
	save(make([]orchestrator.Event, 1000)...)
	if got := changeNumbers(f.events(0, 0)); len(got) > 0 {
		t.Errorf("the journal still has the changes %v", got)
	}
	if got := audit(); !slices.Equal(got, append(want, 6)) {
		t.Errorf("after a flood of other events the audit has %v", got)
	}
	followed := func(after uint64, n int) (got []uint64) {
		t.Helper()
		enough := errors.New("enough")
		err := orchestrator.FollowAudit(t.Context(), f.store, after, func(events []orchestrator.Event) error {
			if got = append(got, changeNumbers(events)...); len(got) >= n {
				return enough
			}
			return nil
		}, func(err error) { t.Errorf("told of %v", err) })
		if !errors.Is(err, enough) {
			t.Error(err)
		}
		return got
	}
	if got := followed(after, 1); !slices.Equal(got, []uint64{6}) {
		t.Errorf("a follower that was away got %v, want 6", got)
	}
	for n := uint64(7); n < 400; n += 3 {
		save(operatorChange(n), operatorChange(n+1), operatorChange(n+2))
	}
	got := audit()
	if len(got) > 200 || len(got) < 120 || got[len(got)-1] != 399 { // the oldest go in batches
		t.Errorf("after a flood of changes %d are kept: %v", len(got), got)
	}
	for i, n := range got {
		if n != got[0]+uint64(i) {
			t.Errorf("change %d follows on %d", n, got[0]+uint64(i)-1)
		}
	}
	if all := followed(after, len(got)); !slices.Equal(all, got) {
		t.Errorf("a follower that was away got %v, want %v", all, got)
	}
}

// TestAuditFlood: 20 writers make changes while the orchestrator journals them. Each
// change is journalled once, in order; the events name how many the log no longer held.
func TestAuditFlood(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(quick(s.client))
	const writers, each = 20, 20
	var running sync.WaitGroup
	for w := range writers {
		c := fleet.New(s.client, "jorc", "prod")
		ctx := fleet.WithAuthor(t.Context(), fleet.Author{Command: "test", By: func(context.Context) (string, error) { return fmt.Sprint("w", w), nil }})
		running.Go(func() {
			for i := range each {
				if _, err := c.Hold(ctx, cluster.Scope{Node: fmt.Sprintf("n%d-%d", w, i)}, cluster.Hold{Since: time.Unix(0, 0)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow() // there are fewer changes than are waited for
	}
	var events []orchestrator.Event
	s.eventually("the last change", func() error {
		events = slices.DeleteFunc(s.events(), func(e orchestrator.Event) bool { return e.Audit == nil })
		if n := len(events); n == 0 || events[n-1].Audit.Number < writers*each {
			return fmt.Errorf("%d changes are journalled", n)
		}
		return nil
	})
	last := uint64(0)
	for _, e := range events {
		gone := uint64(0)
		if _, text, is := strings.Cut(e.Text, "; "); is {
			n, _, _ := strings.Cut(text, " ")
			var err error
			if gone, err = strconv.ParseUint(n, 10, 64); err != nil {
				t.Fatalf("%q: %v", e.Text, err)
			}
		}
		if e.Audit.Number != last+gone+1 {
			t.Errorf("change %d follows on %d, and %d are named as gone", e.Audit.Number, last, gone)
		}
		last = e.Audit.Number
	}
	t.Logf("%d of %d changes are journalled", len(events), writers*each)
}
