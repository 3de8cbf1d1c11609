package watch

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/Masterminds/sprig/v3"
	ct "github.com/hashicorp/consul-template/template"

	"github.com/jorc/jorc/internal/config"
)

func boundedExecution() *execution {
	return &execution{opts: &options{TemplateOptions: config.TemplateOptions{MaxOutput: 1 << 20, RenderTimeout: time.Minute}}}
}

// TestBoundedFunctionsAreTheSame compares with sprig's and consul-template's own.
func TestBoundedFunctionsAreTheSame(t *testing.T) {
	t.Parallel()
	x, theirs := boundedExecution(), sprig.HermeticTxtFuncMap()
	ours := x.boundedFunctions()
	until, ourSeq := ours["sprig_until"].(func(int) ([]int, error)), ours["sprig_seq"].(func(...int) (string, error))
	untilStep := ours["sprig_untilStep"].(func(int, int, int) ([]int, error))
	indent, repeat := ours["sprig_indent"].(func(int, string) (string, error)), ours["sprig_repeat"].(func(int, string) (string, error))
	numbers := []int{-3, -1, 0, 1, 2, 5}
	check := func(what string, got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, %v; sprig has %v", what, got, err, want)
		}
	}
	seq := theirs["seq"].(func(...int) string)
	for _, a := range numbers {
		got, err := until(a)
		check(fmt.Sprint("until ", a), got, err, theirs["until"].(func(int) []int)(a))
		one, err := ourSeq(a)
		check(fmt.Sprint("seq ", a), one, err, seq(a))
		for _, b := range numbers {
			two, err := ourSeq(a, b)
			check(fmt.Sprint("seq ", a, b), two, err, seq(a, b))
			for _, step := range []int{-2, -1, 1, 3} {
				got, err := untilStep(a, b, step)
				check(fmt.Sprint("untilStep ", a, b, step), got, err, theirs["untilStep"].(func(int, int, int) []int)(a, b, step))
				three, err := ourSeq(a, step, b)
				check(fmt.Sprint("seq ", a, step, b), three, err, seq(a, step, b))
			}
		}
	}
	for _, text := range []string{"", "a", "a\nb", "\n\na\n", "a\n\nb\n"} {
		got, err := indent(3, text)
		check(fmt.Sprintf("indent 3 %q", text), got, err, theirs["indent"].(func(int, string) string)(3, text))
		repeated, err := repeat(2, text)
		check(fmt.Sprintf("repeat 2 %q", text), repeated, err, theirs["repeat"].(func(int, string) string)(2, text))
		indented, err := x.indent(3, text)
		check(fmt.Sprintf("consul-template's indent 3 %q", text), indented, err, consulTemplate(t, fmt.Sprintf(`{{ indent 3 %q }}`, text)))
	}
}

// consulTemplate executes a template without data by consul-template alone.
func consulTemplate(t *testing.T, text string) string {
	t.Helper()
	tmpl, err := ct.NewTemplate(&ct.NewTemplateInput{Contents: text})
	if err != nil {
		t.Fatal(err)
	}
	result, err := tmpl.Execute(&ct.ExecuteInput{Brain: ct.NewBrain()})
	if err != nil {
		t.Fatal(err)
	}
	return string(result.Output)
}

func TestFunctionsDoNotTakeAllMemory(t *testing.T) {
	t.Parallel()
	o := options{TemplateOptions: config.TemplateOptions{RenderTimeout: time.Minute, MaxOutput: 1 << 20}}
	for _, text := range []string{
		`{{ sprig_until 2000000000 }}`, `{{ sprig_until -9223372036854775808 }}`, `{{ sprig_untilStep 0 10 0 }}`,
		`{{ sprig_untilStep -9223372036854775807 9223372036854775807 1 }}`, `{{ sprig_seq 2000000000 }}`,
		`{{ sprig_repeat 2000000000 "x" }}`,
		`{{ indent 2000000000 "x" }}`, `{{ sprig_indent 2000000000 "x" }}`, `{{ sprig_nindent 2000000000 "x" }}`,
	} {
		src, err := load(&config.Template{Name: "t", Contents: text}, &o)
		if err != nil {
			t.Fatal(err)
		}
		if r := src.execute(context.Background(), fixed{}); r.err == nil {
			t.Errorf("%s rendered %d bytes; want an error", text, len(r.output))
		}
	}
}
