package text_test

import (
	"testing"

	"github.com/jorc/jorc/internal/text"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"web-1, 数据库 é", "web-1, 数据库 é"},
		{"a\nb\tc\rd", `a\nb\tc\u000dd`},
		{"\x1b[31mred\x1b[0m", `\u001b[31mred\u001b[0m`},
		{"a\u202eb\u200bc", `a\u202eb\u200bc`},
		{"\x9b31m", `\x9b31m`},
		{"\u009b31m", `\u009b31m`},
		{"\ufffd", "\ufffd"},
	} {
		if got := text.Printable(test.in); got != test.want {
			t.Errorf("%q: got %q, want %q", test.in, got, test.want)
		}
	}
}
