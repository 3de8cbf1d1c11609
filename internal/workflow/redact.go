package workflow

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/profile"
)

// A job's record leaves the host: into runs, reports, events and metrics. It holds
// no value of a param, a key or a token that jorc gave to a task. The log of a task
// stays on the host, whole but for tokens.

// leastSecret is how long a value has to be, in bytes: shorter ones are words such
// as "true" or "web".
const leastSecret = 8

// redacted replaces a value in a record.
const redacted = "[redacted]"

// secretLines are the lines of texts that are kept out of records: a line of
// output may hold one line of a key or a certificate. Texts in public are not.
func secretLines(texts []string, public ...string) []string {
	all := map[string]bool{}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); len(line) >= leastSecret && !slices.Contains(public, line) {
				all[line] = true
			}
		}
	}
	lines := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the longest match wins
	return lines
}

// textsOf are the texts in params.
func textsOf(params profile.Params) []string {
	var all []string
	for _, v := range params {
		all = append(all, textsIn(v.JSON())...)
	}
	return all
}

// textsIn are the texts in a JSON document, names of members left out.
func textsIn(doc []byte) []string {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return nil
	}
	var all []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return all
}

// changedTexts are the values in the file that a trigger gives to a job.
func changedTexts(change []byte) []string {
	var c Change
	if json.Unmarshal(change, &c) != nil || c.Kind != "key" && c.Kind != "prefix" {
		return nil
	}
	var all []string
	for _, item := range c.Changes {
		all = append(all, textsIn(item.Value)...)
	}
	return all
}

// redactor removes values from texts, also where a task encoded them in a common
// way: base64, hex, percent-encoding, JSON and other quoting with backslashes.
type redactor struct {
	values []string // the longest first
	base64 []string // what stands in every base64 text with one of the values
	hex    []string
}

func (j *job) redactor(i int) *redactor {
	return newRedactor(append(slices.Clone(j.spec.Values), j.secrets(i)...))
}

func newRedactor(values []string) *redactor {
	r := &redactor{}
	for _, v := range values {
		if v == "" {
			continue
		}
		r.values = append(r.values, v)
		if len(v) >= leastSecret {
			r.base64 = append(r.base64, base64Cores(v)...)
			r.hex = append(r.hex, hex.EncodeToString([]byte(v)))
		}
	}
	slices.SortStableFunc(r.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return r
}

// base64Cores returns the parts of base64 texts that depend on v alone, whatever
// stands before and behind it: one for each place of its first byte in a group of
// three.
func base64Cores(v string) (all []string) {
	for before, skip := range []int{0, 2, 3} {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + v))
		all = append(all, text[skip:(before+len(v))*8/6])
	}
	return all
}

// span is a part of a text.
type span struct{ from, to int }

// reading is a text as it is read in one encoding: byte i of read stands at at[i] in
// the text.
type reading struct {
	read    []byte
	at      []span
	needles []string
	least   int // how much of the end of a needle is recognized where a text was cut
}

// readings are all readings of a text.
func (r *redactor) readings(s string) []reading {
	spaces := func(c byte) (byte, bool) { return c, c != ' ' && c != '\t' && c != '\r' && c != '\n' }
	all := []reading{
		readWith(s, func(s string) (byte, int, bool) { return s[0], 1, true }, r.values, 1),
		readWith(s, readPercent(false), r.values, leastCut),
		readWith(s, readPercent(true), r.values, leastCut),
		readWith(s, readBackslash, r.values, leastCut),
	}
	if len(r.base64) > 0 {
		all = append(all, readWith(s, func(s string) (byte, int, bool) {
			c, keep := spaces(s[0]) // long texts are wrapped
			switch c {
			case '-':
				c = '+'
			case '_':
				c = '/'
			}
			return c, 1, keep
		}, r.base64, leastCut), readWith(s, func(s string) (byte, int, bool) {
			c, keep := spaces(s[0])
			if 'A' <= c && c <= 'F' {
				c += 'a' - 'A'
			}
			return c, 1, keep && c != ':'
		}, r.hex, leastCut))
	}
	return all
}

// leastCut is how many bytes of the end of an encoded value count as one at the
// beginning of a text that was cut.
const leastCut = 4

// readWith reads s byte by byte: next returns the byte at the beginning of what is
// left, how many bytes it takes there, and whether it counts.
func readWith(s string, next func(s string) (c byte, n int, keep bool), needles []string, least int) reading {
	r := reading{read: make([]byte, 0, len(s)), at: make([]span, 0, len(s)), needles: needles, least: least}
	for i := 0; i < len(s); {
		c, n, keep := next(s[i:])
		if keep {
			r.read, r.at = append(r.read, c), append(r.at, span{i, i + n})
		}
		i += n
	}
	return r
}

// readPercent reads percent-encoding, with a plus for a blank as in forms.
func readPercent(form bool) func(string) (byte, int, bool) {
	return func(s string) (byte, int, bool) {
		if c, ok := hexByte(s, "%"); ok {
			return c, 3, true
		}
		if form && s[0] == '+' {
			return ' ', 1, true
		}
		return s[0], 1, true
	}
}

// readBackslash reads the quoting of JSON, Go and shells.
func readBackslash(s string) (byte, int, bool) {
	if s[0] != '\\' || len(s) < 2 {
		return s[0], 1, true
	}
	if c, ok := hexByte(s, `\u00`); ok {
		return c, 6, true
	}
	if c, ok := hexByte(s, `\x`); ok {
		return c, 4, true
	}
	if i := strings.IndexByte("abtnvfr", s[1]); i >= 0 {
		return "\a\b\t\n\v\f\r"[i], 2, true
	}
	return s[1], 2, true
}

// hexByte is the byte that s begins with: mark and two hexadecimal digits.
func hexByte(s, mark string) (byte, bool) {
	if !strings.HasPrefix(s, mark) || len(s) < len(mark)+2 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[len(mark):len(mark)+2], 16, 8)
	return byte(n), err == nil
}

// found returns where needles stand in the text.
func (r reading) found() (all []span) {
	for _, needle := range r.needles {
		for from := 0; ; {
			i := bytes.Index(r.read[from:], []byte(needle))
			if i < 0 {
				break
			}
			i += from
			from = i + len(needle)
			all = append(all, span{r.at[i].from, r.at[from-1].to})
		}
	}
	return all
}

// cut returns how much of the beginning of the text may be the end of a needle.
func (r reading) cut() (most int) {
	for _, needle := range r.needles {
		for n := min(len(needle)-1, len(r.read)); n >= r.least; n-- {
			if bytes.HasPrefix(r.read, []byte(needle[len(needle)-n:])) {
				most = max(most, r.at[n-1].to)
				break
			}
		}
	}
	return most
}

func (r *redactor) text(s string) string {
	var all []span
	for _, reading := range r.readings(s) {
		all = append(all, reading.found()...)
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var b strings.Builder
	done := 0
	for _, at := range all {
		if at.from >= done {
			b.WriteString(s[done:at.from])
			b.WriteString(redacted)
		}
		done = max(done, at.to)
	}
	b.WriteString(s[done:])
	return b.String()
}

// tail redacts the end of an output, of which the beginning may be missing: then
// its first bytes may be the end of a value.
func (r *redactor) tail(s string, truncated bool) string {
	cut := 0
	if truncated {
		for _, reading := range r.readings(s) {
			cut = max(cut, reading.cut())
		}
	}
	return r.text(s[cut:])
}
