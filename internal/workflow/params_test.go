package workflow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
)

func TestParseParam(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, name, want string }{
		{"a=1", "a", "1"},
		{"a=", "a", `""`},
		{"a=b=c", "a", `"b=c"`},
		{"cluster/x=true", "cluster/x", "true"},
		{`a={"k": [1, "x"]}`, "a", `{"k":[1,"x"]}`},
		{"a=1.10", "a", "1.10"},
		{"a=plain words", "a", `"plain words"`},
		{"a={", "a", `"{"`},
		{"a=007", "a", `"007"`},
		{`a="1"`, "a", `"1"`},
	} {
		name, v, err := ParseParam(test.in, profile.ParseValue)
		if err != nil || name != test.name || v.String() != test.want {
			t.Errorf("%s: got %s, %v, %v, want %s, %s", test.in, name, v, err, test.name, test.want)
		}
	}
	for _, bad := range []string{"", "a", "=1", "a\n=1", "\xff=1", `a={"x":1,"x":2}`, strings.Repeat("x", 513) + "=1"} {
		if _, _, err := ParseParam(bad, profile.ParseValue); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
}

func FuzzParseParam(f *testing.F) {
	for _, s := range []string{"a=1", "a", "=", "a={\"b\": [1, 2.50]}", "a=- x\n- y", "a='it''s'", "a=&x [*x]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, v, err := ParseParam(s, profile.ParseValue)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: got %v, want ErrInvalid", s, err)
			}
			return
		}
		// What was read can be used, quoted and printed in templates.
		facts := newFacts(t.Context(), &Options{Node: "n"}, Job{Params: profile.Params{name: v}})
		if _, err := render("{{range $k, $v := .Params}}{{$v}} {{json $v}}{{end}}", facts); err != nil && !strings.Contains(err.Error(), "grows beyond") {
			t.Fatalf("%q: param %q: %v", s, name, err)
		}
	})
}

func FuzzQuote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := quote(s)
		if strings.ContainsRune(s, 0) {
			if err == nil {
				t.Fatal("a zero byte was quoted")
			}
			return
		}
		// Read it as a shell does: quotes open and close, a backslash between takes the next as it is.
		var out strings.Builder
		inside := false
		for i := 0; i < len(got); i++ {
			switch c := got[i]; {
			case c == '\'':
				inside = !inside
			case inside:
				out.WriteByte(c)
			case c == '\\':
				i++
				out.WriteByte(got[i])
			default:
				t.Fatalf("%q: %q is outside of quotes in %s", s, c, got)
			}
		}
		if inside || out.String() != s {
			t.Fatalf("got %s for %q: a shell reads %q", got, s, out.String())
		}
	})
}

// TestRunParams: a job of a run has only params that its workflow allows, within
// bounds; a job that a person starts on the host may have any.
func TestRunParams(t *testing.T) {
	t.Parallel()
	many := profile.Params{}
	for i := range 65 {
		many[fmt.Sprint("p", i)] = profile.Bool(true)
	}
	text := func(name, value string) profile.Params {
		v, err := profile.Text(value)
		if err != nil {
			t.Fatal(err)
		}
		return profile.Params{name: v}
	}
	for _, test := range []struct {
		what   string
		params profile.Params
		why    string
	}{
		{"none", nil, ""},
		{"an allowed one", text("x", "1"), ""},
		{"what a rollout tells its gate", text("gate/version", "v1"), ""},
		{"another", text("y", "1"), `it does not allow param "y" of a run`},
		{"a variable of the loader", text("LD_PRELOAD", "/tmp/evil.so"), `it does not allow param "LD_PRELOAD" of a run`},
		{"PATH", text("PATH", "/tmp"), `it does not allow param "PATH" of a run`},
		{"a variable of jorc", text("JORC_JOB", "x"), `it does not allow param "JORC_JOB" of a run`},
		{"a setting of jorc", text("cluster/leader", "x"), `it does not allow param "cluster/leader" of a run`},
		{"too many", many, "65 params, at most 64 are possible"},
		{"too long", text("x", strings.Repeat("x", 64<<10)), "the values of params have 65538 bytes, at most 65536 are possible"},
		{"too long, as the longest that a param can be", text("x", strings.Repeat("x", 500<<10)), "the values of params have 512002 bytes, at most 65536 are possible"},
		{"a zero byte", text("x", "a\x00b"), `param "x" has a zero byte`},
		{"a name with a line", text("x\n", "1"), "control characters"},
	} {
		h := newHost(t, Options{Workflows: []config.Workflow{{Name: "w", AllowParams: []string{"x", "x\n"}, Tasks: []config.Task{sh("one", "true")}}}})
		_, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: test.params, FromRun: true})
		if test.why == "" {
			if err != nil || h.read("ran") != "one\n" {
				t.Errorf("%s: got %v, ran %q", test.what, err, h.read("ran"))
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.why) || strings.Contains(err.Error(), "evil") {
			t.Errorf("%s: got %v, want %s", test.what, err, test.why)
		}
		if h.read("ran") != "" {
			t.Errorf("%s: a task ran", test.what)
		}
		if _, err := h.Job("j"); !errors.Is(err, ErrNoJob) {
			t.Errorf("%s: the job exists: %v", test.what, err)
		}
		if _, err := h.Run(t.Context(), Job{ID: "by-hand", Workflow: "w", Params: test.params}); err != nil {
			t.Errorf("%s, by hand: %v", test.what, err)
		}
	}
}

// TestRunParamsAsOptions: a param of a run does not become an option of a program.
func TestRunParamsAsOptions(t *testing.T) {
	t.Parallel()
	const program = `for a in "$@"; do printf '[%s]' "$a"; done >>$DIR/arguments`
	for _, test := range []struct {
		what      string
		arguments []string
		want      string // empty: refused
	}{
		{"an argument", []string{`{{.Param "x"}}`}, ""},
		{"the end of one", []string{`{{printf "%s" (.Param "x")}}`}, ""},
		{"of all params", []string{`{{range $k, $v := .Params}}{{$v}}{{end}}`}, ""},
		{"behind the end of options", []string{"--", `{{.Param "x"}}`}, "[--][--rf ;'$(touch x)]"},
		{"as the value of an option", []string{`--dir={{.Param "x"}}`}, "[--dir=--rf ;'$(touch x)]"},
		{"beside an option", []string{"-v", `{{if .ParamExists "x"}}-w{{end}}`, `at {{.Param "x"}}`}, "[-v][-w][at --rf ;'$(touch x)]"},
	} {
		task := config.Task{Name: "one", Command: append([]string{"sh", "-c", program, "sh"}, test.arguments...)}
		h := newHost(t, Options{Workflows: []config.Workflow{{Name: "w", AllowParams: []string{"x"}, Tasks: []config.Task{task}}}})
		j := Job{ID: "j", Workflow: "w", Params: params(t, `{"x": "--rf ;'$(touch x)"}`), FromRun: true}
		_, err := h.Run(t.Context(), j)
		switch {
		case test.want == "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "begin with a dash") || strings.Contains(err.Error(), "rf")):
			t.Errorf("%s: got %v", test.what, err)
		case test.want != "" && err != nil:
			t.Errorf("%s: %v", test.what, err)
		}
		if got := h.read("arguments"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
	}
}
