package runs_test

import (
	"encoding"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// TestDocumentsAreComparedWhole: what is compared by its encoded bytes has no field that is not encoded.
func TestDocumentsAreComparedWhole(t *testing.T) {
	t.Parallel()
	for _, doc := range []any{cluster.Record{}, cluster.Report{}, pace.Policy{}, pace.Progress{}, pace.Budget{}, rollout.Document{}, runs.Run{}, runs.Request{}} {
		wantEncoded(t, reflect.TypeOf(doc), map[reflect.Type]bool{})
	}
}

func wantEncoded(t *testing.T, typ reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	if seen[typ] || typ.Implements(reflect.TypeFor[json.Marshaler]()) || typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		wantEncoded(t, typ.Elem(), seen)
	case reflect.Struct:
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() || f.Tag.Get("json") == "-" {
				t.Errorf("%s.%s is not encoded, so it does not count", typ, f.Name)
			}
			wantEncoded(t, f.Type, seen)
		}
	}
}

// TestSameRequest: a request that differs in any part asks for something else; a number is the same however it is written.
func TestSameRequest(t *testing.T) {
	t.Parallel()
	number := func(text string) profile.Params {
		v, err := profile.ParseValue(text)
		if err != nil {
			t.Fatal(err)
		}
		return profile.Params{"k": v}
	}
	most := 1
	q := runs.Request{Workflow: "w", Params: number("1")}
	for _, test := range []struct {
		other runs.Request
		want  bool
	}{
		{runs.Request{Workflow: "w", Params: number("1")}, true},
		{runs.Request{Workflow: "w", Params: number("1.0"), Nodes: []string{}}, true},
		{runs.Request{Workflow: "w", Params: number("2")}, false},
		{runs.Request{Workflow: "w"}, false},
		{runs.Request{Workflow: "w", Params: number("1"), Disturbs: true}, false},
		{runs.Request{Workflow: "w", Params: number("1"), Limits: runs.Limits{MaxFailures: &most}}, false},
		{runs.Request{Workflow: "w", Params: number("1"), Exceptions: pace.Exceptions{OverBudget: "now"}}, false},
	} {
		if got := q.Same(test.other); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.other, got, test.want)
		}
	}
}
