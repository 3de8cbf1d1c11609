package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// schemaID is what all schemas of jorc's configuration have in common; the version follows.
const schemaID = "https://github.com/jorc/jorc/config/"

// SchemaVersion is the version whose settings the schema has: that of the newest setting.
func SchemaVersion() string {
	newest := firstVersion
	for _, b := range Reference() {
		for _, s := range b.Settings {
			if len(s.Since) > len(newest) || len(s.Since) == len(newest) && s.Since > newest {
				newest = s.Since
			}
		}
	}
	return newest
}

// durationPattern matches what parseDuration accepts, and negative durations.
const durationPattern = `^([-+]?0|[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// Schema returns a JSON Schema (draft 7, which editors know) of configuration files in JSON,
// made from Reference. Load refuses what it refuses; what it accepts Load may still refuse.
func Schema() ([]byte, error) {
	type object = map[string]any
	reference := Reference()
	definitions := object{}
	null := object{"type": "null"}
	ref := func(name string) object { return object{"$ref": "#/definitions/" + name} }
	// listOr is a list of each, or one: blocks may stand in an array.
	listOr := func(each, one any) object {
		return object{"if": object{"type": "array"}, "then": object{"items": each}, "else": one}
	}
	for _, b := range reference {
		name := b.Name
		properties := object{"//": object{"description": "A comment, which nothing reads."}}
		for _, s := range b.Settings {
			property, err := typeSchema(s.Type)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.Path(s), err)
			}
			about := plain(s.Doc)
			if s.Default != "" {
				about += " Default: " + plain(s.Default) + "."
			}
			property = object{"description": about, "anyOf": []any{property, null}}
			properties[s.Name] = property
		}
		for _, inner := range reference {
			for _, outer := range inner.In {
				if outer != b.Name || inner.Name == "" {
					continue
				}
				property := listOr(ref(inner.Name+".body"), ref(inner.Name))
				if inner.Label != "" {
					labelled := object{"type": "object", "additionalProperties": property}
					if len(inner.Labels) > 0 {
						labelled["propertyNames"] = object{"enum": inner.Labels}
					}
					property = listOr(labelled, labelled)
				}
				property["description"] = plain(inner.Doc)
				properties[inner.Name] = property
			}
		}
		definitions[name] = object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
		definitions[name+".body"] = listOr(ref(name), ref(name))
	}
	properties := definitions[""].(object)["properties"].(object)
	properties["$schema"] = object{"description": "Where this schema is, for editors.", "type": "string"}
	delete(definitions, ".body")
	top := definitions[""]
	delete(definitions, "")
	definitions["file"] = top
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(object{
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": schemaID + SchemaVersion(),
		"title": "Configuration of jorc " + SchemaVersion(), "definitions": definitions,
		"if": object{"type": "array"}, "then": object{"items": ref("file")}, "else": ref("file"),
	})
	return b.Bytes(), err
}

// typeSchema is the schema of a type as the reference names it.
func typeSchema(kind string) (map[string]any, error) {
	type object = map[string]any
	if element, ok := strings.CutPrefix(kind, "list of "); ok {
		items, err := typeSchema(strings.TrimSuffix(element, "s"))
		return object{"type": "array", "items": items}, err
	}
	if kind == "object of lists of strings" { // a string is a list of one
		values, err := typeSchema("string or list of strings")
		return object{"type": "object", "additionalProperties": values}, err
	}
	if element, ok := strings.CutPrefix(kind, "object of "); ok {
		values, err := typeSchema(strings.TrimSuffix(element, "s"))
		return object{"type": "object", "additionalProperties": values}, err
	}
	switch kind {
	case "string", `string "min:max"`:
		return object{"type": "string"}, nil
	case typeDuration:
		return object{"type": "string", "pattern": durationPattern}, nil
	case "number":
		return object{"type": "integer"}, nil
	case "true or false":
		return object{"type": "boolean"}, nil
	case "number or string", "string or number":
		return object{"type": []string{"integer", "string"}}, nil
	case "string or list of strings":
		return object{"type": []string{"string", "array"}, "items": object{"type": "string"}}, nil
	case typeAny:
		return object{"type": "object"}, nil
	case "refused":
		return object{"type": "null"}, nil
	}
	return nil, fmt.Errorf("the type %q has no schema", kind)
}

// plain is a text of the reference without Markdown's marks for code.
func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

// CheckSchema returns an error if data is not the schema of this version of jorc.
func CheckSchema(data []byte) error {
	var head struct {
		ID string `json:"$id"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	version, ours := strings.CutPrefix(head.ID, schemaID)
	if !ours {
		return fmt.Errorf("it is not a schema of jorc's configuration")
	}
	if want := SchemaVersion(); version != want {
		return fmt.Errorf("it is of version %s, and this jorc reads configurations of version %s: write it again with 'jorc config schema'", version, want)
	}
	want, err := Schema()
	if err != nil {
		return err
	}
	if !bytes.Equal(data, want) {
		return fmt.Errorf("it differs from the schema of this jorc: write it again with 'jorc config schema'")
	}
	return nil
}
