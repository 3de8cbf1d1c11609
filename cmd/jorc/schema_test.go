package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/configtest"
	"github.com/jorc/jorc/internal/profile"
)

const schemaFile = "../../docs/reference/jorc.schema.json"

// TestSchemaChapter: docs/reference/jorc.schema.json is what 'jorc config schema' prints.
func TestSchemaChapter(t *testing.T) {
	t.Parallel()
	got := jorc(t, nil, "config", "schema")
	if got.code != exitOK || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	wantChapter(t, filepath.Base(schemaFile), got.stdout)
}

// TestSchemaCheck: a file is the schema of this version, or the error says what it is instead.
func TestSchemaCheck(t *testing.T) {
	t.Parallel()
	schema := jorc(t, nil, "config", "schema").stdout
	for name, test := range map[string]struct {
		text string
		code int
		want string
	}{
		"this version":     {schema, 0, ""},
		"another version":  {strings.Replace(schema, "/config/0.1.0", "/config/0.0.9", 1), 1, "it is of version 0.0.9, and this jorc reads configurations of version 0.1.0: write it again"},
		"changed":          {strings.Replace(schema, `"integer"`, `"number"`, 1), 1, "it differs from the schema of this jorc: write it again"},
		"another schema":   {`{"$id": "https://example.com/x"}`, 1, "it is not a schema of jorc's configuration"},
		"no JSON":          {"x", 1, "it is not JSON"},
		"there is no file": {"", 1, "no such file"},
	} {
		file := filepath.Join(t.TempDir(), "schema")
		if test.text != "" {
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := jorc(t, nil, "config", "schema", "--check", file)
		if got.code != test.code || !strings.Contains(got.stderr, test.want) || got.stdout != "" {
			t.Errorf("%s: %+v, want exit %d and %q", name, got, test.code, test.want)
		}
	}
}

// validator judges documents by jorc's schema, with the implementation of schemas for params.
type validator struct {
	editor *profile.Editor
	with   profile.Document
}

func newValidator(t *testing.T) validator {
	t.Helper()
	text, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := profile.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := profile.New("x")
	if err != nil {
		t.Fatal(err)
	}
	v := validator{editor: profile.NewEditor(nil)}
	if v.with, err = v.editor.SetSchema(d, "config", schema); err != nil {
		t.Fatal(err)
	}
	return v
}

// refuses returns why the schema refuses a document; nil: it does not.
func (v validator) refuses(document []byte) error {
	value, err := profile.ParseJSON(document)
	if err != nil {
		return err
	}
	_, err = v.editor.Set(v.with, profile.Scope{}, "config", value, profile.Ref{})
	return err
}

// TestSchema: configurations with the example of each setting pass the schema; what the
// schema refuses Load refuses; and the schema refuses something in each setting's place.
func TestSchema(t *testing.T) {
	t.Parallel()
	documents, err := configtest.Documents()
	if err != nil {
		t.Fatal(err)
	}
	v, refused := newValidator(t), map[string]bool{}
	for _, d := range documents {
		bad := v.refuses(d.JSON)
		if bad != nil && !errors.Is(bad, profile.ErrSchema) {
			t.Fatalf("%s: %v", d.JSON, bad)
		}
		file := filepath.Join(t.TempDir(), "jorc.json")
		if err := os.WriteFile(file, d.JSON, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load([]string{file}, config.Options{})
		switch {
		case d.Setting == "" && (bad != nil || err != nil):
			t.Errorf("an example: the schema says %v, Load %v: %s", bad, err, d.JSON)
		case bad != nil && err == nil:
			t.Errorf("%s: the schema refuses what Load accepts: %v: %s", d.Setting, bad, d.JSON)
		}
		if d.Setting != "" {
			refused[d.Setting] = refused[d.Setting] || bad != nil && !strings.Contains(string(d.JSON), `"unknown"`)
		}
	}
	for setting, some := range refused {
		if !some {
			t.Errorf("%s: the schema refuses no value", setting)
		}
	}
	t.Logf("%d documents", len(documents))
}

// TestSchemaPage: the example of docs/editors.md is valid for jorc and by the schema.
func TestSchemaPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/editors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "<!-- tested: schema -->\n```json\n")
	example, _, _ = strings.Cut(example, "```\n")
	if !found {
		t.Fatal("docs/editors.md has no example")
	}
	file := filepath.Join(t.TempDir(), "jorc.json")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load([]string{file}, config.Options{}); err != nil || len(c.Services) != 1 || len(c.Services[0].Checks) != 1 {
		t.Errorf("Load: %+v, %v", c, err)
	}
	if err := newValidator(t).refuses([]byte(example)); err != nil {
		t.Error(err)
	}
}

// TestSchemaProperty: files name their schema by $schema, and the schema itself is not a configuration.
func TestSchemaProperty(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jorc.json")
	v := newValidator(t)
	for text, want := range map[string]string{
		`{"$schema": "../jorc.schema.json", "cluster": "prod"}`:                            "",
		`[{"$schema": "x"}, {"cluster": "prod", "service": {"web": [{"port": 1}, null]}}]`: "",
		`{"$schema": 1}`:                                         `"$schema" must be a string`,
		`{"member": {"$schema": "x"}}`:                           `named "$schema"`,
		jorc(t, nil, "config", "schema").stdout:                  "This file is a JSON Schema: keep it outside",
		`{"orchestrator": {"sink": {"else": {}}}}`:               "else",
		`{"service": {"web": {"check": {"http": "http://x/"}}}}`: "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load([]string{file}, config.Options{})
		bad := v.refuses([]byte(text))
		if want == "" && bad != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: %v, by the schema %v; want %q", text, err, bad, want)
		}
		if bad != nil && err == nil {
			t.Errorf("%.80s: the schema refuses what Load accepts: %v", text, bad)
		}
	}
}
