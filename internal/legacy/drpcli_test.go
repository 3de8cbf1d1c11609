package legacy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/profile"
)

// stdin is what the function drpcli of setup.tmpl writes.
func stdin(rest string, args ...string) string {
	text := fmt.Sprintf("%d\x00", len(args))
	for _, arg := range args {
		text += arg + "\x00"
	}
	return text + rest
}

func TestReadCall(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want, err string }{
		{args: "profiles set prod param k to v", want: "profiles set|prod|k|v"},
		{args: "-r old profiles set prod param k to -r", want: "profiles set|prod|k|-r"},
		{args: "machines meta set n1 key icon to db", want: "machines meta set|n1|icon|db"},
		{args: "machines workflow n1 install", want: "machines workflow|n1||install"},
		{args: "machines count a Eq b --slim Params", want: "machines count|||"},
		{args: "-r x profiles add prod param k to v", err: "drpcli: -r needs 'profiles set'"},
		{args: "machines list --slim Name", err: "drpcli: --slim leaves out Params, Meta or both, with a comma between them"},
		{args: "machines destroy n1", err: "use 'jorc cluster leave'"},
		{args: "-x machines list", err: "drpcli: flag -x is not supported"},
	} {
		call, err := legacy.ReadCall(strings.NewReader(stdin("", strings.Fields(test.args)...)))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", test.args, err, test.err)
			}
			continue
		}
		if got := strings.Join([]string{call.Verb, call.Name, call.Key, call.Value}, "|"); err != nil || got != test.want {
			t.Errorf("%s: got %s, %v; want %s", test.args, got, err, test.want)
		}
	}
	for _, text := range []string{"", "2\x00a\x00", "-1\x00", "x\x00"} {
		if _, err := legacy.ReadCall(strings.NewReader(text)); err == nil {
			t.Errorf("Read(%q) succeeds", text)
		}
	}
}

// TestParsedValue: "-" is what follows the arguments; an error has no value in it.
func TestParsedValue(t *testing.T) {
	t.Parallel()
	call, err := legacy.ReadCall(strings.NewReader(stdin("a\nb", strings.Fields("profiles set prod param k to -")...)))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := call.ParsedValue(); err != nil || v.Raw() != "a\nb" {
		t.Errorf("got %q, %v", v.Raw(), err)
	}
	call.Value = "secret\xff"
	if _, err := call.ParsedValue(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a value that is not UTF-8: got the error %v, want one without the value", err)
	}
}

// TestRef: a param that does not exist has the default of its schema, or is empty.
func TestRef(t *testing.T) {
	t.Parallel()
	call, err := legacy.ReadCall(strings.NewReader(stdin("", "-r", "", "profiles", "set", "prod", "param", "k", "to", "v")))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := call.Ref()
	if err != nil {
		t.Fatal(err)
	}
	if r := ref(profile.Document{}); r.Absent || r.Value == nil || r.Default == nil || !r.Default.Equal(*r.Value) {
		t.Errorf("got %+v; want an absent param to count as empty", r)
	}
	call, err = legacy.ReadCall(strings.NewReader(stdin("", strings.Fields("profiles add prod param k to v")...)))
	if err != nil {
		t.Fatal(err)
	}
	if ref, err := call.Ref(); err != nil || !ref(profile.Document{}).Absent {
		t.Errorf("'profiles add' may change a param that exists: %v", err)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	m := cluster.Member{Node: "n1"}
	m.Address = "10.0.0.1"
	for terms, want := range map[string]bool{
		"":                            true,
		"Profiles Eq prod":            true,
		"Profiles Eq other":           false,
		"Name Eq n1 Profiles Eq prod": true,
		"Uuid Eq n2":                  false,
		`Node == "n1"`:                true,
	} {
		f, err := legacy.Filter("prod", strings.Fields(terms))
		if err != nil || f.Match(&m) != want {
			t.Errorf("%q: match %v, %v; want %v", terms, !want, err, want)
		}
	}
	if _, err := legacy.Filter("prod", []string{"Bios", "Eq", "x"}); err == nil {
		t.Error("a field that members do not have is accepted")
	}
}
