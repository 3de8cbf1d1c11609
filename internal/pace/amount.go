package pace

import (
	"fmt"
	"strconv"
	"strings"
)

// Amount is a number of members, or a share of them in per cent. The zero
// Amount means that no amount is given.
type Amount struct {
	N       int
	Percent bool
}

// MostMembers bounds counts, so that nothing computed from them overflows.
const MostMembers = 1_000_000

// ParseAmount reads "3" or "10%". Both begin at 1. The error says what
// is wrong with the text.
func ParseAmount(text string) (Amount, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || number[0] == '+':
		return Amount{}, fmt.Errorf("%q is neither a number of members such as 3 nor a whole share such as 10%%", text)
	case n < 1:
		return Amount{}, fmt.Errorf("%q selects no member: give at least 1 or 1%%", text)
	case percent && n > 100:
		return Amount{}, fmt.Errorf("%q is more than all: give at most 100%%", text)
	case n > MostMembers:
		return Amount{}, fmt.Errorf("%q is more than %d", text, MostMembers)
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
