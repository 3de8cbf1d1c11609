package watch

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/bmatcuk/doublestar/v4"
	dep "github.com/hashicorp/consul-template/dependency"
)

// file is the content of a local file, followed as it changes.
func (x *execution) file(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if !inSandbox(x.opts.SandboxPath, path) {
		return "", x.fail("%s does not exist or is outside of sandbox_path %s", x.show(path), x.opts.SandboxPath)
	}
	s, _ := recall(x, &dependency{id: "file(" + path + ")", kind: kindFile, name: path, asked: path}, "")
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

// boundedFunctions take the place of those of consul-template and sprig that
// make a list or a string as long as a number says: one large number, or a
// step of zero, would take all memory of the host. What they return otherwise
// is the same.
func (x *execution) boundedFunctions() template.FuncMap {
	return template.FuncMap{
		"indent":          x.indent,
		"sprig_until":     x.until,
		"sprig_untilStep": x.untilStep,
		"sprig_seq":       x.seq,
		"sprig_repeat":    x.repeat,
		"sprig_indent":    x.sprigIndent,
		"sprig_nindent": func(n int, s string) (string, error) {
			out, err := x.sprigIndent(n, s)
			return "\n" + out, err
		},
	}
}

// afford refuses to make more than max_output bytes, or as many numbers.
func (x *execution) afford(n, each int) error {
	if limit := x.opts.MaxOutput; limit > 0 && each > 0 && (n < 0 || n > limit/each) {
		return x.fail("more than template_options { max_output = %d } allows", limit)
	}
	return nil
}

func (x *execution) until(n int) ([]int, error) {
	if n < 0 {
		return x.untilStep(0, n, -1)
	}
	return x.untilStep(0, n, 1)
}

func (x *execution) untilStep(start, stop, step int) ([]int, error) {
	list := []int{}
	if start == stop || start < stop && step < 0 || start > stop && step >= 0 {
		return list, nil
	}
	if step == 0 {
		return nil, x.fail("a step of 0 does not end")
	}
	if err := x.afford((stop-start)/step+1, 8); err != nil {
		return nil, err
	}
	for i := start; start < stop && i < stop || start > stop && i > stop; i += step {
		list = append(list, i)
	}
	return list, nil
}

// seq is sprig's: bash's seq, with its one, two or three arguments.
func (x *execution) seq(params ...int) (string, error) {
	start, step, end := 1, 1, 0
	switch len(params) {
	case 1:
		end = params[0]
	case 2:
		start, end = params[0], params[1]
	case 3:
		start, step, end = params[0], params[1], params[2]
	default:
		return "", nil
	}
	if end < start {
		if len(params) < 3 {
			step = -1
		}
		if step > 0 {
			return "", nil
		}
	}
	past := end + 1
	if end < start {
		past = end - 1
	}
	list, err := x.untilStep(start, past, step)
	return strings.Trim(fmt.Sprint(list), "[]"), err
}

func (x *execution) repeat(n int, s string) (string, error) {
	if n < 0 {
		return "", x.fail("a negative number of times")
	}
	if err := x.afford(n, len(s)); err != nil {
		return "", err
	}
	return strings.Repeat(s, n), nil
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

// sprigIndent is sprig's: every line is indented.
func (x *execution) sprigIndent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", x.fail("a negative number of spaces")
	}
	if err := x.afford(strings.Count(s, "\n")+1, spaces+1); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
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
	var q dep.Dependency
	if len(args) == 1 {
		q, err = dep.NewVaultReadQuery(args[0])
	} else {
		q, err = dep.NewVaultWriteQuery(args[0], data)
	}
	if err != nil {
		return nil, x.invalid(args[0], err)
	}
	s, ok := recall[*dep.Secret](x, foreign(q, args[0]), nil)
	if !ok || s == nil {
		return nil, nil
	}
	return s, nil
}

func (x *execution) secrets(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	q, err := dep.NewVaultListQuery(path)
	if err != nil {
		return nil, x.invalid(path, err)
	}
	list, _ := recall[[]string](x, foreign(q, path), nil)
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
	q, err := dep.NewVaultPKIQuery(args[0], x.destination, data)
	if err != nil {
		return nil, err
	}
	value, _ := x.recall(foreign(q, args[0]))
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
	q, err := dep.NewListPartitionsQuery()
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, ""), []*dep.Partition{})
	return list, nil
}

func (x *execution) peerings(args ...string) ([]*dep.Peering, error) {
	q, err := dep.NewListPeeringQuery(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, strings.Join(args, "")), []*dep.Peering{})
	return list, nil
}

func (x *execution) exportedServices(args ...string) ([]dep.ExportedService, error) {
	q, err := dep.NewListExportedServicesQuery(strings.Join(args, ""))
	if err != nil {
		return nil, err
	}
	list, _ := recall(x, foreign(q, strings.Join(args, "")), []dep.ExportedService{})
	return list, nil
}
