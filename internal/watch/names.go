package watch

import (
	"fmt"
	"strings"
	"unicode"

	dep "github.com/hashicorp/consul-template/dependency"
)

// A template may compute the names that it asks for: `key (printf "%s/port"
// .Name)`, or `key (key "pw")`. Such a name is shown if all of its words stand in the
// template's text or are names in the catalog or KV; otherwise it may be a value.

const computed = "(a computed name)"

// show quotes a name for a message, unless it may be a value.
func (x *execution) show(name string) string {
	if !x.isName(name) {
		return computed
	}
	return fmt.Sprintf("%q", name)
}

// isName reports whether all words of text are known not to be values.
func (x *execution) isName(text string) bool {
	for word := range words(text) {
		if !x.source.words[word] && !x.isKnown(word) {
			return false
		}
	}
	return true
}

// isKnown reports whether word is part of a name that the execution has read.
func (x *execution) isKnown(word string) bool {
	if x.known == nil {
		x.known = map[string]bool{}
		x.scanned = map[string]bool{}
	}
	for id, value := range x.values {
		if x.known[word] {
			return true
		}
		if !x.scanned[id] {
			x.scanned[id] = true
			names(value, x.know)
		}
	}
	return x.known[word]
}

func (x *execution) know(names ...string) {
	for _, name := range names {
		for word := range words(name) {
			x.known[word] = true
		}
	}
}

// names calls know with the names that fetched data holds, and with none of the
// values.
func names(value any, know func(...string)) {
	switch v := value.(type) {
	case []*dep.KeyPair:
		for _, p := range v {
			know(p.Path)
		}
	case []*dep.CatalogSnippet:
		for _, s := range v {
			know(s.Name)
			know(s.Tags...)
		}
	case []*dep.HealthService:
		for _, s := range v {
			know(s.Name, s.ID, s.Node)
			know(s.Tags...)
		}
	case []*dep.Node:
		for _, n := range v {
			know(n.Node, n.Datacenter)
		}
	case []string:
		know(v...) // datacenters, and the names of Vault's secrets
	}
}

// words are the runs of letters and digits in text.
func words(text string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(text, func(r rune) bool { return !wordRune(r) })
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// mark notes whether the name of d may be a value.
func (x *execution) mark(d *dependency) {
	if _, shown := x.source.shown.Load(d.id); shown {
		return
	}
	if d.hidden = !x.isName(d.asked); !d.hidden {
		x.source.shown.Store(d.id, true)
	}
}
