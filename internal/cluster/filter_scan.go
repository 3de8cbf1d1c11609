package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
	tokenPattern = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|[a-zA-Z][a-zA-Z0-9_/]*|-?[0-9][0-9.]*|==|!=|\\S")
	columnOf     = regexp.MustCompile(`^(\d+):(\d+) \((\d+)\)`)
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
	for _, m := range tokenPattern.FindAllStringIndex(text, -1) {
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
	if m := columnOf.FindStringSubmatch(reason); m != nil {
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
