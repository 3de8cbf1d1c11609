package cluster

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// FileReport is what a host reports of one file that a template writes.
type FileReport struct {
	Content string    `json:"content"`         // digest of the file
	Since   time.Time `json:"since,omitzero"`  // by the clock of the host
	Stage   string    `json:"stage,omitempty"` // that brings new content; empty: none
}

// MostFiles bounds how many files a host reports.
const MostFiles = 64

// FileBounds reports whether a host can report a file with that name.
func FileBounds(destination string) bool { return len(destination) <= maxBoundedName }

// WithFiles returns the report of the same node with other files.
func (r Report) WithFiles(files map[string]FileReport) Report {
	r.Files = nil
	if len(files) > 0 {
		r.Files = maps.Clone(files)
	}
	return r
}

// boundedFiles returns what of a report's files is beyond the bounds.
func (r Report) boundedFiles() error {
	const values = 3
	names := make([]string, 0, values*len(r.Files))
	for destination, f := range r.Files {
		names = append(names, destination, f.Content, f.Stage)
	}
	return boundedNames("values of files", names, values*MostFiles)
}

// HostFile is the content of one file on one host.
type HostFile struct {
	Host        string    `json:"host"`
	Destination string    `json:"destination"`
	Content     string    `json:"content"` // digest: the same content has the same one on all hosts
	Since       time.Time `json:"since,omitzero"`
	Stage       string    `json:"stage"` // that brings new content; empty: none
	// State is how far the host is with its turn in the stage, as StageReport has it;
	// "waiting": it has old content. Empty: nothing is expected of it.
	State string `json:"state"`
	// Newest: no content of the file appeared on any host later than this one did.
	Newest bool `json:"newest"`
}

// Files returns the files that hosts report: by destination, of each the content that
// appeared last first, then by host. With a destination only that one. Reports that cannot be
// read are the errors.
func (s *State) Files(destination string) (all []HostFile, unreadable []error) {
	all = []HostFile{}
	type content struct{ destination, digest string }
	appeared := map[content]time.Time{} // on the first host
	newest := map[string]time.Time{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		if err := s.DamagedReport(node); err != nil {
			unreadable = append(unreadable, err)
		}
		r := s.Hosts[node].Report
		for _, name := range slices.Sorted(maps.Keys(r.Files)) {
			if destination != "" && name != destination {
				continue
			}
			f := r.Files[name]
			all = append(all, HostFile{Host: node, Destination: name, Content: f.Content, Since: f.Since, Stage: f.Stage, State: r.Stages[f.Stage].Shown()})
			at := content{name, f.Content}
			if first, known := appeared[at]; !known || f.Since.Before(first) {
				appeared[at] = f.Since
			}
		}
	}
	for at, first := range appeared {
		if first.After(newest[at.destination]) {
			newest[at.destination] = first
		}
	}
	since := func(f HostFile) time.Time { return appeared[content{f.Destination, f.Content}] }
	for i, f := range all {
		all[i].Newest = !since(f).Before(newest[f.Destination])
	}
	slices.SortStableFunc(all, func(a, b HostFile) int {
		return cmp.Or(strings.Compare(a.Destination, b.Destination), since(b).Compare(since(a)), strings.Compare(a.Content, b.Content))
	})
	return all, unreadable
}

// ErrNoFile: no host reports such a file.
var ErrNoFile = errors.New("no host reports this file")
