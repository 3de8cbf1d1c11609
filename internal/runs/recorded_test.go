package runs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/recorded"
)

// recordedPlans are situations of random runs, with what Plan decided.
const recordedPlans = "testdata/plans.txt"

// recordedMember is a member of a simulated cluster.
type recordedMember struct {
	Node  string    `json:"node"`
	Roles []string  `json:"roles"`
	Down  time.Time `json:"down,omitzero"` // since when
	Out   time.Time `json:"out,omitzero"`  // when it was last seen out of service
}

// recordedRun is a run in progress.
type recordedRun struct {
	Run    Run            `json:"run"`
	Roster []string       `json:"roster"`
	Jobs   map[string]Job `json:"jobs,omitempty"`
	Back   map[string]Job `json:"back,omitempty"`
}

// of is a value of one node or run.
type of[T any] struct {
	Of    string `json:"of"`
	Value T      `json:"value"`
}

func lines[T any](word string, all map[string]T) (list []recorded.Line) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, recorded.Line{Word: word, Value: of[T]{key, all[key]}})
	}
	return list
}

// record offers a plan to the recorder.
func (w *world) record(s Situation, c Changes) {
	if w.recorder == nil {
		return
	}
	kind := "jobs"
	if len(c.Decisions) > 0 {
		kind = c.Decisions[0].Kind
	}
	w.recorder.Add(w.t, kind, func() []recorded.Line {
		facts := []recorded.Line{{Word: "now", Value: s.Now}, {Word: "still", Value: s.Still}}
		for _, m := range s.Members {
			facts = append(facts, recorded.Line{Word: "member", Value: recordedMember{m.Node, m.Roles, s.Down[m.Node], s.Out[m.Node]}})
		}
		for _, id := range slices.Sorted(maps.Keys(w.runs)) {
			a := w.runs[id]
			facts = append(facts, recorded.Line{Word: "run", Value: recordedRun(a)})
		}
		return append(facts, lines("queue", w.queues)...)
	}, changedLines(c))
}

// changedLines is all that a plan changes.
func changedLines(c Changes) (all []recorded.Line) {
	for _, d := range c.Decisions {
		all = append(all, recorded.Line{Word: "decision", Value: d})
	}
	return slices.Concat(all, lines("run", c.Runs), lines("roster", c.Rosters), lines("jobs", c.Jobs), lines("tails", c.Tails), lines("queue", c.Queues))
}

// TestRecordedPlans: Plan decides what it decided when the situations were recorded.
func TestRecordedPlans(t *testing.T) {
	t.Parallel()
	if recorded.Updating() {
		var worlds []*recorded.Recorder
		for seed := range uint64(8) {
			r := recorded.NewRecorder(fmt.Sprintf("runs %d", seed))
			anything(t, rand.New(rand.NewPCG(seed, 27)), r) //nolint:gosec // reproducible
			worlds = append(worlds, r)
		}
		recorded.Write(t, recordedPlans, worlds)
	}
	recorded.Replay(t, recordedPlans, func(t testing.TB, c recorded.Case) []recorded.Line {
		s := Situation{Holder: "holder", Down: map[string]time.Time{}, Out: map[string]time.Time{}, Grace: time.Minute}
		c.Get(t, "now", &s.Now)
		c.Get(t, "still", &s.Still)
		for _, m := range recorded.List[recordedMember](t, c, "member") {
			one := cluster.Member{Node: m.Node, Roles: m.Roles, Agent: cluster.AgentUp}
			if !m.Down.IsZero() {
				one.Agent, s.Down[m.Node] = cluster.AgentDown, m.Down
			}
			if !m.Out.IsZero() {
				s.Out[m.Node] = m.Out
			}
			s.Members = append(s.Members, one)
		}
		var all []Active
		for _, r := range recorded.List[recordedRun](t, c, "run") {
			all = append(all, Active(r))
		}
		queues := map[string]Queue{}
		for _, q := range recorded.List[of[Queue]](t, c, "queue") {
			queues[q.Of] = q.Value
		}
		return changedLines(Plan(s, all, queues))
	})
}

// randomRequest asks for a run with all kinds of limits.
func randomRequest(random *rand.Rand, parallel int) Request {
	q := Request{Workflow: "w", Limits: Limits{MaxParallel: pace.Amount{N: parallel}, Canary: random.IntN(3)}}
	if random.IntN(2) == 0 {
		q.Batches = []pace.Amount{{N: q.Canary + 1}, {N: 60, Percent: true}, {N: 100, Percent: true}}
	}
	if random.IntN(2) == 0 {
		n := random.IntN(3)
		q.MaxFailures = &n
	}
	if random.IntN(3) == 0 {
		q.MinHealthy = pace.Duration(time.Duration(1+random.IntN(40)) * time.Second)
	}
	switch random.IntN(6) {
	case 0:
		q = Request{Workflow: "w", OnManager: true}
	case 1:
		q.Filter = `Node != "c"`
	}
	return q
}
