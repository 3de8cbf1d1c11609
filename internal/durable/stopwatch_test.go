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
	at := func(boot string, uptime, wall time.Duration) Reading {
		return Reading{Wall: noon.Add(wall), Boot: boot, Uptime: uptime}
	}
	const s, h = time.Second, time.Hour
	for name, tt := range map[string]struct {
		readings []Reading
		want     time.Duration
	}{
		"one boot":                  {[]Reading{at("a", 100*s, 0), at("a", 110*s, 10*s)}, 10 * s},
		"several processes":         {[]Reading{at("a", 100*s, 0), at("a", 105*s, 5*s), at("a", 110*s, 10*s)}, 10 * s},
		"the clock is set forward":  {[]Reading{at("a", 100*s, 0), at("a", 110*s, 5*h)}, 10 * s},
		"the clock is set back":     {[]Reading{at("a", 100*s, 0), at("a", 110*s, -5*h)}, 10 * s},
		"a reboot":                  {[]Reading{at("a", 100*s, 0), at("b", 20*s, 60*s)}, 60 * s},
		"after a reboot":            {[]Reading{at("a", 100*s, 0), at("b", 20*s, 60*s), at("b", 30*s, 3*h)}, 70 * s},
		"reboots without a clock":   {[]Reading{at("a", 100*s, 0), at("b", 20*s, -5*h), at("c", 20*s, -5*h), at("d", 20*s, -5*h)}, 60 * s},
		"only the wall clock":       {[]Reading{at("", 0, 0), at("", 0, 10*s)}, 10 * s},
		"the wall clock alone back": {[]Reading{at("", 0, 0), at("", 0, -10*s)}, 0},
	} {
		now := tt.readings[0]
		clock := Clock(func() Reading { return now })
		w := clock.Start()
		for _, now = range tt.readings[1:] {
			text, err := json.Marshal(clock.Resumed(w))
			if err != nil {
				t.Fatal(err)
			}
			w = Stopwatch{}
			if err := json.Unmarshal(text, &w); err != nil {
				t.Fatal(err)
			}
		}
		if got := clock.Elapsed(w); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	var kernel Clock
	w := kernel.Start()
	if again := kernel.Resumed(w); again != w {
		t.Errorf("in one boot %+v became %+v", w, again)
	}
	if e := kernel.Elapsed(w); e < 0 {
		t.Errorf("a new stopwatch is at %v", e)
	}
}
