package migrate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// setting is one setting with its value. Each one ends as used, or as a Finding.
type setting struct {
	node
	path   string
	used   bool
	secret bool // the value and the comment above it appear nowhere
}

// scope holds the settings outside templates, or those of one template.
type scope struct {
	c     *converter
	name  string // of a block that may be repeated; empty: the rest
	at    Position
	lines []string // the comment above the block
	all   map[string]*setting
	order []*setting
}

func (c *converter) newScope() *scope { return &scope{c: c, all: map[string]*setting{}} }

// converter collects the settings of all files and flags, then converts them.
type converter struct {
	Options
	tool     *tool
	global   *scope
	blocks   []*scope // that may be repeated, such as templates
	findings []Finding
	sources  int               // files and flags so far
	window   *window           // of templates without one
	delims   map[string]string // left and right, of templates without them
	allowEnv map[string]bool   // variables that templates read
	plugin   bool
}

func newConverter(t *tool, o Options) *converter {
	c := &converter{Options: o, tool: t, allowEnv: map[string]bool{}, delims: map[string]string{}}
	c.global = c.newScope()
	return c
}

// addFile adds the settings of one file. Of blocks with the same name only the last
// one counts, except for templates.
func (c *converter) addFile(nodes block) {
	c.sources++
	c.collect("", nodes, c.global)
}

// addFlags adds flags, which are independent of each other.
func (c *converter) addFlags(nodes []node) {
	for _, n := range nodes {
		c.addFile(block{n})
	}
}

func (c *converter) collect(prefix string, nodes block, into *scope) {
	last := map[string]int{}
	for i, n := range nodes {
		last[n.name] = i
	}
	for i, n := range nodes {
		n.at.order = c.sources
		path := prefix + n.name
		inner, isNested := n.value.(block)
		switch {
		case slices.Contains(c.tool.repeated, path) && isNested:
			t := c.newScope()
			t.name, t.at, t.lines = path, n.at, n.comment
			c.blocks = append(c.blocks, t)
			c.collect(path+".", inner, t)
		case last[n.name] != i:
			c.overridden(path, n, nodes[last[n.name]].at)
		case isNested && len(inner) > 0:
			c.collect(path+".", inner, into)
		case isNested && c.tool.isBlock(path): // an empty block
		default:
			into.put(path, n)
		}
	}
}

// put adds a setting. Old files have "consul" and "wait" as strings.
func (s *scope) put(path string, n node) {
	text, isText := n.value.(string)
	if now := s.c.tool.moved[path]; now != "" {
		path = now
	} else if block, name, ok := strings.Cut(path, "."); ok && s.c.tool.moved[block] != "" {
		path = s.c.tool.moved[block] + "." + name
	}
	switch {
	case path == "consul" && isText:
		path = "consul.address"
	case (path == "wait" || path == "template.wait") && isText:
		least, most, both := strings.Cut(text, ":")
		n.value = strings.TrimSpace(least)
		s.put(path+".min", n)
		if both {
			n.value, n.comment = strings.TrimSpace(most), nil
			s.put(path+".max", n)
		} else if before := s.all[path+".max"]; before != nil {
			s.c.overridden(before.path, before.node, n.at)
			before.used = true
			delete(s.all, before.path)
		}
		return
	}
	if before := s.all[path]; before != nil {
		s.c.overridden(path, before.node, n.at)
		before.used = true
	}
	r, _ := s.c.tool.rule(path)
	added := &setting{node: n, path: path, secret: r.secret}
	s.all[path] = added
	s.order = append(s.order, added)
}

// overridden names the settings that a later one replaces.
func (c *converter) overridden(path string, n node, by Position) {
	if inner, ok := n.value.(block); ok && len(inner) > 0 {
		for _, m := range inner {
			m.at.order = c.sources
			c.overridden(path+"."+m.name, m, by)
		}
		return
	}
	c.find(n.at, path, NotNeeded, "%s uses %s instead", c.tool.name, by)
}

func (c *converter) find(at Position, path string, kind Kind, format string, args ...any) {
	c.findings = append(c.findings, Finding{At: at, Setting: printable(path), Kind: kind, Reason: fmt.Sprintf(format, args...)})
}

// find names a setting that counts as handled from now on.
func (s *scope) find(of *setting, kind Kind, format string, args ...any) {
	of.used = true
	s.c.find(of.at, of.path, kind, format, args...)
}

// get returns a setting that is not handled yet.
func (s *scope) get(path string) *setting {
	if found := s.all[path]; found != nil && !found.used {
		return found
	}
	return nil
}

// text returns a setting that must be a string, and its value. It is nil where the
// setting is missing or empty.
func (s *scope) text(path string) (*setting, string) {
	found := s.get(path)
	if found == nil {
		return nil, ""
	}
	value, ok := found.value.(string)
	switch {
	case !ok:
		s.wrongType(found, "a string")
		return nil, ""
	case value == "":
		s.find(found, NotNeeded, "it is empty")
		return nil, ""
	case !normal(value):
		s.find(found, NoEquivalent, notNormal)
		return nil, ""
	}
	found.used = true
	return found, value
}

const notNormal = "it is not UTF-8 in normal form C, which HCL needs"

// flag returns a setting that must be true or false.
func (s *scope) flag(path string) (*setting, bool) {
	found := s.get(path)
	if found == nil {
		return nil, false
	}
	value, ok := found.value.(bool)
	if !ok {
		s.wrongType(found, "true or false")
		return nil, false
	}
	found.used = true
	return found, value
}

// duration returns a setting that must be a duration: a string, or nanoseconds.
func (s *scope) duration(path string) (*setting, time.Duration) {
	found := s.get(path)
	if found == nil {
		return nil, 0
	}
	var value time.Duration
	switch v := found.value.(type) {
	case int64:
		value = time.Duration(v)
		s.c.find(found.at, path, Check, "%s reads a number as nanoseconds: %s", s.c.tool.name, value)
	case string:
		var err error
		if value, err = time.ParseDuration(v); err != nil {
			s.find(found, NoEquivalent, "its value is not a duration")
			return nil, 0
		}
	default:
		s.wrongType(found, "a duration")
		return nil, 0
	}
	if value < 0 {
		s.find(found, NoEquivalent, "its value is negative")
		return nil, 0
	}
	found.used = true
	return found, value
}

// list returns a setting that must be a list of strings. Consul-template splits a
// string at its commas.
func (s *scope) list(path string) (*setting, []string) {
	found := s.get(path)
	if found == nil {
		return nil, nil
	}
	var values []string
	switch v := found.value.(type) {
	case string:
		if !normal(v) {
			s.find(found, NoEquivalent, notNormal)
			return nil, nil
		}
		if v != "" {
			values = strings.Split(v, ",")
		}
	case []any:
		for _, element := range v {
			value, ok := element.(string)
			if !ok {
				s.wrongType(found, "a list of strings")
				return nil, nil
			}
			if !normal(value) {
				s.find(found, NoEquivalent, notNormal)
				return nil, nil
			}
			values = append(values, value)
		}
	default:
		s.wrongType(found, "a list of strings")
		return nil, nil
	}
	if len(values) == 0 {
		s.find(found, NotNeeded, "it is empty")
		return nil, nil
	}
	found.used = true
	return found, values
}

func (s *scope) wrongType(of *setting, want string) {
	s.find(of, NoEquivalent, "%s refuses it: it must be %s", s.c.tool.name, want)
}

// rest names every setting that the conversion did not use.
func (s *scope) rest() {
	for _, of := range s.order {
		if of.used {
			continue
		}
		r, known := s.c.tool.rule(of.path)
		switch {
		case !known:
			s.find(of, NoEquivalent, "%s has no such setting", s.c.tool.name)
		case r.kind == "":
			s.find(of, NoEquivalent, "its value cannot be converted")
		case r.kind == NoEquivalent && r.isDefault(of.value):
			s.find(of, NotNeeded, "without a setting, jorc behaves like that")
		default:
			s.find(of, r.kind, "%s", r.reason)
		}
	}
}
