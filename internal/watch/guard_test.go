package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
)

// serving is a list of instances with the given ids.
func serving(ids ...string) []*dep.HealthService {
	l := []*dep.HealthService{}
	for _, id := range ids {
		l = append(l, &dep.HealthService{Node: "n", ID: id})
	}
	return l
}

func TestGuard(t *testing.T) {
	t.Parallel()
	since := time.Now()
	ten := serving("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	type conf = config.Template
	for name, tt := range map[string]struct {
		conf      conf
		had, next []*dep.HealthService
		unknown   bool // it is unknown what the file is made of
		why       string
		until     time.Duration // 0: never
	}{
		"nothing changes":               {conf{EmptyAfter: time.Second}, ten, ten, false, "", 0},
		"more":                          {conf{MaxShrink: "1"}, serving("0"), ten, false, "", 0},
		"some less without a limit":     {conf{EmptyAfter: time.Second}, ten, ten[9:], false, "", 0},
		"empty":                         {conf{EmptyAfter: time.Second}, ten, serving(), false, "no instance left", time.Second},
		"empty at once":                 {conf{}, ten, serving(), false, "no instance left", 0},
		"empty allowed":                 {conf{AllowEmpty: true, MaxShrink: "1"}, ten, serving(), false, "", 0},
		"empty as it was":               {conf{EmptyAfter: time.Second}, serving(), serving(), false, "", 0},
		"empty, and a file of unknown":  {conf{EmptyAfter: time.Second}, nil, serving(), true, "no instance left", time.Second},
		"fewer than the least":          {conf{MinInstances: map[string]int{"web": 2}}, ten, serving("0"), false, "min_instances is 2", 0},
		"the least":                     {conf{MinInstances: map[string]int{"web": 2}}, ten, serving("0", "1"), false, "", 0},
		"least of another service":      {conf{MinInstances: map[string]int{"db": 2}}, ten, serving("0"), false, "", 0},
		"least of one never there":      {conf{MinInstances: map[string]int{"web": 1}}, nil, serving(), false, "min_instances is 1", 0},
		"least goes before allow_empty": {conf{MinInstances: map[string]int{"web": 1}, AllowEmpty: true}, ten, serving(), false, "min_instances is 1", 0},
		"shrinks by half":               {conf{MaxShrink: "50%"}, ten, ten[:5], false, "", 0},
		"shrinks by more than half":     {conf{MaxShrink: "50%"}, ten, ten[:4], false, "would lose 6 of 10", 0},
		"shrinks for long":              {conf{MaxShrink: "50%", ShrinkAfter: time.Minute}, ten, ten[:4], false, "would lose 6 of 10", time.Minute},
		"shrinks by a count":            {conf{MaxShrink: "2"}, ten, ten[:8], false, "", 0},
		"shrinks by more than a count":  {conf{MaxShrink: "2"}, ten, ten[:7], false, "max_shrink is 2", 0},
		"all replaced":                  {conf{MaxShrink: "50%"}, serving("0", "1"), serving("2", "3"), false, "would lose 2 of 2", 0},
		"one of one, by per cent":       {conf{MaxShrink: "50%"}, serving("0"), serving("1"), false, "would lose 1 of 1", 0},
		"all of them":                   {conf{MaxShrink: "100%"}, ten, serving("x"), false, "", 0},
	} {
		g, err := newGuard(&tt.conf)
		if err != nil {
			t.Fatal(err)
		}
		v := g.check(&dependency{name: "web"}, tt.had, tt.next, !tt.unknown, since)
		if v.hold != (tt.why != "") || !strings.Contains(v.why, tt.why) {
			t.Errorf("%s: held %v, because %q; want %q", name, v.hold, v.why, tt.why)
		}
		want := time.Time{}
		if tt.until > 0 || name == "empty at once" {
			want = since.Add(tt.until)
		}
		if !v.until.Equal(want) {
			t.Errorf("%s: until %v; want %v", name, v.until, want)
		}
	}
	for _, bad := range []string{"0", "-1", "101%", "0%", "half", "%", "5 %"} {
		if _, err := newGuard(&conf{Name: "t", MaxShrink: bad}); err == nil || !strings.Contains(err.Error(), "max_shrink") {
			t.Errorf("max_shrink %q: %v; want an error", bad, err)
		}
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for _, tt := range []struct{ last, least, most, want time.Duration }{
		{0, 0, 0, 0}, {5, 0, 0, 5}, {0, 10, 0, 10}, {5, 10, 0, 15}, {5, 10, 100, 15}, {95, 10, 100, 100}, {300, 10, 100, 100}, {0, 10, 5, 5},
	} {
		if got := quiet(begin, begin.Add(tt.last), config.Wait{Min: tt.least, Max: tt.most}); !got.Equal(begin.Add(tt.want)) {
			t.Errorf("%+v: %s after the first change", tt, got.Sub(begin))
		}
	}
}

func TestUnitNext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	soon, later := now.Add(time.Second), now.Add(time.Minute)
	for name, tt := range map[string]struct {
		u    unit
		want time.Time // zero: never
	}{
		"idle":                    {unit{}, time.Time{}},
		"changed":                 {unit{dirty: true, first: now, last: soon}, soon},
		"changed while it runs":   {unit{dirty: true, running: true, last: now}, time.Time{}},
		"changed, but blocked":    {unit{dirty: true, blocked: "x", last: now}, time.Time{}},
		"failed":                  {unit{retry: later}, later},
		"held":                    {unit{wake: soon}, soon},
		"failed and held":         {unit{retry: later, wake: soon}, soon},
		"held and failed":         {unit{retry: soon, wake: later}, soon},
		"changed after it failed": {unit{dirty: true, first: now, last: now, retry: later}, now},
	} {
		got, ok := tt.u.next()
		if ok == tt.want.IsZero() || !got.Equal(tt.want) {
			t.Errorf("%s: next job %v, %v; want %v", name, got, ok, tt.want)
		}
	}
	u := &unit{}
	u.touch(now)
	u.touch(soon)
	if !u.first.Equal(now) || !u.last.Equal(soon) {
		t.Errorf("touched from %v to %v", u.first, u.last)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	q := &queue{limit: 3}
	var units []*unit
	for i := range 10 {
		u := &unit{name: fmt.Sprint(i), place: -1, queue: q}
		u.touch(now.Add(time.Duration(10-i) * time.Second))
		q.reschedule(u)
		units = append(units, u)
	}
	if at, ok := q.next(); !ok || !at.Equal(now.Add(time.Second)) {
		t.Errorf("next = %v, %v; want the earliest", at, ok)
	}
	if u := q.pop(now); u != nil {
		t.Errorf("%s is given out before it is due", u.name)
	}
	units[0].touch(now) // moves to the end of its own series, not of the queue
	units[9].blocked = "x"
	q.reschedule(units[9])
	q.reschedule(units[9])
	late := now.Add(time.Hour)
	for _, want := range []string{"8", "7", "6"} {
		if u := q.pop(late); u == nil || u.name != want || u.place != -1 {
			t.Fatalf("pop = %+v; want %s", u, want)
		}
	}
	if _, ok := q.next(); q.pop(late) != nil || ok {
		t.Error("a unit is given out, or waited for, though there is no room")
	}
	q.running--
	units[9].blocked = ""
	q.reschedule(units[9])
	if u := q.pop(late); u != units[9] {
		t.Errorf("pop = %+v; want the one that is no longer blocked", u)
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	holds := map[string]hold{
		"a": {verdict: verdict{until: now.Add(2)}}, "b": {}, "c": {verdict: verdict{until: now.Add(1)}},
	}
	if got := wake(holds); !got.Equal(now.Add(1)) {
		t.Errorf("wake = %v; want the earliest", got)
	}
	if got := wake(map[string]hold{"b": {}}); !got.IsZero() {
		t.Errorf("wake = %v; want never", got)
	}
}
