package supervise

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/config"
)

// The variables that a process gets from KV and Vault are rendered by a template
// without a destination, so that their data is followed as that of other templates.
// Its output has a line for each key: the number of the source, "p" for a prefix or
// "s" for a secret, and what the source holds, in base64.

// variablesPrefix begins the names of these templates; no other name contains "/".
const variablesPrefix = "process/"

// Templates returns the templates that give processes their variables.
func Templates(processes []config.Process) []config.Template {
	var list []config.Template
	for i := range processes {
		p := &processes[i]
		if len(p.Env.Prefixes)+len(p.Env.Secrets) == 0 {
			continue
		}
		var text strings.Builder
		for n, source := range p.Env.Prefixes {
			fmt.Fprintf(&text, "{{ range tree %s }}%d p {{ .Key | base64Encode }} {{ .Value | base64Encode }}\n{{ end }}", strconv.Quote(folder(source.Path)), n)
		}
		for n, source := range p.Env.Secrets {
			fmt.Fprintf(&text, "{{ with secret %s }}%d s {{ .Data | toJSON | base64Encode }}\n{{ end }}", strconv.Quote(source.Path), n)
		}
		list = append(list, config.Template{Name: variablesPrefix + p.Name, Contents: text.String(), Wait: p.Wait, AllowEmpty: true})
	}
	return list
}

// folder is a prefix that ends at a slash, so that app does not include application.
// It may name a data center: app@dc1.
func folder(prefix string) string {
	keys, datacenter, named := strings.Cut(prefix, "@")
	keys = strings.TrimSuffix(keys, "/") + "/"
	if named {
		keys += "@" + datacenter
	}
	return keys
}

// ProcessOf returns the process to which a template of Templates belongs.
func ProcessOf(template string) (name string, ok bool) {
	return strings.CutPrefix(template, variablesPrefix)
}

// errDamaged: the text is not the output of a template of Templates. It is not repeated.
var errDamaged = errors.New("the variables of the process cannot be read")

// variables reads the output of a template of Templates. Errors contain no value.
func variables(e config.ProcessEnv, data []byte) ([]string, error) {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return nil, errDamaged
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || n < 0 {
			return nil, errDamaged
		}
		var kind string
		var source config.EnvSource
		var pairs map[string]string
		switch {
		case fields[1] == "p" && n < len(e.Prefixes):
			kind, source = "prefix", e.Prefixes[n]
			pairs, err = keyPair(fields[2:])
		case fields[1] == "s" && n < len(e.Secrets):
			kind, source = "secret", e.Secrets[n]
			pairs, err = secretPairs(fields[2:])
		default:
			return nil, errors.New("the variables are those of another configuration")
		}
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", kind, source.Path, err)
		}
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			name := variableName(e, source, key)
			if err := checkVariable(name, pairs[key]); err != nil {
				return nil, fmt.Errorf("%s %q: %w", kind, source.Path, err)
			}
			values[name] = pairs[key]
		}
	}
	list := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+"="+values[name])
	}
	return list, nil
}

// keyPair reads a key and its value, which is missing if it is empty.
func keyPair(fields []string) (map[string]string, error) {
	if len(fields) == 0 || len(fields) > 2 {
		return nil, errDamaged
	}
	key, err := base64.StdEncoding.DecodeString(fields[0])
	if err != nil || len(fields) == 1 {
		return map[string]string{string(key): ""}, err
	}
	value, err := base64.StdEncoding.DecodeString(fields[1])
	return map[string]string{string(key): string(value)}, err
}

// secretPairs reads the data of a secret: of version 2 of Vault's key-value store
// the data inside it.
func secretPairs(fields []string) (map[string]string, error) {
	if len(fields) != 1 {
		return nil, errDamaged
	}
	text, err := base64.StdEncoding.DecodeString(fields[0])
	if err != nil {
		return nil, err
	}
	var data map[string]any
	if err := json.Unmarshal(text, &data); err != nil {
		return nil, errDamaged // the error may quote the text
	}
	inner, isData := data["data"].(map[string]any)
	if _, isMetadata := data["metadata"].(map[string]any); isData && isMetadata {
		data = inner
	}
	pairs := map[string]string{}
	for key, value := range data {
		s, ok := value.(string)
		if !ok {
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("key %q: %w", key, err)
			}
			s = string(encoded)
		}
		pairs[key] = s
	}
	return pairs, nil
}

// variableName is the variable that a key becomes.
func variableName(e config.ProcessEnv, source config.EnvSource, key string) string {
	name := source.VariableName(key)
	if e.Sanitize {
		name = strings.Map(func(r rune) rune {
			if r == '_' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
				return r
			}
			return '_'
		}, name)
	}
	if e.Upcase {
		name = strings.ToUpper(name)
	}
	return name
}

// reserved are variables that make a program run other code. Who may write a key
// must not choose them; custom may set them.
var reserved = []string{
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "PATH", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_*", "SHELLOPTS",
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
}

// checkVariable checks what comes from KV and Vault.
func checkVariable(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("%q cannot be the name of a variable", name)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value of variable %s contains a zero byte", name)
	case matches(reserved, name):
		return fmt.Errorf("variable %s can be set in env { custom } only: it makes a program run other code", name)
	}
	return nil
}

// environment is the complete environment of a process.
func environment(inherited []string, conf config.Process, vars []string) ([]string, error) {
	e := conf.Env
	env := []string{}
	for _, variable := range inherited {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case e.Pristine, matches(e.Denylist, name):
		case len(e.Allowlist) > 0 && !matches(e.Allowlist, name):
		case command.IsSecret(name) && !slices.Contains(e.Allowlist, name): // a secret must be asked for by its name
		default:
			env = append(env, variable)
		}
	}
	if conf.User != "" && !e.Pristine {
		u, err := command.LookupUser(conf.User)
		if err != nil {
			return nil, err
		}
		env = append(env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	return slices.Concat(env, vars, e.Custom), nil
}

// matches reports whether a name matches one of the globs.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
