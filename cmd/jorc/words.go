package main

import (
	"fmt"
	"strings"
)

type count struct {
	n    int
	noun string
}

// counted says "1 service, 2 templates"; zero counts are left out.
func counted(counts ...count) string {
	var parts []string
	for _, c := range counts {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.noun)
		case c.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", c.n, c.noun))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// joinOr says "a, b or c".
func joinOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
