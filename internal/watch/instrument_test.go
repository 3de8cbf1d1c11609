package watch

import (
	"context"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// plain renders text by text/template alone, with ticks that do nothing.
func plain(t *testing.T, text, left, right string) (string, error) {
	t.Helper()
	funcs := template.FuncMap{
		tick:   func(int) string { return "" },
		enter:  func(int) string { return "" },
		"list": func(n int) []int { return make([]int, n) },
		"up":   strings.ToUpper,
	}
	tm, err := template.New("").Delims(left, right).Funcs(funcs).Option("missingkey=zero").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	data := map[string]any{"A": []string{"x", "y", "z"}, "M": map[string]int{"k": 1}, "S": "s", "Z": []string{}}
	err = tm.Execute(&b, data)
	return b.String(), err
}

var instrumentSeeds = []string{
	"", "text", "{{ range .A }}{{ . }}{{ end }}", "{{ range .A }} {{- . -}} {{ end }}",
	"{{range .A}}\n  {{- /* a comment */ -}}\n  {{.}}\n{{- end}}",
	"{{range .A}}{{/* c */}}{{else}}none{{end}}", "{{ range .Z }}a{{ else }}{{ range .A }}b{{ end }}{{ end }}",
	"{{ range $i, $e := .A }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $e }}{{ if eq $i 2 }}{{ break }}{{ end }}{{ end }}",
	"{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .S }}", "{{define \"a\"}}{{end}}{{define \"a\"}}x{{end}}{{template \"a\"}}",
	"{{ define \"t\" -}}  \n x {{- end }}[{{ template \"t\" }}]", "{{ block \"b\" .A }}{{ range . }}{{ . }},{{ end }}{{ end }}",
	"{{ with .S }}{{ range $.A }}{{ . }}{{ end }}{{ else }}no{{ end }}", "{{ range 3 }}{{ . }}{{ end }}",
	"{{ range .A -}}\n{{ end -}}\n", "{{ range .A }}{{ end }}", "{{range .A}}{{- end}}", "{{ range .A }}\t{{- end }}",
	"{{ range $k, $v := .M }}{{ $k }}={{ $v }}{{ end }}", "{{ range .A }}{{ range $.A }}{{ . }}{{ end }}\n{{ end }}",
	"{{ range .A }}{{ \"{{ range }}\" }}{{ `}}` }}{{ end }}", "{{ if .Z }}{{ range .A }}{{ end }}{{ else if .A }}{{ range .A }}x{{ end }}{{ end }}",
	"{{ with .Z }}a{{ else with .S }}{{ range $.A }}{{ . }}{{ end }}{{ end }}", "{{range .A}} - {{.}}{{end}}", "{{range .A}}-{{end}}{{- 1}}",
	"{{define \"a\"}}  {{end}}[{{template \"a\"}}]", "{{range .A}}{{- -1}}{{end}}", "{{range .A}}{{-1}}{{end}}",
}

var delimiters = [][2]string{{"", ""}, {"<%", "%>"}, {"[", "]"}, {"<<=", ">>"}, {"$[", "]$"}}

func FuzzInstrument(f *testing.F) {
	for _, seed := range instrumentSeeds {
		f.Add(seed, uint8(0))
		for i, d := range delimiters[1:] {
			f.Add(strings.NewReplacer("{{", d[0], "}}", d[1]).Replace(seed), uint8(i+1))
		}
	}
	f.Fuzz(func(t *testing.T, text string, d uint8) {
		left, right := delimiters[int(d)%len(delimiters)][0], delimiters[int(d)%len(delimiters)][1]
		if strings.Contains(text, "jorc") || recursive(text, left, right) {
			return // the one is ours, the other may take all day
		}
		want, err := plain(t, text, left, right)
		marked, _, _, merr := instrument(text, left, right)
		if merr != nil {
			if err == nil {
				t.Fatalf("instrument(%q, %q, %q) = %v, though it renders %q", text, left, right, merr, want)
			}
			return
		}
		got, gerr := plain(t, marked, left, right)
		if (err == nil) != (gerr == nil) {
			t.Fatalf("%q fails with %v, instrumented as %q with %v", text, err, marked, gerr)
		}
		if got != want && err == nil {
			t.Errorf("%q renders %q, instrumented as %q it renders %q", text, want, marked, got)
		}
	})
}

// recursive reports whether a template calls another one from inside of one, or
// counts far.
func recursive(text, left, right string) bool {
	trees := map[string]*parse.Tree{}
	p := parse.New("")
	p.Mode = parse.SkipFuncCheck
	if _, err := p.Parse(text, left, right, trees); err != nil {
		return false
	}
	for name, tree := range trees {
		if name != "" && tree.Root != nil && strings.Contains(tree.Root.String(), "template") {
			return true
		}
	}
	return strings.Count(text, "range") > 4 || strings.ContainsAny(text, "456789")
}

func TestInstrumentCountsEveryTurn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"text":                                                         0,
		"{{ range .A }}{{ end }}":                                      3,
		"{{ range .A }}{{ continue }}{{ end }}":                        3,
		"{{ range .A }}{{ break }}{{ end }}":                           1,
		"{{ range .Z }}{{ else }}x{{ end }}":                           0,
		"{{ range .A }}{{ range $.A }}{{ end }}{{ end }}":              12,
		"{{ define \"t\" }}x{{ end }}{{ template \"t\" }}":             0,
		"{{ if .A }}{{ with .A }}{{ range . }}{{ end }}{{end}}{{end}}": 3,
	} {
		marked, _, _, err := instrument(text, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		tm := template.Must(template.New("").Funcs(template.FuncMap{
			tick: func(int) string { got++; return "" }, enter: func(int) string { return "" },
		}).Parse(marked))
		if err := tm.Execute(&strings.Builder{}, map[string]any{"A": []int{1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q ticks %d times; want %d", text, got, want)
		}
	}
}

func TestTemplatesThatCallThemselvesEnd(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"template":        `{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}`,
		"executeTemplate": `{{ define "t" }}{{ executeTemplate "t" }}{{ end }}{{ executeTemplate "t" }}`,
		"itself":          `{{ executeTemplate "" }}`,
	} {
		o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20}}
		src, err := load(&config.Template{Name: name, Contents: text}, &o)
		if err != nil {
			t.Fatal(err)
		}
		if r := src.execute(context.Background(), fixed{}); r.err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
