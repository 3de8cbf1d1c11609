package profile_test

import (
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// TestForTemplate: values print as they are spelled, lists and objects as JSON.
func TestForTemplate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, kind, want string }{
		{`null`, "<nil>", "<nil>"},
		{`true`, "bool", "true"},
		{`"a <b>"`, "string", "a <b>"},
		{`4`, "int64", "4"},
		{`0.5`, "float64", "0.5"},
		{`1.10`, "json.Number", "1.10"},
		{`1e2`, "json.Number", "1e2"},
		{`12345678901234567890`, "json.Number", "12345678901234567890"},
		{`["x", 1.10, {"b": null}]`, "profile.List", `["x",1.10,{"b":null}]`},
		{`{"b": "<", "a": [1, 0.5]}`, "profile.Object", `{"a":[1,0.5],"b":"<"}`},
	} {
		v, err := profile.ParseJSON([]byte(test.in))
		if err != nil {
			t.Fatal(err)
		}
		got := v.ForTemplate()
		if kind, text := fmt.Sprintf("%T", got), fmt.Sprint(got); kind != test.kind || text != test.want {
			t.Errorf("%s: got %s %q, want %s %q", test.in, kind, text, test.kind, test.want)
		}
	}
}
