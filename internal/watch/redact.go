package watch

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	dep "github.com/hashicorp/consul-template/dependency"
	vault "github.com/hashicorp/vault/api"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

// Values from KV, params and Vault are secrets, and template functions quote
// their arguments in their messages. So an execution's error shows where it
// happened, in which function, and what kind of error it is. A message is shown
// only when one of our own functions made it of names; see execution.fail.

// executionError is a template execution that failed, without any value.
type executionError struct {
	line, column int    // from 1; 0: unknown
	at           string // function or field; may be empty
	why          string
}

func (e *executionError) Error() string {
	text := e.why
	if e.at != "" {
		text = e.at + ": " + text
	}
	if e.line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", e.line, e.column, text)
	}
	return text
}

const withheld = "failed; its message is withheld because it may quote a value"

var errPanicked = errors.New("the template panicked; the message is withheld because it may quote a value")

// fail returns an error of one of our own template functions. Its text holds no
// value: names in it went through execution.show.
func (x *execution) fail(format string, args ...any) error {
	x.reason = fmt.Sprintf(format, args...)
	return errors.New(x.reason)
}

// invalid is the error for a name that consul-template refuses, and quotes.
func (x *execution) invalid(name string, err error) error {
	if !x.isName(name) {
		return x.fail("the name is not valid")
	}
	return x.fail("%v", err)
}

// parsing begins the error of a template that consul-template could not parse.
// It quotes the template alone.
const parsing = "parse: "

// location begins an error of text/template, as consul-template wraps it.
var location = text.Pattern(`^(?:execute: )?template: :(\d+):(\d+): executing `)

// nested is what calls another template by its name, whose error follows.
const nested = "error calling executeTemplate: "

// redact turns the error of an execution into one without values.
func (x *execution) redact(err error) error {
	text := err.Error()
	if strings.HasPrefix(text, parsing) || errors.Is(err, errPanicked) {
		return err
	}
	e := &executionError{why: withheld}
	m := location().FindStringSubmatch(text)
	for m != nil {
		e.line, e.column, e.at = x.source.origin(number(m[1]), number(m[2]))
		if e.at != "executeTemplate" {
			break
		}
		_, inner, _ := strings.Cut(text, nested)
		if text, m = inner, location().FindStringSubmatch(inner); m == nil {
			break
		}
	}
	switch {
	case x.reason != "":
		e.why = x.reason
	case !strings.Contains(text, "error calling "):
		e.why = kindOfFailure(text)
	}
	return e
}

// kindOfFailure says what text/template itself could not do. Its message names
// types and fields, but for some kinds also the value.
func kindOfFailure(text string) string {
	for _, kind := range []struct{ theirs, ours string }{
		{"range can't iterate over ", "it needs a list, a map or a number"},
		{" iterate over more than one variable", "it has one variable only here"},
		{"nil pointer evaluating ", "it is empty here: guard it with {{ with }}"},
		{"nil data; no entry for key ", "the map is empty"},
		{"map has no entry for key ", "no such entry in the map"},
		{"can't evaluate field ", "no such field"},
		{"wrong number of args for ", "wrong number of arguments"},
		{"wrong type for value; expected ", "an argument has the wrong type"},
		{"invalid value; expected ", "an argument has no value"},
		{"exceeded maximum template depth", "templates call each other too deep"},
		{" not defined", "no such template"},
	} {
		if strings.Contains(text, kind.theirs) {
			return kind.ours
		}
	}
	return withheld
}

func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// origin finds a place of the instrumented text in the template as it was
// written, and the function or field there. Lines count from 1, columns of the
// instrumented text from 0, of the template from 1.
func (s *source) origin(line, column int) (int, int, string) {
	at := 0
	for range line - 1 {
		end := strings.IndexByte(s.text[at:], '\n')
		if end < 0 {
			return 0, 0, ""
		}
		at += end + 1
	}
	return s.originAt(at + column)
}

// originAt is origin for a place in bytes.
func (s *source) originAt(at int) (line, column int, word string) {
	if at > len(s.text) {
		return 0, 0, ""
	}
	for i := len(s.inserted) - 1; i >= 0; i-- {
		if in := s.inserted[i]; in.at < at {
			at -= min(in.length, at-in.at)
		}
	}
	if at > len(s.written) {
		return 0, 0, ""
	}
	before, rest := s.written[:at], s.written[at:]
	end := strings.IndexFunc(rest, func(r rune) bool { return !wordRune(r) && r != '.' && r != '$' && r != '_' })
	if end < 0 {
		end = len(rest)
	}
	return 1 + strings.Count(before, "\n"), at - strings.LastIndexByte(before, '\n'), rest[:end]
}

// classes are what an error of reading data is called where its text may hold
// a name that a template made of values.
var classes = []error{
	consul.ErrDenied, consul.ErrRateLimited, consul.ErrTooLarge, consul.ErrNotFound, consul.ErrRefused, consul.ErrUnreachable,
}

// reading is why the data of d cannot be read, in one line.
func (d *dependency) reading(err error) string {
	if !d.hidden {
		return oneLine(err)
	}
	for _, class := range classes {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	return "it cannot be read"
}

// withoutURL keeps of an error of consul-template's own clients what holds
// neither an address, which may hold a secret, nor Vault's message about
// the data that it received.
func withoutURL(err error) error {
	var answer *vault.ResponseError
	if errors.As(err, &answer) {
		return fmt.Errorf("Vault answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

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
		if !x.source.holdsWord(word) && !x.isKnown(word) {
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

// manyWords is the length from which a template's words are kept in a set: a search of
// its text takes longer then, and such templates are few.
const manyWords = 4 << 10

// wordsOf returns the words of a long text.
func wordsOf(text string) map[string]bool {
	if len(text) < manyWords {
		return nil
	}
	all := map[string]bool{}
	for word := range words(text) {
		all[word] = true
	}
	return all
}

// holdsWord reports whether word is one of the words of the template as it was written.
func (s *source) holdsWord(word string) bool {
	if s.words != nil {
		return s.words[word]
	}
	text := s.written
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(word)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !wordRune(before) && !wordRune(after) { // nor is the error that the ends of text give
			return true
		}
		at = begin + 1
	}
}

// words are the runs of letters and digits in text.
func words(text string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(text, func(r rune) bool { return !wordRune(r) })
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// mark notes whether the name of d may be a value. A computed name that was shown once
// is always shown.
func (x *execution) mark(d *dependency) {
	s, written := x.source, true
	for word := range words(d.asked) {
		written = written && s.holdsWord(word)
	}
	if written {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown[d.id] {
		return
	}
	if d.hidden = !x.isName(d.asked); !d.hidden {
		if s.shown == nil {
			s.shown = map[string]bool{}
		}
		s.shown[d.id] = true
	}
}
