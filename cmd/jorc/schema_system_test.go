//go:build system

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/configtest"
)

// TestSchemaWithAJV: a foreign validator accepts and refuses what the schema is to accept and
// refuse, over the documents of TestSchema.
func TestSchemaWithAJV(t *testing.T) {
	t.Parallel()
	documents, err := configtest.Documents()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	input := struct {
		Schema    json.RawMessage   `json:"schema"`
		Documents []json.RawMessage `json:"documents"`
	}{Schema: schema}
	for _, d := range documents {
		input.Documents = append(input.Documents, d.JSON)
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "../../tools/ajv/validate.js")
	cmd.Stdin = bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node tools/ajv/validate.js: %v (make tools/ajv/node_modules)\n%s", err, stderr.String())
	}
	var accepted []bool
	if err := json.Unmarshal(out, &accepted); err != nil || len(accepted) != len(documents) {
		t.Fatalf("ajv judged %d of %d documents: %v", len(accepted), len(documents), err)
	}
	v, refused := newValidator(t), 0
	for i, d := range documents {
		bad := v.refuses(d.JSON)
		if accepted[i] != (bad == nil) {
			t.Errorf("ajv accepts: %t; ours says %v: %s", accepted[i], bad, d.JSON)
		}
		if !accepted[i] {
			refused++
		}
	}
	if refused == 0 {
		t.Error("ajv refused nothing")
	}
}
