package configtest

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/jorc/jorc/internal/config"
)

// Document is a configuration in JSON, and which setting of it is odd; empty: none.
type Document struct {
	Setting string          `json:"setting"`
	JSON    json.RawMessage `json:"document"`
}

// odd are values that most settings do not take.
var odd = []string{`7`, `-1.5`, `"x"`, `"30s"`, `"-1h"`, `"0"`, `true`, `null`, `[]`, `["x"]`, `[1]`, `[["x"]]`, `{}`, `{"a":"b"}`, `{"a":1}`, `{"a":["b"]}`}

// Documents returns for each setting a configuration with its example, and one with each of
// some odd values in its place; and each block with something unknown in it.
func Documents() ([]Document, error) {
	var all []Document
	for _, b := range config.Reference() {
		for _, s := range b.Settings {
			example := s.Example
			if example == "" {
				example = `"127.0.0.1:1"` // addr, and what is refused
			}
			tree, err := toJSON(Written(b, s, example))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.Path(s), err)
			}
			add := func(setting string, change func(block map[string]any)) error {
				copied := clone(tree)
				if !within(copied, b.Name, s.Name, change) {
					return fmt.Errorf("%s is not in its configuration", b.Path(s))
				}
				text, err := json.Marshal(copied)
				all = append(all, Document{setting, text})
				return err
			}
			name := b.Path(s)
			if s.Type == "refused" || s.Example == "" {
				name += " (refused)"
			} else if err := add("", func(map[string]any) {}); err != nil {
				return nil, err
			}
			for _, value := range odd {
				if err := add(name, func(block map[string]any) { block[s.Name] = json.RawMessage(value) }); err != nil {
					return nil, err
				}
			}
			if err := add(name, func(block map[string]any) { block["unknown"] = 1 }); err != nil {
				return nil, err
			}
			if err := add("", func(block map[string]any) { block["//"] = "a comment" }); err != nil && s.Type != "refused" {
				return nil, err
			}
			if s.Type == "refused" || s.Example == "" {
				all[len(all)-1].Setting = name
			}
		}
	}
	return all, nil
}

// toJSON turns HCL into a tree of HCL's JSON.
func toJSON(text string) (map[string]any, error) {
	f, diags := hclsyntax.ParseConfig([]byte(text), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	return tree(f.Body.(*hclsyntax.Body))
}

func tree(body *hclsyntax.Body) (map[string]any, error) {
	out := map[string]any{}
	for name, a := range body.Attributes {
		v, diags := a.Expr.Value(nil)
		if diags.HasErrors() {
			return nil, diags
		}
		text, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			return nil, err
		}
		out[name] = json.RawMessage(text)
	}
	for _, b := range body.Blocks {
		inner, err := tree(b.Body)
		if err != nil {
			return nil, err
		}
		one := any(inner)
		if len(b.Labels) > 0 {
			one = map[string]any{b.Labels[0]: inner}
		}
		list, _ := out[b.Type].([]any)
		out[b.Type] = append(list, one)
	}
	return out, nil
}

func clone(v map[string]any) map[string]any {
	out := maps.Clone(v)
	for name, value := range out {
		switch value := value.(type) {
		case map[string]any:
			out[name] = clone(value)
		case []any:
			list := make([]any, len(value))
			for i := range value {
				list[i] = clone(value[i].(map[string]any))
			}
			out[name] = list
		}
	}
	return out
}

// within calls change with the block named name (empty: the top) that has the setting, and reports whether there is one.
func within(body map[string]any, name, setting string, change func(map[string]any)) bool {
	if _, there := body[setting].(json.RawMessage); there && name == "" {
		change(body)
		return true
	}
	for typ, blocks := range body {
		list, _ := blocks.([]any)
		for _, b := range list {
			block := b.(map[string]any)
			for _, inner := range block { // a label
				if inner, ok := inner.(map[string]any); ok && len(block) == 1 {
					block = inner
				}
			}
			if typ == name {
				if _, there := block[setting].(json.RawMessage); there {
					change(block)
					return true
				}
			}
			if within(block, name, setting, change) && name != "" {
				return true
			}
		}
	}
	return false
}
