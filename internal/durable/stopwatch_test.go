package durable

import (
	"encoding/json"
	"testing"
	"time"
)

// TestStopwatch stores a stopwatch between two readings, as processes do that end.
func TestStopwatch(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(boot string, uptime, wall time.Duration) clocks {
		return clocks{wall: noon.Add(wall), boot: boot, uptime: uptime}
	}
	const s, h = time.Second, time.Hour
	for name, tt := range map[string]struct {
		readings []clocks
		want     time.Duration
	}{
		"one boot":                  {[]clocks{at("a", 100*s, 0), at("a", 110*s, 10*s)}, 10 * s},
		"several processes":         {[]clocks{at("a", 100*s, 0), at("a", 105*s, 5*s), at("a", 110*s, 10*s)}, 10 * s},
		"the clock is set forward":  {[]clocks{at("a", 100*s, 0), at("a", 110*s, 5*h)}, 10 * s},
		"the clock is set back":     {[]clocks{at("a", 100*s, 0), at("a", 110*s, -5*h)}, 10 * s},
		"a reboot":                  {[]clocks{at("a", 100*s, 0), at("b", 20*s, 60*s)}, 60 * s},
		"after a reboot":            {[]clocks{at("a", 100*s, 0), at("b", 20*s, 60*s), at("b", 30*s, 3*h)}, 70 * s},
		"reboots without a clock":   {[]clocks{at("a", 100*s, 0), at("b", 20*s, -5*h), at("c", 20*s, -5*h), at("d", 20*s, -5*h)}, 60 * s},
		"only the wall clock":       {[]clocks{at("", 0, 0), at("", 0, 10*s)}, 10 * s},
		"the wall clock alone back": {[]clocks{at("", 0, 0), at("", 0, -10*s)}, 0},
	} {
		w := startAt(tt.readings[0])
		for _, now := range tt.readings[1:] {
			text, err := json.Marshal(w.resumedAt(now))
			if err != nil {
				t.Fatal(err)
			}
			w = Stopwatch{}
			if err := json.Unmarshal(text, &w); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.elapsedAt(tt.readings[len(tt.readings)-1]); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	w := StartStopwatch()
	if again := w.Resumed(); again != w {
		t.Errorf("in one boot %+v became %+v", w, again)
	}
	if e := w.Elapsed(); e < 0 {
		t.Errorf("a new stopwatch is at %v", e)
	}
}
