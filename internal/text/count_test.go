package text_test

import (
	"testing"

	"github.com/jorc/jorc/internal/text"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 hosts are", 1: "1 host is", 2: "2 hosts are"} {
		if got := text.Count(n, "host is", "hosts are"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
