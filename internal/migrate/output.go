package migrate

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// output is jorc's configuration, or the inside of one of its blocks, in the layout
// of HCL's formatter.
type output struct{ lines []outputLine }

// outputLine is one line; the expression of an argument may be a heredoc of several.
type outputLine struct {
	depth      int    // blocks around it
	text       string // the line, or an argument's name
	expression string // of an argument
}

// bytes aligns the equals signs of arguments that follow each other.
func (o *output) bytes() []byte {
	var out bytes.Buffer
	width, end := 0, 0 // of the names of the arguments up to the line end
	for i, l := range o.lines {
		indent := strings.Repeat("  ", l.depth)
		switch {
		case l.text == "":
		case l.expression == "":
			out.WriteString(indent + l.text)
		default:
			if i >= end {
				width = 0
				for end = i; end < len(o.lines) && o.lines[end].expression != ""; end++ {
					width = max(width, len(o.lines[end].text))
				}
			}
			fmt.Fprintf(&out, "%s%-*s = %s", indent, width, l.text, l.expression)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func (o *output) empty() bool { return len(o.lines) == 0 }

func (o *output) write(text string) { o.lines = append(o.lines, outputLine{text: text}) }

// append adds what another output holds, as the inside of that many blocks.
func (o *output) append(inner *output, depth int) {
	for _, l := range inner.lines {
		l.depth += depth
		o.lines = append(o.lines, l)
	}
}

func (o *output) line() { o.write("") }

func (o *output) comment(lines ...string) {
	for _, line := range lines {
		o.write(strings.TrimRight("# "+printable(line), " "))
	}
}

// attribute writes one argument, below the comment of the setting that it comes
// from.
func (o *output) attribute(name, expr string, of *setting) {
	if of != nil && !of.secret {
		o.comment(of.comment...)
	}
	o.lines = append(o.lines, outputLine{text: name, expression: expr})
}

// string converts a setting that is the same in jorc.
func (o *output) string(name string, s *scope, path string) {
	if of, value := s.text(path); of != nil {
		o.attribute(name, quote(value), of)
	}
}

// path converts a setting that is the path of a file.
func (o *output) path(name string, s *scope, path string) {
	if of, value := s.text(path); of != nil {
		o.attribute(name, quote(s.c.absolute(of, value)), of)
	}
}

// block writes a block, unless it is empty.
func (o *output) block(header string, inner *output) {
	if inner.empty() {
		return
	}
	if !strings.HasPrefix(header, "template ") && !strings.HasPrefix(header, "process ") { // the comment of a template stands above it
		o.line()
	}
	o.write(header + " {")
	o.append(inner, 1)
	o.write("}")
}

// emptyBlock writes a block that means something without settings.
func (o *output) emptyBlock(header string) { o.write(header + " {}") }

// normal reports whether HCL keeps a string as it is: it is UTF-8 in normal form C.
func normal(s string) bool { return cty.StringVal(s).AsString() == s }

// quote writes a string, in normal form C as HCL reads it.
func quote(s string) string {
	s = cty.StringVal(s).AsString()
	var out strings.Builder
	out.WriteByte('"')
	for i, r := range s {
		switch {
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case (r == '$' || r == '%') && strings.HasPrefix(s[i+1:], "{"): // a template begins, unless the sign is doubled
			out.WriteString(string(r) + string(r))
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func quoteList(list []string) string {
	values := make([]string, len(list))
	for i, s := range list {
		values[i] = quote(s)
	}
	return "[" + strings.Join(values, ", ") + "]"
}

// longText writes the text of a template: several lines as a heredoc, if HCL reads
// the same text back.
func longText(s string) string {
	const mark = "EOT"
	if strings.Count(s, "\n") < 2 || !strings.HasSuffix(s, "\n") || strings.Contains(s, mark) {
		return quote(s)
	}
	escaped := strings.NewReplacer("${", "$${", "%{", "%%{").Replace(s)
	expr := "<<" + mark + "\n" + escaped + mark + "\n"
	parsed, diags := hclsyntax.ParseExpression([]byte(expr), "", hcl.InitialPos)
	if diags.HasErrors() {
		return quote(s)
	}
	if v, diags := parsed.Value(nil); diags.HasErrors() || v.Type() != cty.String || v.AsString() != s {
		return quote(s)
	}
	return strings.TrimSuffix(expr, "\n")
}

// printable replaces characters that control a terminal or end a comment.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
