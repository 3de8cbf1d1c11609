package text_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/text"
)

func TestClosest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		known []string
		want  string
	}{
		{"", []string{"a", "web"}, ""},
		{"a", []string{"b"}, ""},
		{"wiat", []string{"why", "wait"}, "wait"},
		{"servces", []string{"status", "service"}, "service"},
		{"WEB", []string{"web"}, "web"},
		{"x", []string{strings.Repeat("x", 1000)}, ""},
		{strings.Repeat("x", 1000), []string{"x"}, ""},
		{"comp", []string{"completion", "cluster"}, "completion"},
		{"comp", []string{"completion", "compare-all"}, ""},
		{"nothing", []string{"web", "db"}, ""},
		{"-x", []string{"x", "o"}, ""},
	} {
		if got := text.Closest(test.name, test.known); got != test.want {
			t.Errorf("Closest(%.20q, %.40q) = %q, want %q", test.name, test.known, got, test.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("h%02d", i))
	}
	for _, test := range []struct {
		name  string
		known []string
		want  string
	}{
		{"prodd", []string{"prod", "default", "prod"}, `, did you mean "prod"?; clusters: default, prod`},
		{"zzz", []string{"prod"}, "; clusters: prod"},
		{"zzz", nil, "; there are no clusters"},
		{"zzz", many, "; clusters: h00, h01, h02, h03, h04, h05, h06, h07, h08, h09 and 2 more"},
	} {
		if got := text.Unknown(test.name, "clusters", test.known); got != test.want {
			t.Errorf("Unknown(%q, %q) = %q, want %q", test.name, test.known, got, test.want)
		}
	}
}

func FuzzClosest(f *testing.F) {
	f.Add("wiat", "wait", "web")
	f.Add("", "", "é")
	f.Fuzz(func(t *testing.T, name, a, b string) {
		known := []string{a, b}
		if got := text.Closest(name, known); got != "" && got != a && got != b {
			t.Errorf("Closest(%q, %q) = %q", name, known, got)
		}
	})
}
