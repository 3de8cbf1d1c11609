package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/templatetree"
)

// options are what a template may do.
type options struct {
	config.TemplateOptions
	LookupEnv func(string) (string, bool)
	// Functions are added to, and go before, those of consul-template.
	Functions template.FuncMap
	Params    bool // there are params
}

func (o *options) allows(function string) bool {
	for _, f := range o.AllowFunctions {
		if f == function {
			return true
		}
	}
	return false
}

// source is a template's text, read and instrumented once.
type source struct {
	text        string            // instrumented
	sum         [sha256.Size]byte // of text
	written     string            // as it was written
	words       map[string]bool   // of written; nil: it is short
	inserted    []insertion
	left, right string
	missingKey  bool
	plain       bool // it calls own functions only; see runPlain
	destination string
	sandboxPath string
	denylist    []string
	opts        *options // of all templates

	mu    sync.Mutex
	shown map[string]bool // dependency ids whose computed names may be shown; see mark
}

// Text returns the text of a template: its contents, or what its source holds.
func Text(c *config.Template) (string, error) {
	if c.Source == "" {
		return c.Contents, nil
	}
	data, err := durable.ReadFile(c.Source, maxFile)
	if err != nil {
		return "", fmt.Errorf("template %q: read the source: %w", c.Name, err)
	}
	return string(data), nil
}

// load reads and parses the template of c.
func load(c *config.Template, o *options) (*source, error) {
	text, err := Text(c)
	if err != nil {
		return nil, err
	}
	marked, inserted, trees, err := instrument(text, c.LeftDelim, c.RightDelim)
	if err != nil {
		return nil, fmt.Errorf("template %q: %w", c.Name, err)
	}
	return &source{
		text: marked, sum: sha256.Sum256([]byte(marked)), written: text, words: wordsOf(text), inserted: inserted, left: c.LeftDelim, right: c.RightDelim,
		missingKey: c.ErrorOnMissingKey, plain: len(c.FunctionDenylist) == 0 && text != "" && o.plain(trees),
		destination: c.Destination, sandboxPath: c.SandboxPath, denylist: c.FunctionDenylist, opts: o,
	}, nil
}

// plain reports whether templates call only functions that are jorc's own or Go's.
func (o *options) plain(trees map[string]*parse.Tree) bool {
	plain := true
	for _, tree := range trees {
		templatetree.Walk(tree.Root, func(n parse.Node) {
			if f, ok := n.(*parse.IdentifierNode); ok {
				plain = plain && o.Functions[f.Ident] == nil && (isGoFunction(f.Ident) || ownFunctionNames()[f.Ident])
			}
		})
	}
	return plain
}

// isGoFunction reports whether text/template has a function of that name.
func isGoFunction(name string) bool {
	switch name {
	case "and", "or", "not", "len", "index", "slice", "call", "print", "printf", "println", "html", "js", "urlquery", "eq", "ne", "lt", "le", "gt", "ge":
		return true
	}
	return false
}

// ownFunctionNames are the names of execution.ownFunctions.
var ownFunctionNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for name := range (&execution{}).ownFunctions() {
		names[name] = true
	}
	return names
})

// Names of the functions that instrumented templates call: tick at every turn
// of a range, enter at the start of every template. They end an execution that
// does not end or grows without bound; text/template itself cannot be
// interrupted, and what calls itself by executeTemplate overflows the stack,
// which ends the process.
const (
	tick  = "jorcTick"
	enter = "jorcEnter"
)

// insertion is what instrument put into a template.
type insertion struct {
	at, length int // in the template as it was written; bytes
}

// instrument inserts calls of tick into the source of a template. The output
// stays as it was: the insertion takes over the trim marker of its neighbour. It also
// returns the trees of the source as it was written.
func instrument(text, left, right string) (string, []insertion, map[string]*parse.Tree, error) {
	if left == "" {
		left = "{{"
	}
	if right == "" {
		right = "}}"
	}
	trees, err := templatetree.Parse(text, left, right)
	if err != nil {
		return "", nil, nil, fmt.Errorf(parsing+"%w", err)
	}
	var places []place
	note := func(function string, l *parse.ListNode) {
		if l != nil {
			places = append(places, place{at: int(l.Position()), weight: weigh(l), function: function})
		}
	}
	for _, tree := range trees {
		note(enter, tree.Root)
		templatetree.Walk(tree.Root, func(n parse.Node) {
			if loop, ok := n.(*parse.RangeNode); ok {
				note(tick, loop.List)
			}
		})
	}
	slices.SortFunc(places, func(a, b place) int { return a.at - b.at })
	var b strings.Builder
	inserted := make([]insertion, 0, len(places))
	last := 0
	for _, p := range places {
		at := p.at
		b.WriteString(text[last:at])
		before := b.Len()
		b.WriteString(left)
		if trims(text[at:], left) {
			b.WriteString("-")
		}
		fmt.Fprintf(&b, " %s %d ", p.function, p.weight)
		b.WriteString(right)
		inserted = append(inserted, insertion{at: at, length: b.Len() - before})
		last = at
	}
	b.WriteString(text[last:])
	return b.String(), inserted, trees, nil
}

// trims reports whether text begins with an action that trims the space before it.
func trims(text, left string) bool {
	rest, ok := strings.CutPrefix(text, left+"-")
	return ok && rest != "" && strings.ContainsRune(" \t\r\n", rune(rest[0]))
}

// place is where a call goes, the start of a body, and how many bytes of text
// every turn writes. A list's position is that of its first token, which for an
// action is its left delimiter.
type place struct {
	at, weight int
	function   string
}

// weigh counts the text of a body, without that of nested branches.
func weigh(l *parse.ListNode) int {
	n := 0
	for _, node := range l.Nodes {
		if t, ok := node.(*parse.TextNode); ok {
			n += len(t.Text)
		}
	}
	return n
}

// Check reports why a template cannot be parsed: its source cannot be read, its
// syntax is wrong, or a function does not exist.
func Check(c *config.Template) error {
	o := options{LookupEnv: func(string) (string, bool) { return "", false }}
	o.RenderTimeout, o.MaxOutput = time.Second, 1<<20
	s, err := load(c, &o)
	if err != nil {
		return err
	}
	r := s.execute(context.Background(), nothing{})
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
	s, err := load(c, &options{})
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
