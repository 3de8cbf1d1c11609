package watch

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/bmatcuk/doublestar/v4"
	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/durable"
)

// file is the content of a local file, followed as it changes.
func (x *execution) file(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if !inSandbox(x.source.sandboxPath, path) {
		return "", x.fail("%s does not exist or is outside of sandbox_path %s", x.show(path), x.source.sandboxPath)
	}
	value, _ := x.recall(&dependency{id: "file(" + path + ")", kind: kindFile, name: path, asked: path})
	if refused, ok := value.(*durable.LinkError); ok {
		if !x.isName(path) {
			return "", x.fail("%s leads through a symbolic link that is not followed", computed)
		}
		return "", x.fail("%v", refused)
	}
	s, _ := value.(string)
	return s, nil
}

// inSandbox reports whether path is in sandbox once symlinks are resolved.
func inSandbox(sandbox, path string) bool {
	if sandbox == "" {
		return true
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(sandbox, resolved)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// failOnPurpose is sprig's fail. Its message is shown unless it may hold a value.
func (x *execution) failOnPurpose(message string) (string, error) {
	if !x.isName(message) {
		return "", x.fail("%s", withheld)
	}
	return "", x.fail("%s", message)
}

// env sees only the variables that template_options { allow_env } names; all
// others look unset.
func (x *execution) env(name string) (string, error) {
	value, _ := x.lookupEnv(name)
	return value, nil
}

func (x *execution) mustEnv(name string) (string, error) {
	value, _ := x.lookupEnv(name)
	if value == "" {
		return "", x.fail("environment variable %s is not set, or template_options { allow_env } does not name it", x.show(name))
	}
	return value, nil
}

func (x *execution) envOrDefault(name, fallback string) (string, error) {
	if value, ok := x.lookupEnv(name); ok {
		return value, nil
	}
	return fallback, nil
}

func (x *execution) lookupEnv(name string) (string, bool) {
	if !allows(x.opts.AllowEnv, name) {
		return "", false
	}
	return x.opts.LookupEnv(name)
}

// allows reports whether a name or glob of allow_env matches a variable.
func allows(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := doublestar.Match(pattern, name)
		return ok && err == nil
	})
}

// loop counts from 0, or the first argument, up to but without the last. Unlike
// consul-template's, which leaves a goroutine behind when a range is left
// early, it counts without one.
func (x *execution) loop(args ...any) (func(yield func(int64) bool), error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, x.fail("wrong number of arguments, expected 1 or 2, but got %d", len(args))
	}
	bounds := make([]int64, 0, 2)
	for _, a := range args {
		n, err := integer(a)
		if err != nil {
			return nil, fmt.Errorf("loop: %w", err)
		}
		bounds = append(bounds, n)
	}
	if len(bounds) == 1 {
		bounds = []int64{0, bounds[0]}
	}
	return func(yield func(int64) bool) {
		for i := bounds[0]; i < bounds[1]; i++ {
			if !yield(i) {
				return
			}
		}
	}, nil
}

func integer(a any) (int64, error) {
	v := reflect.ValueOf(a)
	switch {
	case v.CanInt():
		return v.Int(), nil
	case v.CanUint():
		return int64(v.Uint()), nil
	case v.Kind() == reflect.String:
		return strconv.ParseInt(v.String(), 10, 64)
	}
	return 0, fmt.Errorf("bad argument type: %T", a)
}

// sprigFunctions are sprig's own; consul-template offers them as sprig_….
var sprigFunctions = sync.OnceValue(sprig.TxtFuncMap)

// boundedFunctions stand before those of consul-template and sprig that make a list or
// a string as long as a number says: one large number would take all memory of the
// host. What they return is the same.
func (x *execution) boundedFunctions() template.FuncMap {
	all := sprigFunctions()
	repeat, seq := all["repeat"].(func(int, string) string), all["seq"].(func(...int) string)
	until, untilStep := all["until"].(func(int) []int), all["untilStep"].(func(int, int, int) []int)
	indenter := func(indent func(int, string) string) any {
		return func(spaces int, s string) (string, error) {
			return bounded(x.affordText(spaces, strings.Count(s, "\n")+1), func() string { return indent(spaces, s) })
		}
	}
	return template.FuncMap{
		"indent":        x.indent,
		"sprig_indent":  indenter(all["indent"].(func(int, string) string)),
		"sprig_nindent": indenter(all["nindent"].(func(int, string) string)),
		"sprig_repeat": func(n int, s string) (string, error) {
			return bounded(x.affordText(n, len(s)), func() string { return repeat(n, s) })
		},
		"sprig_until": func(n int) ([]int, error) {
			return bounded(x.affordSteps(0, n, direction(0, n)), func() []int { return until(n) })
		},
		"sprig_untilStep": func(start, stop, step int) ([]int, error) {
			return bounded(x.affordSteps(start, stop, step), func() []int { return untilStep(start, stop, step) })
		},
		"sprig_seq": func(params ...int) (string, error) {
			start, end := 1, 0
			if len(params) > 0 {
				end = params[len(params)-1]
			}
			if len(params) > 1 {
				start = params[0]
			}
			step := direction(start, end)
			if len(params) == 3 {
				step = params[1]
			}
			return bounded(x.affordSteps(start, end, step), func() string { return seq(params...) })
		},
	}
}

// bounded returns what make makes unless err is set.
func bounded[T any](err error, make func() T) (made T, _ error) {
	if err == nil {
		made = make()
	}
	return made, err
}

// afford refuses to make more than max_output bytes, or as many numbers.
func (x *execution) afford(n, each int) error {
	if limit := x.opts.MaxOutput; limit > 0 && each > 0 && (n < 0 || n > limit/each) {
		return x.fail("more than template_options { max_output = %d } allows", limit)
	}
	return nil
}

func (x *execution) affordText(n, each int) error {
	if n < 0 {
		return x.fail("a negative number")
	}
	return x.afford(n, each)
}

func (x *execution) affordSteps(start, stop, step int) error {
	switch {
	case start == stop, start < stop && step < 0, start > stop && step >= 0:
		return nil // there is no step
	case step == 0:
		return x.fail("a step of 0 does not end")
	}
	return x.afford((stop-start)/step+1, 8)
}

func direction(start, stop int) int {
	if stop < start {
		return -1
	}
	return 1
}

// indent is consul-template's: lines that are empty stay so.
func (x *execution) indent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", x.fail("indent value must be a positive integer")
	}
	if err := x.afford(strings.Count(s, "\n")+1, spaces+1); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	lines := strings.SplitAfter(s, "\n")
	for i, line := range lines {
		if line != "" && line != "\n" {
			lines[i] = pad + line
		}
	}
	return strings.Join(lines, ""), nil
}

// foreignFunctions are those whose data consul-template's own code fetches:
// Vault's, and the few of Consul that are rarely used.
func (x *execution) foreignFunctions() template.FuncMap {
	return template.FuncMap{
		"secret": x.secret, "secrets": x.secrets, "pkiCert": x.pkiCert,
		"partitions": x.partitions, "peerings": x.peerings, "exportedServices": x.exportedServices,
	}
}

func (x *execution) secret(args ...string) (any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := x.pairs(args[1:])
	if err != nil {
		return nil, err
	}
	d, err := foreign(args[0], func() (dep.Dependency, error) {
		if len(args) == 1 {
			return dep.NewVaultReadQuery(args[0])
		}
		return dep.NewVaultWriteQuery(args[0], data)
	})
	if err != nil {
		return nil, x.invalid(args[0], err)
	}
	s, ok := recall[*dep.Secret](x, d, nil)
	if !ok || s == nil {
		return nil, nil
	}
	return s, nil
}

func (x *execution) secrets(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	d, err := foreign(path, func() (dep.Dependency, error) { return dep.NewVaultListQuery(path) })
	if err != nil {
		return nil, x.invalid(path, err)
	}
	list, _ := recall[[]string](x, d, nil)
	return list, nil
}

func (x *execution) pkiCert(args ...string) (any, error) {
	if len(args) == 0 {
		return nil, x.fail("the path is missing")
	}
	data, err := x.pairs(args[1:])
	if err != nil {
		return nil, err
	}
	d, err := foreign(args[0], func() (dep.Dependency, error) { return dep.NewVaultPKIQuery(args[0], x.destination, data) })
	if err != nil {
		return nil, err
	}
	value, _ := x.recall(d)
	return value, nil
}

// pairs reads arguments of the form k=v; empty ones are passed over.
func (x *execution) pairs(args []string) (map[string]any, error) {
	data := map[string]any{}
	for _, a := range args {
		if a == "" {
			continue
		}
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return nil, x.fail("an argument is not of the form k=v")
		}
		data[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return data, nil
}

func (x *execution) partitions() ([]*dep.Partition, error) {
	d, err := foreign("", func() (dep.Dependency, error) { return dep.NewListPartitionsQuery() })
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, d, []*dep.Partition{})
	return list, nil
}

func (x *execution) peerings(args ...string) ([]*dep.Peering, error) {
	asked := strings.Join(args, "")
	d, err := foreign(asked, func() (dep.Dependency, error) { return dep.NewListPeeringQuery(asked) })
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, d, []*dep.Peering{})
	return list, nil
}

func (x *execution) exportedServices(args ...string) ([]dep.ExportedService, error) {
	asked := strings.Join(args, "")
	d, err := foreign(asked, func() (dep.Dependency, error) { return dep.NewListExportedServicesQuery(asked) })
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, d, []dep.ExportedService{})
	return list, nil
}
