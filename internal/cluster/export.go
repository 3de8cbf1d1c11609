package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/profile"
)

// ExportFormat is the number of the format that Export writes, and the highest
// that ParseArchive reads.
const ExportFormat = 1

// Archive is a whole cluster as a file: what people and members decided, not
// what was observed.
type Archive struct {
	Format  int               `json:"format"`
	Name    string            `json:"name"`
	Profile profile.Value     `json:"profile"`
	Leaders Leaders           `json:"leaders"`
	Control *Control          `json:"control,omitempty"`
	Members map[string]Record `json:"members"`
}

// ParseArchive reads what Export wrote. It returns ErrInvalid, or what
// profile.Decode and Document.Validate return.
func ParseArchive(data []byte) (Archive, error) {
	var a Archive
	v, err := profile.ParseJSON(data) // strict: no member twice
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(v.JSON(), &a); err != nil {
		return a, fmt.Errorf("the file is no export of a cluster: %w: %w", ErrInvalid, err)
	}
	switch {
	case a.Format < 1 || a.Format > ExportFormat:
		return a, fmt.Errorf("the file is an export of format %d: %w: this jorc reads 1 to %d", a.Format, ErrInvalid, ExportFormat)
	case a.Leaders.Count < 0 || a.Leaders.Count > MaxLeaders:
		return a, fmt.Errorf("%d leaders: %w: there can be 1 to %d", a.Leaders.Count, ErrInvalid, MaxLeaders)
	}
	d, err := a.Document()
	if err == nil {
		err = d.Validate()
	}
	for _, node := range slices.Sorted(maps.Keys(a.Members)) {
		if err == nil {
			err = CheckNode(node)
		}
		if err == nil {
			err = a.Members[node].Validate()
		}
	}
	if a.Control != nil {
		for _, node := range slices.Sorted(maps.Keys(a.Control.Nodes)) {
			if err == nil {
				err = CheckNode(node)
			}
		}
	}
	return a, err
}

// Document returns the profile of the archive. It returns what profile.Decode returns.
func (a Archive) Document() (profile.Document, error) { return profile.Decode(a.Profile.JSON()) }

// Restored returns l as a has it. Who leads now stays, as long as there are not
// too many; the ones that led in a take the other places.
func (l Leaders) Restored(a Archive) Leaders {
	next := l.Clone()
	next.Count, next.Manager = cmp.Or(a.Leaders.Count, l.Count, 1), slices.Clone(a.Leaders.Manager)
	next.shrink(nil, time.Now())
	for _, node := range a.Leaders.Leader {
		if _, member := a.Members[node]; member && next.Vacancies() > 0 && !next.Leads(node) && !next.IsRetired(node) {
			next.Leader = append(next.Leader, node)
		}
	}
	return next
}
