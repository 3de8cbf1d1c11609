package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StateOfPuppet is the state that a detailed exit code of Puppet stands for: 0
// nothing to do, 2 changes made; all others are failures.
func StateOfPuppet(code int) CategoryState {
	switch code {
	case 0, 2:
		return CategoryState{State: StateSuccess}
	default:
		return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
	}
}

// StateOfExit is the state that an exit code of any other program stands for.
func StateOfExit(code int) CategoryState {
	if code == 0 {
		return CategoryState{State: StateSuccess}
	}
	return CategoryState{State: StateFailed, Detail: fmt.Sprintf("exit code %d", code)}
}

// ErrUnknownType: scripts report no such category.
var ErrUnknownType = errors.New("unknown type")

// ParseResult reads how host scripts report: a type, which is the category, and
// as its result a state or an exit code. The codes of puppet, puppet_service and
// config are Puppet's. It returns ErrUnknownType for types other than these,
// validation, validation_service and provisioned, and ErrBadState for a result
// that is neither a state nor an exit code.
func ParseResult(kind, result string) (CategoryState, error) {
	ofExit := StateOfExit
	switch kind {
	case "puppet", "puppet_service", CategoryConfig:
		ofExit = StateOfPuppet
	case CategoryValidation, "validation_service", CategoryProvisioned:
	default:
		return CategoryState{}, fmt.Errorf("%w %q: use puppet, puppet_service, %s, %s, validation_service or %s", ErrUnknownType, kind, CategoryConfig, CategoryValidation, CategoryProvisioned)
	}
	if slices.Contains(States(), result) {
		return CategoryState{State: result}, nil
	}
	code, err := strconv.Atoi(result)
	if err != nil {
		return CategoryState{}, fmt.Errorf("result %q of %s: %w: it can be an exit code, %s", result, kind, ErrBadState, strings.Join(States(), ", "))
	}
	return ofExit(code), nil
}
