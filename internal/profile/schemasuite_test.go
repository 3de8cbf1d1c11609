package profile_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// TestSchemaSuite runs the official JSON Schema Test Suite
// (github.com/json-schema-org/JSON-Schema-Test-Suite, MIT license), one group of
// tests per line, without those about remote references and $dynamicRef.
func TestSchemaSuite(t *testing.T) {
	t.Parallel()
	for draft, declared := range map[string]string{"draft2020-12": "", "draft7": "http://json-schema.org/draft-07/schema#"} {
		data, err := os.ReadFile("testdata/jsonschema/" + draft + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		groups, refused, checked := 0, 0, 0
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var group struct {
				File, Description string
				Schema            profile.Value
				Tests             [][2]json.RawMessage
			}
			if err := json.Unmarshal(lines.Bytes(), &group); err != nil {
				t.Fatal(err)
			}
			groups++
			schema := group.Schema
			if object, err := schema.Params(); err == nil && declared != "" {
				object["$schema"] = js(t, `"`+declared+`"`)
				schema = object.Value()
			} else if schema.Kind() == "boolean" && declared != "" {
				schema = js(t, `{"$schema":"`+declared+`","allOf":[`+schema.String()+`]}`)
			}
			var e profile.Editor
			d, err := e.SetSchema(shared(t, `{}`), "p", schema)
			if err != nil {
				// What jorc does not support it refuses, and names.
				if text := err.Error(); !strings.Contains(text, "only references inside") && !strings.Contains(text, "dynamicRef") && !strings.Contains(text, "own default") {
					t.Errorf("%s %s: %s: %v", draft, group.File, group.Description, err)
				}
				refused++
				continue
			}
			for _, test := range group.Tests {
				err := e.Check(d, "p", js(t, string(test[0])))
				if valid := string(test[1]) == "true"; (err == nil) != valid || err != nil && !errors.Is(err, profile.ErrSchema) {
					t.Errorf("%s %s: %s: %s: got %v, want valid %t", draft, group.File, group.Description, test[0], err, valid)
				}
				checked++
			}
		}
		t.Logf("%s: %d groups, %d refused, %d values checked", draft, groups, refused, checked)
		if checked < 500 || refused > 12 {
			t.Errorf("%s: %d values checked, %d schemas refused", draft, checked, refused)
		}
	}
}
