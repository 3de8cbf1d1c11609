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

// answering is a report with another answer.
func answering(r cluster.Report, set func(*cluster.Answer)) cluster.Report {
	a := r.Answered(cluster.VersionChange)
	set(&a)
	return r.WithAnswer(a)
}
