package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/text"
)

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"v1", "1", "2.3.1-rc1+b5", "1:2.3~bpo12", "2026-11-21T01:00:00Z", "a=b,c@d_e", "größer", "...", "None", strings.Repeat("x", 128)} {
		if err := cluster.CheckVersion(good); err != nil {
			t.Errorf("CheckVersion(%q) = %v", good, err)
		}
	}
	for _, bad := range []struct{ name, says string }{
		{"", "empty"},
		{"a/b", "'/' at position 2"},
		{"/", "'/' at position 1"},
		{".", "'.'"},
		{"..", "'.'"},
		{"v 1", "a space at position 2"},
		{" v1", "a space at position 1"},
		{"v1\n", `'\n' at position 3`},
		{"v\t1", `'\t' at position 2`},
		{"v\x00", `'\x00' at position 2`},
		{"öö$", "'$' at position 3"},
		{"a*", "'*' at position 2"},
		{"a\\b", `'\\' at position 2`},
		{"-v1", "'-' at position 1"},
		{"v\xff1", "0xff at position 2"},
		{"e\u0301", `'\u0301' at position 2`},
		{"v\u00a01", `'\u00a0' at position 2`},
		{strings.Repeat("x", 129), "129 bytes"},
	} {
		err := cluster.CheckVersion(bad.name)
		if !errors.Is(err, text.ErrName) || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), "version") {
			t.Errorf("CheckVersion(%q) = %v, want it to say %s", bad.name, err, bad.says)
		}
	}
}

func TestCheckNode(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"n1", "a.b-c_d", "web 01"[:3], "größer", "a$b"} {
		if err := cluster.CheckNode(good); err != nil {
			t.Errorf("CheckNode(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a b", "a\n", "\xff", strings.Repeat("x", 129)} {
		if err := cluster.CheckNode(bad); !errors.Is(err, text.ErrName) {
			t.Errorf("CheckNode(%q) = %v", bad, err)
		}
	}
}

// FuzzCheckVersion: what is taken is one segment of a key, without space around it as a version file
// would lose it; what is refused is one line that a terminal can show.
func FuzzCheckVersion(f *testing.F) {
	for _, seed := range []string{"v1", "a/b", "..", "-", "\xff", "v 1", "\u202e", strings.Repeat("é", 65), "a\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if err := cluster.CheckVersion(name); err != nil {
			if !errors.Is(err, text.ErrName) || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\n\r\x00\x1b") {
				t.Errorf("CheckVersion(%q) = %q", name, err)
			}
			return
		}
		if name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.ContainsAny(name, "/ \t\r\n\\'\"$`") || strings.TrimSpace(name) != name {
			t.Errorf("%q is taken", name)
		}
	})
}

// FuzzParseResult: whatever scripts report is one of the states, or an error.
func FuzzParseResult(f *testing.F) {
	for _, seed := range []string{"puppet\n0", "puppet\n-1", "validation\n2", "config\nsuccess", "x\n0", "puppet\n", "puppet\n99999999999999999999"} {
		kind, result, _ := strings.Cut(seed, "\n")
		f.Add(kind, result)
	}
	f.Fuzz(func(t *testing.T, kind, result string) {
		s, err := cluster.ParseResult(kind, result)
		switch {
		case err == nil:
			if err := cluster.CheckState(kind, s.State); err != nil {
				t.Errorf("ParseResult(%q, %q) = %v: %v", kind, result, s, err)
			}
		case !errors.Is(err, cluster.ErrBadState) && !errors.Is(err, cluster.ErrUnknownType):
			t.Errorf("ParseResult(%q, %q) = %v", kind, result, err)
		}
	})
}

func TestParseResult(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kind, result, want string }{
		{"puppet", "0", "success"},
		{"puppet", "2", "success"},
		{"puppet", "1", "failed"},
		{"puppet", "4", "failed"},
		{"puppet", "6", "failed"},
		{"puppet", "-1", "failed"},
		{"puppet", "pending", "pending"},
		{"config", "2", "success"},
		{"validation", "0", "success"},
		{"validation", "2", "failed"},
		{"provisioned", "success", "success"},
	} {
		if s, err := cluster.ParseResult(test.kind, test.result); err != nil || s.State != test.want {
			t.Errorf("ParseResult(%s, %s) = %v, %v; want %s", test.kind, test.result, s, err, test.want)
		}
	}
	_, err := cluster.ParseResult("backup", "0")
	clustertest.WantIs(t, "an unknown type", err, cluster.ErrUnknownType)
	_, err = cluster.ParseResult("puppet", "fine")
	clustertest.WantIs(t, "an unknown result", err, cluster.ErrBadState)
}
