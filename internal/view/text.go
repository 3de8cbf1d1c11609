package view

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

func (t Tally) String() string {
	if t.Total() == 0 {
		return "no instance"
	}
	text := fmt.Sprintf("%d of %d functional", t.Functional(), t.Total())
	for _, c := range []struct {
		n    int
		word string
	}{{t.Warning, "warning"}, {t.Critical, "critical"}, {t.Maintenance, "maintenance"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.word)
		}
	}
	return text
}

// few joins at most n names.
func few(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func union[A, B any](a map[string]A, b map[string]B) map[string]struct{} {
	all := make(map[string]struct{}, len(a))
	for name := range a {
		all[name] = struct{}{}
	}
	for name := range b {
		all[name] = struct{}{}
	}
	return all
}

// bounded cuts s to at most n bytes of valid text.
func bounded(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	const more = "…"
	i := n - len(more)
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return s[:i] + more
}
