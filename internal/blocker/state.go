package blocker

import (
	"strings"
	"time"
)

// State is how far a need is.
type State struct {
	Need      Need
	Have      int
	AtLeast   bool // DNS holds no more than Have: there may be more
	Satisfied bool
	Since     time.Time // when Satisfied became what it is; zero before the first answer
	Why       string    // what is missing and why; empty when satisfied
	Denied    bool      // the token may not read the service
	Answered  bool      // Consul has answered at least once
}

// String is one line for people: "web=3: 1 of 3: …".
func (s State) String() string {
	line := s.Need.Target.String()
	if s.Need.For != Functional {
		line += " " + s.Need.For.String()
	}
	if s.Why == "" {
		return line
	}
	return line + ": " + s.Why
}

// same tells whether two states say the same.
func (s State) same(o State) bool {
	s.Since, o.Since = time.Time{}, time.Time{}
	return s == o
}

// Lines is one line per state that is not satisfied.
func Lines(states []State) []string {
	var lines []string
	for _, s := range states {
		if !s.Satisfied {
			lines = append(lines, s.String())
		}
	}
	return lines
}

func summary(states []State) string { return strings.Join(Lines(states), "; ") }
