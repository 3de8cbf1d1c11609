package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/jorc/jorc/internal/profile"
)

// maxRendered bounds a rendered text, in bytes.
const maxRendered = 1 << 20

// facts is what templates of tasks see.
type facts struct {
	job    Job
	node   string
	params object
}

func newFacts(j Job, node string) (*facts, error) {
	f := &facts{job: j, node: node, params: make(object, len(j.Params))}
	for name, v := range j.Params {
		value, err := native(v)
		if err != nil {
			return nil, fmt.Errorf("param %q: %w: %w", name, ErrInvalid, err)
		}
		f.params[name] = value
	}
	return f, nil
}

// Param is the value of a param; one that does not exist is an error.
func (f *facts) Param(name string) (any, error) {
	v, ok := f.params[name]
	if !ok {
		return nil, fmt.Errorf("there is no param %q: guard it with {{if .ParamExists %q}}", name, name)
	}
	return v, nil
}

// ParamExists tells whether there is a param of that name, null included.
func (f *facts) ParamExists(name string) bool {
	_, ok := f.params[name]
	return ok
}

// Params are all params by name.
func (f *facts) Params() object { return f.params }

// Version is the version that the job is for. None is an error: an empty one
// would end up in paths and package names.
func (f *facts) Version() (string, error) {
	if f.job.Version == "" {
		return "", errors.New("this host has no version yet: guard it with {{if .VersionExists}}")
	}
	return f.job.Version, nil
}

// VersionExists tells whether the job is for a version.
func (f *facts) VersionExists() bool { return f.job.Version != "" }

// Node is this node's name.
func (f *facts) Node() string { return f.node }

// Job has the fields ID, Workflow and Origin.
func (f *facts) Job() struct{ ID, Workflow, Origin string } {
	return struct{ ID, Workflow, Origin string }{f.job.ID, f.job.Workflow, f.job.Origin}
}

// functions of templates, beside those of text/template.
var functions = template.FuncMap{"quote": quote, "json": toJSON}

// quote makes a value one word for a shell, or a list several.
func quote(v any) (string, error) {
	if l, ok := v.(list); ok {
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

// list and object print as JSON, and can be ranged over.
type (
	list   []any
	object map[string]any
)

func (l list) String() string   { return jsonText([]any(l)) }
func (o object) String() string { return jsonText(map[string]any(o)) }

func jsonText(v any) string {
	s, _ := toJSON(v) // it came from JSON
	return s
}

// native is a value for templates. Numbers print as they are spelled: one that
// Go would print otherwise stays text, so that 1.10 does not become 1.1.
func native(v profile.Value) (any, error) {
	d := json.NewDecoder(bytes.NewReader(v.JSON()))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	return nativeTree(tree), nil
}

func nativeTree(tree any) any {
	switch t := tree.(type) {
	case json.Number:
		if i, err := t.Int64(); err == nil && fmt.Sprint(i) == t.String() {
			return i
		}
		if f, err := t.Float64(); err == nil && fmt.Sprint(f) == t.String() {
			return f
		}
	case []any:
		l := make(list, len(t))
		for i, e := range t {
			l[i] = nativeTree(e)
		}
		return l
	case map[string]any:
		o := make(object, len(t))
		for k, e := range t {
			o[k] = nativeTree(e)
		}
		return o
	}
	return tree
}

func parse(text string) (*template.Template, error) {
	t := template.New("text").Option("missingkey=error").Funcs(functions)
	if _, err := t.New("cluster-utilities").Parse(clusterUtilities); err != nil {
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
