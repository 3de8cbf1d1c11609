package blocker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxCount is the greatest N of a target.
const MaxCount = 1_000_000

// Target is what is waited for: Count instances of a service, or Count
// addresses of a DNS name. Exactly one of Service and Name is set.
type Target struct {
	Service    string
	Tag        string // empty: any
	Datacenter string // empty: the agent's own
	Name       string // with a dot at its end
	Count      int    // at least 1
}

// TargetError says what is wrong with the text of a target, and where.
type TargetError struct {
	Text   string
	Pos    int // of the character, from 1
	Reason string
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("target %q, character %d: %s", e.Text, e.Pos, e.Reason)
}

// ParseTarget reads "[TAG.]SERVICE[@DC][=N]", where the last dot splits tag
// and service, or "NAME.[=N]", a full DNS name with a dot at its end.
// Errors are *TargetError.
func ParseTarget(text string) (Target, error) {
	p := parser{text: text}
	t := Target{Count: 1}
	p.characters()
	rest := text
	if i := strings.LastIndexByte(rest, '='); i >= 0 {
		t.Count = p.count(rest[i+1:], i+1)
		rest = rest[:i]
	}
	if strings.HasSuffix(rest, ".") {
		t.Name = p.name(rest)
		return t, p.err()
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		t.Datacenter = p.datacenter(rest[i+1:], i+1)
		rest = rest[:i]
	}
	at := 0
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		t.Tag = p.part("tag", rest[:i], 0)
		rest, at = rest[i+1:], i+1
	}
	t.Service = p.part("service", rest, at)
	if t.Service == "consul" && slices.ContainsFunc(strings.Split(t.Tag, "."), func(s string) bool { return slices.Contains(kinds, s) }) {
		p.fail(at+len(rest), "a full DNS name needs a dot at its end")
	}
	return t, p.err()
}

// String writes t as ParseTarget reads it.
func (t Target) String() string {
	s := t.Ident()
	if t.Count != 1 || strings.ContainsRune(s, '=') {
		s += "=" + strconv.Itoa(t.Count)
	}
	return s
}

// Ident is String without the number.
func (t Target) Ident() string {
	if t.Name != "" {
		return t.Name
	}
	s := t.Service
	if t.Tag != "" {
		s = t.Tag + "." + s
	}
	if t.Datacenter != "" {
		s += "@" + t.Datacenter
	}
	return s
}

// parser keeps the first fault that it meets.
type parser struct {
	text  string
	fault *TargetError
}

func (p *parser) err() error {
	if p.fault == nil {
		return nil
	}
	return p.fault
}

// fail notes a fault at a byte offset of the text.
func (p *parser) fail(offset int, format string, args ...any) {
	if p.fault == nil {
		pos := utf8.RuneCountInString(p.text[:offset]) + 1
		p.fault = &TargetError{Text: p.text, Pos: pos, Reason: fmt.Sprintf(format, args...)}
	}
}

func (p *parser) characters() {
	if p.text == "" {
		p.fail(0, "nothing to wait for; want [TAG.]SERVICE[@DC][=N] or a DNS name with a dot at its end")
	}
	for i, r := range p.text {
		if unicode.IsControl(r) || r == utf8.RuneError {
			p.fail(i, "%q cannot be part of a name", r)
		}
	}
}

func (p *parser) count(s string, at int) int {
	if s == "" {
		p.fail(at, "the number after = is missing")
	}
	for i, r := range s {
		if r < '0' || r > '9' {
			p.fail(at+i, "want a number after =, not %q", r)
			return 0
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > MaxCount {
		p.fail(at, "more than %d", MaxCount)
	} else if n < 1 {
		p.fail(at, "the number must be at least 1")
	}
	return n
}

func (p *parser) datacenter(s string, at int) string {
	if s == "" {
		p.fail(at, "the datacenter after @ is missing")
	}
	for i, r := range s {
		if r != '-' && r != '_' && !('0' <= r && r <= '9') && !('a' <= r && r <= 'z') && !('A' <= r && r <= 'Z') {
			p.fail(at+i, "%q cannot be part of a datacenter's name", r)
		}
	}
	return s
}

func (p *parser) part(what, s string, at int) string {
	if s == "" {
		p.fail(at, "the %s is missing", what)
		return s
	}
	if strings.TrimLeft(s, " ") != s {
		p.fail(at, "a space before the %s", what)
	}
	if end := strings.TrimRight(s, " "); end != s {
		p.fail(at+len(end), "a space after the %s", what)
	}
	return s
}
