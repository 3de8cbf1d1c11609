package workflow

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEncodedValues: a record holds no value that a task was given, also where the
// task encodes it, whatever stands around it.
func TestEncodedValues(t *testing.T) {
	t.Parallel()
	const value = `open "Sésame" & 100% of/it`
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer(`"`, `\u0022`, "&", `\u0026`, "/", `\/`).Replace(value)
	var bytes, wrapped []string
	for _, b := range []byte(value) {
		bytes = append(bytes, fmt.Sprintf("%02X", b))
	}
	for text := base64.StdEncoding.EncodeToString([]byte("user:" + value)); text != ""; text = text[min(8, len(text)):] {
		wrapped = append(wrapped, text[:min(8, len(text))])
	}
	outputs := map[string]string{
		"plain": value, "hex": hex.EncodeToString([]byte(value)), "hex dump": strings.Join(bytes, " "), "fingerprint": strings.Join(bytes, ":"),
		"escaped bytes": `\x` + strings.Join(bytes, `\x`), "query": url.QueryEscape(value), "path": url.PathEscape(value),
		"all percent": "%" + strings.Join(bytes, "%"), "lower percent": "%" + strings.ToLower(strings.Join(bytes, "%")),
		"JSON": string(quoted), "escaped JSON": escaped, "wrapped base64": strings.Join(wrapped, "\n"),
	}
	for before := range 4 {
		for name, e := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "raw base64": base64.RawStdEncoding, "URL base64": base64.URLEncoding} {
			outputs[fmt.Sprintf("%s behind %d bytes", name, before)] = e.EncodeToString([]byte("user:"[:before] + value + "\n"[:before%2]))
		}
	}
	for name, output := range outputs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := sh("one", "cat \"$DIR/output\"; exit 3")
			h := newHost(t, Options{}, task)
			if err := os.WriteFile(filepath.Join(h.dir, "output"), []byte("it is <"+output+">\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, "pw: '"+value+"'")})
			if err != nil {
				t.Fatal(err)
			}
			kept := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(res.Tail), "it is <"), ">")
			if !strings.Contains(kept, "[redacted]") || len(strings.ReplaceAll(kept, "[redacted]", "")) > 12 {
				t.Errorf("of %q the record keeps %q", output, kept)
			}
			if strings.Contains(res.Why, output) {
				t.Errorf("the reason is %q", res.Why)
			}
			wantText(t, "the log on the host", h.log("j", ""), strings.Split(output, "\n")[0])
		})
	}
}

// TestHarmlessTexts: what came from no param, token or key is not redacted, however
// long it is.
func TestHarmlessTexts(t *testing.T) {
	t.Parallel()
	task := sh("one", `echo "$LANG in $PLACE by $WHOLE with $DB_PASSWORD, $DERIVED and $NODE_URL"; exit 3`)
	task.Env = map[string]string{
		"LANG": "en_US.UTF-8", "PLACE": "/var/lib/application", "WHOLE": "the-whole-team", "DB_PASSWORD": "hunter2hunter2",
		"DERIVED": `x-{{.Param "pw"}}-y`, "NODE_URL": `http://{{.Node}}:8080/{{if .ParamExists "pw"}}yes{{end}}`,
	}
	h := newHost(t, Options{Node: "n1"}, task)
	res, err := h.Run(t.Context(), Job{ID: "j", Workflow: "w", Params: params(t, "pw: open-sesame")})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "why", res.Why, "exit code 3: en_US.UTF-8 in /var/lib/application by the-whole-team with [redacted], [redacted] and http://n1:8080/yes")
}
