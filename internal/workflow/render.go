package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/templates"
)

// maxRendered bounds a rendered text, in bytes.
const maxRendered = 1 << 20

// functions of templates, beside those of text/template.
var functions = template.FuncMap{"quote": quote, "json": toJSON}

// quote makes a value one word for a shell, or a list several.
func quote(v any) (string, error) {
	if l, ok := v.(profile.List); ok {
		words := make([]string, len(l))
		for i, e := range l {
			w, err := quote(e)
			if err != nil {
				return "", err
			}
			words[i] = w
		}
		return strings.Join(words, " "), nil
	}
	text := fmt.Sprint(v)
	if v == nil {
		text = ""
	}
	if strings.ContainsRune(text, 0) {
		return "", errors.New("no shell takes a zero byte")
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

func toJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// parse reads a text, which may take in what package templates has for scripts.
func parse(text string) (*template.Template, error) {
	t, err := template.New("text").Option("missingkey=error").Funcs(functions).ParseFS(templates.FS, "*.tmpl")
	if err != nil {
		return nil, err
	}
	return t.Parse(text)
}

// render executes text over f.
func render(text string, f *facts) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parse(text)
	if err != nil {
		return "", err
	}
	out := limited{left: maxRendered}
	if err := t.Execute(&out, f); err != nil {
		return "", err
	}
	return out.text.String(), nil
}

// limited is a buffer that refuses to grow without end.
type limited struct {
	text strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("the text grows beyond %d KiB", maxRendered>>10)
	}
	return l.text.Write(p)
}
