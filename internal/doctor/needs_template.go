package doctor

import (
	"os"
	"strings"
	"text/template/parse"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// templateReads lists the rights for the names that a template contains literally;
// names that it computes are unknown. A template that cannot be read or parsed needs
// no rights here: the check of the configuration reports it.
func templateReads(t *config.Template) []consul.Right {
	text := t.Contents
	if t.Source != "" {
		data, err := os.ReadFile(t.Source)
		if err != nil {
			return nil
		}
		text = string(data)
	}
	trees := map[string]*parse.Tree{}
	root := parse.New(t.Name)
	root.Mode = parse.SkipFuncCheck
	if _, err := root.Parse(text, t.LeftDelim, t.RightDelim, trees); err != nil {
		return nil
	}
	var r reads
	for _, name := range sortedKeys(trees) {
		if trees[name].Root != nil {
			r.walk(trees[name].Root)
		}
	}
	return r.rights
}

// reads collects rights from calls of consul-template's functions.
type reads struct{ rights []consul.Right }

func (r *reads) walk(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, c := range n.Nodes {
				r.walk(c)
			}
		}
	case *parse.ActionNode:
		r.pipe(n.Pipe)
	case *parse.IfNode:
		r.branch(&n.BranchNode)
	case *parse.RangeNode:
		r.branch(&n.BranchNode)
	case *parse.WithNode:
		r.branch(&n.BranchNode)
	case *parse.TemplateNode:
		r.pipe(n.Pipe)
	case *parse.PipeNode:
		r.pipe(n)
	case *parse.ChainNode:
		r.walk(n.Node)
	}
}

func (r *reads) branch(b *parse.BranchNode) {
	r.pipe(b.Pipe)
	r.walk(b.List)
	if b.ElseList != nil {
		r.walk(b.ElseList)
	}
}

func (r *reads) pipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	given := "" // a string that is piped into the next command
	for _, c := range p.Cmds {
		r.command(c, given)
		given = ""
		if s, ok := c.Args[0].(*parse.StringNode); ok && len(c.Args) == 1 {
			given = s.Text
		}
	}
}

func (r *reads) command(c *parse.CommandNode, given string) {
	for _, arg := range c.Args {
		r.walk(arg)
	}
	function, ok := c.Args[0].(*parse.IdentifierNode)
	if !ok {
		return
	}
	switch len(c.Args) {
	case 1:
		r.call(function.Ident, given)
	default:
		if s, ok := c.Args[1].(*parse.StringNode); ok {
			r.call(function.Ident, s.Text)
		}
	}
}

// call adds the right for one call; arg is empty if the call has no argument or a
// computed one.
func (r *reads) call(function, arg string) {
	switch function {
	case "service", "connect":
		if name, ok := serviceIn(arg); ok {
			r.add("service", "read", name)
		}
	case "caLeaf":
		if arg != "" {
			r.add("service", "write", arg)
		}
	case "node":
		if arg != "" && !strings.Contains(arg, "@") {
			r.add("node", "read", arg)
		}
	case "nodes":
		if !strings.Contains(arg, "@") {
			r.add("node", "read", "")
		}
	case "services":
		if !strings.Contains(arg, "@") {
			r.add("service", "read", "")
		}
	case "key", "keyExists", "keyExistsGet", "keyOrDefault":
		if name, ok := keyIn(arg); ok {
			r.add("key", "read", name)
		}
	case "ls", "safeLs", "tree", "safeTree":
		if name, ok := keyIn(arg); ok {
			r.add("key", "read", strings.TrimPrefix(strings.TrimSuffix(name, "/")+"/", "/"))
		}
	}
}

// keyIn returns the key in "KEY[?ns=…][@DC]"; ok is false for other datacenters.
func keyIn(text string) (name string, ok bool) {
	name, _, _ = strings.Cut(text, "?")
	return strings.TrimPrefix(name, "/"), text != "" && !strings.Contains(text, "@")
}

func (r *reads) add(resource, access, segment string) {
	r.rights = append(r.rights, consul.Right{Resource: resource, Access: access, Segment: segment})
}
