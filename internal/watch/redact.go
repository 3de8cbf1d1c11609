package watch

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	dep "github.com/hashicorp/consul-template/dependency"
)

// redact takes the secrets that an execution has used out of its error: the
// functions of templates quote what they could not work with.
func redact(err error, used map[string]*dependency, values map[string]any) error {
	var secrets []string
	for id, d := range used {
		if d.vault {
			secrets = append(secrets, strs(values[id])...)
		}
	}
	if err == nil || len(secrets) == 0 {
		return err
	}
	// The longest first, so that none leaves the rest of another behind.
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		pairs = append(pairs, s, "[redacted]")
	}
	return errors.New(strings.NewReplacer(pairs...).Replace(err.Error()))
}

// strs are all texts and numbers that a value holds, as errors would print them.
func strs(value any) []string {
	var list []string
	switch v := value.(type) {
	case nil, bool:
	case *dep.Secret:
		if v != nil {
			list = strs(v.Data)
		}
	case map[string]any:
		for _, inner := range v {
			list = append(list, strs(inner)...)
		}
	case []any:
		for _, inner := range v {
			list = append(list, strs(inner)...)
		}
	case []string:
		for _, inner := range v {
			list = append(list, strs(inner)...)
		}
	case string:
		list = quoted(v)
	default:
		list = quoted(fmt.Sprint(v))
	}
	return list
}

// quoted is s as it is, and as %q would print it. Short texts are left: they
// would tear every message apart, and say nothing.
func quoted(s string) []string {
	if len(s) < 3 {
		return nil
	}
	list := []string{s}
	if q := strings.Trim(fmt.Sprintf("%q", s), `"`); q != s {
		list = append(list, q)
	}
	return list
}
