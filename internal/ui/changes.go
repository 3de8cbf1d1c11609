package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/jorc/jorc/internal/text"
)

// ChangeRow is one change in a list of all: what reaches hosts one after the other.
type ChangeRow struct {
	ID     string      `json:"id"` // KIND.NAME
	Kind   string      `json:"kind"`
	Name   string      `json:"name"` // a version or the id of a rollout that ended, a stage, the id of a run, a host
	What   string      `json:"what"`
	State  string      `json:"state"`
	By     string      `json:"by"`
	Since  time.Time   `json:"since,omitzero"`
	Counts pace.Counts `json:"counts"` // of its hosts
	Waits  string      `json:"waits"`  // what it waits for, or why it ended so
	Ended  bool        `json:"ended"`
}

func changeRow(kind, name string) ChangeRow {
	return ChangeRow{ID: cluster.ChangeID(kind, name), Kind: kind, Name: name}
}

// VersionRow is the rollout of the desired version.
func VersionRow(s rollout.Status) ChangeRow {
	r := changeRow(cluster.KindVersion, s.Version)
	r.What, r.State, r.By, r.Since, r.Ended = "version "+s.Version, s.StateText(), s.By, s.Started, s.Over()
	r.Waits = strings.Join(s.Waits, "; ")
	r.Counts = s.Now
	return r
}

// FinishedRow is a rollout that ended.
func FinishedRow(f rollout.Finished) ChangeRow {
	r := changeRow(cluster.KindVersion, f.ID)
	r.What, r.State, r.By, r.Since, r.Ended = "version "+f.Version, f.Outcome, f.By, f.Started, true
	r.Waits = f.Why
	r.Counts = f.Counts
	return r
}

// FilesRow is what a stage brings to its hosts.
func FilesRow(s stage.Status) ChangeRow {
	r := changeRow(cluster.KindFiles, s.Stage)
	r.What, r.State, r.Since, r.Ended = "files of stage "+s.Stage, s.State, s.Since, s.State == stage.StateDone
	if !r.Ended {
		r.Waits = s.Waits()
	}
	r.Counts = s.Counts
	return r
}

// RunRowOf is a run.
func RunRowOf(run runs.Run) ChangeRow {
	r := changeRow(cluster.KindRun, run.ID)
	r.What, r.State, r.By, r.Since, r.Ended = "workflow "+run.Request.Workflow+" on "+run.Audience(), string(run.State), run.By, run.Created, run.State.Ended()
	r.Waits = run.Why
	if !r.Ended {
		r.Waits = run.Waits()
	}
	r.Counts = run.Counts.Hosts()
	return r
}

// LeaseRow is the lease of a host.
func LeaseRow(l lease.Shown) ChangeRow {
	r := changeRow(cluster.KindLease, l.Node)
	r.What, r.State, r.By, r.Since, r.Waits = "lease of "+l.Node, l.State, l.Node, l.Since, l.Waits
	if l.Reason != "" {
		r.What += ": " + l.Reason
	}
	r.Counts.Add(l.Progress().State)
	return r
}

// CompareChanges sorts changes: the ones in progress first, and the newest first.
func CompareChanges(a, b ChangeRow) int {
	return cmp.Or(pace.CompareBool(a.Ended, b.Ended), b.Since.Compare(a.Since), cmp.Compare(a.ID, b.ID))
}

// States of a ChangesQuery.
const (
	ChangesInProgress = "in_progress"
	ChangesEnded      = "ended"
)

// ChangesQuery selects changes.
type ChangesQuery struct {
	Kind  string // one of cluster.ChangeKinds; empty: all
	State string // ChangesInProgress or ChangesEnded; empty: all
	Page
}

// Changes are the changes of a cluster.
type Changes struct {
	About
	Changes []ChangeRow `json:"changes"` // the ones in progress first, and the newest first
	Paged
	// Why says why no rollout of the desired version is listed; empty: it is.
	Why string `json:"why"`
	// Schedules are the rules that start runs at set times.
	Schedules []ScheduleRow `json:"schedules"`
}

// Changes returns the changes that q selects. It returns ErrQuery.
func (s *Snapshot) Changes(q ChangesQuery) (Changes, error) {
	v := Changes{About: s.about("change", "list", "--all"), Changes: []ChangeRow{}, Schedules: s.schedules()}
	if q.Kind != "" && !slices.Contains(cluster.ChangeKinds(), q.Kind) {
		return v, fmt.Errorf("%w: kind %q is none of %s", ErrQuery, q.Kind, strings.Join(cluster.ChangeKinds(), ", "))
	}
	if q.State != "" && q.State != ChangesInProgress && q.State != ChangesEnded {
		return v, fmt.Errorf("%w: state %q is neither %s nor %s", ErrQuery, q.State, ChangesInProgress, ChangesEnded)
	}
	all, why := s.changeRows()
	v.Why = why
	total := len(all)
	all = slices.DeleteFunc(all, func(r ChangeRow) bool {
		return q.Kind != "" && r.Kind != q.Kind || q.State != "" && r.Ended != (q.State == ChangesEnded)
	})
	slices.SortFunc(all, CompareChanges)
	shown, paged := pageOf(all, q.Page, total)
	v.Changes, v.Paged = append(v.Changes, shown...), paged
	return v, nil
}

// changeRows returns all changes; why says why the rollout of the desired version is not among them.
func (s *Snapshot) changeRows() (all []ChangeRow, why string) {
	status, ok := s.status()
	if ok {
		all = append(all, VersionRow(status))
	} else {
		why = s.Rollouts.Usable(s.Stored).Error()
	}
	for _, f := range s.Finished {
		if !ok || f.Version != status.Version || !f.Started.Equal(status.Started) { // that is the present one
			all = append(all, FinishedRow(f))
		}
	}
	for _, one := range s.derived.stages() {
		all = append(all, one.change())
	}
	for _, r := range s.AllRuns {
		all = append(all, RunRowOf(s.runRow(r).Run))
	}
	for _, l := range s.leases() {
		all = append(all, LeaseRow(l))
	}
	return all, why
}

// change is the stage as a change.
func (s stageState) change() ChangeRow {
	if s.err == nil {
		return FilesRow(s.status)
	}
	r := changeRow(cluster.KindFiles, s.name)
	r.What, r.Waits = "files of stage "+s.name, "how far it is is not known: "+s.err.Error()
	return r
}

// leases returns the leases of all hosts, by name.
func (s *Snapshot) leases() (all []lease.Shown) {
	for _, node := range s.State.Nodes() {
		l, _, ok := change.LeaseIn(s.State.Hosts[node])
		if shown := lease.Show(l); ok && (s.hidden == nil || !s.hidden.names.in(shown)) {
			all = append(all, shown)
		}
	}
	return all
}

// ErrNoChange: there is no such change.
var ErrNoChange = errors.New("no such change")

// ChangeQuery selects hosts of a change.
type ChangeQuery struct {
	State string // as in pace.HostProgress; empty: all
	Page
}

// Change is one change with its hosts. One of its kinds' parts is there.
type Change struct {
	About
	ChangeRow
	Hosts []ChangeHost `json:"hosts"` // of one page, the ones that need attention first
	Paged
	// Version is the rollout of the desired version, EndedVersion one that ended.
	Version      *Rollout       `json:"version,omitempty"`
	EndedVersion *RolloutRecord `json:"ended_version,omitempty"`
	Files        *Stage         `json:"files,omitempty"`
	Run          *RunRow        `json:"run,omitempty"`
	Lease        *lease.Shown   `json:"lease,omitempty"`
}

// Change returns a change by its ID. It returns ErrNoChange, consul.ErrDenied for one that the viewer may not see, or another
// class of package consul.
func (f *Fleet) Change(ctx context.Context, id string, q ChangeQuery) (Change, error) {
	s, err := f.Snapshot(ctx)
	if err != nil {
		return Change{}, err
	}
	kind, name, _ := strings.Cut(id, ".")
	v := Change{About: s.about("change", "show", id)}
	switch kind {
	case cluster.KindVersion:
		err = s.versionChange(&v, name, q)
	case cluster.KindFiles:
		err = s.filesChange(&v, name, q)
	case cluster.KindRun:
		err = f.runChange(ctx, s, &v, name, q)
	case cluster.KindLease:
		all := s.leases()
		i := slices.IndexFunc(all, func(l lease.Shown) bool { return l.Node == name })
		if i < 0 {
			return Change{}, fmt.Errorf("host %q has no lease: %w", name, ErrNoChange)
		}
		v.Lease, v.ChangeRow = &all[i], LeaseRow(all[i])
		v.onHosts(s, q, []ChangeHost{{HostProgress: all[i].Progress()}})
	default:
		return Change{}, fmt.Errorf("%q: %w: an ID is KIND.NAME with one of the kinds %s%s", id, ErrNoChange, strings.Join(cluster.ChangeKinds(), ", "), text.Unknown(kind, "kinds", cluster.ChangeKinds()))
	}
	if errors.Is(err, rollout.ErrNoRollout) || errors.Is(err, stage.ErrNone) || errors.Is(err, runs.ErrNoRun) {
		err = fmt.Errorf("%w: %w", ErrNoChange, err)
	}
	if err != nil {
		return Change{}, err
	}
	return v, nil
}

// versionChange makes v the rollout of the desired version if it has that name, or one that ended.
func (s *Snapshot) versionChange(v *Change, name string, q ChangeQuery) error {
	var hosts []ChangeHost
	if status, ok := s.status(); ok && status.Version == name {
		of := s.Rollout()
		v.Version, v.ChangeRow = &of, VersionRow(status)
		for _, h := range rollout.Progress(s.Stored.Document, s.Members, s.Now) {
			hosts = append(hosts, s.versionHost(h))
		}
	} else {
		of, err := s.RolloutRecord(name)
		if err != nil {
			return err
		}
		v.ChangeRow = FinishedRow(of.Finished)
		for _, h := range of.Hosts {
			hosts = append(hosts, endedHost(h))
		}
		of.Hosts = nil
		v.EndedVersion = &of
	}
	v.onHosts(s, q, hosts)
	return nil
}

// filesChange makes v what a stage brings to its hosts.
func (s *Snapshot) filesChange(v *Change, name string, q ChangeQuery) error {
	of, err := s.Stage(name)
	if err != nil {
		return err
	}
	v.Files, v.ChangeRow = &of, s.derived.stages()[name].change()
	var hosts []ChangeHost
	if of.Status != nil {
		for _, h := range of.Status.Hosts {
			hosts = append(hosts, filesHost(h))
		}
		of.Status.Hosts = nil
	}
	v.onHosts(s, q, hosts)
	return nil
}

// runChange makes v a run.
func (f *Fleet) runChange(ctx context.Context, s *Snapshot, v *Change, name string, q ChangeQuery) error {
	d, err := f.runDetail(ctx, s, name)
	if err != nil {
		return err
	}
	row := s.runRow(d.detail.Run)
	v.Run, v.ChangeRow = &row, RunRowOf(row.Run)
	var hosts []ChangeHost
	for _, m := range d.detail.Members {
		hosts = append(hosts, runHost(m, d.detail.Created))
	}
	v.onHosts(s, q, hosts)
	for i := range v.Hosts {
		v.Hosts[i].Output = f.output(s, d, name, v.Hosts[i].Node)
	}
	return nil
}
