package pace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

func TestParseWindow(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"22:00-06:00": "", "Mon 00:00-24:00": "", "mon-fri 09:00-17:00 UTC": "", "Fri-Mon,Wed 09:00-17:00 America/New_York": "",
		"": "days, times", "Mon": "days, times", "Mon-Fri 9:00-17:00": "no times", "Mon 09:00": "no times",
		"Montag 09:00-10:00": "no days", "Mon- 09:00-10:00": "no days", "09:00-09:00": "whole day", "24:00-06:00": "no times",
		"09:60-10:00": "no times", "09:00-24:01": "no times", "09:00-10:00 Berlin": "no time zone", "09:00-10:00 Local": "no time zone",
		"09:00-10:00 UTC now": "days, times", "09:00-10:00 ../../etc/passwd": "no time zone",
		"Fri 16:00-Mon 06:00 Europe/Berlin": "", "fri 16:00-mon 06:00": "", "Mon 10:00-Mon 09:00": "", "Mon 09:00-Mon 09:00": "whole week",
		"Mon,Fri 16:00-Sun 06:00": "one day", "Fri 16:00-Mon": "no times", "Fri 16:00-Mon 6:00": "no times", "Fri 16:00-Mon 06:00 Berlin": "no time zone",
	} {
		_, err := pace.ParseWindow(text)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("ParseWindow %q = %v, want an error that says %q", text, err, says)
		}
	}
}

// TestWindow: when windows are open, also where the clocks change.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		window, at string
		open       bool
		changes    string
	}{
		// 2026-11-21 is a Saturday
		{"Mon-Fri 22:00-06:00", "2026-11-20T21:59:59Z", false, "2026-11-20T22:00:00Z"},
		{"Mon-Fri 22:00-06:00", "2026-11-20T22:00:00Z", true, "2026-11-21T06:00:00Z"},
		{"Mon-Fri 22:00-06:00", "2026-11-21T05:59:59Z", true, "2026-11-21T06:00:00Z"},
		{"Mon-Fri 22:00-06:00", "2026-11-21T06:00:00Z", false, "2026-11-23T22:00:00Z"},
		{"Mon-Fri 22:00-06:00", "2026-11-23T05:00:00Z", false, "2026-11-23T22:00:00Z"}, // Sunday's night is not Monday's
		{"Sat,Sun 00:00-24:00", "2026-11-21T12:00:00Z", true, "2026-11-23T00:00:00Z"},
		{"00:00-24:00", "2026-11-21T12:00:00Z", true, ""},
		{"10:00-11:00 America/New_York", "2026-11-21T15:30:00Z", true, "2026-11-21T16:00:00Z"},
		// Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00
		{"22:00-06:00 Europe/Berlin", "2026-03-28T21:00:00Z", true, "2026-03-29T04:00:00Z"}, // seven hours
		{"22:00-06:00 Europe/Berlin", "2026-10-24T20:00:00Z", true, "2026-10-25T05:00:00Z"}, // nine
		{"02:30-03:15 Europe/Berlin", "2026-03-29T00:59:00Z", false, "2026-03-29T01:00:00Z"},
		{"02:30-03:15 Europe/Berlin", "2026-03-29T01:00:00Z", true, "2026-03-29T01:15:00Z"},
		{"Sun 02:15-02:45 Europe/Berlin", "2026-03-23T12:00:00Z", false, "2026-04-05T00:15:00Z"}, // this Sunday has none
		{"02:15-02:45 Europe/Berlin", "2026-10-25T00:20:00Z", true, "2026-10-25T00:45:00Z"},
		{"02:15-02:45 Europe/Berlin", "2026-10-25T01:20:00Z", true, "2026-10-25T01:45:00Z"}, // once more
		// over several days
		{"Fri 16:00-Mon 06:00 Europe/Berlin", "2026-11-20T14:59:59Z", false, "2026-11-20T15:00:00Z"},
		{"Fri 16:00-Mon 06:00 Europe/Berlin", "2026-11-20T15:00:00Z", true, "2026-11-23T05:00:00Z"},
		{"Fri 16:00-Mon 06:00 Europe/Berlin", "2026-11-22T12:00:00Z", true, "2026-11-23T05:00:00Z"},
		{"Fri 16:00-Mon 06:00 Europe/Berlin", "2026-11-23T05:00:00Z", false, "2026-11-27T15:00:00Z"},
		{"Fri 16:00-Mon 06:00 Europe/Berlin", "2026-10-24T12:00:00Z", true, "2026-10-26T05:00:00Z"}, // over a change of the clocks
		{"Sat 22:00-Sat 23:00", "2026-11-21T21:00:00Z", false, "2026-11-21T22:00:00Z"},
		{"Mon 10:00-Mon 09:00", "2026-11-23T09:30:00Z", false, "2026-11-23T10:00:00Z"},
		{"Mon 10:00-Mon 09:00", "2026-11-23T10:00:00Z", true, "2026-11-30T09:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		w, err := pace.ParseWindow(test.window)
		if err != nil {
			t.Fatal(err)
		}
		all := []pace.Window{w}
		changes := ""
		if next := pace.WindowsChange(all, at); !next.IsZero() {
			changes = next.UTC().Format(time.RFC3339)
		}
		if w.Open(at) != test.open || changes != test.changes {
			t.Errorf("%q at %s: open %v until %s; want %v until %s", test.window, test.at, w.Open(at), changes, test.open, test.changes)
		}
		if since := pace.WindowsOpenSince(all, at); !since.IsZero() && (since.After(at) || !w.Open(since) || w.Open(since.Add(-time.Minute))) {
			t.Errorf("%q at %s: open since %v", test.window, test.at, since)
		}
	}
	if (pace.Window{}).Open(time.Now()) {
		t.Error("no window is open")
	}
}

// TestWindowsByTheMinute: the computed changes are the ones that a search minute by
// minute finds, in zones whose clocks change, at any time of the year.
func TestWindowsByTheMinute(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Mon-Fri 22:00-06:00 Europe/Berlin", "02:15-02:45 Europe/Berlin", "Sun 01:30-02:30 America/New_York;Sat 23:00-24:00 America/New_York",
		"Wed 09:00-10:00;10:00-11:00 Australia/Lord_Howe", "00:00-24:00", "00:00-01:00 America/Havana",
		"Fri 16:00-Mon 06:00 Europe/Berlin", "Sat 02:30-Sun 02:30 Europe/Berlin",
	} {
		windows, err := pace.ParseWindows(text)
		if err != nil {
			t.Fatal(err)
		}
		open := func(at time.Time) bool {
			return slices.ContainsFunc(windows, func(w pace.Window) bool { return w.Open(at) })
		}
		for _, day := range []string{"2026-03-07", "2026-03-28", "2026-04-04", "2026-07-01", "2026-10-03", "2026-10-24", "2026-10-31", "2026-11-20"} {
			at, err := time.Parse(time.DateOnly, day)
			if err != nil {
				t.Fatal(err)
			}
			for hour := range 36 {
				at := at.Add(time.Duration(hour)*time.Hour + 20*time.Minute)
				var want time.Time
				for next := at.Truncate(time.Minute).Add(time.Minute); next.Sub(at) < 9*24*time.Hour; next = next.Add(time.Minute) {
					if open(next) != open(at) {
						want = next
						break
					}
				}
				if got := pace.WindowsChange(windows, at); !got.Equal(want) {
					t.Fatalf("%q at %v changes at %v, want %v", text, at, got, want)
				}
				since := pace.WindowsOpenSince(windows, at)
				if text != "00:00-24:00" && since.IsZero() == open(at) || !since.IsZero() && (since.After(at) || !open(since) || open(since.Add(-time.Second))) {
					t.Fatalf("%q at %v is open since %v", text, at, since)
				}
			}
		}
	}
}
