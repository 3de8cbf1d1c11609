package watch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// TestHotIsAsCold renders the same templates hot and cold, turn by turn, with
// failures in between.
func TestHotIsAsCold(t *testing.T) {
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
	}
	for _, text := range texts {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20}}
			src, err := load(&config.Template{Name: "t", Contents: text}, o)
			if err != nil {
				t.Fatal(err)
			}
			p := newPool()
			defer p.close()
			for turn := range 12 {
				data := fixed{"kv.block(k)": fmt.Sprint(turn)}
				if turn%5 == 4 {
					data = fixed{"kv.block(k)": "not a number"}
				}
				hot := src.execute(context.Background(), data, p)
				cold := src.execute(context.Background(), data, nil)
				if string(hot.output) != string(cold.output) || fmt.Sprint(hot.err) != fmt.Sprint(cold.err) {
					t.Errorf("turn %d: hot %q, %v; cold %q, %v", turn, hot.output, hot.err, cold.output, cold.err)
				}
				if fmt.Sprint(hot.used) == "" || len(hot.used) != len(cold.used) || len(hot.missing) != len(cold.missing) {
					t.Errorf("turn %d: hot used %v, cold %v", turn, hot.used, cold.used)
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
		src, err := load(&config.Template{Name: "t", Contents: "x"}, o)
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
