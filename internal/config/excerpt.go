package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// maxExcerpt is how many characters of a line an error shows.
const maxExcerpt = 120

// excerpt shows lines of a source whose secrets are starred out.
type excerpt []byte

// secretValue finds quoted values behind names that sound like a secret;
// userInfo finds passwords in URLs.
var (
	secretValue = regexp.MustCompile(`(?i)([\w.-]*(?:token|secret|passw|api_?key|credential|authorization)[\w.-]*)"?\s*[=:]\s*[\[{]?\s*"((?:[^"\\\n]|\\.)*)`)
	userInfo    = regexp.MustCompile(`://([^/\s"@]*)@`)
)

func newExcerpt(src []byte) excerpt {
	out := bytes.Clone(src)
	for _, m := range secretValue.FindAllSubmatchIndex(src, -1) {
		if name := bytes.ToLower(src[m[2]:m[3]]); !bytes.HasSuffix(name, []byte("_file")) {
			star(out[m[4]:m[5]])
		}
	}
	for _, m := range userInfo.FindAllSubmatchIndex(src, -1) {
		star(out[m[2]:m[3]])
	}
	return out
}

func star(b []byte) {
	for i := range b {
		b[i] = '*'
	}
}

// at gives the line of rng with its number, and a mark below what is meant.
func (e excerpt) at(rng hcl.Range) string {
	at := min(max(rng.Start.Byte, 0), len(e))
	begin := bytes.LastIndexByte(e[:at], '\n') + 1
	end := len(e)
	if i := bytes.IndexByte(e[at:], '\n'); i >= 0 {
		end = at + i
	}
	to := min(max(rng.End.Byte, at), end)
	before := []rune(printable(string(e[begin:at])))
	marked := []rune(printable(string(e[at:to])))
	after := []rune(printable(string(e[to:end])))
	if cut := len(before) - maxExcerpt/2; cut > 0 {
		before = append([]rune("…"), before[cut:]...)
	}
	marked = shorten(marked, maxExcerpt-len(before))
	after = shorten(after, maxExcerpt-len(before)-len(marked))
	lead := fmt.Sprintf("%5d: ", rng.Start.Line)
	return lead + strings.TrimRight(string(before)+string(marked)+string(after), " ") + "\n" +
		strings.Repeat(" ", len(lead)+len(before)) + strings.Repeat("^", max(1, len(marked)))
}

func shorten(r []rune, most int) []rune {
	if len(r) <= most {
		return r
	}
	return append(r[:max(0, most):max(0, most)], '…')
}

// printable replaces what could move the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(s, "\r"), "\uFFFD"))
}
