package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/templatetree"
	"github.com/jorc/jorc/internal/text"
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

// parseText reads a text, which may take in what package templates has for scripts.
func parseText(text string) (*template.Template, error) {
	t, err := template.New("text").Option("missingkey=error").Funcs(functions).ParseFS(templates.FS, "*.tmpl")
	if err != nil {
		return nil, err
	}
	return t.Parse(text)
}

// render executes text over f.
func render(text string, f *facts) (string, error) {
	return execute(text, f, func(*template.Template, *limited) {})
}

// renderScript is render for a script, in which a shell reads a filterText as one word.
func renderScript(text string, f *facts) (string, error) { return execute(text, f, printWords) }

// execute executes text over f, after prepare.
func execute(text string, f *facts, prepare func(*template.Template, *limited)) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parseText(text)
	if err != nil {
		return "", err
	}
	out := limited{left: maxRendered}
	prepare(t, &out)
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

// defined returns an error for a template that a text includes and that does not
// exist: executing the text finds it only if it gets there.
func defined(t *template.Template) (err error) {
	if t.Tree == nil {
		return nil // nothing but blanks
	}
	templatetree.Walk(t.Root, func(n parse.Node) {
		if n, ok := n.(*parse.TemplateNode); ok && err == nil && t.Lookup(n.Name) == nil {
			err = fmt.Errorf("line %d: there is no template %q: cluster-utilities.tmpl and setup.tmpl exist", n.Line, n.Name)
		}
	})
	return err
}

// taskText is one template of a task, and what it is called in errors.
type taskText struct{ what, source string }

// texts are all templates of a task in the order: script, command, only_if,
// env by name.
func texts(t *config.Task) []taskText {
	var all []taskText
	if t.Script != "" {
		all = append(all, taskText{"script", t.Script})
	}
	for i, arg := range t.Command {
		all = append(all, taskText{fmt.Sprintf("command[%d]", i), arg})
	}
	for i, arg := range t.OnlyIf {
		all = append(all, taskText{fmt.Sprintf("only_if[%d]", i), arg})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		all = append(all, taskText{"env." + name, t.Env[name]})
	}
	return all
}

// Check reports what is wrong with the templates of workflows.
func Check(workflows []config.Workflow) error {
	var errs []error
	for i := range workflows {
		for j := range workflows[i].Tasks {
			t := &workflows[i].Tasks[j]
			for _, x := range texts(t) {
				parsed, err := parseText(x.source)
				if err == nil {
					err = defined(parsed)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("workflow %q: task %q: %s: %w", workflows[i].Name, t.Name, x.what, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// prepare renders the tasks of w; scripts are the files to write beside the
// spec. Errors are ErrInvalid, or that what a template needs is not known.
func prepare(w *config.Workflow, f *facts) (sp *spec, scripts map[string]string, err error) {
	j := &f.job
	sp = &spec{
		Format: specFormat, ID: j.ID, Nonce: nonce(8), Workflow: w.Name, Version: j.Version, Origin: j.Origin,
		Params: j.Params, Reboots: w.Reboots && j.Out, Out: j.Out, Change: j.Change != nil, Steps: make([]step, len(w.Tasks)),
	}
	scripts = map[string]string{}
	for i := range w.Tasks {
		t := &w.Tasks[i]
		s, script, err := freeze(t, i, f)
		if unknown := (*unknownError)(nil); errors.As(err, &unknown) {
			return nil, nil, fmt.Errorf("workflow %q: task %q: %w", w.Name, t.Name, err)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("workflow %q: task %q: %w: %w", w.Name, t.Name, ErrInvalid, f.discreet(err))
		}
		if s.Script != "" {
			scripts[s.Script] = script
		}
		sp.Steps[i] = s
	}
	sp.Secrets = f.secrets()
	sp.Values = secretLines(f.given(), f.o.Node, j.Version, w.Name)
	return sp, scripts, nil
}

// given are the texts that the tasks of a job have from params and tokens, also as
// part of variables, and from a trigger.
func (f *facts) given() []string {
	all := slices.Concat(textsOf(f.job.Params), changedTexts(f.job.Change), f.env)
	for name, v := range f.used {
		if doc, err := json.Marshal(v); err == nil && !isSetting(name) {
			all = append(all, textsIn(doc)...)
		}
	}
	return all
}

func freeze(t *config.Task, i int, f *facts) (s step, script string, err error) {
	s = step{
		Name: t.Name, User: t.User, Dir: t.Dir, TokenFile: t.TokenFile, KillGrace: t.KillGrace, Retries: t.Retries, RetryDelay: t.RetryDelay,
		OkExitCodes: t.OkExitCodes, Idempotent: t.Idempotent, Requires: t.Requires,
	}
	s.Timeout, s.OnlyIfLimit = timeouts(t)
	if len(s.OkExitCodes) == 0 {
		s.OkExitCodes = []int{0}
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	f.task = t
	for _, x := range texts(t) {
		reads, ownReads := f.reads, f.ownReads
		render := render
		if x.what == "script" {
			render = renderScript
		}
		out, err := render(x.source, f)
		if err != nil {
			return s, "", fmt.Errorf("%s: %w", x.what, err)
		}
		if strings.ContainsRune(out, 0) {
			return s, "", fmt.Errorf("%s: it holds a zero byte, which no program takes", x.what)
		}
		kind, index, _ := strings.Cut(x.what, "[")
		if index != "" && f.betrays(out) {
			return s, "", fmt.Errorf("%s: a token in an argument, which every user of the host can see: use it in a script, or in env", x.what)
		}
		before := map[string][]string{"command": s.Command, "only_if": s.OnlyIf}[kind]
		if index != "" && f.job.FromRun && f.ownReads > ownReads {
			if err := checkArgument(x.source, out, before); err != nil {
				return s, "", fmt.Errorf("%s: %w", x.what, err)
			}
		}
		switch {
		case x.what == "script":
			script = tidy(out)
			s.Script, s.Interpreter = fileName(i, t.Name), interpreter(script)
			if f.betrays(strings.Join(s.Interpreter, " ")) {
				return s, "", errors.New("script: a token in its #! line, which every user of the host can see")
			}
		case kind == "command":
			s.Command = append(s.Command, out)
		case kind == "only_if":
			s.OnlyIf = append(s.OnlyIf, out)
		default:
			name := strings.TrimPrefix(x.what, "env.")
			s.Env = append(s.Env, name+"="+out)
			if f.reads > reads || text.IsSecretName(name) {
				f.env = append(f.env, out)
			}
		}
	}
	return s, script, nil
}
