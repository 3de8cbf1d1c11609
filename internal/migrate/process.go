package migrate

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// process converts the block exec, and what envconsul does with its command. It
// returns how many processes it wrote.
func (c *converter) process(out *output) int {
	g := c.global
	var b output
	enabled, on := g.flag("exec.enabled")
	of, argv := g.list("exec.command")
	if of == nil || strings.TrimSpace(argv[0]) == "" || enabled != nil && !on {
		c.noProcess(of, enabled != nil && !on)
		return 0
	}
	name := filepath.Base(strings.Fields(argv[0])[0])
	b.attribute("command", quoteList(c.command(of, argv)), of)
	g.signal(&b, "kill_signal", "exec.kill_signal", c.tool.killSignal)
	g.positive(&b, "kill_timeout", "exec.kill_timeout")
	g.signal(&b, "reload_signal", "exec.reload_signal", "")
	if of, splay := g.duration("exec.splay"); of != nil && splay > 0 {
		b.attribute("splay", quote(splay.String()), of)
	}
	if w := c.window; w != nil && len(c.sourceBlocks("prefix", "secret")) > 0 {
		b.attribute("wait", w.expr(), w.of)
	}
	c.env(&b)
	out.line()
	out.block("process "+quote(templateName(name, map[string]bool{})), &b)
	return 1
}

// noProcess names the settings of a process that there is not.
func (c *converter) noProcess(command *setting, disabled bool) {
	reason := "there is no command"
	if disabled {
		reason = "exec is disabled"
	}
	if command != nil {
		c.global.find(command, NotNeeded, "%s", reason)
	}
	for _, of := range c.global.order {
		if !of.used && strings.HasPrefix(of.path, "exec.") {
			if _, known := c.tool.rule(of.path); known {
				c.global.find(of, NotNeeded, "%s", reason)
			}
		}
	}
}

// command returns the command of a process. consul-template runs a command that is
// one text in a shell, and signals the shell and what it started. jorc signals the
// program alone, so that a shell is used only where it is needed.
func (c *converter) command(of *setting, argv []string) []string {
	if len(argv) > 1 {
		return argv
	}
	fields := strings.Fields(argv[0])
	if len(fields) == 1 || !strings.ContainsAny(argv[0], "|&;<>()$`\\\"'*?[#~=%!{}\n") {
		return fields
	}
	if !strings.HasPrefix(fields[0], "exec") {
		c.find(of.at, of.path, Check, "signals go to the shell alone, not to the program that it starts; write the command as a list, or begin it with exec")
	}
	return []string{"sh", "-c", argv[0]}
}

// env writes the block env.
func (c *converter) env(out *output) {
	g := c.global
	var b output
	if of, on := g.flag("exec.env.pristine"); of != nil && on {
		b.attribute("pristine", "true", of)
	}
	for _, list := range []struct{ name, old string }{{"allowlist", "whitelist"}, {"denylist", "blacklist"}} {
		of, names := g.list("exec.env." + list.name)
		old, more := g.list("exec.env." + list.old)
		if of == nil {
			of = old
		}
		if of != nil {
			b.attribute(list.name, quoteList(append(names, more...)), of)
		}
	}
	if of, custom := g.list("exec.env.custom"); of != nil {
		variables := slices.DeleteFunc(slices.Clone(custom), func(v string) bool { return strings.IndexByte(v, '=') < 1 })
		if len(variables) < len(custom) {
			c.find(of.at, of.path, NoEquivalent, "a variable without a name or a value is left out")
		}
		if len(variables) > 0 {
			b.attribute("custom", quoteList(variables), of)
		}
	}
	c.variables(&b)
	out.block("env", &b)
}

// signal writes a signal, or the tool's own default where jorc's differs.
func (s *scope) signal(b *output, name, path, standard string) {
	of, value := s.text(path)
	value = strings.ToUpper(value)
	switch {
	case of == nil && standard != "" && standard != "SIGTERM":
		b.attribute(name, quote(standard), nil)
	case of == nil, value == "SIGNULL":
	case !slices.Contains(config.Signals(), value):
		s.find(of, NoEquivalent, "jorc sends %s only", strings.Join(config.Signals(), ", "))
	default:
		b.attribute(name, quote(value), of)
	}
}

// positive writes a duration above zero.
func (s *scope) positive(b *output, name, path string) {
	of, value := s.duration(path)
	switch {
	case of == nil:
	case value == 0:
		s.find(of, Check, "it is zero, which jorc writes as 1ms")
		b.attribute(name, quote(time.Millisecond.String()), of)
	default:
		b.attribute(name, quote(value.String()), of)
	}
}

// sourceBlocks are the blocks of these names.
func (c *converter) sourceBlocks(names ...string) []*scope {
	var list []*scope
	for _, s := range c.blocks {
		if slices.Contains(names, s.name) {
			list = append(list, s)
		}
	}
	return list
}
