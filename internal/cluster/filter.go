package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-bexpr/grammar"

	"github.com/jorc/jorc/internal/text"
)

// ParamFilter is the param of the profile that selects the members for runs,
// elections and waits.
const ParamFilter = "cluster/filter"

// Bounds of a filter's expression.
const (
	maxFilter      = 4096      // bytes
	maxFilterDepth = 6         // parentheses and braces within one another
	maxFilterTerms = 200       // comparisons
	maxFilterWork  = 1_500_000 // steps of the parser, which tries alternatives in turn
)

// Filter is an expression of go-bexpr's language over the fields of a Member.
// What a member does not have counts as false or empty. It is safe for
// concurrent use.
type Filter struct {
	all   bool // it matches every member
	text  string
	need  Need
	match predicate
}

// predicate reports whether a member matches, with what any and all have bound.
type predicate func(m *Member, bound *binding) bool

// FilterError points at what is wrong with a filter. It is an ErrInvalid.
type FilterError struct {
	Text   string
	Column int // in characters, from 1
	Reason string
}

func (e *FilterError) Error() string {
	runes := []rune(e.Text)
	rest := string(runes[min(e.Column-1, len(runes)):])
	if rest == "" {
		return fmt.Sprintf("filter: at its end (column %d): %s", e.Column, e.Reason)
	}
	if r := []rune(rest); len(r) > 20 {
		rest = string(r[:20]) + "…"
	}
	return fmt.Sprintf("filter: column %d, at %q: %s", e.Column, rest, e.Reason)
}

// Unwrap makes errors.Is find ErrInvalid.
func (e *FilterError) Unwrap() error { return ErrInvalid }

// ParseFilter reads an expression. An empty one matches every member. It
// returns a *FilterError.
func ParseFilter(text string) (*Filter, error) {
	s, err := scan(text)
	if err != nil {
		return nil, err
	}
	f := &Filter{text: text, match: func(*Member, *binding) bool { return true }}
	if f.all = s.blank; f.all {
		return f, nil
	}
	ast, err := grammar.Parse("", []byte(s.rewritten), grammar.MaxExpressions(maxFilterWork))
	if err != nil {
		return nil, s.syntax(err)
	}
	c := compiler{scanned: s}
	expr, ok := ast.(grammar.Expression)
	if !ok {
		return nil, s.errorf(0, "not an expression")
	}
	if f.match, err = c.compile(expr, nil); err != nil {
		return nil, err
	}
	f.need = c.need
	return f, nil
}

// Match reports whether the filter matches m.
func (f *Filter) Match(m *Member) bool { return f.match(m, nil) }

// Matches reports whether f matches the member on h.
func (s *State) Matches(f *Filter, h *Host) bool {
	if f.all {
		return true
	}
	m := s.member(h)
	return f.Match(&m)
}

// String returns the expression.
func (f *Filter) String() string { return f.text }

// Need returns which parts of a State the filter needs.
func (f *Filter) Need() Need { return f.need }

// ParamEquals returns the filter that matches members whose param key is text, as
// Params["key"] == "text" does; it takes any key and text.
func ParamEquals(key, text string) *Filter {
	l := newLiteral(text)
	return &Filter{text: fmt.Sprintf("Params[%q] == %q", key, text), match: func(m *Member, _ *binding) bool {
		return operand{kind: params, params: m.Params}.descend([]string{key}).equals(l)
	}}
}

// FieldEquals returns the filter that matches members whose field is text; it takes
// any text, and the names of fields that hold one.
func FieldEquals(name, text string) (*Filter, error) {
	f, ok := fields[name]
	if !ok || f.kind != textual {
		return nil, fmt.Errorf("field %q: %w: it does not exist or does not hold one text", name, ErrInvalid)
	}
	l := literal{raw: text, plain: true}
	return &Filter{text: fmt.Sprintf("%s == %q", name, text), need: f.need, match: func(m *Member, _ *binding) bool { return f.get(m).equals(l) }}, nil
}

// AllOf returns the filter that matches what all filters match.
func AllOf(filters ...*Filter) *Filter {
	all := &Filter{match: func(m *Member, b *binding) bool {
		return !slices.ContainsFunc(filters, func(f *Filter) bool { return !f.match(m, b) })
	}}
	for _, f := range filters {
		all.need |= f.need
		if f.text != "" {
			all.text = strings.TrimPrefix(all.text+" and ("+f.text+")", " and ")
		}
	}
	return all
}

// compiler turns a syntax tree into predicates.
type compiler struct {
	*scanned
	need  Need
	terms int
}

func (c *compiler) compile(e grammar.Expression, names []string) (predicate, error) {
	switch e := e.(type) {
	case *grammar.UnaryExpression:
		inner, err := c.compile(e.Operand, names)
		if err != nil {
			return nil, err
		}
		return func(m *Member, b *binding) bool { return !inner(m, b) }, nil
	case *grammar.BinaryExpression:
		left, err := c.compile(e.Left, names)
		if err != nil {
			return nil, err
		}
		right, err := c.compile(e.Right, names)
		if err != nil {
			return nil, err
		}
		if e.Operator == grammar.BinaryOpAnd {
			return func(m *Member, b *binding) bool { return left(m, b) && right(m, b) }, nil
		}
		return func(m *Member, b *binding) bool { return left(m, b) || right(m, b) }, nil
	case *grammar.MatchExpression:
		if c.terms++; c.terms > maxFilterTerms {
			return nil, c.errorf(len(c.text), "more than %d comparisons", maxFilterTerms)
		}
		return c.comparison(e, names)
	case *grammar.CollectionExpression:
		return c.collection(e, names)
	}
	return nil, c.errorf(0, "%T is not understood", e)
}

// binding is a name that any or all has bound to one element.
type binding struct {
	name  string
	value operand
	outer *binding
}

func (b *binding) lookup(name string) operand {
	for ; b != nil; b = b.outer {
		if b.name == name {
			return b.value
		}
	}
	return operand{}
}

// collection compiles "any LIST as name { … }" and "all …".
func (c *compiler) collection(e *grammar.CollectionExpression, names []string) (predicate, error) {
	get, _, err := c.selector(e.Selector, names)
	if err != nil {
		return nil, err
	}
	index, value := e.NameBinding.Index, e.NameBinding.Value
	if e.NameBinding.Mode == grammar.CollectionBindDefault {
		value = e.NameBinding.Default
	}
	inner, err := c.compile(e.Inner, append(slices.Clone(names), index, value))
	if err != nil {
		return nil, err
	}
	def := e.NameBinding.Mode == grammar.CollectionBindDefault
	every := e.Op == grammar.CollectionOpAll
	return func(m *Member, b *binding) bool {
		for i, element := range get(m, b).elements() {
			if def && element.key.kind == textual {
				element.value = element.key // as in go-bexpr: the one name is that of a map's key
			}
			if element.key.kind == missing {
				element.key = number(i)
			}
			bound := &binding{index, element.key, &binding{value, element.value, b}}
			if inner(m, bound) != every {
				return !every
			}
		}
		return every
	}, nil
}

// scanned is a filter's text and where in it names stand. The grammar's tree
// has no positions, so that errors about its meaning look for them here.
type scanned struct {
	text string
	// rewritten is as long as text. The grammar takes "/a/b" where a value
	// belongs for a JSON pointer and loses its first slash: there the quotes are
	// turned into those of a raw string.
	rewritten string
	blank     bool
	tokens    []token
}

type token struct {
	at   int // in bytes
	text string
}

// bounds and operators of the scan.
var (
	tokenPattern = text.Pattern("\"[^\"]*\"|`[^`]*`|[a-zA-Z][a-zA-Z0-9_/]*|-?[0-9][0-9.]*|==|!=|\\S")
	columnOf     = text.Pattern(`^(\d+):(\d+) \((\d+)\)`)
)

// scan checks the bounds and finds the tokens.
func scan(text string) (*scanned, error) {
	s := &scanned{text: text}
	switch {
	case len(text) > maxFilter:
		return nil, s.errorf(maxFilter, "the filter is longer than %d bytes", maxFilter)
	case !utf8.ValidString(text):
		return nil, &FilterError{Text: strings.ToValidUTF8(text, "\uFFFD"), Column: 1, Reason: "not UTF-8"}
	}
	depth := 0
	for _, m := range tokenPattern().FindAllStringIndex(text, -1) {
		t := token{m[0], text[m[0]:m[1]]}
		s.tokens = append(s.tokens, t)
		switch t.text {
		case "(", "{":
			if depth++; depth > maxFilterDepth {
				return nil, s.errorf(t.at, "nested deeper than %d levels", maxFilterDepth)
			}
		case ")", "}":
			if depth--; depth < 0 {
				return nil, s.errorf(t.at, "unmatched parentheses: nothing is open here")
			}
		}
	}
	if depth > 0 {
		return nil, s.errorf(len(text), "unmatched parentheses: %d are not closed", depth)
	}
	s.blank = len(s.tokens) == 0
	s.rewrite()
	return s, nil
}

// rewrite turns quoted values that begin with a slash into raw strings.
func (s *scanned) rewrite() {
	out := []byte(s.text)
	for i, t := range s.tokens {
		if strings.HasPrefix(t.text, `"/`) && !strings.ContainsAny(t.text, "`\\") && s.isValue(i) {
			out[t.at], out[t.at+len(t.text)-1] = '`', '`'
		}
	}
	s.rewritten = string(out)
}

// isValue tells a value from a selector by what follows it.
func (s *scanned) isValue(i int) bool {
	next := func(n int) string {
		if i+n < len(s.tokens) {
			return s.tokens[i+n].text
		}
		return ""
	}
	operators := []string{"==", "!=", "is", "contains", "matches", "as"}
	return next(1) == "in" || next(1) == "not" && next(2) == "in" ||
		!slices.Contains(operators, next(1)) && next(1) != "not"
}

// find returns where name stands as a word of its own.
func (s *scanned) find(name string) int {
	for _, t := range s.tokens {
		if t.text == name || strings.Trim(t.text, "\"`") == name || strings.HasPrefix(t.text, `"/`+name) {
			return t.at
		}
	}
	return 0
}

func (s *scanned) errorf(at int, format string, args ...any) error {
	at = min(at, len(s.text))
	return &FilterError{Text: s.text, Column: utf8.RuneCountInString(s.text[:at]) + 1, Reason: fmt.Sprintf(format, args...)}
}

// syntax words what the grammar's parser found. Its own list of everything
// that it would have taken is of no use to people.
func (s *scanned) syntax(err error) error {
	at, reason := len(s.text), err.Error()
	if m := columnOf().FindStringSubmatch(reason); m != nil {
		if n, bad := strconv.Atoi(m[3]); bad == nil {
			at = n
		}
	}
	switch {
	case strings.Contains(reason, "max number of expresssions"), strings.Contains(reason, "max number of expressions"):
		return s.errorf(len(s.text), "too many alternatives: use fewer parentheses")
	case strings.Contains(reason, "no match found"):
		reason = `not understood here: a filter is made of comparisons such as Zone == "a", "db" in Roles, Params["x"] is empty, joined by and, or, not and ( )`
	default:
		reason = strings.ToLower(reason[strings.LastIndex(reason, ": ")+len(": "):])
	}
	return s.errorf(at, "%s", reason)
}
