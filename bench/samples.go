package main

import (
	"slices"
	"strconv"
	"time"
)

// samples are measurements of one thing, in its unit.
type samples []float64

// quantile is the smallest sample that at least the share q of all do not exceed.
func (s samples) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	i := int(q * float64(len(sorted)))
	if float64(i) == q*float64(len(sorted)) {
		i--
	}
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func (s *samples) addMillis(d time.Duration) { *s = append(*s, float64(d)/float64(time.Millisecond)) }

// number formats with three significant digits, as far as that makes sense.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
