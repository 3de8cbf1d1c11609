package stage

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
)

// record is what a host remembers of one of its stages, in its state directory.
type record struct {
	// Has is the digest of the content on the disk, as far as it is known, and
	// Inputs what that is made of: the digest of each input by its id.
	Has    string           `json:"has,omitempty"`
	Inputs map[string]input `json:"inputs,omitempty"`
	// Grant is what the host accepted last, and Attempt what became of that. Intended is the attempt that it is about to make.
	Grant    change.Held    `json:"grant,omitzero"`
	Attempt  attemptRecord  `json:"attempt,omitzero"`
	Intended *attemptRecord `json:"intended,omitempty"`
}

// unused is r after an attempt for which no file was replaced.
func (r record) unused() record {
	r.Attempt.State = ""
	return r
}

// settled is r, in which the grant has ended once the attempt is over.
func (r record) settled(now time.Time) record {
	if r.Grant.Open() && !r.Attempt.open() {
		r.Grant.Ended = now.UTC().Truncate(time.Second)
	}
	return r
}

type input struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// attemptRecord is what a host does with a grant.
type attemptRecord struct {
	State  string              `json:"state,omitempty"` // one of cluster's; empty: nothing came of it
	Reason string              `json:"reason,omitempty"`
	Taken  cluster.StageInputs `json:"taken,omitzero"`
	Inputs map[string]input    `json:"inputs,omitempty"` // of the content
	Unit   string              `json:"unit,omitempty"`
	Files  []oldFile           `json:"files,omitempty"`
	// OldHas and OldInputs are Has and Inputs from before the attempt.
	OldHas    string           `json:"old_has,omitempty"`
	OldInputs map[string]input `json:"old_inputs,omitempty"`

	Restore    bool          `json:"restore,omitempty"` // on_unhealthy = "restore"
	MinHealthy time.Duration `json:"min_healthy,omitempty"`
	Deadline   time.Duration `json:"deadline,omitempty"`
	// Begun began with the attempt, and Settling when the new files were in place. The deadline
	// counts from there, whatever becomes of the process: from Settling, or from Begun while
	// an interruption keeps the files from being in place.
	Begun    durable.Stopwatch `json:"begun,omitzero"`
	Settling durable.Stopwatch `json:"settling,omitzero"`
	Services []string          `json:"services,omitempty"`
}

// recordFormat is the format of a record.
const recordFormat = 2

// open reports whether the host is at work on the attempt.
func (t attemptRecord) open() bool {
	return t.State == cluster.StageChanging || t.State == cluster.StageSettling || t.State == cluster.StageRestoring
}

// overdue reports whether the replacement was interrupted and has not ended by the
// deadline. It is for an attempt that an earlier process left: one at work ends it itself.
func (t attemptRecord) overdue(c durable.Clock) bool {
	return t.State == cluster.StageChanging && c.Elapsed(t.Begun) >= t.Deadline
}

// resumed returns the attempt with the stopwatches that this boot continues.
func (t attemptRecord) resumed(c durable.Clock) attemptRecord {
	switch t.State {
	case cluster.StageChanging:
		t.Begun = c.Resumed(t.Begun)
	case cluster.StageSettling:
		t.Settling = c.Resumed(t.Settling)
	}
	return t
}

// oldFile is a file as it was before the attempt. Its content is a file beside the record.
type oldFile struct {
	Destination   string        `json:"destination"`
	Name          string        `json:"name"` // of the template
	Existed       bool          `json:"existed"`
	Reload        []string      `json:"reload,omitempty"`
	ReloadTimeout time.Duration `json:"reload_timeout,omitempty"`
}

// dir returns the directory of a stage's record.
func dir(stateDir, stage string) string { return filepath.Join(stateDir, "stages", stage) }

// recordIn is the record in the directory of a stage.
func recordIn(dir string) durable.Doc[record] {
	return durable.NewDoc[record](filepath.Join(dir, "record.json"), recordFormat)
}

func oldFileName(dir string, i int) string { return filepath.Join(dir, "old-"+strconv.Itoa(i)) }

// keepOld stores the present content of files.
func keepOld(dir string, files []replace.File, compare func(replace.File) ([]byte, bool, error)) ([]oldFile, error) {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var all []oldFile
	for i, f := range files {
		current, _, err := compare(f)
		if err != nil {
			return nil, err
		}
		all = append(all, oldFile{
			Destination: f.Destination, Name: f.Name, Existed: current != nil, Reload: f.Reload, ReloadTimeout: f.ReloadTimeout,
		})
		if current == nil {
			continue
		}
		if err := durable.WriteFile(oldFileName(dir, i), current, 0o600); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// onDisk returns the digest of the files that an attempt is about.
func (t attemptRecord) onDisk(compare func(replace.File) ([]byte, bool, error)) (string, error) {
	files := make([]replace.File, len(t.Files))
	for i, old := range t.Files {
		files[i] = replace.File{Name: old.Name, Destination: old.Destination}
		current, _, err := compare(files[i])
		if err != nil {
			return "", err
		}
		files[i].Data = current
	}
	return watch.ContentDigest(files), nil
}

// recordedInputs returns inputs by id.
func recordedInputs(inputs []watch.Input) map[string]input {
	all := make(map[string]input, len(inputs))
	for _, i := range inputs {
		all[i.ID] = input{i.Name, i.Digest}
	}
	return all
}

// changedInputs returns how inputs differ from the ones of the content on the disk.
func changedInputs(has, now map[string]input) cluster.StageInputs {
	var list []cluster.StageInput
	for id, i := range now {
		if has[id].Digest != i.Digest {
			list = append(list, cluster.StageInput{Name: i.Name, Digest: i.Digest})
		}
	}
	for id, i := range has {
		if _, still := now[id]; !still {
			list = append(list, cluster.StageInput{Name: i.Name, Digest: watch.RemovedDigest(id)})
		}
	}
	if len(list) == 0 { // such as the environment, or the time
		return cluster.StageInputs{More: 1}
	}
	return cluster.StageInputsOf(list)
}
