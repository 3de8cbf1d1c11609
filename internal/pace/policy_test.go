package pace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/pace"
)

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want pace.Amount
		of10 int
		says string // of the error
	}{
		{"1", pace.Amount{N: 1}, 1, ""},
		{" 12 ", pace.Amount{N: 12}, 12, ""},
		{"10%", pace.Amount{N: 10, Percent: true}, 1, ""},
		{"19%", pace.Amount{N: 19, Percent: true}, 1, ""},
		{"1%", pace.Amount{N: 1, Percent: true}, 1, ""},
		{"100%", pace.Amount{N: 100, Percent: true}, 10, ""},
		{"0", pace.Amount{}, 0, "at least 1"},
		{"0%", pace.Amount{}, 0, "at least 1"},
		{"-3", pace.Amount{}, 0, "at least 1"},
		{"101%", pace.Amount{}, 0, "at most 100%"},
		{"2.5%", pace.Amount{}, 0, "such as 10%"},
		{"+3", pace.Amount{}, 0, "such as 3"},
		{"", pace.Amount{}, 0, "such as 3"},
		{"%", pace.Amount{}, 0, "such as 3"},
		{"many", pace.Amount{}, 0, "such as 3"},
		{"1000001", pace.Amount{}, 0, "more than"},
		{"99999999999999999999", pace.Amount{}, 0, "such as 3"},
	} {
		got, err := pace.PolicyAmount(test.text)
		if got != test.want || got.Of(10) != test.of10 {
			t.Errorf("ParseAmount(%q) = %v, of 10 %d; want %v, %d", test.text, got, got.Of(10), test.want, test.of10)
		}
		wantError(t, "ParseAmount "+test.text, err, test.says)
	}
}

// wantError: err is an ErrPolicy that says says; none when says is empty.
func wantError(t *testing.T, what string, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err == nil:
	case says == "" || !errors.Is(err, pace.ErrPolicy) || !strings.Contains(err.Error(), says):
		t.Errorf("%s = %v, want an error that says %q", what, err, says)
	}
}

func TestParseOrder(t *testing.T) {
	t.Parallel()
	got, err := pace.ParseOrder("db=1, web=10%,cache=0,edge")
	want := []pace.Role{
		{Name: "db", Limit: pace.Amount{N: 1}},
		{Name: "web", Limit: pace.Amount{N: 10, Percent: true}},
		{Name: "cache", Kept: true},
		{Name: "edge"},
	}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("ParseOrder = %v, %v", got, err)
	}
	for text, says := range map[string]string{
		"": "name", "a,,b": "name", "a b": "a space", "a=0%": "keeps the role back", "a=x": "such as 3", "a=": "such as 3", "a/b": "'/'",
	} {
		_, err := pace.ParseOrder(text)
		wantError(t, "ParseOrder "+text, err, says)
	}
}

func amounts(t *testing.T, text string) []pace.Amount {
	t.Helper()
	all, err := pace.ParseBatches(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestValidate(t *testing.T) {
	t.Parallel()
	minute := pace.Duration(time.Minute)
	for _, test := range []struct {
		name   string
		policy pace.Policy
		says   string
	}{
		{"plain", pace.Policy{}, ""},
		{"all of it", pace.Policy{
			Canary: 1, Batches: amounts(t, "2,10%,100%"), MaxFailures: 1, MinHealthy: minute, NodeDeadline: 2 * minute,
			ProgressDeadline: 2 * minute, OnFailure: "rollback",
		}, ""},
		{"no canary", pace.Policy{Canary: -1}, "a number from 1 on"},
		{"failures", pace.Policy{MaxFailures: -1}, "give 0"},
		{"on failure", pace.Policy{OnFailure: "stop"}, "must be pause or rollback"},
		{"below zero", pace.Policy{MinHealthy: -minute}, "below zero"},
		{"deadline", pace.Policy{MinHealthy: minute, NodeDeadline: minute}, "give it longer"},
		{"progress", pace.Policy{MinHealthy: minute, ProgressDeadline: minute}, "give it longer"},
		{"descending", pace.Policy{Batches: amounts(t, "50%,10%,100%")}, "more than the one before"},
		{"twice", pace.Policy{Batches: amounts(t, "5,5,100%")}, "more than the one before"},
		{"no end", pace.Policy{Batches: amounts(t, "10%,50%")}, "end with 100%"},
		{"counts only", pace.Policy{Batches: amounts(t, "5")}, "end with 100%"},
		{"canary as a batch", pace.Policy{Canary: 5, Batches: amounts(t, "5,100%")}, "leave one of them out"},
		{"role twice", pace.Policy{Order: []pace.Role{{Name: "a"}, {Name: "a"}}}, "twice"},
		{"managers", pace.Policy{Order: []pace.Role{{Name: "manager"}}}, "no part"},
		{"many roles", pace.Policy{Order: make([]pace.Role, 33)}, "more than 32"},
		{"many windows", pace.Policy{Windows: make([]pace.Window, 17)}, "more than 16"},
		{"many batches", pace.Policy{Batches: make([]pace.Amount, 33)}, "more than 32"},
	} {
		wantError(t, test.name, test.policy.Validate(), test.says)
	}
}

// TestPolicyJSON: what is stored comes back, and what cannot have been stored
// does not.
func TestPolicyJSON(t *testing.T) {
	t.Parallel()
	windows, err := pace.PolicyWindows("Mon-Fri 22:00-06:00 Europe/Berlin; Sat 00:00-24:00")
	if err != nil {
		t.Fatal(err)
	}
	p := pace.Policy{
		Canary: 2, Batches: amounts(t, "10%,100%"), MaxParallel: pace.Amount{N: 3}, MinHealthy: pace.Duration(90 * time.Second),
		Order: []pace.Role{{Name: "db", Limit: pace.Amount{N: 1}}, {Name: "web", Kept: true}}, Windows: windows,
	}.Complete()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"canary":2,"batches":["10%","100%"],"max_parallel":"3","min_healthy":"1m30s","order":["db=1","web=0"],` +
		`"on_failure":"pause","windows":["Mon-Fri 22:00-06:00 Europe/Berlin","Sat 00:00-24:00"]}`
	if string(text) != want {
		t.Errorf("stored as %s\nwant %s", text, want)
	}
	var back pace.Policy
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(back); err != nil || string(again) != want {
		t.Errorf("read back: %s, %v", again, err)
	}
	for _, bad := range []string{
		`{"max_parallel":"0%"}`, `{"batches":["x"]}`, `{"min_healthy":"soon"}`, `{"windows":["never"]}`, `{"order":["a b"]}`,
	} {
		if err := json.Unmarshal([]byte(bad), new(pace.Policy)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	if got := (pace.Policy{}).Complete(); !got.Plain() {
		t.Errorf("the plain policy became %+v", got)
	}
	got := pace.Policy{Canary: 1}.Complete()
	if got.Plain() || got.MaxParallel.String() != "25%" || got.OnFailure != pace.OnFailurePause {
		t.Errorf("a canary became %+v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"1", "10%", "1,10%,100%", "db=1,web", "Mon-Fri 22:00-06:00 Europe/Berlin", "Sat 00:00-24:00;Sun 01:00-02:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := pace.PolicyAmount(text); err == nil {
			if b, err := pace.PolicyAmount(a.String()); err != nil || a != b || a.Of(7) < 1 {
				t.Errorf("amount %q: %v, %v", text, b, err)
			}
		}
		if r, err := pace.ParseRole(text); err == nil {
			if s, err := pace.ParseRole(r.String()); err != nil || r != s {
				t.Errorf("role %q: %v, %v", text, s, err)
			}
		}
		if w, err := pace.ParseWindow(text); err == nil {
			if v, err := pace.ParseWindow(w.String()); err != nil || v.String() != w.String() {
				t.Errorf("window %q: %v, %v", text, v, err)
			}
		}
	})
}

// TestPolicyString: a policy is shown as the flags that set it.
func TestPolicyString(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]pace.Policy{
		"all at once":                                          {},
		"canary 2, max-failures 0":                             {Canary: 2},
		"max-failures 1, zone-by-zone":                         {MaxFailures: 1, ZoneByZone: true},
		"max-failures 0, min-healthy 10s, on-failure rollback": {MinHealthy: pace.Duration(10 * time.Second), OnFailure: "rollback"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestPlain: a policy is plain exactly if it is stored as the empty one.
func TestPlain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy pace.Policy
		plain  bool
	}{
		{pace.Policy{}, true},
		{pace.Policy{Batches: []pace.Amount{}, Order: []pace.Role{}, Windows: []pace.Window{}}, true},
		{pace.Policy{MaxParallel: pace.Amount{N: 1}}, false},
		{pace.Policy{Order: []pace.Role{{Name: "db"}}}, false},
		{pace.Policy{OnFailure: pace.OnFailurePause}, false},
		{pace.Policy{Gate: pace.Gate{Workflow: "smoke"}}, false},
	} {
		if got := test.policy.Plain(); got != test.plain || got != test.policy.Equal(pace.Policy{}) {
			t.Errorf("%+v: plain %v, want %v", test.policy, got, test.plain)
		}
	}
}
