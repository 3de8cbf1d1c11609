// Package recorded keeps what pure planners decided, for tests: situations of random worlds and
// the decisions of a planner, as text in testdata. A planner that replaces another one must
// decide the same.
//
// A file is a list of cases. Each begins with "# " and its name; then comes one line for each fact
// and, after "= ", one for each decision. A line is a word and a value as JSON.
package recorded

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update-recorded", false, "record the decisions of planners again")

// Line is one fact or one decision.
type Line struct {
	Word  string
	Value any // of json.Marshal; json.RawMessage in a case that was read
}

// Case is one situation with what was decided.
type Case struct {
	Name      string
	Facts     []Line
	Decisions []Line
}

// Get decodes the only fact of a word into v, which stays the same without one.
func (c Case) Get(t testing.TB, word string, v any) {
	t.Helper()
	for _, l := range c.Facts {
		if l.Word == word {
			l.decode(t, v)
		}
	}
}

// List returns all facts of a word in their order.
func List[T any](t testing.TB, c Case, word string) (all []T) {
	t.Helper()
	for _, l := range c.Facts {
		if l.Word == word {
			var v T
			l.decode(t, &v)
			all = append(all, v)
		}
	}
	return all
}

func (l Line) decode(t testing.TB, v any) {
	t.Helper()
	raw, ok := l.Value.(json.RawMessage)
	if !ok {
		t.Fatalf("recorded: %q was not read from a file", l.Word)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("recorded: %s %s: %v", l.Word, raw, err)
	}
}

// text returns lines in the form of a file.
func text(t testing.TB, prefix string, lines []Line) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		var value bytes.Buffer
		e := json.NewEncoder(&value)
		e.SetEscapeHTML(false)
		if err := e.Encode(l.Value); err != nil {
			t.Fatalf("recorded: %s: %v", l.Word, err)
		}
		fmt.Fprintf(&b, "%s%s %s", prefix, l.Word, value.Bytes())
	}
	return b.String()
}

const decision = "= "

// Replay decides each case of a file again. The decisions must be the recorded ones, in their order.
func Replay(t *testing.T, path string, decide func(testing.TB, Case) []Line) {
	t.Helper()
	cases := read(t, path)
	if len(cases) == 0 {
		t.Fatalf("%s has no case", path)
	}
	for _, c := range cases {
		got, want := text(t, decision, decide(t, c)), text(t, decision, c.Decisions)
		if got != want {
			t.Errorf("%s: %s\ngot\n%swant\n%sof\n%s", path, c.Name, got, want, text(t, "", c.Facts))
		}
	}
}

func read(t testing.TB, path string) (all []Case) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if name, begins := strings.CutPrefix(line, "# "); begins {
			all = append(all, Case{Name: name})
			continue
		}
		if line == "" {
			continue
		}
		rest, decided := strings.CutPrefix(line, decision)
		word, value, _ := strings.Cut(rest, " ")
		if len(all) == 0 || !json.Valid([]byte(value)) {
			t.Fatalf("%s: line %q belongs to no case, or is not a word and JSON", path, line)
		}
		c, l := &all[len(all)-1], Line{word, json.RawMessage(value)}
		if decided {
			c.Decisions = append(c.Decisions, l)
		} else {
			c.Facts = append(c.Facts, l)
		}
	}
	return all
}

// Recorder keeps cases of a random world in which something was decided: of each kind of decisions
// one, chosen by the name of the world.
type Recorder struct {
	world string
	seen  map[string]int // by kind
	r     *rand.Rand
	cases map[string]string
}

// Updating reports whether the decisions are to be recorded again.
func Updating() bool { return *update }

// NewRecorder returns the recorder of one world.
func NewRecorder(world string) *Recorder {
	h := fnv.New64a()
	h.Write([]byte(world))
	return &Recorder{world: world, seen: map[string]int{}, r: rand.New(rand.NewPCG(h.Sum64(), 1)), cases: map[string]string{}} //nolint:gosec // reproducible
}

// Add offers a case to the recorder, which keeps nothing of its values. Each case of a kind is kept
// with the same probability.
func (r *Recorder) Add(t testing.TB, kind string, facts func() []Line, decisions []Line) {
	t.Helper()
	if len(decisions) == 0 {
		return
	}
	r.seen[kind]++
	if r.r.IntN(r.seen[kind]) == 0 {
		r.cases[kind] = fmt.Sprintf("# %s: %s %d\n%s%s\n", r.world, kind, r.seen[kind], text(t, "", facts()), text(t, decision, decisions))
	}
}

// Write writes the cases of worlds to a file.
func Write(t testing.TB, path string, worlds []*Recorder) {
	t.Helper()
	var b strings.Builder
	for _, w := range worlds {
		for _, kind := range slices.Sorted(maps.Keys(w.cases)) {
			b.WriteString(w.cases[kind])
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
