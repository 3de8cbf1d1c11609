package migrate

import (
	"maps"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/jorc/jorc/internal/templatetree"
)

// functions finds calls of functions that need a setting in jorc, or that jorc does
// not have.
func (s *scope) functions(of *setting, text string) {
	trees, err := templatetree.Parse(text, s.delimiter("left"), s.delimiter("right"))
	if err != nil {
		s.c.find(of.at, of.path, Check, "the template cannot be parsed, so that nothing is rendered")
		return
	}
	missing := map[string]bool{}
	for _, tree := range trees {
		templatetree.Walk(tree.Root, func(n parse.Node) {
			c, ok := n.(*parse.CommandNode)
			if !ok {
				return
			}
			f, ok := c.Args[0].(*parse.IdentifierNode)
			if !ok {
				return
			}
			switch name := f.Ident; {
			case name == "env", name == "mustEnv", name == "envOrDefault":
				s.variable(of, c.Args[1:])
			case name == "plugin":
				s.c.plugin = true
			case name == "writeToFile", name == "spew_dump", name == "spew_printf", strings.HasPrefix(name, "nomad"):
				missing[name] = true
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		s.c.find(of.at, of.path, NoEquivalent, "the template uses %s, which jorc does not have", name)
	}
}

// variable allows the environment variable that a template reads.
func (s *scope) variable(of *setting, args []parse.Node) {
	if len(args) > 0 {
		if name, ok := args[0].(*parse.StringNode); ok {
			s.c.allowEnv[name.Text] = true
			return
		}
	}
	s.c.find(of.at, of.path, NoEquivalent, "the template computes the name of an environment variable; name those that it may read in template_options { allow_env }")
}

// delimiter is the delimiter that the template has; empty: the language's own.
func (s *scope) delimiter(side string) string {
	if of := s.all["template."+side+"_delimiter"]; of != nil {
		if value, ok := of.value.(string); ok && value != "" {
			return value
		}
	}
	return s.c.delims[side]
}
