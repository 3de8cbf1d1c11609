package migrate

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// template converts one template block. It reports whether it wrote one.
func (s *scope) template(out *output, names map[string]bool) bool {
	source, path := s.text("template.source")
	contents, text := s.text("template.contents")
	destination, to := s.text("template.destination")
	if to == "" || (source == nil) == (contents == nil) {
		for _, of := range s.order {
			if !of.used || of == source || of == contents || of == destination {
				s.find(of, NoEquivalent, "consul-template refuses the template: it needs a destination and either source or contents")
			}
		}
		if len(s.order) == 0 {
			s.c.find(s.at, "template", NoEquivalent, "consul-template refuses a template without settings")
		}
		return false
	}
	var b output
	if source != nil {
		path = s.c.absolute(source, path)
		b.attribute("source", quote(path), source)
		if src, err := s.c.ReadFile(path); err == nil {
			s.functions(source, string(src))
		}
	} else {
		b.attribute("contents", longText(text), contents)
		s.functions(contents, text)
	}
	to = s.c.absolute(destination, to)
	b.attribute("destination", quote(to), destination)
	s.createDirs(&b)
	s.perms(&b)
	s.owner(&b, "user", "template.user", "template.uid")
	s.owner(&b, "group", "template.group", "template.gid")
	s.delimiters(&b)
	if of, on := s.flag("template.error_on_missing_key"); of != nil && on {
		b.attribute("error_on_missing_key", "true", of)
	}
	s.denylist(&b)
	b.path("sandbox_path", s, "template.sandbox_path")
	s.wait(&b)
	if of, on := s.flag("template.backup"); of != nil && on {
		b.attribute("backup", "true", of)
	}
	s.reload(&b)
	out.line()
	out.comment(s.lines...)
	out.block("template "+quote(templateName(to, names)), &b)
	return true
}

// createDirs writes what consul-template does without a setting: it creates missing
// directories.
func (s *scope) createDirs(b *output) {
	of, on := s.flag("template.create_dest_dirs")
	if of == nil || on {
		b.attribute("create_dirs", "true", of)
	}
}

// perms writes octal permissions. A number is octal with a leading zero only, as in
// consul-template.
func (s *scope) perms(b *output) {
	of := s.get("template.perms")
	if of == nil {
		return
	}
	var mode int64
	switch v := of.value.(type) {
	case int64:
		mode = v
	case string:
		n, err := strconv.ParseUint(v, 8, 12)
		if err != nil {
			s.find(of, NoEquivalent, "its value is not octal permissions")
			return
		}
		mode = int64(n)
	default:
		s.wrongType(of, "octal permissions")
		return
	}
	switch {
	case mode == 0:
		s.find(of, NotNeeded, "zero means that it is not set")
		return
	case mode < 0 || mode > 0o7777:
		s.find(of, NoEquivalent, "its value is not octal permissions")
		return
	}
	of.used = true
	if mode&^0o777 != 0 {
		s.c.find(of.at, of.path, Check, "consul-template reads the value as %04o; quote it if you mean octal", mode)
	}
	b.attribute("perms", quote(fmt.Sprintf("%04o", mode)), of)
}

// owner writes a user or group; older files have numbers.
func (s *scope) owner(b *output, name, path, number string) {
	id := s.get(number)
	if of, value := s.text(path); of != nil {
		b.attribute(name, quote(value), of)
		if id != nil {
			s.find(id, NotNeeded, "consul-template uses %q instead", name)
		}
		return
	}
	if id == nil {
		return
	}
	n, ok := id.value.(int64)
	if !ok {
		s.wrongType(id, "a number")
		return
	}
	id.used = true
	b.attribute(name, quote(strconv.FormatInt(n, 10)), id)
}

// delimiters writes both delimiters, with the defaults of the whole configuration.
func (s *scope) delimiters(b *output) {
	for _, side := range []string{"left", "right"} {
		of, value := s.text("template." + side + "_delimiter")
		if of == nil {
			value = s.c.delims[side]
		}
		if value != "" {
			b.attribute(side+"_delim", quote(value), of)
		}
	}
}

func (s *scope) denylist(b *output) {
	of, names := s.list("template.function_denylist")
	old, more := s.list("template.function_blacklist")
	if of == nil {
		of = old
	}
	if of != nil {
		b.attribute("function_denylist", quoteList(append(names, more...)), of)
	}
}

// window is a quiescence window; nil: changes act at once.
type window struct {
	of         *setting
	least, max time.Duration
}

// window reads the window of a wait block. Without a minimum it is nil.
func (s *scope) window(path string) *window {
	enabled, on := s.flag(path + ".bool")
	of, least := s.duration(path + ".min")
	most, longest := s.duration(path + ".max")
	if of == nil || least == 0 || enabled != nil && !on {
		for _, unused := range []*setting{of, most} {
			if unused != nil {
				s.find(unused, NotNeeded, "without a minimum, or disabled, wait has no effect")
			}
		}
		return nil
	}
	w := &window{of: of, least: least, max: longest}
	switch {
	case most == nil && least > math.MaxInt64/4:
		w.max = least
	case most == nil:
		w.max = 4 * least
	case longest < least:
		s.find(most, Check, "it is less than the minimum, which is used instead")
		w.max = least
	}
	return w
}

// wait writes the template's own window, or that of the whole configuration.
func (s *scope) wait(b *output) {
	if w := s.window("template.wait"); w != nil {
		b.attribute("wait", w.expr(), w.of)
	} else if w := s.c.window; w != nil {
		b.attribute("wait", w.expr(), nil)
	}
}

func (w *window) expr() string { return quote(w.least.String() + ":" + w.max.String()) }

// reload writes the command that follows a change.
func (s *scope) reload(b *output) {
	of, argv := s.list("template.exec.command")
	if old, command := s.list("template.command"); old != nil {
		if of == nil {
			of, argv = old, command
		} else {
			s.find(old, NotNeeded, "consul-template uses exec { command } instead")
		}
	}
	timeout, limit := s.duration("template.exec.timeout")
	if old, other := s.duration("template.command_timeout"); old != nil {
		if timeout == nil {
			timeout, limit = old, other
		} else {
			s.find(old, NotNeeded, "consul-template uses exec { timeout } instead")
		}
	}
	if of == nil || strings.TrimSpace(argv[0]) == "" {
		for _, unused := range []*setting{of, timeout} {
			if unused != nil {
				s.find(unused, NotNeeded, "the template has no command")
			}
		}
		return
	}
	if len(argv) == 1 && len(strings.Fields(argv[0])) > 1 {
		argv = []string{"sh", "-c", argv[0]}
	}
	argv = append(s.environment(), argv...)
	b.attribute("reload", quoteList(argv), of)
	switch {
	case timeout == nil:
	case limit == 0:
		s.find(timeout, Check, "jorc limits each reload; %s means none", noLimit)
		b.attribute("reload_timeout", quote(noLimit.String()), timeout)
	default:
		b.attribute("reload_timeout", quote(limit.String()), timeout)
	}
}

// noLimit is the timeout of a reload that had none.
const noLimit = 24 * time.Hour

// environment is the beginning of a command that sets variables.
func (s *scope) environment() []string {
	_, custom := s.list("template.exec.env.custom")
	_, pristine := s.flag("template.exec.env.pristine")
	var argv []string
	if pristine {
		argv = []string{"env", "-i"}
	} else if len(custom) > 0 {
		argv = []string{"env"}
	}
	return append(argv, custom...)
}

// templateName is a name for the template of a destination that no other one has.
func templateName(destination string, names map[string]bool) string {
	name := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(filepath.Base(destination), "_")))
	if name == "" || name == "." || name == ".." || name == "/" {
		name = "template"
	}
	if len(name) > 100 {
		name = strings.ToValidUTF8(name[:100], "")
	}
	unique := name
	for n := 2; names[unique]; n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	names[unique] = true
	return unique
}
