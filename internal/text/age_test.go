package text_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// TestAge: the two largest units.
func TestAge(t *testing.T) {
	t.Parallel()
	tests := map[time.Duration]string{
		-time.Hour:                       "0s",
		30*time.Second + 1:               "30s",
		90*time.Second + 1:               "1m 30s",
		3*time.Hour + 59*time.Minute + 1: "3h 59m",
		49*time.Hour + 1:                 "2d 1h",
	}
	for d, want := range tests {
		if got := text.Age(time.Now().Add(-d)); got != want {
			t.Errorf("%s: got %q; want %q", d, got, want)
		}
	}
	if got := text.Age(time.Time{}); got != "" {
		t.Errorf("a time that has not come: %q", got)
	}
}
