package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/schedule"
)

func parse(t testing.TB, text, zone string) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestNext: due times follow the wall clock of the zone, also where clocks change.
func TestNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, zone, from string
		want             []string
	}{
		"every night":         {"0 3 * * *", "Europe/Berlin", "2026-01-10T12:00:00Z", []string{"2026-01-11T02:00:00Z", "2026-01-12T02:00:00Z"}},
		"summer begins":       {"0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"}},
		"summer ends":         {"0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"}},
		"a skipped time":      {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		"several skipped":     {"0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		"skipped and next":    {"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		"a repeated time":     {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"its first moment":    {"0 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"}},
		"hourly over a gap":   {"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"}},
		"hourly over a fold":  {"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"}},
		"minutes over a fold": {"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:40:00Z", []string{"2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"}},
		"half an hour":        {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		"midnight is skipped": {"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", []string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		"a day is skipped":    {"0 3 * * *", "Pacific/Apia", "2011-12-29T14:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-30T13:00:00Z"}},
		"leap day":            {"0 0 29 2 *", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"sunday is 0 and 7":   {"0 0 * * 7", "", "2026-01-01T00:00:00Z", []string{"2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"}},
		"either day":          {"0 0 13 * 5", "", "2026-01-10T00:00:00Z", []string{"2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"}},
		"daily":               {"@daily", "Asia/Tokyo", "2026-01-01T00:00:00Z", []string{"2026-01-01T15:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := parse(t, c.text, c.zone), at(t, c.from)
			for i, want := range c.want {
				now = s.Next(now)
				if got := now.UTC().Format(time.RFC3339); got != want {
					t.Fatalf("due time %d: got %s, want %s", i, got, want)
				}
			}
		})
	}
}

// TestParse: what is not a schedule says what to write instead.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"", ""},
		{"3", ""},
		{"0 3 * *", ""},
		{"0 0 3 * * *", ""},
		{"60 3 * * *", ""},
		{"0 25 * * *", ""},
		{"x * * * *", ""},
		{"0 3 * * * 2026", ""},
		{"@reboot", ""},
		{"@daily * * * *", ""},
		{"*/0 * * * *", ""},
		{"5-1 * * * *", ""},
		{"0 0 30 2 *", ""},
		{"0 3 * * *", "Europe/Bern"},
		{"0 3 * * *", "Local"},
		{"0 3 * * *", "../x"},
	} {
		if s, err := schedule.Parse(c[0], c[1]); !errors.Is(err, schedule.ErrInvalid) {
			t.Errorf("%q in %q: got %v, %v, want ErrInvalid", c[0], c[1], s, err)
		}
	}
}

// FuzzParse: nothing that is parsed panics or goes back in time.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"0 3 * * *", "*/5 1-3,7 * 2 1-5", "@daily", "0 0 L * *", "0 0 * * 5#3", "*/0 * * * *"} {
		f.Add(text, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, text, zone string) {
		s, err := schedule.Parse(text, zone)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
		for range 20 {
			next := s.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) {
				t.Fatalf("%v after %v is %v", s, now, next)
			}
			now = next
		}
	})
}

// TestStep: each due time is handled once, whatever the clock does.
func TestStep(t *testing.T) {
	t.Parallel()
	const skip, once = schedule.Skip, schedule.RunOnce
	for name, c := range map[string]struct {
		missed          string
		delay           time.Duration
		last, now       string
		start, late     bool
		handled, wakeAt string
	}{
		"nothing is due":       {skip, 0, "2026-01-01T03:00:00Z", "2026-01-01T12:00:00Z", false, false, "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"},
		"due":                  {skip, 0, "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z", true, false, "2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		"handled":              {skip, 0, "2026-01-02T03:00:00Z", "2026-01-02T03:00:00Z", false, false, "2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		"a little late":        {skip, 0, "2026-01-01T03:00:00Z", "2026-01-02T03:04:00Z", true, false, "2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		"missed, skip":         {skip, 0, "2026-01-01T03:00:00Z", "2026-01-02T04:00:00Z", false, true, "2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		"missed, once":         {once, 0, "2026-01-01T03:00:00Z", "2026-01-05T04:00:00Z", true, true, "2026-01-05T03:00:00Z", "2026-01-06T03:00:00Z"},
		"the splay is to come": {skip, time.Hour, "2026-01-01T03:00:00Z", "2026-01-02T03:30:00Z", false, false, "2026-01-01T03:00:00Z", "2026-01-02T04:00:00Z"},
		"the splay is over":    {skip, time.Hour, "2026-01-01T03:00:00Z", "2026-01-02T04:00:00Z", true, false, "2026-01-02T03:00:00Z", "2026-01-03T04:00:00Z"},
		"set back an hour":     {once, 0, "2026-01-02T03:00:00Z", "2026-01-02T02:30:00Z", false, false, "2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		"set back years":       {once, 0, "2031-01-02T03:00:00Z", "2026-01-02T02:30:00Z", false, false, "2026-01-02T02:30:00Z", "2026-01-02T03:00:00Z"},
		"set forward years":    {once, 0, "2026-01-02T03:00:00Z", "2031-01-02T02:30:00Z", true, true, "2031-01-01T03:00:00Z", "2031-01-02T03:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := schedule.Policy{Schedule: parse(t, "0 3 * * *", "UTC"), Delay: c.delay, Missed: c.missed}
			got := p.Step(at(t, c.last), at(t, c.now))
			if got.Start != c.start || got.Missed != c.late || !got.Handled.Equal(at(t, c.handled)) || !got.Wake.Equal(at(t, c.wakeAt)) {
				t.Errorf("got %+v, want %+v", got, c)
			}
		})
	}
}

// TestLast agrees with walking through all due times.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"*/7 * * * *", "0 3 * * *", "0 0 1 * *", "30 2 29 2 *"} {
		s := parse(t, text, "Europe/Berlin")
		for _, span := range []time.Duration{time.Minute, 3 * time.Hour, 50 * time.Hour, 40 * 24 * time.Hour} {
			from := at(t, "2028-02-20T11:13:00Z")
			to := from.Add(span)
			var want time.Time
			for due := s.Next(from); !due.After(to); due = s.Next(due) {
				want = due
			}
			if got := s.Last(from, to); !got.Equal(want) {
				t.Errorf("%s over %v: got %v, want %v", text, span, got, want)
			}
		}
	}
}

func TestSplay(t *testing.T) {
	t.Parallel()
	if d := schedule.Splay(0, "n1"); d != 0 {
		t.Errorf("without a splay: got %v", d)
	}
	a, b := schedule.Splay(time.Hour, "n1 nightly"), schedule.Splay(time.Hour, "n2 nightly")
	if a == b || a < 0 || a >= time.Hour || a != schedule.Splay(time.Hour, "n1 nightly") {
		t.Errorf("got %v and %v, want two different delays below an hour, always the same", a, b)
	}
}

// TestWait: a time that has come does not wait, and a wait ends with its context.
func TestWait(t *testing.T) {
	t.Parallel()
	var c schedule.SystemClock
	if err := c.Wait(t.Context(), c.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	soon := c.Now().Add(50 * time.Millisecond)
	for c.Now().Before(soon) {
		if err := c.Wait(t.Context(), soon); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait(ctx, c.Now().Add(time.Hour)) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
