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

// Reading is what a host's clocks say at one moment.
type Reading struct {
	Wall   time.Time
	Boot   string // which boot this is; empty: not known, then only the wall clock counts
	Uptime time.Duration
}

// Clock reads a host's clocks. A nil Clock reads the kernel's.
type Clock func() Reading

func (c Clock) read() Reading {
	if c != nil {
		return c()
	}
	r := Reading{Wall: time.Now().UTC().Truncate(time.Millisecond), Boot: BootID(), Uptime: uptime()}
	if r.Uptime == 0 {
		r.Boot = ""
	}
	return r
}

// Boot names this boot of the host; empty where that is not known.
func (c Clock) Boot() string { return c.read().Boot }

// Start returns a stopwatch that begins now.
func (c Clock) Start() Stopwatch {
	now := c.read()
	return Stopwatch{Begun: now.Wall, Boot: now.Boot, Uptime: now.Uptime}
}

// Resumed returns the stopwatch as this boot continues it. After a reboot it differs:
// store it then, so that the next reboot counts on.
func (c Clock) Resumed(s Stopwatch) Stopwatch {
	now := c.read()
	if s.Boot != "" && s.Boot == now.Boot {
		return s
	}
	return Stopwatch{Begun: s.Begun, Boot: now.Boot, Uptime: now.Uptime, Spent: s.elapsedAt(now)}
}

// Elapsed is how long ago the stopwatch began. The caller keeps what Resumed returned.
func (c Clock) Elapsed(s Stopwatch) time.Duration { return s.elapsedAt(c.read()) }

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

func (s Stopwatch) elapsedAt(now Reading) time.Duration {
	if s.Boot != "" && s.Boot == now.Boot {
		return s.Spent + now.Uptime - s.Uptime
	}
	return max(s.Spent+now.Uptime, now.Wall.Sub(s.Begun))
}
