package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/templatetree"
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
	trees, err := templatetree.Parse(s.text, s.left, s.right)
	if err != nil {
		return nil, fmt.Errorf("template %q: parse: %w", c.Name, err)
	}
	var hidden []string
	for _, tree := range trees {
		templatetree.Walk(tree.Root, func(n parse.Node) {
			if name, ok := variable(n); ok && !(name == "" && len(allowed) > 0 || allows(allowed, name)) {
				hidden = append(hidden, name)
			}
		})
	}
	slices.Sort(hidden)
	return slices.Compact(hidden), nil
}

// variable returns the argument of a call of env, mustEnv or envOrDefault; "" for
// one that is not a constant.
func variable(n parse.Node) (name string, ok bool) {
	c, ok := n.(*parse.CommandNode)
	if !ok {
		return "", false
	}
	f, ok := c.Args[0].(*parse.IdentifierNode)
	if !ok || !slices.Contains([]string{"env", "mustEnv", "envOrDefault"}, f.Ident) {
		return "", false
	}
	if len(c.Args) > 1 {
		if s, ok := c.Args[1].(*parse.StringNode); ok {
			name = s.Text
		}
	}
	return name, true
}
