package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/templatetree"
)

// filterText is the value of the param cluster/filter. Scripts of Digital Rebar pass it to
// drpcli without quotes around it, and the filters of jorc have quotes, parentheses and
// blanks in them: so it prints as one word where a shell reads it outside of quotes, and
// everywhere else as it is.
type filterText string

// asFilter returns the value of a param for templates.
func asFilter(param string, v any) any {
	if text, ok := v.(string); ok && param == cluster.ParamFilter {
		return filterText(text)
	}
	return v
}

// wordFunction is called with each value that a script prints.
const wordFunction = "_word"

// printWords makes t print each filterText as a word where out is the script of a shell and
// has not begun to quote.
func printWords(t *template.Template, out *limited) {
	shell, seen := newShellReader(), 0
	t.Funcs(template.FuncMap{wordFunction: func(v any) (any, error) {
		if _, ok := v.(filterText); !ok || !isShell(interpreter(tidy(out.text.String()))) {
			return v, nil
		}
		shell.read(out.text.String()[seen:])
		if seen = out.text.Len(); shell.quoted() {
			return v, nil
		}
		word, err := quote(v)
		if shell.backquoted() {
			word = strings.NewReplacer(`\`, `\\`, "`", "\\`", "$", `\$`).Replace(word)
		}
		return word, err
	}})
	for _, t := range t.Templates() {
		if t.Tree == nil {
			continue
		}
		templatetree.Walk(t.Root, func(n parse.Node) {
			if n, ok := n.(*parse.ActionNode); ok && len(n.Pipe.Decl) == 0 {
				call := parse.NewIdentifier(wordFunction).SetPos(n.Pos).SetTree(t.Tree)
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{call}})
			}
		})
	}
}

// Warnings names the scripts that have the param cluster/filter inside quotes, where it
// cannot be a word of its own.
func Warnings(workflows []config.Workflow) []error {
	var all []error
	for i := range workflows {
		for _, t := range workflows[i].Tasks {
			parsed, err := parseText(t.Script)
			if err != nil || parsed.Tree == nil || !isShell(interpreter(tidy(t.Script))) {
				continue // Check reports what is wrong
			}
			w := &quoteWalk{shell: newShellReader(), filters: map[string]bool{}, lines: map[int]bool{}, in: parsed}
			w.list(parsed.Root)
			for _, line := range slices.Sorted(maps.Keys(w.lines)) {
				all = append(all, fmt.Errorf("workflow %q: task %q: script: line %d: the param %q stands inside quotes, where it prints as it is: "+
					"a quote in the filter ends them; leave them out: it prints as one word", workflows[i].Name, t.Name, line, cluster.ParamFilter))
			}
		}
	}
	return all
}

// quoteWalk reads the text of a script, with one way through its conditions after the other.
type quoteWalk struct {
	in      *template.Template
	shell   *shellReader
	filters map[string]bool // variables that hold the param
	lines   map[int]bool    // where it is inside quotes
	depth   int             // of templates
}

// deepest bounds the templates that include templates.
const deepest = 10

func (w *quoteWalk) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		w.node(n)
	}
}

func (w *quoteWalk) node(n parse.Node) {
	switch n := n.(type) {
	case *parse.TextNode:
		w.shell.read(string(n.Text))
	case *parse.ActionNode:
		filter := w.isFilter(n.Pipe)
		for _, v := range n.Pipe.Decl {
			w.filters[v.Ident[0]] = filter
		}
		if len(n.Pipe.Decl) > 0 {
			return
		}
		if filter && w.shell.quoted() {
			w.lines[n.Line] = true
		}
		w.shell.read("x")
	case *parse.IfNode:
		w.branch(&n.BranchNode)
	case *parse.RangeNode:
		w.branch(&n.BranchNode)
	case *parse.WithNode:
		w.branch(&n.BranchNode)
	case *parse.TemplateNode:
		if t := w.in.Lookup(n.Name); t != nil && t.Tree != nil && w.depth < deepest {
			w.depth++
			w.list(t.Root)
			w.depth--
		}
	}
}

func (w *quoteWalk) branch(b *parse.BranchNode) {
	before := w.shell.clone()
	w.list(b.List)
	after := w.shell
	w.shell = before
	w.list(b.ElseList)
	w.shell = after
}

// isFilter reports whether a pipeline reads the param.
func (w *quoteWalk) isFilter(p *parse.PipeNode) (is bool) {
	templatetree.Walk(p, func(n parse.Node) {
		switch n := n.(type) {
		case *parse.VariableNode:
			is = is || w.filters[n.Ident[0]]
		case *parse.CommandNode:
			if len(n.Args) == 2 && strings.HasSuffix(n.Args[0].String(), ".Param") {
				name, ok := n.Args[1].(*parse.StringNode)
				is = is || ok && name.Text == cluster.ParamFilter
			}
		}
	})
	return is
}
