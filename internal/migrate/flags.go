package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jorc/jorc/internal/text"
)

// flagSettings returns the flags of consul-template that set a setting with another
// name than the flag's own. The rest follows from the flag's name, see settingOf.
func flagSettings() map[string]string {
	return map[string]string{
		"consul-addr":             "consul.address",
		"retry":                   "consul.retry.backoff",
		"dedup":                   "deduplicate.enabled",
		"default-left-delimiter":  "default_delimiters.left",
		"default-right-delimiter": "default_delimiters.right",
		"exec":                    "exec.command",
		"log-file":                "log_file.path",
		"log-rotate-bytes":        "log_file.log_rotate_bytes",
		"log-rotate-duration":     "log_file.log_rotate_duration",
		"log-rotate-max-files":    "log_file.log_rotate_max_files",
		"parse-only":              "parseonly",
		"syslog":                  "syslog.enabled",
		"vault-addr":              "vault.address",
		"vault-agent-token-file":  "vault.vault_agent_token_file",
		"consul-retry":            "consul.retry.enabled",
		"consul-ssl":              "consul.ssl.enabled",
		"vault-retry":             "vault.retry.enabled",
		"vault-ssl":               "vault.ssl.enabled",
		"wait":                    "wait",
	}
}

// boolFlags returns the flags whose value is true when it is not given.
func boolFlags() []string {
	return []string{
		"consul-retry", "consul-ssl", "consul-ssl-verify", "consul-transport-disable-keep-alives", "dedup", "dry",
		"exec-env-pristine", "once", "parse-only", "syslog", "template-error-fatal", "vault-renew-token", "vault-retry",
		"vault-ssl", "vault-ssl-verify", "vault-transport-disable-keep-alives", "vault-unwrap-token", "v", "version",
	}
}

// commandLine is a parsed command line of consul-template.
type commandLine struct {
	config   []string // values of -config
	settings []node
}

// parseFlags parses flags of consul-template as package flag does: -name, --name,
// -name=value and -name value.
func parseFlags(args []string) (commandLine, error) {
	var line commandLine
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if !strings.HasPrefix(arg, "-") || name == "" {
			return line, fmt.Errorf("%w: %q is not a flag of consul-template", ErrInput, arg)
		}
		isBool := slices.Contains(boolFlags(), name)
		if !given {
			var err error
			if value, err = valueOf(name, isBool, args, &i); err != nil {
				return line, err
			}
		}
		if err := line.flag(name, value, isBool); err != nil {
			return line, err
		}
	}
	return line, nil
}

// valueOf returns the value of the flag at args[*i] that has none of its own: true, or
// the next argument, which *i then names.
func valueOf(name string, isBool bool, args []string, i *int) (string, error) {
	switch {
	case isBool:
		return "true", nil
	case *i+1 == len(args):
		return "", fmt.Errorf("%w: flag -%s needs a value", ErrInput, name)
	}
	*i++
	return args[*i], nil
}

func (l *commandLine) flag(name, value string, isBool bool) error {
	at := Position{Flag: "-" + name}
	switch name {
	case "config":
		l.config = append(l.config, value)
		return nil
	case "template":
		l.settings = append(l.settings, node{name: "template", at: at, value: templateFlag(at, value)})
		return nil
	case "consul-auth":
		user, password, _ := strings.Cut(value, ":")
		l.set("consul.auth.username", at, user)
		l.set("consul.auth.password", at, password)
		return nil
	case "dry", "v", "version":
		l.set(name, at, value)
		return nil
	}
	path := settingOf(name)
	if path == "" {
		return fmt.Errorf("%w: consul-template has no flag -%s", ErrInput, name)
	}
	if isBool {
		v, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%w: flag -%s must be true or false", ErrInput, name)
		}
		l.set(path, at, v)
		return nil
	}
	l.set(path, at, value)
	return nil
}

// settingOf is the setting of a flag: consul-ssl-ca-cert is consul.ssl.ca_cert.
// It is empty for a flag that does not exist.
func settingOf(flag string) string {
	if path := flagSettings()[flag]; path != "" {
		return path
	}
	name := strings.ReplaceAll(flag, "-", "_")
	for _, prefix := range []string{
		"consul_retry", "consul_ssl", "consul_transport", "vault_retry", "vault_ssl", "vault_transport",
		"exec_env", "exec", "syslog", "consul", "vault",
	} {
		if rest, ok := strings.CutPrefix(name, prefix+"_"); ok {
			name = strings.ReplaceAll(prefix, "_", ".") + "." + rest
			break
		}
	}
	if _, known := consulTemplate.rule(name); !known {
		return ""
	}
	return name
}

// set adds a setting as the block that a file would have.
func (l *commandLine) set(path string, at Position, value any) {
	l.settings = append(l.settings, nested(strings.Split(path, "."), at, value))
}

func nested(names []string, at Position, value any) node {
	n := node{name: names[0], at: at, value: value}
	if len(names) > 1 {
		n.value = block{nested(names[1:], at, value)}
	}
	return n
}

// templatePart is consul-template's pattern for the parts of -template.
var templatePart = text.Pattern("([a-zA-Z]:)?([^:]+)")

// templateFlag splits SOURCE:DESTINATION:COMMAND.
func templateFlag(at Position, value string) block {
	parts := templatePart().FindAllString(value, -1)
	var b block
	for i, name := range []string{"source", "destination"} {
		if i < len(parts) {
			b = append(b, node{name: name, at: at, value: parts[i]})
		}
	}
	if len(parts) > 2 {
		b = append(b, node{name: "command", at: at, value: []any{strings.Join(parts[2:], ":")}})
	}
	return b
}
