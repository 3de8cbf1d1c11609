package text_test

import (
	"math"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/text"
)

func TestSameJSON(t *testing.T) {
	t.Parallel()
	type doc struct {
		Name  string         `json:"name,omitempty"`
		List  []string       `json:"list,omitempty"`
		Known []string       `json:"known,omitzero"` // nil: not known
		Of    map[string]int `json:"of,omitempty"`
		At    time.Time      `json:"at,omitzero"`
		Share float64        `json:"share,omitempty"`
	}
	now := time.Now()
	for name, test := range map[string]struct {
		a, b any
		want bool
	}{
		"nothing":                    {doc{}, doc{}, true},
		"a field":                    {doc{Name: "a"}, doc{Name: "b"}, false},
		"no list":                    {doc{List: []string{}}, doc{}, true},
		"an empty list that counts":  {doc{Known: []string{}}, doc{}, false},
		"a map in another order":     {doc{Of: map[string]int{"a": 1, "b": 2}}, doc{Of: map[string]int{"b": 2, "a": 1}}, true},
		"a time with its clock":      {doc{At: now}, doc{At: now.Round(0)}, true},
		"a time in another place":    {doc{At: now.UTC()}, doc{At: now.In(time.FixedZone("", 3600))}, false},
		"a pointer":                  {&doc{Name: "a"}, doc{Name: "a"}, true},
		"no pointer":                 {(*doc)(nil), (*doc)(nil), true},
		"what JSON does not contain": {doc{Share: math.NaN()}, doc{Share: math.NaN()}, false},
	} {
		if got := text.SameJSON(test.a, test.b); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
