package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
	"time"

	"github.com/jorc/jorc/internal/config"
)

// Check reports why a template cannot be parsed: its source cannot be read, its
// syntax is wrong, or a function does not exist.
func Check(c *config.Template) error {
	o := options{LookupEnv: func(string) (string, bool) { return "", false }}
	o.RenderTimeout, o.MaxOutput = time.Second, 1<<20
	s, err := load(c, o)
	if err != nil {
		return err
	}
	r := s.execute(context.Background(), nothing{}, nil)
	if r.err != nil && strings.HasPrefix(r.err.Error(), parsing) {
		return fmt.Errorf("template %q: %w", c.Name, r.err)
	}
	return nil
}

// nothing is a view without data.
type nothing struct{}

func (nothing) recall(*dependency) (any, bool) { return nil, false }

// HiddenVariables returns the environment variables that a template reads but
// that template_options { allow_env } hides, sorted. A name that is computed is
// "" and counts as hidden when nothing is allowed. It fails as Check does.
func HiddenVariables(c *config.Template, allowed []string) ([]string, error) {
	s, err := load(c, options{})
	if err != nil {
		return nil, err
	}
	trees := map[string]*parse.Tree{}
	root := parse.New("")
	root.Mode = parse.SkipFuncCheck
	if _, err := root.Parse(s.text, s.left, s.right, trees); err != nil {
		return nil, fmt.Errorf("template %q: parse: %w", c.Name, err)
	}
	var hidden []string
	for _, tree := range trees {
		hidden = append(hidden, variables(tree.Root)...)
	}
	hidden = slices.DeleteFunc(hidden, func(name string) bool {
		return name == "" && len(allowed) > 0 || allows(allowed, name)
	})
	slices.Sort(hidden)
	return slices.Compact(hidden), nil
}

// variables returns the arguments of env, mustEnv and envOrDefault below a node;
// "" for one that is not a constant.
func variables(n parse.Node) (names []string) {
	below := func(nodes ...parse.Node) {
		for _, n := range nodes {
			names = append(names, variables(n)...)
		}
	}
	branch := func(b *parse.BranchNode) {
		below(b.Pipe, b.List)
		if b.ElseList != nil {
			below(b.ElseList)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			below(n.Nodes...)
		}
	case *parse.ActionNode:
		below(n.Pipe)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			below(n.Pipe)
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			below(c)
		}
	case *parse.ChainNode:
		below(n.Node)
	case *parse.CommandNode:
		below(n.Args...)
		if f, ok := n.Args[0].(*parse.IdentifierNode); ok && slices.Contains([]string{"env", "mustEnv", "envOrDefault"}, f.Ident) {
			name := ""
			if len(n.Args) > 1 {
				if s, ok := n.Args[1].(*parse.StringNode); ok {
					name = s.Text
				}
			}
			names = append(names, name)
		}
	}
	return names
}
