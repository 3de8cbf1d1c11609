package rollout

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrPolicy: what was asked for is no policy.
var ErrPolicy = errors.New("not a policy")

// Amount is a number of members, or a share of them in per cent. The zero
// Amount is none.
type Amount struct {
	N       int
	Percent bool
}

// mostMembers bounds counts, so that nothing computed from them overflows.
const mostMembers = 1_000_000

// ParseAmount reads "3" or "10%". Both begin at 1. It returns ErrPolicy.
func ParseAmount(text string) (Amount, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || number[0] == '+':
		return Amount{}, fmt.Errorf("%w: %q is neither a number of members such as 3 nor a whole share such as 10%%", ErrPolicy, text)
	case n < 1:
		return Amount{}, fmt.Errorf("%w: %q is nobody: give at least 1 or 1%%", ErrPolicy, text)
	case percent && n > 100:
		return Amount{}, fmt.Errorf("%w: %q is more than all: give at most 100%%", ErrPolicy, text)
	case n > mostMembers:
		return Amount{}, fmt.Errorf("%w: %q is more than %d", ErrPolicy, text, mostMembers)
	}
	return Amount{N: n, Percent: percent}, nil
}

// Of is how many of n members the amount is: shares are rounded down, but are
// at least one member. It is 0 for the zero Amount only.
func (a Amount) Of(n int) int {
	switch {
	case a.N <= 0:
		return 0
	case a.Percent:
		return max(1, max(0, n)*min(a.N, 100)/100)
	}
	return a.N
}

func (a Amount) String() string {
	switch {
	case a.N <= 0:
		return ""
	case a.Percent:
		return strconv.Itoa(a.N) + "%"
	}
	return strconv.Itoa(a.N)
}

// MarshalText writes what ParseAmount reads.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAmount, and reads "" as none.
func (a *Amount) UnmarshalText(text []byte) (err error) {
	if *a = (Amount{}); len(text) > 0 {
		*a, err = ParseAmount(string(text))
	}
	return err
}
