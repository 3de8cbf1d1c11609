package converge

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestReportWithGrant: a host with a version to report ends its grant in the same write
// only where nothing else has to come between the two.
func TestReportWithGrant(t *testing.T) {
	t.Parallel()
	now := time.Now()
	record := grantRecord{Held: change.Held{ID: "1.1.a", Tag: "v2", Since: now.UTC().Truncate(time.Second)}, Begun: true}
	accepted := rollout.Permit{
		Stored: rollout.Stored{Desired: "v2", Exists: true, Document: rollout.Document{Spec: rollout.Spec{Version: "v2"}, Progress: pace.Progress{Phase: pace.Batch}}},
		Report: cluster.Report{}.WithAnswer(record.Answer(cluster.VersionChange)),
	}
	slow := accepted
	slow.Document.Policy.MinHealthy = pace.Duration(time.Minute)
	for name, tt := range map[string]struct {
		change func(*grantFacts)
		want   grantAction
	}{
		"in maintenance":       {func(*grantFacts) {}, grantLift},
		"back in service":      {func(f *grantFacts) { f.lifted = true }, grantFinish},
		"a check fails":        {func(f *grantFacts) { f.healthy = false }, grantSeparate},
		"min-healthy":          {func(f *grantFacts) { f.permit = slow }, grantSeparate},
		"another version":      {func(f *grantFacts) { f.report = "v1" }, grantSeparate},
		"wants to begin again": {func(f *grantFacts) { f.enter = "v3" }, grantSeparate},
		"stranded": {func(f *grantFacts) {
			f.record.Stranded = true
			f.permit.Report = answering(f.permit.Report, func(a *cluster.Answer) { a.State = cluster.GrantStranded })
		}, grantSeparate},
		"without a grant": {func(f *grantFacts) { f.record, f.permit = grantRecord{}, rollout.Permit{} }, grantSeparate},
	} {
		f := grantFacts{record: record, permit: accepted, report: "v2", healthy: true}
		tt.change(&f)
		if got, _, _ := decideGrant(&f, now); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestReadyAfterARefusal: a host that declined says once that it could begin now, also where only its report knows of the
// refusal, as its disk was wiped.
func TestReadyAfterARefusal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	offer := change.Grant{Change: cluster.VersionChange, ID: "2.9.a", Tag: "v1", State: pace.Offered, Session: "a", Since: now}
	refused := change.Held{}.Declining(offer, "a check failed")
	ready := refused
	ready.Ready = true
	for name, tt := range map[string]struct {
		record, reported change.Held
		granted          change.Grant
		want             grantAction
	}{
		"it could not begin":             {refused, refused, offer, grantReady},
		"it said that it is ready":       {ready, ready, offer, grantNothing},
		"its disk was wiped":             {change.Held{}, refused, offer, grantReady},
		"wiped, and ready before":        {change.Held{}, ready, offer, grantNothing},
		"what it says is not stored yet": {ready, refused, offer, grantNothing},
		"another offer came":             {refused, refused, change.Grant{ID: "2.10.a"}, grantNothing},
		"nothing was ever granted":       {change.Held{}, change.Held{}, change.Grant{}, grantNothing},
	} {
		f := grantFacts{enter: "v2", record: grantRecord{Held: tt.record}, permit: rollout.Permit{
			Stored: rollout.Stored{Desired: "v2", Exists: true, Document: rollout.Document{
				Spec: rollout.Spec{Version: "v2", Policy: pace.Policy{MaxParallel: pace.Amount{N: 1}}}, Progress: pace.Progress{Phase: pace.Batch},
			}},
			Grant: tt.granted, Report: cluster.Report{}.WithAnswer(tt.reported.Answer(cluster.VersionChange)),
		}}
		if got, _, _ := decideGrant(&f, now); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// answering is a report with another answer.
func answering(r cluster.Report, set func(*cluster.Answer)) cluster.Report {
	a := r.Answered(cluster.VersionChange)
	set(&a)
	return r.WithAnswer(a)
}
