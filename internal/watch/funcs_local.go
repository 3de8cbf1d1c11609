package watch

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
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
