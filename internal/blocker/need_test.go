package blocker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
)

func need(t testing.TB, text string, level catalog.Level) blocker.Need {
	t.Helper()
	target, err := blocker.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return blocker.Need{Target: target, For: level}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	web := need(t, "web", catalog.Functional)
	passing := web
	passing.Passing = true
	registered := need(t, "my web", catalog.Addressable)
	both := registered
	both.Passing = true
	tests := []struct {
		name string
		need blocker.Need
		o    blocker.Options
		ok   bool
	}{
		{"plain", web, blocker.Options{}, true},
		{"all of it", passing, blocker.Options{Timeout: time.Minute, Stable: time.Second, Any: true}, true},
		{"DNS only", web, blocker.Options{DNSOnly: true}, true},
		{"tries", web, blocker.Options{DNSOnly: true, Tries: 3, TrySleep: time.Second}, true},
		{"odd name, registered", registered, blocker.Options{}, true},
		{"odd name, over DNS", need(t, "my web", catalog.Functional), blocker.Options{}, false},
		{"DNS only, passing", passing, blocker.Options{DNSOnly: true}, false},
		{"DNS only, registered", registered, blocker.Options{DNSOnly: true}, false},
		{"registered, passing", both, blocker.Options{}, false},
		{"a name, registered", need(t, "a.example.", catalog.Addressable), blocker.Options{}, false},
		{"stable for longer than the timeout", web, blocker.Options{Timeout: time.Second, Stable: time.Minute}, false},
		{"a pause without tries", web, blocker.Options{TrySleep: time.Second}, false},
		{"stable tries", web, blocker.Options{Tries: 2, Stable: time.Second}, false},
		{"negative", web, blocker.Options{Timeout: -1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.o.Check([]blocker.Need{tt.need})
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, blocker.ErrUsage) {
				t.Errorf("Check = %v, want ok %v", err, tt.ok)
			}
		})
	}
	if err := (blocker.Options{}).Check(nil); !errors.Is(err, blocker.ErrUsage) {
		t.Errorf("no targets: %v", err)
	}
}

func TestNeedOf(t *testing.T) {
	t.Parallel()
	got, err := blocker.NeedOf(config.Requires{Target: "primary.mysql", Count: 2, For: "reachable"})
	if want := need(t, "primary.mysql=2", catalog.Reachable); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, r := range []config.Requires{
		{Target: "web=", Pos: "a.hcl:3"},
		{Target: "web", For: "alive", Pos: "a.hcl:3"},
		{Target: "web=2", Count: 3, Pos: "a.hcl:3"},
		{Target: "my web", Pos: "a.hcl:3"},
	} {
		if got, err := blocker.NeedOf(r); err == nil || !strings.HasPrefix(err.Error(), "a.hcl:3: ") {
			t.Errorf("%+v = %+v, %v; want an error with its place", r, got, err)
		}
	}
}
