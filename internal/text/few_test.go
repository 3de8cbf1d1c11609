package text_test

import (
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/text"
)

func TestFew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		separator string
		first     []string
		count     int
		want      string
	}{
		{", ", nil, 0, ""},
		{", ", nil, 3, "3 more"},
		{", ", []string{"a"}, 1, "a"},
		{", ", []string{"a", "b"}, 2, "a, b"},
		{", ", []string{"a", "b"}, 5, "a, b and 3 more"},
		{", ", []string{"a", "b"}, 0, "a, b"},
		{",", []string{"a", "b"}, 3, "a,b and 1 more"},
		{"; ", []string{"a is late", "b is down"}, 3, "a is late; b is down; and 1 more"},
	} {
		if got := text.FewOf(test.separator, test.first, test.count); got != test.want {
			t.Errorf("FewOf(%q, %q, %d) = %q, want %q", test.separator, test.first, test.count, got, test.want)
		}
	}
	all := []string{"a", "b", "c"}
	for most, want := range map[int]string{0: "3 more", 1: "a and 2 more", 3: "a, b, c", 4: "a, b, c"} {
		if got := text.Few(", ", all, most); got != want {
			t.Errorf("the first %d: got %q, want %q", most, got, want)
		}
	}
}

// TestLines: the list that is cut stays as it is.
func TestLines(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	for most, want := range map[int][]string{1: {"a", "and 2 more"}, 3: {"a", "b", "c"}} {
		if got := text.Lines(all, most); !slices.Equal(got, want) {
			t.Errorf("the first %d: got %q, want %q", most, got, want)
		}
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(all, want) {
		t.Errorf("the list became %q", all)
	}
}
