package ui

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/lease"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/stage"
)

// ChangeHost is one host of a change. Beside what each kind of change has stands what is known of this kind.
type ChangeHost struct {
	pace.HostProgress

	Roles   []string  `json:"roles,omitempty"`   // of a version
	Version string    `json:"version,omitempty"` // of a version: that the host runs
	Health  string    `json:"health,omitempty"`  // of a version: passing, warning, critical, maintenance
	Granted time.Time `json:"granted,omitzero"`  // of a version: when its open grant began
	NextTry time.Time `json:"next_try,omitzero"` // of a version: when it tries again what failed
	// Out is why it is out of service, in a change of a version: grant, down, critical, maintenance; OutSince is since
	// when, where that is known.
	Out      string    `json:"out,omitempty"`
	OutSince time.Time `json:"out_since,omitzero"`

	// Files is what it does with its files, or what came of the last grant: changing, settling, restoring, done, failed, restored.
	Files   string   `json:"files,omitempty"`
	Changed []string `json:"changed,omitempty"` // of files: names of what changed

	Job *runs.Job `json:"job,omitempty"` // of a run
	// Waiting is from the beginning of the change until the host began, Active from then on until it was done, in seconds:
	// of a run, and of a version that ended.
	Waiting *int64 `json:"waiting_seconds,omitempty"`
	Active  *int64 `json:"active_seconds,omitempty"`

	// Output is the end of what its last task printed, LogURL where all of it is.
	Output string `json:"output,omitempty"`
	LogURL string `json:"log_url,omitempty"`
}

// versionHost is a host of the rollout of the desired version.
func (s *Snapshot) versionHost(p rollout.HostProgress) ChangeHost {
	h := ChangeHost{
		HostProgress: p.HostProgress, Roles: p.Roles, Version: p.Version, Health: p.Health, Granted: p.Granted, NextTry: p.NextTry, Out: p.Out,
	}
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
	if host == nil || p.State != pace.Failed {
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

// filesHost is a host of a stage.
func filesHost(p stage.HostProgress) ChangeHost {
	return ChangeHost{HostProgress: p.HostProgress, Files: p.Files, Changed: p.Changed}
}

// endedHost is a host of a rollout that ended.
func endedHost(p rollout.HostTimes) ChangeHost {
	return ChangeHost{HostProgress: p.HostProgress, Waiting: p.Waiting, Active: p.Active}
}

// runHost is a member of a run that was created then.
func runHost(m runs.Member, created time.Time) ChangeHost {
	return ChangeHost{HostProgress: m.Progress(created), Job: &m.Job, Waiting: m.Waiting, Active: m.Active, LogURL: m.LogURL}
}

// onHosts adds to v the hosts that q selects of all of a change, the ones that need attention first.
func (v *Change) onHosts(s *Snapshot, q ChangeQuery, all []ChangeHost) {
	total := len(all)
	if q.State != "" {
		all = slices.DeleteFunc(all, func(h ChangeHost) bool { return h.State.String() != q.State })
	}
	slices.SortStableFunc(all, func(a, b ChangeHost) int { return pace.CompareProgress(a.State, b.State) })
	page, paged := pageOf(all, q.Page, total)
	v.Hosts, v.Paged = append([]ChangeHost{}, page...), paged
	for i := range v.Hosts {
		if known := s.State.Hosts[v.Hosts[i].Node]; known != nil && v.Hosts[i].Zone == "" {
			v.Hosts[i].Zone = known.Record.Zone
		}
	}
}

// HostChange is a host's part in one change in progress.
type HostChange struct {
	Change string `json:"change"` // its ID
	ChangeHost
}

// changesOf are a host's parts in changes in progress but runs, which Jobs of a Host has.
func (s *Snapshot) changesOf(node string) []HostChange {
	all := []HostChange{}
	if status, ok := s.status(); ok {
		progress := rollout.Progress(s.Stored.Document, s.Members, s.Now)
		if i := slices.IndexFunc(progress, func(p rollout.HostProgress) bool { return p.Node == node }); i >= 0 {
			all = append(all, HostChange{cluster.ChangeID(cluster.KindVersion, status.Version), s.versionHost(progress[i])})
		}
	}
	stages := s.derived.stages()
	for _, name := range slices.Sorted(maps.Keys(stages)) {
		hosts := stages[name].status.Hosts
		if i := slices.IndexFunc(hosts, func(h stage.HostProgress) bool { return h.Node == node }); i >= 0 {
			all = append(all, HostChange{cluster.FilesChange(name), filesHost(hosts[i])})
		}
	}
	if h := s.State.Hosts[node]; h != nil {
		if l, _, asks := change.LeaseIn(h); asks {
			all = append(all, HostChange{cluster.LeaseChange(node), ChangeHost{HostProgress: lease.Show(l).Progress()}})
		}
	}
	return all
}
