package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/recorded"
)

// recordedPlans are situations of random rollouts, with what Plan decided.
const recordedPlans = "testdata/plans.txt"

// recordedMember is a member of a simulated fleet.
type recordedMember struct {
	Node     string                `json:"node"`
	Roles    []string              `json:"roles"`
	Zone     string                `json:"zone"`
	Version  string                `json:"version"`
	Arrived  time.Time             `json:"arrived,omitzero"`
	Down     bool                  `json:"down,omitempty"`
	Critical bool                  `json:"critical,omitempty"`
	Config   cluster.CategoryState `json:"config,omitzero"`
	Grant    change.Grant          `json:"grant,omitzero"`
	Answer   cluster.Answer        `json:"answer,omitzero"`
	Void     bool                  `json:"void,omitempty"`
}

func recordMember(m Member) recordedMember {
	return recordedMember{
		Node: m.Node, Roles: m.Roles, Zone: m.Zone, Version: m.Version, Arrived: m.Arrived, Down: !m.Up(),
		Critical: m.Condition.Health == "critical", Config: m.Config, Grant: m.Grant, Answer: m.Answer, Void: m.Void,
	}
}

func (r recordedMember) member() Member {
	n := simNode{Member: Member{
		Node: r.Node, Roles: r.Roles, Zone: r.Zone, Version: r.Version, Arrived: r.Arrived, Config: r.Config, Grant: r.Grant, Answer: r.Answer, Void: r.Void,
	}}
	n.set(!r.Down, r.Critical)
	return n.Member
}

// record offers a plan of c to the recorder.
func (f *fleet) record(c seen) {
	if f.recorder == nil {
		return
	}
	kind := "document"
	switch {
	case len(c.plan.Decisions) > 0:
		kind = c.plan.Decisions[0].Kind
	case len(c.plan.Withdrawals) > 0:
		kind = "withdrawals"
	case len(c.plan.Offers) > 0:
		kind = fmt.Sprint("offers to ", min(3, len(c.plan.Offers)))
	}
	f.recorder.Add(f.t, kind, func() []recorded.Line {
		lines := []recorded.Line{{Word: "now", Value: f.now}, {Word: "document", Value: c.doc}}
		if c.state.Gate != nil {
			lines = append(lines, recorded.Line{Word: "gate", Value: c.state.Gate})
		}
		for _, m := range c.state.Members {
			lines = append(lines, recorded.Line{Word: "member", Value: recordMember(m)})
		}
		return lines
	}, plannedLines(c.doc, c.plan))
}

// plannedLines is what was decided: the new document, and grants.
func plannedLines(before Document, p Planned) (lines []recorded.Line) {
	for _, d := range p.Decisions {
		lines = append(lines, recorded.Line{Word: "decision", Value: d})
	}
	if !p.Document.equal(before) {
		lines = append(lines, recorded.Line{Word: "document", Value: p.Document})
	}
	for _, o := range p.Offers {
		lines = append(lines, recorded.Line{Word: "offer", Value: o.Node})
	}
	for _, node := range p.Withdrawals {
		lines = append(lines, recorded.Line{Word: "withdraw", Value: node})
	}
	return lines
}

// TestRecordedPlans: Plan decides what it decided when the situations were recorded.
func TestRecordedPlans(t *testing.T) {
	t.Parallel()
	if recorded.Updating() {
		recorded.Write(t, recordedPlans, recordHistories(t))
	}
	recorded.Replay(t, recordedPlans, func(t testing.TB, c recorded.Case) []recorded.Line {
		var now time.Time
		var doc Document
		var s State
		c.Get(t, "now", &now)
		c.Get(t, "document", &doc)
		c.Get(t, "gate", &s.Gate)
		for _, m := range recorded.List[recordedMember](t, c, "member") {
			s.Members = append(s.Members, m.member())
		}
		return plannedLines(doc, Plan(doc, s, now))
	})
}

// recordHistories records histories with and without faults.
func recordHistories(t *testing.T) (worlds []*recorded.Recorder) {
	t.Helper()
	for seed := range uint64(28) {
		random := rand.New(rand.NewPCG(seed, 27)) //nolint:gosec // reproducible
		f := newFleet(t, random, 4+random.IntN(6))
		f.recorder = recorded.NewRecorder(fmt.Sprintf("rollout %d", seed))
		f.healthy, f.doc.Previous = seed%3 == 0, "v0"
		f.trigger("v1", randomPolicy(t, random))
		for range 2000 {
			f.step()
		}
		worlds = append(worlds, f.recorder)
	}
	return worlds
}
