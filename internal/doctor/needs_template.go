package doctor

import (
	"os"
	"strings"
	"text/template/parse"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/templatetree"
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
	trees, err := templatetree.Parse(text, t.LeftDelim, t.RightDelim)
	if err != nil {
		return nil
	}
	var r reads
	for _, name := range sortedKeys(trees) {
		templatetree.Walk(trees[name].Root, func(n parse.Node) {
			if p, ok := n.(*parse.PipeNode); ok {
				r.pipe(p)
			}
		})
	}
	return r.rights
}

// reads collects rights from calls of consul-template's functions.
type reads struct{ rights []consul.Right }

func (r *reads) pipe(p *parse.PipeNode) {
	given := "" // a string that is piped into the next command
	for _, c := range p.Cmds {
		arg, known := given, true
		if len(c.Args) > 1 {
			var s *parse.StringNode
			if s, known = c.Args[1].(*parse.StringNode); known {
				arg = s.Text
			}
		}
		if f, ok := c.Args[0].(*parse.IdentifierNode); ok && known {
			r.call(f.Ident, arg)
		}
		given = ""
		if s, ok := c.Args[0].(*parse.StringNode); ok && len(c.Args) == 1 {
			given = s.Text
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
