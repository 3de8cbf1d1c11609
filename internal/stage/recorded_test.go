package stage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/recorded"
	"github.com/jorc/jorc/internal/stage"
)

// recordedPlans are situations of random stages, with what Plan decided.
const recordedPlans = "testdata/plans.txt"

// recordedHost is a host of a simulated stage.
type recordedHost struct {
	Node     string              `json:"node"`
	Zone     string              `json:"zone"`
	Down     bool                `json:"down,omitempty"`
	Critical bool                `json:"critical,omitempty"`
	Report   cluster.StageReport `json:"report"`
	Answer   cluster.Answer      `json:"answer,omitzero"`
	Grant    change.Grant        `json:"grant,omitzero"`
}

func (r recordedHost) host() stage.Host {
	h := pace.Host{Node: r.Node, Zone: r.Zone, Up: !r.Down, Service: service(!r.Down, r.Critical, false)}
	return stage.Host{Host: h, Report: r.Report, Answer: r.Answer, Grants: granted(r.Grant)}
}

// recordedState is what a plan is made of beside hosts and documents.
type recordedState struct {
	Now     time.Time     `json:"now"`
	Session string        `json:"session"`
	Spec    uint64        `json:"spec"`
	Halted  bool          `json:"halted,omitempty"`
	Gate    *pace.GateRun `json:"gate,omitempty"`
}

// record offers a plan to the recorder.
func (w *world) record(s stage.State, p stage.Planned) {
	if w.recorder == nil {
		return
	}
	kind := "grants"
	switch {
	case len(p.Decisions) > 0:
		kind = p.Decisions[0].Kind
	case len(p.Offers) > 0 && len(p.Withdrawals) > 0:
		kind = "offers and withdrawals"
	case len(p.Offers) > 0:
		kind = fmt.Sprint("offers to ", min(3, len(p.Offers)))
	case len(p.Withdrawals) > 0:
		kind = "withdrawals"
	}
	book, stops := w.book, w.stops
	w.recorder.Add(w.t, kind, func() []recorded.Line {
		lines := []recorded.Line{
			{Word: "state", Value: recordedState{w.now, s.Session, s.Spec, s.Halted != "", s.Gate}}, {Word: "book", Value: book}, {Word: "stops", Value: stops},
		}
		for _, h := range s.Hosts {
			lines = append(lines, recorded.Line{Word: "host", Value: recordedHost{h.Node, h.Zone, !h.Up, h.Service == pace.OutCritical, h.Report, h.Answer, offerOf(h)}})
		}
		return lines
	}, plannedLines(p))
}

// offerOf is what a host was granted in the stage.
func offerOf(h stage.Host) change.Grant { return h.Grants.Value.Of(cluster.FilesChange("edge")) }

// plannedLines is what was decided: events, grants, and both documents.
func plannedLines(p stage.Planned) (lines []recorded.Line) {
	if len(p.Decisions)+len(p.Offers)+len(p.Withdrawals) == 0 {
		return nil
	}
	for _, e := range p.Decisions {
		lines = append(lines, recorded.Line{Word: "event", Value: []string{e.Kind, e.Node, e.Text}})
	}
	for _, node := range slices.Sorted(slices.Values(p.Offers)) {
		lines = append(lines, recorded.Line{Word: "offer", Value: node})
	}
	for _, node := range slices.Sorted(slices.Values(p.Withdrawals)) {
		lines = append(lines, recorded.Line{Word: "withdraw", Value: node})
	}
	return append(lines, recorded.Line{Word: "book", Value: p.Book}, recorded.Line{Word: "stops", Value: p.Stops})
}

// TestRecordedPlans: Plan decides what it decided when the situations were recorded.
func TestRecordedPlans(t *testing.T) {
	t.Parallel()
	if recorded.Updating() {
		var worlds []*recorded.Recorder
		for seed := range uint64(24) {
			w := newWorld(t, seed)
			w.recorder = recorded.NewRecorder(fmt.Sprintf("stage %d", seed))
			for range 600 {
				w.step()
			}
			worlds = append(worlds, w.recorder)
		}
		recorded.Write(t, recordedPlans, worlds)
	}
	recorded.Replay(t, recordedPlans, func(t testing.TB, c recorded.Case) []recorded.Line {
		var state recordedState
		var book stage.Book
		var stops stage.Stops
		c.Get(t, "state", &state)
		c.Get(t, "book", &book)
		c.Get(t, "stops", &stops)
		s := stage.State{Stage: "edge", Session: state.Session, Spec: state.Spec, Gate: state.Gate}
		if state.Halted {
			s.Halted = "paused"
		}
		for _, h := range recorded.List[recordedHost](t, c, "host") {
			s.Hosts = append(s.Hosts, h.host())
		}
		return plannedLines(stage.Plan(book, stops, s, state.Now))
	})
}
