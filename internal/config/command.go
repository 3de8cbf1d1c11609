package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// command reads a program with its arguments. A string is refused with what
// to write instead: there is no shell that would split it.
func command(p *[]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		if kindOf(a.Expr) == kindString {
			v, _ := constant(a.Expr)
			d.errorf(a.Expr.Range(), "Command is not a list", "A command is a list of arguments and no shell reads it: write %s = %s", a.Name, asList(v.AsString()))
			return
		}
		argv(d, a, p)
	}
}

// program reads a command, or the path of a program as a string.
func program(p *[]string) field {
	return func(d *decoder, a *hcl.Attribute) {
		switch got := kindOf(a.Expr); got {
		case kindString:
		case kindList:
			argv(d, a, p)
			return
		default:
			d.mismatch(a.Expr, a.Name, got, "the path of a program or a list with its arguments")
			return
		}
		var path string
		nonEmpty(&path)(d, a)
		if path != "" {
			*p = []string{path}
		}
	}
}

func argv(d *decoder, a *hcl.Attribute, p *[]string) {
	items, ok := d.elements(a.Expr, a.Name)
	if !ok {
		return
	}
	if len(items) == 0 {
		d.errorf(a.Expr.Range(), "Empty command", "%q names no program: leave it out, or write %s = [\"program\", \"argument\"]", a.Name, a.Name)
		return
	}
	args := make([]string, 0, len(items))
	for i, item := range items {
		s, ok := d.str(item, nth(a.Name, i))
		switch {
		case !ok:
			return
		case i == 0 && strings.TrimSpace(s) == "":
			d.errorf(item.Range(), "Empty command", "The first part of %q is the program and must not be empty.", a.Name)
			return
		case strings.ContainsRune(s, 0):
			d.errorf(item.Range(), "Invalid command", "An argument cannot contain a zero byte.")
			return
		}
		args = append(args, s)
	}
	*p = args
}

// asList shows how a command line is written as a list.
func asList(line string) string {
	parts := strings.Fields(line)
	if len(parts) == 0 {
		parts = []string{"nginx", "-t"}
	}
	if strings.ContainsAny(line, "|&;<>()$`\\\"'*?~") && !strings.Contains(line, "{{") {
		parts = []string{"/bin/sh", "-c", line}
	}
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strconv.Quote(part), "${", "$${")
	}
	return fmt.Sprintf("[%s]", strings.Join(parts, ", "))
}
