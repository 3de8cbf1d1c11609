package diagnostics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// The archive leaves the operator's hands, so it is made from what is known to be
// harmless: of a document the numbers, booleans, names of members, and the texts of
// members in plain. Every other text is withheld, and so are its words: no message holds
// one of them.

// plain are the members whose texts are in the archive: names of jorc's own objects,
// states, times and versions. They are compared in lower case and without underscores.
var plain = setOf(`node name cluster version commit state phase kind id started since time created changed updated
	last lastanswer unreachablesince lastrun job workflow task service servicename serviceid checkid category role roles
	desired previous running check status outcome trigger action result orchestrator member group owner prefix statedir
	versionfile onstop loglevel together destination next began ended at duration window level platform go path main sum
	os arch go_version holder nodes seq`)

// sealed are the members of which nothing is in the archive but the names right below
// them: they hold values of users.
var sealed = setOf(`params meta schemas env data value values contents output outputs secrets vault s3 tags headers
	command args script http url reload`)

// messages are the members whose texts are sentences of jorc's, without withheld words.
var messages = setOf(`detail remedy error why unhealthy notready held reason text trouble problem missing waiting stale rival finding idle decisions lost edited suspect`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[memberKey(w)] = true
	}
	return set
}

// ownWords are words of keys and states, which may stand in messages although users use
// them, too.
const ownWords = `profile current currentversion layout control rollout rollouts leaders member status slots elect election orchestrate grants
	reports events history audit passing warning critical running success failed consul agent cluster connection refused`

func memberKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// leastWord is how long a withheld word has to be, in bytes, to be kept out of messages:
// shorter ones are words such as "true" or "web".
const leastWord = 5

// scrubber withholds texts of documents, and words of these from messages.
type scrubber struct {
	withheld map[string]bool
	names    map[string]bool // texts of plain members, which may stand in messages
}

func newScrubber() *scrubber {
	return &scrubber{withheld: map[string]bool{}, names: setOf(ownWords)}
}

// withhold keeps the words of a text out of all messages.
func (s *scrubber) withhold(text string) {
	for _, w := range append(strings.FieldsFunc(text, notWord), strings.Fields(text)...) {
		if len(w) >= leastWord {
			s.withheld[strings.ToLower(w)] = true
		}
	}
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' }

// learn withholds the texts of a document that are not going to be in the archive.
func (s *scrubber) learn(doc []byte) {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		s.withhold(string(doc))
		return
	}
	s.walk("", v, false)
}

// document returns what of a JSON document is harmless; of anything else, its size.
func (s *scrubber) document(doc []byte) []byte {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return fmt.Appendf(nil, "%q", size(len(doc)))
	}
	out, err := json.MarshalIndent(s.walk("", v, true), "", "  ")
	if err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	return append(out, '\n')
}

// walk returns what of v, the member name, is harmless. Without show it only withholds
// the rest.
func (s *scrubber) walk(name string, v any, show bool) any {
	key := memberKey(name)
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			if sealed[key] {
				s.seal(e)
				out[s.text(name, show)] = "withheld"
				continue
			}
			out[s.text(name, show)] = s.walk(name, e, show)
		}
		return out
	case []any:
		if sealed[key] {
			s.seal(v)
			return fmt.Sprintf("withheld: %d", len(v))
		}
		out := []any{}
		for _, e := range v {
			of := name
			switch e.(type) {
			case map[string]any:
				of = ""
			case string:
				if !messages[key] && key != "roles" {
					of = "" // a list of texts may be a command
				}
			}
			out = append(out, s.walk(of, e, show))
		}
		return out
	case string:
		switch {
		case v == "" || !sealed[key] && isTime(v):
			return v
		case plain[key] && !show:
			s.names[strings.ToLower(v)] = true
			return v
		case plain[key], messages[key]:
			return s.text(v, show)
		}
		s.withhold(v)
		return size(len(v))
	}
	if sealed[key] && v != nil {
		return "withheld"
	}
	return v
}

// seal withholds all texts of v.
func (s *scrubber) seal(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			s.withhold(name)
			s.seal(e)
		}
	case []any:
		for _, e := range v {
			s.seal(e)
		}
	case string:
		s.withhold(v)
	}
}

func size(n int) string { return fmt.Sprintf("withheld: %d bytes", n) }

var timeText = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$`)

func isTime(text string) bool { return timeText.MatchString(text) }

var (
	// urlText is a URL; what stands before and behind its host may be a secret.
	urlText = regexp.MustCompile(`\b([a-z][a-z0-9+.-]*)://[^\s"']+`)
	// assigned is a value that a message gives to a name of a secret.
	assigned = regexp.MustCompile(`(?i)\b([\w-]*(?:passw|token|secret|api_?key|credential|bearer|authorization)[\w-]*)(\s*[=:]\s*|\s+)("[^"]*"|'[^']*'|\S+)`)
	// opaque is a long word with digits: a token, a digest or an encoded text.
	opaque = regexp.MustCompile(`[A-Za-z0-9+/=_%\\-]{20,}`)
)

// text returns a message without withheld words, URLs and what looks like a secret.
func (s *scrubber) text(text string, show bool) string {
	if !show || isTime(text) {
		return text
	}
	text = urlText.ReplaceAllString(text, "$1://…")
	text = assigned.ReplaceAllString(text, "$1$2…")
	text = opaque.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789+=%") {
			return "…"
		}
		return word
	})
	var b strings.Builder
	for len(text) > 0 {
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		b.WriteString(s.word(text[:end]))
		next := end
		for next < len(text) && strings.ContainsRune(" \t\r\n", rune(text[next])) {
			next++
		}
		if next == end && end < len(text) {
			next++
		}
		b.WriteString(text[end:next])
		text = text[next:]
	}
	return b.String()
}

// word returns a word of a message, or "…" in its place if it holds a withheld one.
func (s *scrubber) word(word string) string {
	lower := strings.ToLower(word)
	if s.withheld[lower] && !s.names[lower] {
		return "…"
	}
	for _, part := range strings.FieldsFunc(lower, notWord) {
		if s.withheld[part] && !s.names[part] {
			return "…"
		}
	}
	return word
}

// lines returns the texts of a log whose lines are JSON documents.
func (s *scrubber) lines(log []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(log) {
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		fmt.Fprintf(&b, "%s [%s] %s: %s", e.Time, e.Level, e.Logger, s.text(e.Message, true))
		for _, p := range e.Pairs {
			fmt.Fprintf(&b, " %s=%s", p[0], s.text(p[1], true))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
