package watch

import (
	"fmt"
	"testing"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
)

// TestExecutionsAgree: a template that calls no function of consul-template is executed without it, and writes the same.
func TestExecutionsAgree(t *testing.T) {
	t.Parallel()
	texts := []string{
		`{{ key "k" }}`,
		`  {{- key "k" -}}  x`,
		`{{ define "t" }}[{{ . }}]{{ end }}{{ template "t" (key "k") }}{{ executeTemplate "t" 1 }}`,
		`{{ scratch.MapSet "m" (key "k") "v" }}{{ range $k, $v := scratch.Get "m" }}{{ $k }}{{ end }}`,
		`{{ key "k" | parseInt }}`,
		`{{ range loop 3 }}{{ . }}{{ end }}`,
		`{{ range $i := loop 1 4 }}{{ if eq $i 2 }}{{ continue }}{{ end }}{{ $i }}{{ end }}`,
		`{{/* a comment */ -}} plain`,
		`{{ key "absent" }}`,
		`{{ index (ls "p") 0 }}`,
		`plain`,
		`{{ keyOrDefault "k" "x" }}{{ keyOrDefault "absent" "x" }}{{ keyExists "k" }}`,
		`{{ range service "web" }}{{ .Address }}:{{ .Port | printf "%05d" }}{{ else }}none{{ end }}`,
		`{{ with $s := service "web" }}{{ (index $s 0).Node }}{{ len $s }}{{ end }}{{ $x := 1 }}{{ $x = 2 }}{{ $x }}`,
		`{{ (index (service "absent") 0).Port }}`,
		`{{ .Missing }}{{ print nil }}`,
		`{{ block "b" (key "k") }}<{{ . }}>{{ end }}{{ env "HOME" }}{{ mustEnv "HOME" }}`,
		`{{ and (key "k") (not false) }}{{ html "<" }}`,
	}
	for _, text := range texts {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20}}
			o.LookupEnv = func(string) (string, bool) { return "", false }
			read := func() *source {
				s, err := load(&config.Template{Name: "t", Contents: text}, &o)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			src, asPeer := read(), read()
			asPeer.plain = false
			for _, value := range []string{"7", "not a number"} {
				data := fixed{
					"kv.get(k)":                   value,
					"health.service(web|passing)": []*dep.HealthService{{Node: "n", Address: "10.0.0.1", Port: 7}},
				}
				got, want := src.execute(t.Context(), data), asPeer.execute(t.Context(), data)
				if string(got.output) != string(want.output) || fmt.Sprint(got.err) != fmt.Sprint(want.err) {
					t.Errorf("%q, %v; consul-template has %q, %v", got.output, got.err, want.output, want.err)
				}
				if len(got.used) != len(want.used) || len(got.missing) != len(want.missing) {
					t.Errorf("it used %v, with consul-template %v", got.used, want.used)
				}
			}
		})
	}
}
