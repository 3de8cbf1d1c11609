package profile_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// withSchema returns a profile whose param "p" has this schema.
func withSchema(t testing.TB, e *profile.Editor, schema string) profile.Document {
	t.Helper()
	d, err := e.SetSchema(shared(t, `{}`), "p", js(t, schema))
	if err != nil {
		t.Fatalf("SetSchema(%s) = %v", schema, err)
	}
	return d
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema, value string
		pointer, rule string // of the error; no rule: the value passes
	}{
		{`{"type":"integer","minimum":1}`, `1`, "", ""},
		{`{"type":"integer","minimum":1}`, `1.0`, "", ""},
		{`{"type":"integer","minimum":1}`, `0`, "", "minimum"},
		{`{"type":"integer"}`, `"1"`, "", "type"},
		{`{"type":"integer"}`, `123456789012345678901234567890`, "", ""},
		{`{"maximum":123456789012345678901234567890}`, `123456789012345678901234567891`, "", "maximum"},
		{`{"multipleOf":0.1}`, `0.3`, "", ""},
		{`{"const":1}`, `1.0`, "", ""},
		{`{"enum":["a","b"]}`, `"c"`, "", "enum"},
		{`{"properties":{"a/b":{"items":{"type":"string"}}}}`, `{"a/b":["x",2,3]}`, "/a~1b/1", "type"},
		{`{"required":["z","a"]}`, `{}`, "", "required"},
		{`{"additionalProperties":false}`, `{"y":1,"x":2}`, "", "additionalProperties"},
		{`{"properties":{"b":{"type":"string"},"a":{"type":"string"}}}`, `{"b":1,"a":2}`, "/a", "type"},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `1`, "", "anyOf"},
		{`{"oneOf":[{"type":"number"},{"minimum":0}]}`, `1`, "", "oneOf"},
		{`{"allOf":[{"type":"object"},{"properties":{"n":{"maximum":3}}}]}`, `{"n":4}`, "/n", "maximum"},
		{`{"not":{"type":"null"}}`, `null`, "", "not"},
		{`{"if":{"type":"string"},"then":{"minLength":2},"else":false}`, `"x"`, "", "minLength"},
		{`{"pattern":"^a+$"}`, `"b"`, "", "pattern"},
		{`{"patternProperties":{"^n":{"type":"number"}}}`, `{"n1":"x"}`, "/n1", "type"},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "", "propertyNames"},
		{`{"format":"ipv4"}`, `"10.0.0.256"`, "", "format"},
		{`{"format":"ipv4"}`, `"10.0.0.25"`, "", ""},
		{`{"format":"regex"}`, `"["`, "", "format"},
		{`{"uniqueItems":true}`, `[1,1.0]`, "", "uniqueItems"},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"type":"number"}}}`, `"x"`, "", "type"},
		{`{"items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"number"}}}`, `[1,"x"]`, "/1", "type"},
		{`{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"array","items":{"$ref":"#/$defs/tree"}}}}`, `[[],[[1]]]`, "/1/0/0", "type"},
		{`{"unevaluatedProperties":false,"properties":{"a":true}}`, `{"b":1}`, "/b", "false"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}]}`, `[1]`, "/0", "type"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}`, `1`, "", "exclusiveMinimum"},
		{`true`, `{"anything":1}`, "", ""},
		{`false`, `1`, "", "false"},
		{`{"type":"number"}`, `1e999999999`, "", "number"},
		{`{"type":"number"}`, `0e999999999`, "", "number"},
		{`{"type":"object"}`, `{"n":1e-999}`, "", "number"},
	} {
		var e profile.Editor
		d := withSchema(t, &e, tt.schema)
		next, err := e.Set(d, profile.Scope{}, "p", js(t, tt.value), profile.Ref{})
		if tt.rule == "" {
			if err != nil || next.Params["p"].String() != tt.value {
				t.Errorf("%s for %s: %v", tt.schema, tt.value, err)
			}
			continue
		}
		wantIs(t, tt.schema, err, profile.ErrSchema)
		var s *profile.SchemaError
		if !errors.As(err, &s) {
			continue
		}
		if s.Key != "p" || s.Pointer != tt.pointer || s.Rule != tt.rule || s.Reason == "" {
			t.Errorf("%s for %s: got %q %q (%s), want %q %q", tt.schema, tt.value, s.Pointer, s.Rule, s.Reason, tt.pointer, tt.rule)
		}
		if strings.Contains(err.Error(), "jorc:") || strings.Contains(err.Error(), "jsonschema") {
			t.Errorf("%s for %s: %v", tt.schema, tt.value, err)
		}
	}
}

func TestSchemaErrorText(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := withSchema(t, &e, `{"properties":{"port":{"maximum":65535}}}`)
	_, err := e.Set(d, profile.Scope{Role: "db"}, "p", js(t, `{"port":70000}`), profile.Ref{})
	want := `param "p" of role "db" at "/port" is refused by its schema: maximum: more than 65535; nothing was written`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestSchemaChanges(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := shared(t, `{"p":"x","q":1}`)
	_, err := e.SetSchema(d, "p", js(t, `{"type":"integer"}`))
	wantIs(t, "a schema that the cluster's value violates", err, profile.ErrSchema)
	_, err = e.SetSchema(d, "new", js(t, `{"type":"integer","default":"x"}`))
	wantIs(t, "a default that its schema refuses", err, profile.ErrSchema)
	if err != nil && !strings.Contains(err.Error(), "own default") {
		t.Errorf("got %v", err)
	}
	inRole, err := e.Set(d, profile.Scope{Role: "db"}, "r", js(t, `"x"`), profile.Ref{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.SetSchema(inRole, "r", js(t, `{"type":"integer"}`))
	wantIs(t, "a schema that a role's value violates", err, profile.ErrSchema)

	strict, err := e.SetSchema(d, "q", js(t, `{"type":"integer"}`))
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, "a member's own param", e.Check(strict, "q", js(t, `"x"`)), profile.ErrSchema)
	if err := e.Check(strict, "other", js(t, `"x"`)); err != nil {
		t.Errorf("a param without schema: %v", err)
	}
	loose, err := e.RemoveSchema(strict, "q")
	if err != nil || !loose.Identical(d) {
		t.Errorf("RemoveSchema: %s, %v", loose.Value(), err)
	}
	// What another tool wrote past the schema stops only changes of itself.
	forced := doc(t, strings.Replace(encoded(t, strict), `"q":1`, `"q":"forced"`, 1))
	if _, err := e.Set(forced, profile.Scope{}, "p", js(t, `2`), profile.Ref{}); err != nil {
		t.Errorf("another param: %v", err)
	}
	_, err = e.Set(forced, profile.Scope{}, "q", js(t, `"other"`), profile.Ref{})
	wantIs(t, "the param itself", err, profile.ErrSchema)
}

func TestSchemasThatAreRefused(t *testing.T) {
	t.Parallel()
	defs := `"a0":{"type":"array"}`
	for i := range 60 {
		defs += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i)
	}
	for _, tt := range []struct {
		schema, want string
		class        error
	}{
		{`1`, "JSON Schema", profile.ErrInvalid},
		{`{"type":"strong"}`, "JSON Schema", profile.ErrInvalid},
		{`{"minimum":"1"}`, "JSON Schema", profile.ErrInvalid},
		{`{"pattern":"("}`, "JSON Schema", profile.ErrInvalid},
		{`{"pattern":"(?=x)"}`, "JSON Schema", profile.ErrInvalid},
		{`{"pattern":"((x{100}){10}){10}"}`, "JSON Schema", profile.ErrInvalid},
		{`{"pattern":"` + strings.Repeat("x{1000}", 20) + `"}`, "pattern", profile.ErrInvalid},
		{`{"$ref":"http://127.0.0.1:1/x"}`, "only references inside", profile.ErrInvalid},
		{`{"$ref":"file:///etc/passwd"}`, "only references inside", profile.ErrInvalid},
		{`{"$ref":"other.json"}`, "only references inside", profile.ErrInvalid},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "only references inside", profile.ErrInvalid},
		{`{"$schema":"http://example.com/mine"}`, "only references inside", profile.ErrInvalid},
		{`{"$ref":"#/$defs/none"}`, "JSON Schema", profile.ErrInvalid},
		{`{"$dynamicRef":"#x","$defs":{"a":{"$dynamicAnchor":"x"}}}`, "dynamicRef", profile.ErrInvalid},
		{`{"minimum":1e999999999}`, "too long to calculate", profile.ErrInvalid},
		{`{"multipleOf":0}`, "JSON Schema", profile.ErrInvalid},
		{`{"description":"` + strings.Repeat("x", 64<<10) + `"}`, "64 KiB", profile.ErrTooLarge},
		{strings.Repeat(`{"not":`, 80) + "true" + strings.Repeat("}", 80), "deeper", profile.ErrTooLarge},
		{`{"$ref":"#/$defs/a60","$defs":{` + defs + `},"default":[]}`, "steps", profile.ErrTooLarge},
	} {
		var e profile.Editor
		_, err := e.SetSchema(shared(t, `{}`), "p", js(t, tt.schema))
		wantIs(t, tt.schema[:min(60, len(tt.schema))], err, tt.class)
		if err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: %v, want %q", tt.schema, err, tt.want)
		}
	}
}

// TestSchemaBudget: no schema makes a check run for ever.
func TestSchemaBudget(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"x":`, 90) + `1` + strings.Repeat(`}`, 90)
	long := `"` + strings.Repeat("a", 500_000) + `"`
	wide := `{"k0":0`
	for i := range 20_000 {
		wide += fmt.Sprintf(`,"k%d":0`, i+1)
	}
	patterns := `"a":true`
	for i := range 2000 {
		patterns += fmt.Sprintf(`,"b%d":true`, i)
	}
	for name, tt := range map[string][2]string{
		"recursion":  {`{"anyOf":[{"properties":{"x":{"$ref":"#"}}},{"properties":{"x":{"$ref":"#"}}}],"type":"object"}`, deep},
		"regexp":     {`{"pattern":"` + strings.Repeat("(a|b|ab)*", 200) + `c"}`, long},
		"patterns":   {`{"patternProperties":{` + patterns + `}}`, wide + "}"},
		"references": {`{"not":{"allOf":[{"properties":{"x":{"$ref":"#"}}},{"properties":{"x":{"$ref":"#"}}}]}}`, deep},
	} {
		var e profile.Editor
		d := withSchema(t, &e, tt[0])
		_, err := e.Set(d, profile.Scope{}, "p", js(t, tt[1]), profile.Ref{})
		wantIs(t, name, err, profile.ErrTooLarge)
		// The schema is as good as before for values that it can check.
		if _, err := e.Set(d, profile.Scope{}, "q", js(t, `1`), profile.Ref{}); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

func TestEditorIsShared(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := withSchema(t, &e, `{"type":"integer","maximum":50}`)
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			_, err := e.Set(d, profile.Scope{}, "p", js(t, fmt.Sprint(i)), profile.Ref{})
			if (err == nil) != (i <= 50) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
}

// TestSchemaOfAFullProfile: the budget is enough for anything that fits.
func TestSchemaOfAFullProfile(t *testing.T) {
	t.Parallel()
	var e profile.Editor
	d := withSchema(t, &e, `{"type":"array","items":{"type":"integer","minimum":0}}`)
	list := js(t, "["+strings.Repeat("1,", 261_900)+"1]")
	full, err := e.Set(d, profile.Scope{}, "p", list, profile.Ref{})
	if err != nil || full.Size().Percent() < 99 {
		t.Errorf("%s: %v", full.Size(), err)
	}
	patch, err := profile.ParsePatch([]byte(`[{"op":"test","path":"/params/p/261900","value":1},{"op":"remove","path":"/params/p/0"},{"op":"move","from":"/params/p","path":"/params/q"}]`))
	if err != nil {
		t.Fatal(err)
	}
	if next, err := e.Patch(full, patch); err != nil || next.Params["q"].Kind() != "array" {
		t.Errorf("a patch of it: %v", err)
	}
}

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
