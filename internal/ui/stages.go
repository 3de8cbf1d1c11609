package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

// stageRead is what was read of one stage.
type stageRead struct {
	documents stage.Documents
	err       error // why they cannot be read: kv.ErrDamaged, kv.ErrNewer or consul.ErrDenied
}

// readStages reads the documents of the stages that hosts report.
func (f *feed) readStages(ctx context.Context, names []string) (bad []error, err error) {
	stages, all := stage.New(f.cluster.Store()), map[string]stageRead{}
	var denied error
	for _, name := range names {
		d, err := stages.Load(ctx, name)
		if err != nil && !unreadable(err) && !errors.Is(err, consul.ErrDenied) {
			return nil, err
		}
		all[name] = stageRead{d, err}
		switch {
		case errors.Is(err, kv.ErrNewer): // what is damaged is a problem of its own
			bad = append(bad, err)
		case errors.Is(err, consul.ErrDenied):
			denied = err
		}
	}
	f.parts.stages = all
	return bad, denied
}

// documents are those of the stages that can be read.
func (p *parts) documents() map[string]stage.Documents {
	all := make(map[string]stage.Documents, len(p.stages))
	for name, read := range p.stages {
		if read.err == nil {
			all[name] = read.documents
		}
	}
	return all
}

// StageRow is how far a stage is.
type StageRow struct {
	Stage string `json:"stage"`
	// State is stopped, changing, waiting or done; empty: Why says why it is not known.
	State  string      `json:"state"`
	Why    string      `json:"why"`
	Since  time.Time   `json:"since,omitzero"` // of the present change, or of the end of the last one
	Counts pace.Counts `json:"counts"`
	// Stopped is how many changes are stopped.
	Stopped int `json:"stopped"`
}

// Stage is one stage. In a Change its hosts are those of the change.
type Stage struct {
	StageRow
	// Status is what 'jorc stage show' answers, without digests; left out: Why says why it is not known.
	Status *stage.Status `json:"status,omitempty"`
	// Resume is the command that approves what is stopped; empty: nothing is.
	Resume string               `json:"resume"`
	Events []orchestrator.Event `json:"events"` // the last ones, the newest first
}

// mostStageEvents bounds the events of a Stage.
const mostStageEvents = 50

// Stage returns one stage. It returns stage.ErrNone, or consul.ErrDenied for one that the viewer may not see.
func (s *Snapshot) Stage(name string) (Stage, error) {
	if err := s.hidden.refusal("stage", name); err != nil {
		return Stage{}, err
	}
	known, ok := s.derived.stages()[name]
	if !ok {
		return Stage{}, fmt.Errorf("stage %q: %w", name, stage.ErrNone)
	}
	v := Stage{StageRow: known.row(), Events: []orchestrator.Event{}}
	if known.err == nil {
		status := known.status
		v.Status = &status
	}
	if v.Stopped > 0 {
		v.Resume = s.command("stage", "resume", name)
	}
	for i := len(s.Journal) - 1; i >= 0 && len(v.Events) < mostStageEvents; i-- {
		if e := s.Journal[i]; e.Change == cluster.FilesChange(name) {
			v.Events = append(v.Events, e)
		}
	}
	return v, nil
}

// stageState is one stage as views show it.
type stageState struct {
	name   string
	status stage.Status
	err    error // why the status is not known
}

// stageStates returns the stages of a snapshot by name.
func (s *Snapshot) stageStates() map[string]stageState {
	all := map[string]stageState{}
	control := s.State.Control
	for name, hosts := range stage.HostsOf(s.State) {
		if s.hidden != nil && s.hidden.stages[name] {
			continue
		}
		one := stageState{name: name, err: s.stageDocuments[name].err}
		if one.err == nil {
			one.status = stage.Describe(s.stageDocuments[name].documents, stage.State{
				Stage: name, Halted: s.Members.Halted, Freezes: control.Freezes, Quiet: s.Members.Quiet, Hosts: hosts, Places: s.Members.Places,
			}, s.Orchestrated, s.Now)
			one.status.Stops = withoutDigests(one.status.Stops)
		}
		all[name] = one
	}
	return all
}

// withoutDigests returns stops with the names of what changed alone: values with few
// possibilities can be guessed from a digest.
func withoutDigests(stops []stage.Stop) []stage.Stop {
	all := make([]stage.Stop, len(stops))
	for i, stop := range stops {
		list := make([]cluster.StageInput, 0, len(stop.Inputs.List))
		for _, name := range stop.Inputs.Names() {
			list = append(list, cluster.StageInput{Name: name})
		}
		all[i] = stop
		all[i].Content, all[i].Inputs.List = "", list
	}
	return all
}

// stopped returns the changes that no operator approved.
func stopped(stops []stage.Stop) []stage.Stop {
	return slices.DeleteFunc(slices.Clone(stops), func(s stage.Stop) bool { return s.Resumed != nil })
}

func (s stageState) row() StageRow {
	row := StageRow{Stage: s.name, State: s.status.State, Since: s.status.Since, Counts: s.status.Counts, Stopped: len(stopped(s.status.Stops))}
	if s.err != nil {
		row.Why = s.err.Error()
	}
	return row
}

// stages are the ones that are stopped, and those of which a document is damaged.
func (a *attention) stages() {
	for _, name := range slices.Sorted(maps.Keys(a.s.stageDocuments)) {
		read := a.s.stageDocuments[name]
		if errors.Is(read.err, kv.ErrDamaged) {
			p := Problem{Kind: "damaged", Severity: Critical, Title: fmt.Sprintf("a document of stage %s cannot be read", name)}
			p.Cause = strings.TrimSuffix(read.err.Error()+": "+cluster.RepairHint(read.err), ": ")
			p.Command = a.s.remedyCommand(p.Cause)
			a.add(p)
		}
		for _, stop := range stopped(read.documents.Stops.Stops) {
			nodes := []string{}
			if stop.Node != "" {
				nodes = append(nodes, stop.Node)
			}
			a.add(Problem{
				Kind: "change_stopped", Severity: Critical, Title: fmt.Sprintf("stage %s is stopped: its change failed %s", name, stop.Place()), Since: stop.Since,
				Cause: strings.TrimPrefix(text.Line(stop.Reason, maxStopReason)+" (changed: "+stop.Inputs.Text()+")", " "), Command: a.s.command("stage", "show", name),
			}, nodes...)
		}
	}
}

// maxStopReason bounds the reason of a stop in a problem, in bytes.
const maxStopReason = 300
