package change_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// TestRefusalAfterTheEnd: a host that declines an offer after a grant that is done says why.
func TestRefusalAfterTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	done := change.Held{}.Accepting(change.Grant{Change: "version", ID: "2", Tag: "v2"}, now).Accepted()
	done.Ended = now
	if a := done.Answer("version"); a.State != cluster.GrantDone || a.Reason != "" {
		t.Errorf("done: %+v", a)
	}
	if a := done.Declining(change.Grant{Change: "version", ID: "3", Tag: "v3"}, "the disk is full").Answer("version"); a.State != cluster.GrantDone || a.Declined != "3" || a.Reason != "the disk is full" {
		t.Errorf("declined after that: %+v", a)
	}
}

// TestSettle: what a difference between a host's record and its report means, and that the report which follows from the
// record leaves nothing to settle.
func TestSettle(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	granted := change.Grant{Change: "version", ID: "2", Tag: "v2"}
	open := change.Held{}.Accepting(granted, now).Accepted()
	done := open
	done.Ended = now.Add(time.Minute)
	declined := change.Held{}.Declining(granted, "disk full\nof "+strings.Repeat("x", 20_000))
	none := cluster.Answer{Change: "version"}
	with := func(a cluster.Answer, set func(*cluster.Answer)) cluster.Answer {
		set(&a)
		return a
	}
	for name, tt := range map[string]struct {
		held    change.Held
		report  cluster.Answer
		granted change.Grant
		want    change.Settled
	}{
		"nothing":                                {change.Held{}, none, change.Grant{}, change.AsKnown},
		"an offer":                               {change.Held{}, none, granted, change.AsKnown},
		"an acceptance on its way":               {change.Held{}.Accepting(granted, now), none, granted, change.AsKnown},
		"it was carried out":                     {change.Held{}.Accepting(granted, now), open.Answer("version"), granted, change.Adopted},
		"another grant took the place":           {change.Held{}.Accepting(granted, now), none, change.Grant{ID: "3"}, change.Replaced},
		"carried out, and then taken back":       {change.Held{}.Accepting(granted, now), open.Answer("version"), change.Grant{ID: "3"}, change.Adopted},
		"a wiped disk":                           {change.Held{}, open.Answer("version"), granted, change.Lost},
		"a wiped disk, and a report of the end":  {change.Held{}, done.Answer("version"), granted, change.AsKnown},
		"a report of before":                     {open, none, granted, change.Differs},
		"a report with another grant":            {open, with(open.Answer("version"), func(a *cluster.Answer) { a.ID = "1" }), granted, change.Differs},
		"an end that was not written":            {done, open.Answer("version"), granted, change.Differs},
		"an end, and a restored report":          {done, none, granted, change.AsKnown},
		"an end, and an unknown grant":           {done, with(open.Answer("version"), func(a *cluster.Answer) { a.ID = "3" }), granted, change.Lost},
		"an end, and a report of before it":      {done, with(open.Answer("version"), func(a *cluster.Answer) { a.ID = "1" }), granted, change.Differs},
		"a refusal that was not written":         {declined, none, granted, change.Differs},
		"a refusal of an offer that is over":     {declined, none, change.Grant{ID: "3"}, change.AsKnown},
		"stranded":                               {change.Held{ID: "2", Tag: "v2", Since: now, Stranded: true}, open.Answer("version"), granted, change.Differs},
		"lost before":                            {change.LostOf(open.Answer("version")), open.Answer("version"), granted, change.Differs},
		"lost before, and an acceptance is made": {change.LostOf(open.Answer("version")).Accepting(change.Grant{ID: "3"}, now), none, change.Grant{ID: "3"}, change.Differs},
	} {
		if got := tt.held.Settle(tt.report, tt.granted); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		report := cluster.Report{}.WithAnswer(tt.held.Answer("version")).Answered("version")
		if got := tt.held.Settle(report, tt.granted); got != change.AsKnown && got != change.Replaced {
			t.Errorf("%s: %q beside the report that follows from it: %+v", name, got, report)
		}
	}
}

// TestAccepts: a host accepts what an orchestrator offers it and it has not answered, and nothing that Consul restored
// a moment ago or that is older than two minutes.
func TestAccepts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	offer := change.Grant{Change: "version", ID: "2", Tag: "v2", State: pace.Offered, Session: "s", Since: now.Add(-30 * time.Second)}
	since := func(d time.Duration) func(*change.Grant) { return func(g *change.Grant) { g.Since = now.Add(d) } }
	with := func(set func(*change.Grant)) change.Grant {
		g := offer
		set(&g)
		return g
	}
	accepted := cluster.Report{}.WithAnswer(change.Held{}.Accepting(offer, now).Accepted().Answer("version"))
	declined := cluster.Report{}.WithAnswer(change.Held{}.Declining(offer, "full").Answer("version"))
	for name, tt := range map[string]struct {
		seen  change.Seen
		grant change.Grant
		want  bool
		from  time.Duration // after now; 0: that is not known
	}{
		"an offer":                  {change.Seen{}, offer, true, 0},
		"it was withdrawn":          {change.Seen{}, with(func(g *change.Grant) { g.State = pace.Withdrawn }), false, 0},
		"it was edited by hand":     {change.Seen{}, with(func(g *change.Grant) { g.Session = "" }), false, 0},
		"it was accepted":           {change.Seen{Report: accepted}, offer, false, 0},
		"it was declined":           {change.Seen{Report: declined}, offer, false, 0},
		"the one after a refusal":   {change.Seen{Report: declined}, with(func(g *change.Grant) { g.ID = "3" }), true, 0},
		"a moment after a restore":  {change.Seen{Reset: now.Add(-time.Second)}, offer, false, 59 * time.Second},
		"a minute after a restore":  {change.Seen{Reset: now.Add(-time.Minute)}, offer, true, 0},
		"it is two minutes old":     {change.Seen{}, with(since(-2 * time.Minute)), false, 0},
		"almost":                    {change.Seen{}, with(since(time.Second - 2*time.Minute)), true, 0},
		"by a clock that is behind": {change.Seen{}, with(since(time.Hour)), true, 0},
		"restored, and old":         {change.Seen{Reset: now}, with(since(-time.Hour)), false, 0},
		"a restore, and it is over": {change.Seen{Reset: now}, with(func(g *change.Grant) { g.State = pace.Withdrawn }), false, 0},
	} {
		want := time.Time{}
		if tt.from > 0 {
			want = now.Add(tt.from)
		}
		if got, from := tt.seen.Accepts(tt.grant, now); got != tt.want || !from.Equal(want) {
			t.Errorf("%s: %v, from %v; want %v, %v", name, got, from, tt.want, want)
		}
	}
}
