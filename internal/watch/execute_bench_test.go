package watch

import (
	"context"
	"testing"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
)

type fixed map[string]any

func (f fixed) recall(d *dependency) (any, bool) { v, ok := f[d.id]; return v, ok }

func BenchmarkExecute(b *testing.B) {
	list := []*dep.HealthService{{Node: "n", Address: "10.0.0.1", Port: 80}}
	o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20}}
	for _, way := range []struct {
		name  string
		plain bool
	}{{"with its own functions", true}, {"with those of consul-template", false}} {
		b.Run(way.name, func(b *testing.B) {
			src, err := load(&config.Template{Name: "b", Contents: `{{ range service "web" }}{{ .Port }}{{ end }}`}, &o)
			if err != nil {
				b.Fatal(err)
			}
			src.plain = way.plain
			b.ReportAllocs()
			for b.Loop() {
				r := src.execute(context.Background(), fixed{"health.service(web|passing)": list})
				if r.err != nil || len(r.missing) > 0 || string(r.output) != "80" {
					b.Fatal(r)
				}
			}
		})
	}
}
