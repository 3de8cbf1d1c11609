package pace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func weekly(t testing.TB, id, text string, roles ...string) pace.Freeze {
	t.Helper()
	w, err := pace.ParseWindow(text)
	if err != nil {
		t.Fatal(err)
	}
	return pace.Freeze{ID: id, Weekly: &w, Roles: roles}
}

func dates(t testing.TB, id, from, to string, roles ...string) pace.Freeze {
	t.Helper()
	return pace.Freeze{ID: id, From: at(t, from), To: at(t, to), Roles: roles}
}

// TestFreezes: what is frozen when, for members with which roles, and until when.
func TestFreezes(t *testing.T) {
	t.Parallel()
	all := pace.Freezes{
		weekly(t, "weekend", "Fri 16:00-Mon 06:00"),
		dates(t, "db", "2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z", "db"),
		dates(t, "sale", "2026-11-30T06:00:00Z", "2026-12-01T00:00:00Z"), // begins as the weekend ends
	}
	for _, test := range []struct {
		now, role, frozen, until, begins string
	}{
		{"2026-11-20T15:59:00Z", "web", "", "", "2026-11-20T16:00:00Z"},
		{"2026-11-20T16:00:00Z", "web", "weekend", "2026-11-23T06:00:00Z", "2026-11-30T06:00:00Z"},
		{"2026-11-23T06:00:00Z", "web", "", "", "2026-11-27T16:00:00Z"},
		{"2026-11-23T06:00:00Z", "db", "", "", "2026-11-24T00:00:00Z"},
		{"2026-11-24T12:00:00Z", "web", "", "", "2026-11-27T16:00:00Z"},
		{"2026-11-24T12:00:00Z", "db", "db", "2026-11-25T00:00:00Z", "2026-11-27T16:00:00Z"},
		{"2026-11-28T12:00:00Z", "web", "weekend", "2026-12-01T00:00:00Z", "2026-11-30T06:00:00Z"},
		{"2026-11-30T12:00:00Z", "web", "sale", "2026-12-01T00:00:00Z", "2026-12-04T16:00:00Z"},
	} {
		now, roles := at(t, test.now), []string{"linux", test.role}
		frozen, is := all.At(roles, now)
		if is != (test.frozen != "") || frozen.ID != test.frozen || is && !frozen.Until.Equal(at(t, test.until)) {
			t.Errorf("%s at %s: frozen by %q until %v, want %q until %s", test.role, test.now, frozen.ID, frozen.Until, test.frozen, test.until)
		}
		if begins := all.Begins(roles, now); !begins.Equal(at(t, test.begins)) {
			t.Errorf("%s at %s: the next begins at %v, want %s", test.role, test.now, begins, test.begins)
		}
	}
	if frozen, is := all.Any(at(t, "2026-11-24T12:00:00Z")); !is || frozen.ID != "db" {
		t.Errorf("any: %+v", frozen)
	}
	for now, want := range map[string]string{
		"2026-11-24T12:00:00Z": "2026-11-23T06:00:00Z", "2026-11-26T00:00:00Z": "2026-11-25T00:00:00Z", "2026-12-01T00:00:00Z": "2026-12-01T00:00:00Z",
	} {
		if ended := all.Ended(at(t, now)); !ended.Equal(at(t, want)) {
			t.Errorf("at %s the last ended at %v, want %s", now, ended, want)
		}
	}
	if change := all.Change(at(t, "2026-11-23T06:00:00Z")); !change.Equal(at(t, "2026-11-24T00:00:00Z")) {
		t.Errorf("the next change is at %v", change)
	}
	if _, is := pace.Freezes(nil).At(nil, time.Now()); is {
		t.Error("no freeze is in force")
	}
}

// TestAddFreeze: what cannot be a freeze is refused, and what ended long ago goes.
func TestAddFreeze(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-23T12:00:00Z")
	all := pace.Freezes{
		dates(t, "old", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"),
		dates(t, "sale", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z"),
		weekly(t, "weekend", "Sat 00:00-Mon 00:00"),
		weekly(t, "db", "Mon-Fri 08:00-18:00", "db"),
	}
	for name, test := range map[string]struct {
		f    pace.Freeze
		says string
	}{
		"of dates":                {dates(t, "x", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"), ""},
		"begun already":           {dates(t, "x", "2026-11-23T00:00:00Z", "2026-11-24T00:00:00Z"), ""},
		"right after":             {dates(t, "x", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"), ""},
		"dates over a weekend":    {dates(t, "x", "2026-12-01T00:00:00Z", "2027-01-02T00:00:00Z"), ""},
		"of another role":         {dates(t, "x", "2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z", "web"), ""},
		"another time":            {weekly(t, "x", "Wed 00:00-24:00"), ""},
		"overlaps":                {dates(t, "x", "2026-11-27T23:00:00Z", "2026-11-29T00:00:00Z"), "overlaps freeze sale"},
		"around":                  {dates(t, "x", "2026-11-26T23:00:00Z", "2026-11-29T00:00:00Z"), "overlaps freeze sale"},
		"overlaps each week":      {weekly(t, "x", "Fri 16:00-Sat 06:00"), "overlaps freeze weekend"},
		"overlaps of a role":      {weekly(t, "x", "Tue 17:00-Wed 06:00", "db"), "overlaps freeze db"},
		"ends before it begins":   {dates(t, "x", "2026-12-02T00:00:00Z", "2026-12-01T00:00:00Z"), "after the beginning"},
		"ends when it begins":     {dates(t, "x", "2026-12-02T00:00:00Z", "2026-12-02T00:00:00Z"), "after the beginning"},
		"in the past":             {dates(t, "x", "2026-11-22T00:00:00Z", "2026-11-23T12:00:00Z"), "in the future"},
		"without an end":          {pace.Freeze{From: now}, "never ends"},
		"each week without pause": {weekly(t, "x", "00:00-24:00"), "never ends"},
	} {
		next, err := all.Add(test.f, now)
		switch {
		case test.says == "" && (err != nil || len(next) != len(all)):
			t.Errorf("%s: %v, %v; want it in the place of the old one", name, next, err)
		case test.says != "" && (!errors.Is(err, pace.ErrFreeze) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want an error that says %q", name, err, test.says)
		}
	}
}

// TestStoredFreeze: a freeze is stored as it was given.
func TestStoredFreeze(t *testing.T) {
	t.Parallel()
	all := pace.Freezes{weekly(t, "a1", "Fri 16:00-Mon 06:00 Europe/Berlin", "db"), dates(t, "a2", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z")}
	text, err := json.Marshal(all)
	want := `[{"id":"a1","weekly":"Fri 16:00-Mon 06:00 Europe/Berlin","roles":["db"]},{"id":"a2","from":"2026-12-01T00:00:00Z","to":"2026-12-02T00:00:00Z"}]`
	if err != nil || string(text) != want {
		t.Errorf("stored as %s (%v), want %s", text, err, want)
	}
	var back pace.Freezes
	if err := json.Unmarshal(text, &back); err != nil || len(back) != 2 || back[0].String() != all[0].String() || back[1].String() != all[1].String() {
		t.Errorf("read as %v (%v)", back, err)
	}
	if frozen, _ := back.At([]string{"db"}, at(t, "2026-11-21T12:00:00Z")); frozen.String() != "frozen until 2026-11-23T05:00:00Z by freeze a1 of role db" {
		t.Errorf("it says %q", frozen)
	}
}
