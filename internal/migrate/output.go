package migrate

import (
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// output is jorc's configuration, or the inside of one of its blocks.
type output struct{ text strings.Builder }

func (o *output) bytes() []byte { return hclwrite.Format([]byte(o.text.String())) }

func (o *output) line() { o.text.WriteString("\n") }

func (o *output) comment(lines ...string) {
	for _, line := range lines {
		o.text.WriteString(strings.TrimRight("# "+printable(line), " ") + "\n")
	}
}

// attribute writes one argument, below the comment of the setting that it comes
// from.
func (o *output) attribute(name, expr string, of *setting) {
	if of != nil && !of.secret {
		o.comment(of.comment...)
	}
	o.text.WriteString(name + " = " + expr + "\n")
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
	if inner.text.Len() == 0 {
		return
	}
	if !strings.HasPrefix(header, "template ") && !strings.HasPrefix(header, "process ") { // the comment of a template stands above it
		o.line()
	}
	o.text.WriteString(header + " {\n" + inner.text.String() + "}\n")
}

// emptyBlock writes a block that means something without settings.
func (o *output) emptyBlock(header string) { o.text.WriteString(header + " {}\n") }

// normal reports whether HCL keeps a string as it is: it is UTF-8 in normal form C.
func normal(s string) bool { return cty.StringVal(s).AsString() == s }

// quote writes a string.
func quote(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

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
