package runs

import (
	"errors"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// TestAfter: rules that can never begin are bad, the others are followed,
// whether they name each other or each other's workflows.
func TestAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules     string
		good, bad []string
	}{
		"in a row":              {`[{"workflow":"a"},{"workflow":"b","after":"a"},{"workflow":"c","after":"b"}]`, []string{"a", "b", "c"}, nil},
		"not there":             {`[{"workflow":"a"},{"workflow":"b","after":"z"}]`, []string{"a"}, []string{"b"}},
		"itself":                {`[{"workflow":"a","after":"a"}]`, nil, []string{"a"}},
		"its own workflow":      {`[{"name":"x","workflow":"a","after":"a"}]`, nil, []string{"x"}},
		"another of its own":    {`[{"name":"x","workflow":"a","after":"a"},{"name":"y","workflow":"a"}]`, []string{"x", "y"}, nil},
		"each other":            {`[{"workflow":"a","after":"b"},{"workflow":"b","after":"a"}]`, nil, []string{"a", "b"}},
		"each other's workflow": {`[{"name":"x","workflow":"a","after":"b"},{"name":"y","workflow":"b","after":"a"}]`, nil, []string{"x", "y"}},
		"a circle of three":     {`[{"name":"x","workflow":"a","after":"z"},{"name":"y","workflow":"b","after":"a"},{"name":"z","workflow":"c","after":"b"}]`, nil, []string{"x", "y", "z"}},
		"behind a circle":       {`[{"workflow":"a","after":"b"},{"workflow":"b","after":"a"},{"workflow":"c","after":"a"},{"workflow":"d"}]`, []string{"d"}, []string{"a", "b", "c"}},
		"a way out of a circle": {`[{"name":"x","workflow":"a","after":"b"},{"name":"y","workflow":"b","after":"a"},{"name":"z","workflow":"a"}]`, []string{"x", "y", "z"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := profile.ParseJSON([]byte(c.rules))
			if err != nil {
				t.Fatal(err)
			}
			rules, faults := ParseRules(v)
			var good, bad []string
			for _, r := range rules {
				good = append(good, r.Name)
			}
			for _, b := range faults {
				bad = append(bad, b.Name)
				if !errors.Is(b.Err, ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", b.Err)
				}
			}
			if !slices.Equal(good, c.good) || !slices.Equal(bad, c.bad) {
				t.Errorf("got %v and not %v (%+v), want %v and not %v", good, bad, faults, c.good, c.bad)
			}
		})
	}
}
