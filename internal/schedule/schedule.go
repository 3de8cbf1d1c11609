// Package schedule computes when something is due by a cron expression in a time
// zone, and waits for it. What is due is a pure function of the time, so that all
// hosts and every orchestrator agree on it.
package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	_ "time/tzdata" // a schedule means the same on a host without time zones

	"github.com/hashicorp/cronexpr"
)

// ErrInvalid: this is not a schedule.
var ErrInvalid = errors.New("not a schedule")

// What happens to due times that passed while nothing could start.
const (
	Skip    = "skip"     // they are left out
	RunOnce = "run-once" // together they cause one start
)

// OnTime is how late a start counts as on time; a due time that is older is
// missed. It covers the restart of an agent and the change of an orchestrator.
const OnTime = 5 * time.Minute

// maxSetBack is how far the clock may be set back without due times being repeated.
// A larger jump corrects a clock that was wrong: the schedule begins again.
const maxSetBack = 24 * time.Hour

// MaxSplay bounds a splay.
const MaxSplay = 24 * time.Hour

// Schedule is a cron expression in a time zone. It is for one goroutine at a time.
type Schedule struct {
	text, zone string
	expr       *cronexpr.Expression
	location   *time.Location
	everyHour  bool // the hour is "*" or "*/N": it repeats by elapsed time
}

const example = `such as "0 3 * * *" (minute, hour, day of the month, month, day of the week)`

// Parse reads a cron expression of five fields, or @hourly, @daily, @weekly,
// @monthly or @yearly. The zone is a name of the time zone database; empty is UTC.
// It returns ErrInvalid.
func Parse(text, zone string) (Schedule, error) {
	s := Schedule{text: strings.Join(strings.Fields(text), " "), zone: zone}
	fields := strings.Fields(text)
	switch s.text {
	case "@hourly":
		s.everyHour = true
	case "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually":
	default:
		if len(fields) != 5 {
			return Schedule{}, fmt.Errorf("%w: %q has %d fields: write five, %s", ErrInvalid, text, len(fields), example)
		}
		if strings.ContainsAny(s.text, "@") {
			return Schedule{}, fmt.Errorf("%w: %q: write five fields, %s", ErrInvalid, text, example)
		}
		s.everyHour = strings.HasPrefix(fields[1], "*")
	}
	var err error
	if s.expr, err = parse(s.text); err != nil {
		return Schedule{}, fmt.Errorf("%w: %q: %w: write five fields, %s", ErrInvalid, text, err, example)
	}
	if s.location, err = location(zone); err != nil {
		return Schedule{}, err
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("%w: %q is never due", ErrInvalid, text)
	}
	return s, nil
}

// parse turns a panic of the library on a malformed field into an error.
func parse(text string) (expr *cronexpr.Expression, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("malformed field")
		}
	}()
	return cronexpr.Parse(text)
}

func location(zone string) (*time.Location, error) {
	l, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("%w: there is no time zone %q: write a name such as \"Europe/Berlin\", or \"UTC\"", ErrInvalid, zone)
	}
	return l, nil
}

// String returns the expression and its zone.
func (s Schedule) String() string { return strings.TrimSpace(s.text + " " + s.zone) }

// Next returns the first due time after t, or the zero time.
//
// It goes by the clock on the wall. A time that the clocks skip is due at the
// moment at which they skip it. A time that happens twice is due the first time. If
// the hour is "*" or "*/N", the schedule goes by elapsed time instead: a time that
// is skipped is left out, and one that happens twice is due twice.
func (s Schedule) Next(t time.Time) time.Time {
	if s.expr == nil {
		return time.Time{}
	}
	const most = 1000 // offsets of a zone: centuries
	t = t.In(s.location)
	for range most {
		begin, end := t.ZoneBounds()
		offset := offsetAt(t)
		wall := s.expr.Next(t.UTC().Add(offset)) // as if it were UTC: the offset does not change before end
		if wall.IsZero() {
			return time.Time{}
		}
		due := wall.Add(-offset)
		if end.IsZero() || due.Before(end) {
			if s.isRepeated(begin, offset, due) {
				t = due.In(s.location)
				continue
			}
			return due
		}
		after := offsetAt(end)
		if after > offset && !s.everyHour && wall.Before(end.UTC().Add(after)) {
			return end.UTC() // the clocks skip the time
		}
		// Of the next offset everything from its first moment on counts.
		if due := s.first(end); !due.IsZero() {
			return due
		}
		t = end.In(s.location)
	}
	return time.Time{}
}

// first returns begin if it is itself due, else the zero time; begin is the first
// moment of an offset.
func (s Schedule) first(begin time.Time) time.Time {
	begin = begin.In(s.location)
	offset := offsetAt(begin)
	wall := begin.UTC().Add(offset)
	if s.expr.Next(wall.Add(-time.Second)).Equal(wall) && !s.isRepeated(begin, offset, begin) {
		return begin.UTC()
	}
	return time.Time{}
}

// isRepeated reports whether the wall time of due, in an offset that begins at begin,
// happened before, and does not count again.
func (s Schedule) isRepeated(begin time.Time, offset time.Duration, due time.Time) bool {
	if s.everyHour || begin.IsZero() {
		return false
	}
	before := offsetAt(begin.Add(-1))
	return before > offset && due.Before(begin.Add(before-offset))
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// Last returns the last due time after from, up to and including to, or the zero
// time.
func (s Schedule) Last(from, to time.Time) (last time.Time) {
	const day = 24 * time.Hour
	for _, back := range []time.Duration{2 * time.Hour, 2 * day, 62 * day, 0} {
		start := to.Add(-back)
		if back == 0 || start.Before(from) {
			start = from
		}
		for due := s.Next(start); !due.IsZero() && !due.After(to); due = s.Next(due) {
			last = due
		}
		if !last.IsZero() || start.Equal(from) {
			return last
		}
	}
	return last
}

// Policy is a schedule with what applies to its due times.
type Policy struct {
	Schedule
	Delay  time.Duration // between a due time and its start
	Missed string        // Skip, the default, or RunOnce
}

// Step is what a schedule requires at one moment.
type Step struct {
	Handled time.Time // due times up to it are handled now; save it together with the start
	Start   bool      // the due time Handled starts now
	Missed  bool      // Handled is too old to be on time
	Reset   bool      // the clock was set back: the schedule begins again
	Wake    time.Time // when to ask again at the latest; zero: never
}

// Step returns what is to be done at now; last is the last due time that was handled,
// and not zero. Of several due times only the last one starts.
func (p Policy) Step(last, now time.Time) Step {
	at := now.Add(-p.Delay)
	st := Step{Handled: last}
	if last.Sub(now) > maxSetBack {
		st.Handled, st.Reset, last = now.UTC(), true, now
	} else if due := p.Last(last, at); !due.IsZero() {
		st.Handled, last = due, due
		st.Missed = at.Sub(due) > OnTime
		st.Start = !st.Missed || p.Missed == RunOnce
	}
	if last.Before(at) {
		last = at
	}
	if next := p.Next(last); !next.IsZero() {
		st.Wake = next.Add(p.Delay)
	}
	return st
}

// Splay returns a delay below most that depends on name alone: hosts with one
// schedule start apart from each other, each always at the same time.
func Splay(most time.Duration, name string) time.Duration {
	seconds := uint64(most / time.Second)
	if seconds == 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it returns no error
	return time.Duration(h.Sum64()%seconds) * time.Second
}
