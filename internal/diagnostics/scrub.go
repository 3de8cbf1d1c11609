package diagnostics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/jorc/jorc/internal/text"
)

// The archive leaves the operator's hands, so it has only what is known to be harmless:
// the numbers, booleans, times and member names of a document, and the texts of the
// members in plain. All other texts are withheld. Their words are learned, so that no
// finding of doctor and no log line repeats one.

// plain are the members whose texts are in the archive: names of jorc's own objects,
// states and versions. They are compared in lower case and without underscores.
var plain = setOf(`node name cluster version commit state phase kind id started since time created changed updated
	last lastanswer unreachablesince lastrun job workflow task service servicename serviceid checkid category role roles
	desired previous running check status outcome trigger action result orchestrator member group owner prefix statedir
	versionfile onstop loglevel together destination next began ended at duration window level platform go path main sum
	os arch go_version holder nodes seq`)

// sealed are the members that hold values of users: nothing is in the archive but the
// names right below them.
var sealed = setOf(`params meta schemas env data before value values contents output outputs secrets vault s3 tags headers
	command args script http url reload`)

// sentences are the members that hold sentences of jorc. A sentence may quote an operator
// or a program, so it is withheld; its words are not learned, because jorc uses them
// elsewhere.
var sentences = setOf(`detail remedy error why unhealthy notready held reason text trouble problem missing waiting stale
	rival finding idle decisions lost edited suspect failing drifted pending by`)

// The sentences of one part that quote neither an operator nor a program.
var (
	doctorSentences = setOf("detail remedy")
	statusSentences = setOf("stale lost edited") // waiting may quote a check of a required service
)

// setOf returns a set that is made at its first use.
func setOf(words string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool {
		set := map[string]bool{}
		for _, w := range strings.Fields(words) {
			set[memberKey(w)] = true
		}
		return set
	})
}

// ownWords are jorc's own words, which stay in sentences even if users use them, too.
const ownWords = `profile current currentversion layout control rollout rollouts leaders members slots elect election
	orchestrate grants reports events history audit passing warning critical success failed consul agent connection refused`

func memberKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// leastWord is the length in bytes from which a withheld word is kept out of sentences:
// shorter ones are words such as "true" or "web".
const leastWord = 5

// scrubber withholds texts of documents, and words of these from sentences.
type scrubber struct {
	secrets  []string // may stand nowhere, the longest first
	withheld map[string]bool
	names    map[string]bool // may stand in sentences
}

func newScrubber() *scrubber {
	names := setOf(ownWords)()
	maps.Copy(names, plain())
	maps.Copy(names, sentences())
	return &scrubber{withheld: map[string]bool{}, names: names}
}

// leastSecret is the length in bytes from which a secret is kept out of all texts: a shorter one
// is in too many words.
const leastSecret = 3

// keepOut keeps a secret out of all texts, and its words out of sentences.
func (s *scrubber) keepOut(secret string) {
	s.withhold(secret)
	if secret = strings.TrimSpace(secret); len(secret) < leastSecret || slices.Contains(s.secrets, secret) {
		return
	}
	s.secrets = append(s.secrets, secret)
	slices.SortStableFunc(s.secrets, func(a, b string) int { return len(b) - len(a) })
}

// withhold keeps the words of a text out of all sentences.
func (s *scrubber) withhold(text string) {
	for _, w := range append(strings.FieldsFunc(text, notWord), strings.Fields(text)...) {
		if len(w) >= leastWord {
			s.withheld[strings.ToLower(w)] = true
		}
	}
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' }

// learn withholds the words of the texts that document leaves out.
func (s *scrubber) learn(doc []byte) {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		s.withhold(string(doc))
		return
	}
	s.learnValue("", v)
}

func (s *scrubber) learnValue(name string, v any) {
	key := memberKey(name)
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if sealed()[key] {
				s.seal(e)
				continue
			}
			s.learnValue(name, e)
		}
	case []any:
		for _, e := range v {
			if sealed()[key] {
				s.seal(e)
				continue
			}
			s.learnValue(elementName(name, e), e)
		}
	case string:
		switch {
		case isTime(v) && !sealed()[key], sentences()[key]:
		case plain()[key]:
			s.names[strings.ToLower(v)] = true
		default:
			s.withhold(v)
		}
	}
}

// seal withholds all texts of v, names of members included.
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

// elementName is the name that counts for e, an element of the list name. Only lists of
// names and of sentences have it: another list of texts may be a command.
func elementName(name string, e any) string {
	if _, text := e.(string); text && (sentences()[memberKey(name)] || memberKey(name) == "roles") {
		return name
	}
	return ""
}

// document returns what of a JSON document is harmless, with the sentences of the members
// shown; of anything else, its size.
func (s *scrubber) document(doc []byte, shown map[string]bool) []byte {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return fmt.Appendf(nil, "%q", size(len(doc)))
	}
	out, err := json.MarshalIndent(s.harmless("", v, shown), "", "  ")
	if err != nil {
		return fmt.Appendf(nil, "%q", err.Error())
	}
	return append(out, '\n')
}

// harmless returns what of v, the member name, is harmless.
func (s *scrubber) harmless(name string, v any, shown map[string]bool) any {
	key := memberKey(name)
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			if sealed()[key] {
				out[s.text(name)] = "withheld"
				continue
			}
			out[s.text(name)] = s.harmless(name, e, shown)
		}
		return out
	case []any:
		if sealed()[key] {
			return fmt.Sprintf("withheld: %d", len(v))
		}
		out := []any{}
		for _, e := range v {
			out = append(out, s.harmless(elementName(name, e), e, shown))
		}
		return out
	case string:
		switch {
		case v == "", isTime(v) && !sealed()[key]:
			return v
		case plain()[key], shown[key]:
			return s.text(v)
		}
		return size(len(v))
	}
	if sealed()[key] && v != nil {
		return "withheld"
	}
	return v
}

func size(n int) string { return fmt.Sprintf("withheld: %d bytes", n) }

var timeText = text.Pattern(`^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$`)

func isTime(text string) bool { return timeText().MatchString(text) }

var (
	// urlText is a URL; what stands before and behind its host may be a secret.
	urlText = text.Pattern(`\b([a-z][a-z0-9+.-]*)://[^\s"']+`)
	// assigned is a value that a sentence gives to a name of a secret.
	assigned = text.Pattern(`(?i)\b((?:bearer|basic)\s+|[\w-]*(?:passw|token|secret|api_?key|credential|authorization)[\w-]*\s*[=:]\s*)("[^"]*"|'[^']*'|\S+)`)
	// namesSecret matches the name of a variable that holds a secret.
	namesSecret = text.Pattern(`(?i)passw|token|secret|api_?key|credential|auth`)
	// opaque is a long word with digits: a token, a digest or an encoded text.
	opaque = text.Pattern(`[A-Za-z0-9+/=_%\\-]{20,}`)
)

// text returns a sentence without withheld words, URLs and what looks like a secret.
func (s *scrubber) text(text string) string {
	if isTime(text) {
		return text
	}
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "…")
		if quoted := strconv.Quote(secret); quoted != `"`+secret+`"` {
			text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], "…")
		}
	}
	text = urlText().ReplaceAllString(text, "$1://…")
	text = assigned().ReplaceAllString(text, "$1…")
	text = opaque().ReplaceAllStringFunc(text, func(word string) string {
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

// word returns a word of a sentence, or "…" in its place if it holds a withheld one.
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
		fmt.Fprintf(&b, "%s [%s] %s: %s", e.Time, e.Level, e.Logger, s.text(e.Message))
		for _, p := range e.Pairs {
			fmt.Fprintf(&b, " %s=%s", p[0], s.text(p[1]))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
