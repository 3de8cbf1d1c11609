package migrate

import (
	"slices"
	"strings"
	"text/template/parse"
)

// Functions of templates for which jorc needs a setting, or which it does not have.
var (
	envFunctions = []string{"env", "mustEnv", "envOrDefault"}
	unsupported  = []string{"writeToFile", "spew_dump", "spew_printf"}
)

// functions looks at the functions that a template uses: jorc has some of them only
// if template_options allows them.
func (s *scope) functions(of *setting, text string) {
	trees := map[string]*parse.Tree{}
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(text, s.delimiter("left"), s.delimiter("right"), trees); err != nil {
		s.c.find(of.at, of.path, Check, "the template cannot be parsed: it does not render")
		return
	}
	u := usage{}
	for _, t := range trees {
		if t.Root != nil {
			u.node(t.Root)
		}
	}
	for _, name := range u.env {
		s.c.allowEnv[name] = true
	}
	if u.anyEnv {
		s.c.find(of.at, of.path, NoEquivalent, "the template computes the name of an environment variable; add the variables that it may read to template_options { allow_env }")
	}
	s.c.plugin = s.c.plugin || u.plugin
	slices.Sort(u.missing)
	for _, name := range slices.Compact(u.missing) {
		s.c.find(of.at, of.path, NoEquivalent, "the template uses %s, which jorc does not have", name)
	}
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

// usage is what a template uses besides data.
type usage struct {
	env     []string // names of environment variables
	anyEnv  bool     // a computed name, too
	plugin  bool
	missing []string // functions that jorc does not have
}

func (u *usage) node(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, inner := range n.Nodes {
			u.node(inner)
		}
	case *parse.ActionNode:
		u.node(n.Pipe)
	case *parse.IfNode:
		u.branch(&n.BranchNode)
	case *parse.RangeNode:
		u.branch(&n.BranchNode)
	case *parse.WithNode:
		u.branch(&n.BranchNode)
	case *parse.TemplateNode:
		u.node(n.Pipe)
	case *parse.PipeNode:
		if n == nil {
			return
		}
		for _, c := range n.Cmds {
			u.command(c)
		}
	case *parse.ChainNode:
		u.node(n.Node)
	case *parse.IdentifierNode: // a function without arguments
		u.function(n.Ident, nil)
	}
}

func (u *usage) branch(n *parse.BranchNode) {
	u.node(n.Pipe)
	u.node(n.List)
	u.node(n.ElseList)
}

func (u *usage) command(c *parse.CommandNode) {
	if f, ok := c.Args[0].(*parse.IdentifierNode); ok {
		u.function(f.Ident, c.Args[1:])
	} else {
		u.node(c.Args[0])
	}
	for _, arg := range c.Args[1:] {
		u.node(arg)
	}
}

func (u *usage) function(name string, args []parse.Node) {
	switch {
	case slices.Contains(envFunctions, name):
		if len(args) > 0 {
			if s, ok := args[0].(*parse.StringNode); ok {
				u.env = append(u.env, s.Text)
				return
			}
		}
		u.anyEnv = true
	case name == "plugin":
		u.plugin = true
	case slices.Contains(unsupported, name), strings.HasPrefix(name, "nomad"):
		u.missing = append(u.missing, name)
	}
}
