package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// States. Which there are is part of the layout of the index keys.
const (
	Success = "success"
	Failed  = "failed"
	Running = "running"
	Pending = "pending"
)

// States returns all states.
func States() []string { return []string{Success, Failed, Running, Pending} }

// Categories with a meaning; there may be others.
const (
	Provisioned = "provisioned" // set once, by what sets up the host
	Config      = "config"      // the static workflow
	Validation  = "validation"  // whether what was configured works
)

// maxDetail bounds State.Detail, in bytes: the tail of a task's output fits.
const maxDetail = 8 << 10

// Document is what one node reports.
type Document struct {
	Version  string           `json:"version,omitempty"`  // that it runs; empty: none yet
	Since    time.Time        `json:"since,omitzero"`     // of its arrival at Version
	Previous string           `json:"previous,omitempty"` // the version before
	States   map[string]State `json:"states,omitempty"`   // by category
}

// State is the state of a node in one category.
type State struct {
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail,omitempty"`  // for people: what failed, what is waited for
	Version string    `json:"version,omitempty"` // that it is about
	LogURL  string    `json:"log_url,omitempty"` // of the full log
	Suspect string    `json:"suspect,omitempty"` // why success is doubtful: it took more than one attempt

	more map[string]json.RawMessage // members that a newer jorc wrote
}

// At returns the document of the same node running version since now.
func (d Document) At(version string, now time.Time) Document {
	if version == d.Version {
		return d
	}
	d.Previous, d.Version, d.Since = d.Version, version, now
	return d
}

// With returns the document of the same node in state s in a category. While
// state and version stay, Since stays.
func (d Document) With(category string, s State, now time.Time) Document {
	old, known := d.States[category]
	s.Detail = bounded(s.Detail)
	s.Since, s.more = now, old.more
	if known && old.State == s.State && old.Version == s.Version {
		s.Since = old.Since
	}
	d.States = maps.Clone(d.States)
	if d.States == nil {
		d.States = map[string]State{}
	}
	d.States[category] = s
	return d
}

// equal tells whether both are stored alike.
func (d Document) equal(o Document) bool {
	a, errA := json.Marshal(d)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// CheckState returns ErrBadName or ErrBadState unless a node can be in that
// state in that category.
func CheckState(category, state string) error {
	return Document{States: map[string]State{category: {State: state}}}.check()
}

// check returns ErrBadName or ErrBadState for what cannot be stored.
func (d Document) check() error {
	if d.Version != "" {
		if err := CheckVersion(d.Version); err != nil {
			return err
		}
	}
	for category, s := range d.States {
		if err := CheckCategory(category); err != nil {
			return err
		}
		if !slices.Contains(States(), s.State) {
			return fmt.Errorf("state %q of category %q: %w: it can be %s", s.State, category, ErrBadState, strings.Join(States(), ", "))
		}
	}
	return nil
}

// plain is State without its methods.
type plain State

// MarshalJSON writes what a newer jorc wrote beside what this one knows.
func (s State) MarshalJSON() ([]byte, error) {
	known, err := marshal(plain(s))
	if err != nil || len(s.more) == 0 {
		return known, err
	}
	more, err := marshal(s.more)
	if err != nil {
		return nil, err
	}
	known[len(known)-1] = ','
	return append(known, more[1:]...), nil
}

// UnmarshalJSON also takes the state alone, as somebody may write it by hand.
func (s *State) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*s = State{}
		return json.Unmarshal(data, &s.State)
	}
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &p.more); err != nil {
		return err
	}
	maps.DeleteFunc(p.more, func(name string, _ json.RawMessage) bool {
		return slices.ContainsFunc(stateMembers, func(known string) bool { return strings.EqualFold(name, known) }) // as encoding/json does
	})
	*s = State(p)
	return nil
}

// stateMembers are the JSON names of State's fields.
var stateMembers = []string{"state", "since", "detail", "version", "log_url", "suspect"}

// index is the value of a state's index key.
func (s State) index() []byte {
	data, err := marshal(struct {
		Since   time.Time `json:"since,omitzero"`
		Detail  string    `json:"detail,omitempty"`
		Version string    `json:"version,omitempty"`
		LogURL  string    `json:"log_url,omitempty"`
	}{s.Since, s.Detail, s.Version, s.LogURL})
	if err != nil {
		return []byte("{}") // a time beyond the year 9999
	}
	return data
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// bounded keeps the end of a text, where errors are, and its encoding valid.
func bounded(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxDetail {
		return s
	}
	i := len(s) - maxDetail
	for !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}
