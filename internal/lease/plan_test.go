package lease

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestWaitingIsNoOffer: what the orchestrator writes about a lease that waits never offers it, whatever the host was granted before.
func TestWaitingIsNoOffer(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	member := rollout.Member{Node: "h0", Condition: cluster.Condition{Liveness: cluster.LivenessUp, Agent: cluster.AgentUp, Health: consul.HealthPassing}}
	offer := change.Grant{Change: cluster.LeaseChange("h0"), Tag: "wish", ID: "1.2.a", State: pace.Offered, Since: now.Add(-time.Second), Session: "a"}
	for name, tt := range map[string]struct {
		grant  change.Grant
		answer cluster.Answer
		want   pace.Offering
	}{
		"nothing was granted":            {want: pace.NotOffered},
		"of an orchestrator before":      {grant: offer, want: pace.Withdrawn},
		"the host declined it":           {grant: offer, answer: cluster.Answer{Change: offer.Change, Declined: offer.ID}, want: pace.Withdrawn},
		"it was withdrawn for no answer": {grant: offer.Withdrawn(now), want: pace.Withdrawn},
		"it waited for something else":   {grant: change.Grant{Change: offer.Change, Tag: "wish", Waits: &change.Waited{Code: pace.BecauseHeld}}, want: pace.NotOffered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asks := []Asking{{Lease: change.Lease{Node: "h0", Wish: cluster.Wish{ID: "wish", Since: now.Add(-time.Minute)}, Grant: tt.grant, Answer: tt.answer}, Grants: kv.Entry[change.Grants]{}, member: &member}}
			members := rollout.State{Members: []rollout.Member{member}, Quiet: now.Add(time.Minute)}
			next, _, _ := Plan(asks, &members, "b", now)
			if len(next) != 1 || len(next[0].Grants) != 1 {
				t.Fatalf("written is %+v", next)
			}
			if got := next[0].Grants[0]; got.State != tt.want || got.Waits == nil || got.Waits.Code != pace.BecauseQuiet {
				t.Errorf("the grant becomes %+v, waiting for %+v; want %q", got, got.Waits, tt.want)
			}
		})
	}
}
