// Package templatetree parses templates without executing them and visits the
// nodes of their syntax trees.
package templatetree

import (
	"text/template/parse"
)

// Parse returns the trees of a template's text and of the templates that it
// defines, by name. It accepts unknown functions. Empty delimiters are {{ and }}.
func Parse(text, left, right string) (map[string]*parse.Tree, error) {
	trees := map[string]*parse.Tree{}
	root := parse.New("")
	root.Mode = parse.SkipFuncCheck
	_, err := root.Parse(text, left, right, trees)
	return trees, err
}

// Walk calls visit for n and for all nodes below it, parents first.
func Walk(n parse.Node, visit func(parse.Node)) {
	if list, ok := n.(*parse.ListNode); ok && list == nil {
		return
	}
	visit(n)
	pipe := func(p *parse.PipeNode) {
		if p != nil {
			Walk(p, visit)
		}
	}
	branch := func(b *parse.BranchNode) {
		pipe(b.Pipe)
		Walk(b.List, visit)
		Walk(b.ElseList, visit)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, c := range n.Nodes {
			Walk(c, visit)
		}
	case *parse.ActionNode:
		pipe(n.Pipe)
	case *parse.TemplateNode:
		pipe(n.Pipe)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			Walk(c, visit)
		}
	case *parse.CommandNode:
		for _, arg := range n.Args {
			Walk(arg, visit)
		}
	case *parse.ChainNode:
		Walk(n.Node, visit)
	}
}
