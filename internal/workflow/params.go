package workflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Bounds of the params of a run: names and values go to a command line, to variables
// and to Consul.
const (
	mostRunParams     = 64
	mostRunParamBytes = 64 << 10 // of all values as JSON
)

// prefixGate begins the params that a rollout gives to its gate.
const prefixGate = "gate/"

// ParseParam reads "NAME=VALUE", where read reads VALUE, such as
// profile.ParseValue; the first "=" splits. Errors are ErrInvalid and do not
// contain the value.
func ParseParam(s string, read func(string) (profile.Value, error)) (name string, v profile.Value, err error) {
	name, value, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return "", v, fmt.Errorf("param %q: %w: write NAME=VALUE", name, ErrInvalid)
	case name == "":
		return "", v, fmt.Errorf("param: %w: the name before \"=\" is empty", ErrInvalid)
	case text.CheckParam(name) != nil:
		return "", v, fmt.Errorf("param %q: %w: not a name", name, ErrInvalid)
	}
	if v, err = read(value); err != nil {
		return "", v, fmt.Errorf("param %q: %w: %w", name, ErrInvalid, err)
	}
	return name, v, nil
}

// CheckRunParams returns why no run may have params: they are too many or too long, or
// have a zero byte. What a rollout tells its gate, at most 1,000 hosts, does not count.
func CheckRunParams(params profile.Params) error {
	if len(params) > mostRunParams {
		return fmt.Errorf("%d params, at most %d are possible", len(params), mostRunParams)
	}
	bytes := 0
	for _, name := range params.Keys() {
		if err := text.CheckParam(name); err != nil {
			return fmt.Errorf("param %w", err)
		}
		doc := params[name].JSON()
		if slices.ContainsFunc(textsIn(doc), func(s string) bool { return strings.ContainsRune(s, 0) }) {
			return fmt.Errorf("param %q has a zero byte, which no program takes", name)
		}
		if !strings.HasPrefix(name, prefixGate) {
			bytes += len(doc)
		}
	}
	if bytes > mostRunParamBytes {
		return fmt.Errorf("the values of params have %d bytes, at most %d are possible", bytes, mostRunParamBytes)
	}
	return nil
}

// checkFromRun returns ErrInvalid for params of a run that the workflow does not
// allow. What a rollout tells its gate is always allowed.
func checkFromRun(w *config.Workflow, params profile.Params) error {
	if err := CheckRunParams(params); err != nil {
		return fmt.Errorf("workflow %q: %w: %w", w.Name, ErrInvalid, err)
	}
	for _, name := range params.Keys() {
		if !slices.Contains(w.AllowParams, name) && !strings.HasPrefix(name, prefixGate) {
			return fmt.Errorf("workflow %q: %w: it does not allow param %q of a run: its allow_params on this host do not name it", w.Name, ErrInvalid, name)
		}
	}
	return nil
}

// checkArgument returns an error for an argument that a param of a run makes an option
// of the program: it begins with a dash that is not the configuration's, and no "--"
// among the arguments before it ends the options.
func checkArgument(source, argument string, before []string) error {
	if !strings.HasPrefix(argument, "-") || strings.HasPrefix(source, "-") || slices.Contains(before, "--") {
		return nil
	}
	return errors.New("a param of the run makes the argument begin with a dash, so the program would take it as an option: put \"--\" before it in the task")
}
