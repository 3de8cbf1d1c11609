package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/cluster"
)

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
func truncate(s string, n int) string {
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

// Bounds of what one node adds to a view, in bytes.
const (
	maxWord     = 256 // an address, a zone, a role, …
	maxTrouble  = 500
	maxServices = 24 << 10 // of the names of its services, and what is counted of each
	perService  = 48       // what is counted
)

// Bounded returns n with no more than a view has room for. What is left out, or
// cut, is trouble of the node.
func (n NodeView) Bounded() NodeView {
	cut := 0
	word := func(s string) string {
		short := truncate(s, maxWord)
		if short != s {
			cut++
		}
		return short
	}
	n.Address, n.Datacenter, n.Zone, n.Version = word(n.Address), word(n.Datacenter), word(n.Zone), word(n.Version)
	left, size := len(n.Services), 0
	kept := make(map[string]cluster.Tally, len(n.Services))
	for _, name := range slices.Sorted(maps.Keys(n.Services)) {
		if size += len(name) + perService; size <= maxServices && len(name) <= maxWord {
			kept[name] = n.Services[name]
			left--
		}
	}
	if left > 0 {
		n.troubled(fmt.Sprintf("%d of its %d services are left out: their names take more than %d KB, or one more than %d bytes: deregister services that it does not need",
			left, len(n.Services), maxServices>>10, maxWord))
		n.Services = kept
	}
	if cut > 0 {
		n.troubled(fmt.Sprintf("%d of its names are cut after %d bytes", cut, maxWord))
	}
	n.Trouble = truncate(n.Trouble, maxTrouble)
	return n
}

func (n *NodeView) troubled(why string) {
	n.Trouble = strings.TrimPrefix(n.Trouble+"; "+why, "; ")
}
