package durable

import (
	"os"
	"strings"
	"time"
)

// BootID names this boot of the host; empty where the system does not say.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // other systems than Linux have none
	return strings.TrimSpace(string(id))
}

// Stopwatch measures a time that outlives the process and the boot. Within a boot it
// follows the kernel's clock, which nothing sets. Over a reboot it counts what the wall
// clock says, and at least how long the new boot already lasts: a clock that was set back
// does not stop it. Stored as JSON it keeps its meaning.
type Stopwatch struct {
	Begun  time.Time     `json:"begun"`           // on the wall clock
	Boot   string        `json:"boot,omitempty"`  // in which Uptime was read
	Uptime time.Duration `json:"uptime,omitzero"` // when Spent had passed
	Spent  time.Duration `json:"spent,omitzero"`
}

// clocks are what a host's clocks say at one moment.
type clocks struct {
	wall   time.Time
	boot   string // empty: not known, then only the wall clock counts
	uptime time.Duration
}

func readClocks() clocks {
	c := clocks{wall: time.Now().UTC().Truncate(time.Millisecond), boot: BootID(), uptime: uptime()}
	if c.uptime == 0 {
		c.boot = ""
	}
	return c
}

// StartStopwatch returns one that begins now.
func StartStopwatch() Stopwatch { return startAt(readClocks()) }

func startAt(now clocks) Stopwatch {
	return Stopwatch{Begun: now.wall, Boot: now.boot, Uptime: now.uptime}
}

// Resumed returns the stopwatch as this boot continues it. After a reboot it differs:
// store it then, so that the next reboot counts on.
func (s Stopwatch) Resumed() Stopwatch { return s.resumedAt(readClocks()) }

func (s Stopwatch) resumedAt(now clocks) Stopwatch {
	if s.Boot != "" && s.Boot == now.boot {
		return s
	}
	spent := s.elapsedAt(now)
	return Stopwatch{Begun: s.Begun, Boot: now.boot, Uptime: now.uptime, Spent: spent}
}

// Elapsed is how long ago the stopwatch began. The caller keeps what Resumed returned.
func (s Stopwatch) Elapsed() time.Duration { return s.elapsedAt(readClocks()) }

func (s Stopwatch) elapsedAt(now clocks) time.Duration {
	if s.Boot != "" && s.Boot == now.boot {
		return s.Spent + now.uptime - s.Uptime
	}
	return max(s.Spent+now.uptime, now.wall.Sub(s.Begun))
}
