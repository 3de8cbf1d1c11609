package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/text"
)

// envconsul has the settings that its documentation names, of the versions since 0.6.
var envconsul = &tool{
	name: "envconsul", rules: sync.OnceValue(envconsulRules), repeated: []string{"prefix", "secret", "service"}, killSignal: "SIGTERM",
	moved: map[string]string{
		"token": "consul.token", "auth": "consul.auth", "ssl": "consul.ssl", "retry": "consul.retry", "pristine": "exec.env.pristine",
		"kill_signal": "exec.kill_signal", "reload_signal": "exec.reload_signal", "splay": "exec.splay", "timeout": "exec.kill_timeout",
	},
}

func envconsulRules() map[string]rule {
	rules := map[string]rule{
		"consul.retry":     notNeeded(retries),
		"prefixes":         becomes("process.env.prefix"),
		"prefix.path":      becomes("process.env.prefix"),
		"prefix.format":    becomes("process.env.prefix.format"),
		"prefix.no_prefix": becomes("process.env.prefix.format"),
		"secret.path":      becomes("process.env.secret"),
		"secret.format":    becomes("process.env.secret.format"),
		"secret.no_prefix": becomes("process.env.secret.format"),
		"secret.key.*":     missing("name a key with the format of its whole secret, or render a file"),
		"prefix.key.*":     missing("name a key with the format of its whole prefix, or render a file"),
		"service.*":        missing("render a file with the template function service"),
		"sanitize":         becomes("process.env.sanitize"),
		"upcase":           becomes("process.env.upcase"),
		"separator":        missing("names have the key's own characters, or _ with sanitize"),
		"vault.renew":      missing("jorc does not renew the token; let an agent of Vault write it to token_file"),
		"vault.grace":      notNeeded("jorc reads a secret again before its lease ends"),
		"wait.min":         becomes("process.wait"),
		"wait.max":         becomes("process.wait"),
		"wait.bool":        becomes("process.wait"),
	}
	for path, r := range consulTemplateRules() {
		first, _, _ := strings.Cut(path, ".")
		if slices.Contains([]string{"consul", "vault", "exec", "log_level", "max_stale", "pid_file", "syslog", "once", "v", "version"}, first) {
			rules[path] = r
		}
	}
	rules["once"] = missing("jorc agent --once runs the process to its end, jorc agent follows changes")
	return rules
}

// Envconsul converts the configuration that envconsul reads from files, directories
// and its own command line: flags, then the command that it runs.
func Envconsul(paths, args []string, o Options) (*Result, error) {
	line, err := parseEnvconsul(args)
	if err != nil {
		return nil, err
	}
	return convert(envconsul, paths, line, o)
}

// envconsulFlags returns the flags whose setting has another name.
func envconsulFlags() map[string]string {
	return map[string]string{
		"consul-addr": "consul.address", "consul": "consul.address", "vault-addr": "vault.address", "vault-agent-token-file": "vault.vault_agent_token_file",
		"retry": "consul.retry", "exec": "exec.command", "syslog": "syslog.enabled", "consul-ssl": "consul.ssl.enabled", "ssl": "consul.ssl.enabled",
		"vault-ssl": "vault.ssl.enabled", "consul-retry": "consul.retry.enabled", "vault-retry": "vault.retry.enabled", "wait": "wait",
	}
}

// envconsulBools returns the flags whose value is true when it is not given.
func envconsulBools() []string {
	return append(boolFlags(), "sanitize", "upcase", "pristine", "ssl", "ssl-verify", "no-prefix")
}

// parseEnvconsul parses the command line of envconsul.
func parseEnvconsul(args []string) (commandLine, error) {
	var line commandLine
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" && i+1 < len(args) {
			i++
			arg = args[i]
		}
		if !strings.HasPrefix(arg, "-") {
			command := make([]any, 0, len(args)-i)
			for _, word := range args[i:] {
				command = append(command, word)
			}
			line.set("exec.command", Position{Flag: "the command"}, command)
			return line, nil
		}
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		isBool := slices.Contains(envconsulBools(), name)
		if !given {
			var err error
			if value, err = valueOf(name, isBool, args, &i); err != nil {
				return line, err
			}
		}
		if err := line.envconsulFlag(name, value, isBool); err != nil {
			return line, err
		}
	}
	return line, nil
}

func (l *commandLine) envconsulFlag(name, value string, isBool bool) error {
	at := Position{Flag: "-" + name}
	path := envconsulFlags()[name]
	if path == "" {
		path = settingOf(name)
	}
	if path == "" {
		path = strings.ReplaceAll(name, "-", "_")
		if _, known := envconsul.rule("exec." + path); known {
			path = "exec." + path
		}
	}
	switch name {
	case "config":
		l.config = append(l.config, value)
		return nil
	case "prefix", "secret":
		l.settings = append(l.settings, node{name: name, at: at, value: block{{name: "path", at: at, value: value}}})
		return nil
	case "consul-auth", "auth":
		l.set("consul.auth.username", at, value)
		return nil
	case "no-prefix":
		return fmt.Errorf("%w: flag -no-prefix: write no_prefix into the blocks prefix and secret of a file", ErrInput)
	}
	if _, known := envconsul.rule(path); !known && envconsul.moved[path] == "" {
		if block, _, ok := strings.Cut(path, "_"); !ok || envconsul.moved[block] == "" {
			return fmt.Errorf("%w: envconsul has no flag -%s", ErrInput, name)
		}
		path = strings.Replace(path, "_", ".", 1) // ssl-verify is ssl.verify
	}
	if !isBool {
		l.set(path, at, value)
		return nil
	}
	v, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%w: flag -%s must be true or false", ErrInput, name)
	}
	l.set(path, at, v)
	return nil
}

// variables writes the variables that envconsul takes from KV and Vault.
func (c *converter) variables(b *output) {
	g := c.global
	if of, paths := g.list("prefixes"); of != nil {
		for _, path := range paths {
			b.emptyBlock("prefix " + quote(strings.TrimPrefix(path, "/")))
		}
	}
	for _, name := range []string{"prefix", "secret"} {
		for _, s := range c.sourceBlocks(name) {
			s.source(b)
		}
	}
	for _, name := range []string{"upcase", "sanitize"} {
		if of, on := g.flag(name); of != nil && on {
			b.attribute(name, "true", of)
		}
	}
}

// notInNames are the characters of a path that become _ in names of variables.
var notInNames = text.Pattern("[^a-zA-Z0-9_]")

// source writes one prefix or secret. Names begin with the path of a secret, unless
// no_prefix is set, and with that of a prefix only if no_prefix is false.
func (s *scope) source(b *output) {
	of, path := s.text(s.name + ".path")
	if of == nil {
		for _, of := range s.order {
			if !of.used {
				s.find(of, NotNeeded, "envconsul ignores a %s without a path", s.name)
			}
		}
		return
	}
	path = strings.TrimPrefix(path, "/")
	format := "{{ key }}"
	if given, text := s.text(s.name + ".format"); given != nil {
		if format = keyFormat().ReplaceAllString(text, "{{ key }}"); strings.Count(format, "{{") != 1 || !strings.Contains(format, "{{ key }}") {
			s.find(given, NoEquivalent, "a format contains {{ key }} once, and no other action")
			format = "{{ key }}"
		}
	}
	bare := s.name == "prefix"
	if no, on := s.flag(s.name + ".no_prefix"); no != nil {
		bare = on
	}
	if !bare {
		name, _, _ := strings.Cut(path, "@")
		format = strings.Replace(format, "{{ key }}", notInNames().ReplaceAllString(strings.Trim(name, "/"), "_")+"_{{ key }}", 1)
	}
	var inner output
	if format != "{{ key }}" {
		inner.attribute("format", quote(format), nil)
	}
	b.comment(s.lines...)
	if inner.empty() {
		b.emptyBlock(s.name + " " + quote(path))
		return
	}
	b.block(s.name+" "+quote(path), &inner)
}

// keyFormat matches the action for the key.
var keyFormat = text.Pattern(`\{\{-?\s*key\s*-?\}\}`)
