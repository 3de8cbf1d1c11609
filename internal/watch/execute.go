package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	ct "github.com/hashicorp/consul-template/template"

	"github.com/jorc/jorc/internal/templatetree"
	"github.com/jorc/jorc/internal/text"
)

// view gives an execution its data.
type view interface {
	// recall returns the data of d; ok is false while it is unknown.
	recall(d *dependency) (value any, ok bool)
}

// execution is one run of a template over one state of its data.
type execution struct {
	source      *source
	opts        *options
	view        view
	destination string
	deadline    time.Time

	used    map[string]*dependency
	values  map[string]any    // what recall returned, so that one run sees one state
	missing map[string]string // dependency id → what it waits for

	size    int         // of values, in bytes
	tooMuch *dependency // the first with which size is above max_data; nil: none

	stop           <-chan struct{} // jorc is about to stop
	ticks, written int
	unbounded      bool // it was ended

	reason         string          // why one of our own functions failed; see fail
	known, scanned map[string]bool // words of names, and the data that they were taken from
}

// rendering is what came out of an execution.
type rendering struct {
	output  []byte
	used    map[string]*dependency
	values  map[string]any
	missing map[string]string // empty when the output is complete
	err     error
}

// errUnbounded ends an execution; see instrument.
var errUnbounded = errors.New("the template did not come to an end")

// maxTicks bounds the turns of ranges in one execution.
const maxTicks = 50_000_000

// execute runs the template over v. An error while data is missing does not count yet: the template waits.
func (s *source) execute(ctx context.Context, v view) rendering {
	x := s.execution(ctx, v)
	run := x.run
	if s.plain {
		run = x.runPlain
	}
	out, err := run(s)
	if err != nil {
		err = x.redact(err)
	}
	if x.unbounded && errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err()
	} else if x.unbounded {
		err = fmt.Errorf("%w within %s, %d turns and %d bytes (template_options { render_timeout, max_output })",
			errUnbounded, s.opts.RenderTimeout, maxTicks, s.opts.MaxOutput)
	}
	r := rendering{used: x.used, values: x.values, missing: x.missing, err: err}
	if err != nil && len(x.missing) > 0 && !errors.Is(err, errUnbounded) {
		r.err = nil // what is missing may be what it failed for
	}
	if x.tooMuch != nil {
		r.err = &tooMuchError{x.tooMuch, s.opts.MaxData}
		return r
	}
	if err == nil {
		r.output = out
		if limit := s.opts.MaxOutput; limit > 0 && len(out) > limit {
			r.output, r.err = nil, fmt.Errorf("the output has %d bytes; template_options { max_output } is %d", len(out), limit)
		}
	}
	return r
}

func (s *source) execution(ctx context.Context, v view) *execution {
	x := &execution{
		source: s, opts: s.opts, view: v, destination: s.destination, stop: ctx.Done(),
		deadline: time.Now().Add(s.opts.RenderTimeout),
		used:     map[string]*dependency{}, values: map[string]any{}, missing: map[string]string{},
	}
	if d, ok := ctx.Deadline(); ok && d.Before(x.deadline) {
		x.deadline = d
	}
	return x
}

// run executes the template with consul-template, which builds its three hundred functions and parses the template each time.
func (x *execution) run(s *source) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
		}
	}()
	t, err := ct.NewTemplate(&ct.NewTemplateInput{
		Contents: s.text, Destination: s.destination, LeftDelim: s.left, RightDelim: s.right,
		ErrMissingKey: s.missingKey, ExtFuncMap: x.functions(), FunctionDenylist: s.denylist,
	})
	if errors.Is(err, ct.ErrTemplateMissingContentsAndSource) {
		return nil, nil // an empty template renders an empty file
	}
	if err != nil {
		return nil, err
	}
	result, err := t.Execute(&ct.ExecuteInput{Brain: ct.NewBrain()})
	if err != nil {
		return nil, err
	}
	return result.Output, nil
}

// runPlain executes the template as consul-template does, without building its three
// hundred functions: the template calls none of them. It keeps nothing between
// executions, so ten thousand templates cost no memory.
func (x *execution) runPlain(s *source) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
		}
	}()
	option := "missingkey=zero"
	if s.missingKey {
		option = "missingkey=error"
	}
	t, err := template.New("").Delims(s.left, s.right).Funcs(x.ownFunctions()).Option(option).Parse(s.text)
	if err != nil {
		return nil, fmt.Errorf(parsing+"%w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, nil); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// recall notes that the template uses d and returns its data.
func (x *execution) recall(d *dependency) (any, bool) {
	if _, again := x.used[d.id]; !again {
		x.mark(d)
		x.used[d.id] = d
	}
	if value, ok := x.values[d.id]; ok {
		return value, true
	}
	if _, missing := x.missing[d.id]; missing {
		return nil, false // also if it came meanwhile: one execution sees one state of the data
	}
	value, ok := x.view.recall(d)
	if !ok {
		x.waitFor(d, "")
		return nil, false
	}
	if x.size += sizeOf(value); x.size > x.opts.MaxData && x.opts.MaxData > 0 {
		if x.tooMuch == nil {
			x.tooMuch = d
		}
		x.waitFor(d, "")
		return nil, false
	}
	x.values[d.id] = value
	return value, true
}

// waitFor says that the output will not be complete without d.
func (x *execution) waitFor(d *dependency, why string) { x.missing[d.id] = why }

// tick is called at every turn of a range, with the bytes of text that the
// turn writes; see instrument.
func (x *execution) tick(weight int) (string, error) {
	x.ticks++
	x.written += weight
	late := x.ticks%1024 == 0 && x.late()
	if late || x.ticks > maxTicks || x.opts.MaxOutput > 0 && x.written > x.opts.MaxOutput {
		x.unbounded = true
	}
	if x.unbounded {
		return "", errUnbounded
	}
	return "", nil
}

// late reports whether the execution has no time left.
func (x *execution) late() bool {
	select {
	case <-x.stop:
		return true
	default:
		return time.Now().After(x.deadline)
	}
}

// query makes what consul-template itself fetches. After its Stop it is of no use: who fetches makes one.
type query func() (dep.Dependency, error)

// foreign wraps a dependency that consul-template itself fetches.
func foreign(asked string, q query) (*dependency, error) {
	made, err := q()
	if err != nil {
		return nil, err
	}
	return &dependency{id: made.String(), kind: kindForeign, asked: asked, foreign: q, made: made, vault: made.Type() == dep.TypeVault}, nil
}

// maxFrames bounds how deep templates call each other: some hundred levels.
const maxFrames = 5_000

// enter is called at the start of every template.
func (x *execution) enter(weight int) (string, error) {
	var pc [1]uintptr
	if runtime.Callers(maxFrames, pc[:]) > 0 {
		x.unbounded = true
	}
	return x.tick(weight)
}

// line is the function that marks in the output which line of the template writes what
// follows. A negative number: the output up to the next mark is text of the template, whose
// line breaks are those of the template.
const line = "jorcLine"

func markLine(number int) string { return fmt.Sprintf("\x1e%d\x1f", number) }

var lineMark = text.Pattern("\x1e(-?[0-9]+)\x1f")

// outputLines executes the template again, with marks, and returns for each line of output the
// line of the template that began to write it; nil if marks change what it writes.
func (s *source) outputLines(ctx context.Context, v view, output []byte) []int {
	marked := &source{
		text: s.lineMarks(), written: s.written, words: s.words, left: s.left, right: s.right, missingKey: s.missingKey, plain: s.plain,
		destination: s.destination, sandboxPath: s.sandboxPath, denylist: s.denylist, opts: s.opts,
	}
	r := marked.execute(ctx, v)
	if r.err != nil || len(r.missing) > 0 {
		return nil
	}
	var plain []byte
	var lines []int
	now, verbatim, rest := 0, false, r.output
	write := func(part []byte) {
		plain = append(plain, part...)
		for i, b := range part {
			if begun := len(lines) > 0 && !atLineStart(plain, len(plain)-len(part)+i); !begun {
				lines = append(lines, now)
			}
			if b == '\n' && verbatim {
				now++
			}
		}
	}
	for {
		at := lineMark().FindSubmatchIndex(rest)
		if at == nil {
			write(rest)
			break
		}
		write(rest[:at[0]])
		n, err := strconv.Atoi(string(rest[at[2]:at[3]]))
		if err != nil {
			return nil
		}
		now, verbatim = max(n, -n), n < 0
		rest = rest[at[1]:]
	}
	if !bytes.Equal(plain, output) {
		return nil
	}
	return lines
}

func atLineStart(out []byte, at int) bool { return at == 0 || out[at-1] == '\n' }

// lineMarks is the text of the template with a mark before each text and action that writes.
func (s *source) lineMarks() string {
	trees, err := templatetree.Parse(s.text, s.left, s.right)
	if err != nil {
		return s.text // it was parsed before
	}
	left, right := s.left, s.right
	if left == "" {
		left = "{{"
	}
	if right == "" {
		right = "}}"
	}
	type mark struct{ at, number int }
	var marks []mark
	for _, tree := range trees {
		templatetree.Walk(tree.Root, func(n parse.Node) {
			list, ok := n.(*parse.ListNode)
			if !ok {
				return
			}
			for _, child := range list.Nodes {
				at := int(child.Position())
				switch child.(type) {
				case *parse.TextNode:
					written, _, _ := s.originAt(at)
					marks = append(marks, mark{at, -written})
				case *parse.ActionNode, *parse.TemplateNode:
					if at = strings.LastIndex(s.text[:at], left); at >= 0 {
						written, _, _ := s.originAt(at)
						marks = append(marks, mark{at, written})
					}
				}
			}
		})
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.at - b.at })
	var b strings.Builder
	last := 0
	for _, m := range marks {
		b.WriteString(s.text[last:m.at] + left)
		if trims(s.text[m.at:], left) {
			b.WriteString("-")
		}
		fmt.Fprintf(&b, " %s %d %s", line, m.number, right)
		last = m.at
	}
	b.WriteString(s.text[last:])
	return b.String()
}
