package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// States of a StageReport: how far the host is with the content that it was granted last.
const (
	StageChanging  = "changing"  // its files are replaced, and what uses them is reloaded
	StageSettling  = "settling"  // its checks have to pass
	StageRestoring = "restoring" // its old files return
	StageDone      = "done"      // its checks passed
	StageFailed    = "failed"    // they did not, and the new files stay
	StageRestored  = "restored"  // they did not, and the old files are back
	// StageWaiting is shown for a host without an open turn that wants new content.
	StageWaiting = "waiting"
)

// StageReport is what a host reports of one of its stages.
type StageReport struct {
	Policy StagePolicy `json:"policy"`
	// Wants is the digest of the content that the host waits to take; empty:
	// its files are as their data says. Changed are the inputs in which it differs
	// from the content on the host's disk.
	Wants   string      `json:"wants,omitempty"`
	Changed StageInputs `json:"changed,omitzero"`
	// WantsSince is since when the host waits for that content.
	WantsSince time.Time `json:"wants_since,omitzero"`
	// Rendered: the files have been as their data says.
	Rendered bool `json:"rendered,omitempty"`

	// State is how far the host is with what it was granted last, see Report.Answered, Taken the inputs that changed
	// with that, and Reason why it failed.
	State  string      `json:"state,omitempty"`
	Taken  StageInputs `json:"taken,omitzero"`
	Reason string      `json:"reason,omitempty"`
}

// StagePolicy is what the orchestrator needs of a host's configuration of a stage.
type StagePolicy struct {
	MaxParallel string `json:"max_parallel,omitempty"`
	Canary      int    `json:"canary,omitempty"`
	ZoneByZone  bool   `json:"zone_by_zone,omitempty"`
	// What comes between two steps, with durations as text: see pace.Policy.
	Bake         string `json:"bake,omitempty"`
	Gate         string `json:"gate,omitempty"`
	GateSamples  int    `json:"gate_samples,omitempty"`
	GateInterval string `json:"gate_interval,omitempty"`
	GateTimeout  string `json:"gate_timeout,omitempty"`
	ApproveEach  bool   `json:"approve_each,omitempty"`
	Window       string `json:"window,omitempty"` // as pace.ParseWindows reads it
}

// StageInput is one thing that a file is made of, such as a key: its name for
// people, and the digest of its identity and its value.
type StageInput struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// StageInputs are the inputs that changed.
type StageInputs struct {
	List []StageInput `json:"list,omitempty"`
	// More is how many others changed that a report does not list.
	More int `json:"more,omitempty"`
}

// Bounds of a StageReport.
const (
	MostStageInputs = 12
	maxStageName    = 80  // bytes of an input's name
	maxStageReason  = 400 // bytes
	MostStages      = 22  // of a host
)

// StageInputsOf returns inputs in order, as many as a report lists.
func StageInputsOf(list []StageInput) StageInputs {
	list = slices.Clone(list)
	for i := range list {
		list[i].Name = text.Line(list[i].Name, maxStageName)
	}
	slices.SortFunc(list, func(a, b StageInput) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Digest, b.Digest)) })
	n := min(len(list), MostStageInputs)
	return StageInputs{List: list[:n], More: len(list) - n}
}

// Has reports whether digest is one of the inputs.
func (s StageInputs) Has(digest string) bool {
	return slices.ContainsFunc(s.List, func(i StageInput) bool { return i.Digest == digest })
}

// Names returns the names of the inputs.
func (s StageInputs) Names() []string {
	names := make([]string, 0, len(s.List))
	for _, i := range s.List {
		names = append(names, i.Name)
	}
	return slices.Compact(names)
}

// Text names the inputs.
func (s StageInputs) Text() string {
	names := s.Names()
	return text.FewOf(", ", names, len(names)+s.More)
}

// Open reports whether the host is at work on a grant.
func (s StageReport) Open() bool {
	return s.State == StageChanging || s.State == StageSettling || s.State == StageRestoring
}

// Unhealthy reports whether the host's last grant failed.
func (s StageReport) Unhealthy() bool { return s.State == StageFailed || s.State == StageRestored }

// Silent reports whether nothing is known of the host's files yet: they were never
// as their data says, and wait for no grant.
func (s StageReport) Silent() bool { return s.Wants == "" && s.State == "" && !s.Rendered }

// TakenBack reports whether the last grant failed and has left nothing: the old files
// are back, and they are as their data says.
func (s StageReport) TakenBack() bool { return s.State == StageRestored && s.Wants == "" }

// Shown returns the state for people; empty: nothing is expected of the host.
func (s StageReport) Shown() string {
	if s.TakenBack() {
		return ""
	}
	if s.Wants != "" && !s.Open() && !s.Unhealthy() {
		return StageWaiting
	}
	return s.State
}

// WithStage returns the report of the same node with another report of a stage.
func (r Report) WithStage(name string, s StageReport) Report {
	s.Reason = text.Line(s.Reason, maxStageReason)
	r.Stages = maps.Clone(r.Stages)
	if r.Stages == nil {
		r.Stages = map[string]StageReport{}
	}
	r.Stages[name] = s
	return r
}

// WithoutStage returns the report of a node that no longer has a stage.
func (r Report) WithoutStage(name string) Report {
	if _, has := r.Stages[name]; has {
		r.Stages = maps.Clone(r.Stages)
		delete(r.Stages, name)
	}
	return r
}

// boundedStages returns what of a report's stages is beyond the bounds.
func (r Report) boundedStages() error {
	const values = 9
	names := make([]string, 0, values*len(r.Stages))
	for name, s := range r.Stages {
		p := s.Policy
		names = append(names, name, s.Wants, s.State, p.MaxParallel, p.Bake, p.Gate, p.GateInterval, p.GateTimeout)
	}
	if err := boundedNames("values of stages", names, values*pace.MostStages); err != nil {
		return err
	}
	for _, s := range r.Stages {
		for _, inputs := range []StageInputs{s.Changed, s.Taken} {
			names = names[:0]
			for _, i := range inputs.List {
				names = append(names, i.Name, i.Digest)
			}
			if err := boundedNames("changed inputs of a stage", names, 2*MostStageInputs); err != nil {
				return err
			}
		}
	}
	return nil
}
