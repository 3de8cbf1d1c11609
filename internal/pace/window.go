package pace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a window means the same on a host without time zones
)

// Window is a time of the week. It goes by the clock on the wall: where the clocks
// change, an hour that there is not is not waited for, and one that there is twice
// counts twice.
type Window struct {
	text       string
	days       [7]bool // on which it begins, by time.Weekday
	begin, end int     // minutes of the day
	over       int     // how many days after it began it ends
	zone       *time.Location
}

const minutesOfDay = 24 * 60

var dayNames = [...]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

const (
	windowExample   = "such as \"Mon-Fri 22:00-06:00 Europe/Berlin\""
	overDaysExample = "such as \"Fri 16:00-Mon 06:00 Europe/Berlin\""
)

// ParseWindow reads "[DAYS] HH:MM-HH:MM [ZONE]": days are names, ranges of them
// and lists ("Mon-Thu,Sat"), every day when left out; the zone is one of the
// time zone database, UTC when left out. A window that ends before it begins
// goes over midnight and belongs to the day on which it begins. One over several
// days is "DAY HH:MM-DAY HH:MM [ZONE]". The error says what is
// wrong with the text.
func ParseWindow(text string) (Window, error) {
	fields := strings.Fields(text)
	w := Window{text: strings.Join(fields, " "), zone: time.UTC}
	bad := func(format string, args ...any) (Window, error) {
		return Window{}, fmt.Errorf("window %q: %s", text, fmt.Sprintf(format, args...))
	}
	beginDay, endDay := -1, -1
	if len(fields) >= 3 {
		if at, day, _ := strings.Cut(fields[1], "-"); dayOf(day) >= 0 { // "Fri 16:00-Mon 06:00"
			beginDay, endDay = dayOf(fields[0]), dayOf(day)
			fields = append([]string{fields[0], at + "-" + fields[2]}, fields[3:]...)
		}
	}
	if len(fields) > 0 && !strings.Contains(fields[0], ":") {
		var err error
		if w.days, err = parseDays(fields[0]); err != nil {
			return bad("%v", err)
		}
		fields = fields[1:]
	} else {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}
	if len(fields) < 1 || len(fields) > 2 {
		return bad("write days, times and a time zone, %s", windowExample)
	}
	from, to, ok := strings.Cut(fields[0], "-")
	var fromOK, toOK bool
	w.begin, fromOK = parseClock(from)
	w.end, toOK = parseClock(to)
	switch {
	case !ok || !fromOK || !toOK || w.begin == minutesOfDay:
		return bad("%q are no times: write them %s", fields[0], windowExample)
	case endDay >= 0 && beginDay < 0:
		return bad("write one day on which it begins, %s", overDaysExample)
	case endDay >= 0:
		if w.over = (endDay - beginDay + 7) % 7; w.over == 0 && w.end <= w.begin {
			w.over = 7
		}
		if w.over == 7 && w.end == w.begin {
			return bad("it ends when it begins: 00:00-24:00 is the whole week")
		}
	case w.begin == w.end:
		return bad("it ends when it begins: 00:00-24:00 is the whole day")
	case w.end < w.begin:
		w.over = 1
	}
	if len(fields) == 2 {
		var err error
		if w.zone, err = time.LoadLocation(fields[1]); err != nil || fields[1] == "Local" {
			return bad("there is no time zone %q: write one %s", fields[1], windowExample)
		}
	}
	return w, nil
}

// ParseWindows reads windows separated by semicolons.
func ParseWindows(text string) ([]Window, error) {
	var all []Window
	for part := range strings.SplitSeq(text, ";") {
		w, err := ParseWindow(part)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

func parseDays(text string) (days [7]bool, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		begin, end := dayOf(from), dayOf(to)
		if begin < 0 || end < 0 {
			return days, fmt.Errorf("%q are no days: write Mon, Mon-Fri or Sat,Sun", part)
		}
		for d := begin; ; d = (d + 1) % 7 {
			days[d] = true
			if d == end {
				break
			}
		}
	}
	return days, nil
}

func dayOf(name string) int {
	for i, d := range dayNames {
		if strings.EqualFold(d, name) {
			return i
		}
	}
	return -1
}

// parseClock reads HH:MM, up to 24:00, as minutes of the day.
func parseClock(text string) (minutes int, ok bool) {
	if len(text) != len("00:00") || text[2] != ':' {
		return 0, false
	}
	h, errH := strconv.ParseUint(text[:2], 10, 8)
	m, errM := strconv.ParseUint(text[3:], 10, 8)
	minutes = int(60*h + m) //nolint:gosec // 8 bits each
	return minutes, errH == nil && errM == nil && m < 60 && minutes <= minutesOfDay
}

// Open reports whether t is within the window. The zero Window is never open.
func (w Window) Open(t time.Time) bool {
	if w.zone == nil {
		return false
	}
	local := t.In(w.zone)
	minute, day := 60*local.Hour()+local.Minute(), int(local.Weekday())
	for ago := range w.over + 1 { // it began so many days ago
		began := ago > 0 || minute >= w.begin
		ended := ago == w.over && minute >= w.end
		if w.days[(day-ago+7)%7] && began && !ended {
			return true
		}
	}
	return false
}

func (w Window) String() string { return w.text }

// MarshalText writes what ParseWindow reads.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.text), nil }

// UnmarshalText is ParseWindow.
func (w *Window) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWindow(string(text))
	return err
}

// WindowsOpen reports whether one of windows is open. Without windows it always
// is.
func WindowsOpen(all []Window, t time.Time) bool {
	for _, w := range all {
		if w.Open(t) {
			return true
		}
	}
	return len(all) == 0
}

// searchDays is how far changes of windows are looked for: two weeks, as a
// change of the clocks may leave a window out once, and a day.
const searchDays = 15

// WindowsChange returns when windows open next, or close when they are open;
// zero: they never do.
func WindowsChange(all []Window, t time.Time) time.Time { return EachChange([][]Window{all}, t) }

// EachOpen reports whether each list has a window that is open, or no windows.
func EachOpen(lists [][]Window, t time.Time) bool {
	return !slices.ContainsFunc(lists, func(all []Window) bool { return !WindowsOpen(all, t) })
}

// EachChange returns when what EachOpen reports changes next; zero: never.
func EachChange(lists [][]Window, t time.Time) time.Time {
	open := EachOpen(lists, t)
	for _, at := range edges(slices.Concat(lists...), t, 0, searchDays) {
		if at.After(t) && EachOpen(lists, at) != open {
			return at
		}
	}
	return time.Time{}
}

// WindowsOpenSince returns since when windows are open; zero: for two weeks, or
// they are closed.
func WindowsOpenSince(all []Window, t time.Time) time.Time {
	if len(all) == 0 || !WindowsOpen(all, t) {
		return time.Time{}
	}
	for _, at := range slices.Backward(edges(all, t, -searchDays, 0)) {
		if !at.After(t) && !WindowsOpen(all, at.Add(-time.Nanosecond)) {
			return at
		}
	}
	return time.Time{}
}

// edges returns the times, in order, at which one of windows may open or close
// on the days from the first to the last after that of t: the begin and the end
// of each window by the clock on the wall, and the changes of that clock. A time
// that the wall shows twice in one day is there twice.
func edges(all []Window, t time.Time, first, last int) []time.Time {
	var found []time.Time
	for _, w := range all {
		if w.zone == nil {
			continue
		}
		year, month, day := t.In(w.zone).Date()
		for d := first - 1; d <= last+1; d++ {
			midnight := time.Date(year, month, day+d, 0, 0, 0, 0, w.zone)
			next := time.Date(year, month, day+d+1, 0, 0, 0, 0, w.zone)
			_, before := midnight.Zone()
			_, after := next.Zone()
			for _, minute := range []int{w.begin, w.end} {
				wall := time.Date(year, month, day+d, 0, minute, 0, 0, time.UTC)
				found = append(found, wall.Add(-time.Duration(before)*time.Second))
				if after != before {
					found = append(found, wall.Add(-time.Duration(after)*time.Second))
				}
			}
			if _, change := midnight.ZoneBounds(); !change.IsZero() && change.Before(next) {
				found = append(found, change)
			}
		}
	}
	slices.SortFunc(found, time.Time.Compare)
	return found
}

// ClosedText says that windows are closed until opens; zero: it is not known until when.
func ClosedText(opens time.Time) string {
	if opens.IsZero() {
		return "outside the window"
	}
	return "outside the window until " + opens.UTC().Format(time.RFC3339)
}
