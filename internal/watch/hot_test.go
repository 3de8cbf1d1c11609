package watch

import (
	"context"
	"fmt"
	"testing"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
)

// TestExecutionsAgree renders the same templates in each way there is, turn by turn, with
// failures in between: hot, cold as consul-template does, and plain where that is possible.
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
			p := newPool()
			defer p.close()
			for turn := range 12 {
				data := fixed{
					"kv.get(k)":                   fmt.Sprint(turn),
					"health.service(web|passing)": []*dep.HealthService{{Node: "n", Address: "10.0.0.1", Port: turn}},
				}
				if turn%5 == 4 {
					data["kv.get(k)"] = "not a number"
				}
				cold := asPeer.execute(context.Background(), data, nil)
				for name, other := range map[string]rendering{
					"hot": asPeer.execute(context.Background(), data, p), "plain, where possible": src.execute(context.Background(), data, p),
				} {
					if string(other.output) != string(cold.output) || fmt.Sprint(other.err) != fmt.Sprint(cold.err) {
						t.Errorf("turn %d: %s %q, %v; cold %q, %v", turn, name, other.output, other.err, cold.output, cold.err)
					}
					if len(other.used) != len(cold.used) || len(other.missing) != len(cold.missing) {
						t.Errorf("turn %d: %s used %v, cold %v", turn, name, other.used, cold.used)
					}
				}
			}
		})
	}
}

func TestPoolKeepsTheLatest(t *testing.T) {
	t.Parallel()
	p := newPool()
	defer p.close()
	o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute}}
	for i := range hotTemplates + 20 {
		src, err := load(&config.Template{Name: "t", Contents: `{{ toLower "X" }}`}, &o)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if r := src.execute(context.Background(), fixed{}, p); string(r.output) != "x" {
				t.Fatalf("template %d rendered %q, %v", i, r.output, r.err)
			}
		}
	}
	if got := p.order.Len(); got != hotTemplates {
		t.Errorf("%d templates are hot; want %d", got, hotTemplates)
	}
}
