package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// RolloutQuery selects hosts of a rollout.
type RolloutQuery struct {
	State string // as in rollout.HostProgress; empty: all
	Page
}

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
	// Hosts are the hosts of one page, the ones that need attention first.
	Hosts []RolloutHost `json:"hosts"`
	Paged
	// Remedies are the commands that let it continue.
	Remedies []string `json:"remedies"`
	// Steps are the steps to come if no host fails, as --dry-run prints them.
	Steps []pace.Decision `json:"steps"`
}

// RolloutHost is one host of a rollout.
type RolloutHost struct {
	rollout.HostProgress
	// OutSince is since when it has been out of service, where that is known.
	OutSince time.Time `json:"out_since,omitzero"`
	// Output is the last output of what failed.
	Output string `json:"output"`
	LogURL string `json:"log_url"`
}

// mostMissing bounds the missing members that a rollout lists.
const mostMissing = 10

// RolloutRecord is one rollout that ended, with its hosts.
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

// Rollout returns the rollout with the hosts that q selects.
func (s *Snapshot) Rollout(q RolloutQuery) Rollout {
	r := Rollout{
		Desired: s.State.Desired, Orchestrated: s.Orchestrated,
		Missing: []rollout.Missing{}, Hosts: []RolloutHost{}, Remedies: []string{}, Steps: []pace.Decision{},
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
	all := rollout.Progress(s.Stored.Document, s.Members, s.Now)
	total := len(all)
	if q.State != "" {
		all = slices.DeleteFunc(all, func(h rollout.HostProgress) bool { return h.State != q.State })
	}
	page, paged := pageOf(all, q.Page, total)
	r.Paged = paged
	for _, h := range page {
		r.Hosts = append(r.Hosts, s.rolloutHost(h))
	}
	return r
}

// rolloutHost adds what the host reports of its failure.
func (s *Snapshot) rolloutHost(p rollout.HostProgress) RolloutHost {
	h := RolloutHost{HostProgress: p}
	if v, known := s.Times[p.Node]; known && p.Out != "" {
		switch {
		case !p.Granted.IsZero():
			h.OutSince = p.Granted
		case p.Out == "down":
			h.OutSince = v.LifeSince
		default:
			h.OutSince = v.HealthSince
		}
	}
	host := s.State.Hosts[p.Node]
	if host == nil || p.State != rollout.HostFailed {
		return h
	}
	for _, category := range []string{"config", "validation"} {
		if c, ok := host.Report.States[category]; ok && c.State == "failed" {
			h.Output, h.LogURL = strings.TrimSpace(c.Detail), c.LogURL
			break
		}
	}
	return h
}
