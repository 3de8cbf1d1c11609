package ui

import (
	"fmt"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// Rollout is the rollout of the desired version.
type Rollout struct {
	// Exists is false when no version is desired, or its rollout cannot be read; Why
	// says which.
	Exists bool   `json:"exists"`
	Why    string `json:"why"`
	// Desired is the desired version.
	Desired string `json:"desired"`
	// Status is what 'jorc update show' answers.
	Status *rollout.Status `json:"status,omitempty"`
	// StateText is the phase with its details, PolicyText the policy on one line.
	StateText    string `json:"state_text"`
	PolicyText   string `json:"policy_text"`
	Orchestrated bool   `json:"orchestrated"`
	// Missing are members that are not at the version and not about to arrive: held, drained, failed,
	// given up or down; the first of them. MissingCount is all of them.
	Missing      []rollout.Missing `json:"missing"`
	MissingCount int               `json:"missing_count"`
	// Remedies are the commands that let it continue.
	Remedies []string `json:"remedies"`
	// Steps are the steps to come if no host fails, as --dry-run prints them.
	Steps []pace.Decision `json:"steps"`
}

// mostMissing bounds the missing members that a rollout lists.
const mostMissing = 10

// RolloutRecord is one rollout that ended. In a Change its hosts are those of the change.
type RolloutRecord struct {
	rollout.Finished
	PolicyText string `json:"policy_text"`
}

// RolloutRecord returns the record of a rollout that ended, by its ID, or the newest one
// of a version. It returns rollout.ErrNoRollout.
func (s *Snapshot) RolloutRecord(name string) (RolloutRecord, error) {
	for _, f := range s.Finished { // the newest first
		if f.ID == name || f.Version == name {
			return RolloutRecord{Finished: f, PolicyText: f.Policy.String()}, nil
		}
	}
	return RolloutRecord{}, fmt.Errorf("%q: %w", name, rollout.ErrNoRollout)
}

// status is the status of the rollout of the desired version; ok is false without one.
func (s *Snapshot) status() (status rollout.Status, ok bool) {
	if s.Rollouts == nil || s.Rollouts.Usable(s.Stored) != nil {
		return rollout.Status{}, false
	}
	return rollout.Describe(s.Stored.Document, s.Members, s.Now), true
}

// Rollout returns the rollout.
func (s *Snapshot) Rollout() Rollout {
	r := Rollout{
		Desired: s.State.Desired, Orchestrated: s.Orchestrated,
		Missing: []rollout.Missing{}, Remedies: []string{}, Steps: []pace.Decision{},
	}
	status, ok := s.status()
	if !ok {
		r.Why = s.Rollouts.Usable(s.Stored).Error()
		return r
	}
	r.Exists, r.Status, r.StateText, r.PolicyText = true, &status, status.StateText(), status.Policy.String()
	kept := status.Arrival.Kept()
	r.Missing, r.MissingCount = append(r.Missing, kept[:min(len(kept), mostMissing)]...), len(kept)
	for _, waits := range status.Waits {
		if command := s.remedyCommand(waits); command != "" {
			r.Remedies = append(r.Remedies, command)
		}
	}
	r.Steps = append(r.Steps, rollout.Foresee(s.Stored.Document, s.Members, s.Now)...)
	return r
}
