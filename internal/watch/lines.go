package watch

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/jorc/jorc/internal/templatetree"
	"github.com/jorc/jorc/internal/text"
)

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
	r := marked.execute(ctx, v, nil)
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
