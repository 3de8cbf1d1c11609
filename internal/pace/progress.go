package pace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// HostProgress is how far one host is in a change. It is the same for each kind of change.
type HostProgress struct {
	Node  string    `json:"node"`
	Zone  string    `json:"zone,omitempty"`
	State State     `json:"state"`          // failed, working, down, given up, held, waiting, done, apart
	Since time.Time `json:"since,omitzero"` // of State, where that is known
	// Detail is what it waits for, what it does, or why it failed.
	Detail string `json:"detail,omitempty"`
}

// CompareProgress orders hosts by what they are at: the ones that need attention first, and the ones that are done, or
// take no part, last.
func CompareProgress(a, b State) int {
	order := []State{Failed, Working, Down, Left, Held, Pending, HasIt, Apart}
	return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
}

// String is the state as people and scripts read it.
func (s State) String() string {
	switch s {
	case Pending:
		return "waiting"
	case Working:
		return "working"
	case Failed:
		return "failed"
	case Down:
		return "down"
	case Left:
		return string(GivenUp)
	case Held:
		return "held"
	case HasIt:
		return "done"
	case Apart:
		return "apart"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) error {
	for one := Pending; one <= Apart; one++ {
		if one.String() == string(text) {
			*s = one
			return nil
		}
	}
	return fmt.Errorf("%q is no state of a host in a change", text)
}
