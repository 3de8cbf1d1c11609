package blocker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/text"
)

// MaxCount is the maximum N of a target.
const MaxCount = 1_000_000

// Target is Count instances of a service, or Count addresses of a DNS name.
// Exactly one of Service and Name is set.
type Target struct {
	Service    string
	Tag        string // empty: any
	Datacenter string // empty: the agent's own
	Name       string // with a dot at its end
	Count      int    // at least 1
}

// TargetError is a syntax error in a target.
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

// String formats t for ParseTarget.
func (t Target) String() string {
	s := t.Ident()
	if t.Count != 1 || strings.ContainsRune(s, '=') {
		s += "=" + strconv.Itoa(t.Count)
	}
	return s
}

// Ident returns String without the number.
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

// parser keeps the first syntax error.
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

// fail records an error at a byte offset of the text.
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

const (
	maxLabel = 63
	maxName  = 253
)

// kinds are the labels by which Consul recognises the kind of a lookup.
var kinds = []string{"service", "connect", "virtual", "ingress", "node", "query", "addr"}

// DNSName returns the name of t in Consul's DNS. It returns an error if t has no
// such name: Consul compares names in their escaped form, so DNS cannot look up a
// service whose name needs escapes.
func (t Target) DNSName() (string, error) {
	if t.Name != "" {
		return t.Name, nil
	}
	name := t.Service + ".service."
	if t.Tag != "" {
		name = t.Tag + "." + name
	}
	if t.Datacenter != "" {
		name += t.Datacenter + "."
	}
	name += "consul."
	if err := t.askable(name); err != nil {
		return "", fmt.Errorf("cannot look up %q over DNS: %w", t.Ident(), err)
	}
	return name, nil
}

func (t Target) askable(name string) error {
	if len(name) > maxName+1 {
		return fmt.Errorf("%s has %d characters, DNS holds %d", name, len(name)-1, maxName)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" {
			return fmt.Errorf("the tag %q has an empty part", t.Tag)
		}
		if err := text.CheckLabel(label); err != nil {
			return err
		}
	}
	if strings.HasPrefix(t.Service, "_") && strings.HasPrefix(t.Tag, "_") && !strings.Contains(t.Tag, ".") {
		return fmt.Errorf("with underscores Consul takes %q for the service and %q for the tag (RFC 2782)", t.Tag[1:], t.Service[1:])
	}
	if dc := strings.ToLower(t.Datacenter); slices.Contains(kinds, dc) || strings.HasPrefix(dc, "_") {
		return fmt.Errorf("a datacenter named %q means something else there", t.Datacenter)
	}
	return nil
}

// name checks a full DNS name; other text may follow it.
func (p *parser) name(s string) string {
	if s == "." {
		p.fail(0, "the root is not a name to wait for")
		return s
	}
	if len(s) > maxName+1 {
		p.fail(maxName, "longer than the %d characters that DNS holds", maxName)
	}
	at := 0
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" {
			p.fail(at, "an empty part between dots")
		}
		if len(label) > maxLabel {
			p.fail(at+maxLabel, "a part of a DNS name holds %d characters", maxLabel)
		}
		for i, r := range label {
			if r <= ' ' || r > '~' || strings.ContainsRune(`"\;()@'`, r) {
				p.fail(at+i, "%q cannot be part of a DNS name here", r)
			}
		}
		at += len(label) + 1
	}
	return s
}

// service returns the service to watch for changes of t: its service, or that of
// the name "[TAG.]SERVICE.service[.DC].consul.".
func (t Target) service() (ServiceQuery, bool) {
	if t.Name == "" {
		return ServiceQuery{Service: t.Service, Tag: t.Tag, Datacenter: t.Datacenter}, true
	}
	labels := strings.Split(strings.TrimSuffix(t.Name, "."), ".")
	n := len(labels)
	var q ServiceQuery
	switch {
	case n < 3 || !strings.EqualFold(labels[n-1], "consul"):
		return q, false
	case strings.EqualFold(labels[n-2], "service"):
		labels = labels[:n-2]
	case n > 3 && strings.EqualFold(labels[n-3], "service"):
		q.Datacenter = labels[n-2]
		labels = labels[:n-3]
	default:
		return q, false
	}
	q.Service = labels[len(labels)-1]
	q.Tag = strings.Join(labels[:len(labels)-1], ".")
	if strings.HasPrefix(q.Service, "_") {
		return q, false // RFC 2782: queried without a watch
	}
	return q, true
}
