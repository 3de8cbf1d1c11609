package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStatusJSON holds the API to its form: any change of the golden file
// except an addition breaks scripts.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: example()})
	got := s.get("/v1/status")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s; want 200 application/json", got.status, got.header.Get("Content-Type"))
	}
	golden(t, "status.json", got.body)
}

func TestEmptyStatusHasNoNull(t *testing.T) {
	t.Parallel()
	s := start(t, &board{status: Status{Templates: []Template{{}}, Services: []Service{{}}}})
	got := s.get("/v1/status").body
	if strings.Contains(got, "null") || strings.Contains(got, "0001-01-01") {
		t.Errorf("lists must not be null, and times that have not come must be left out:\n%s", got)
	}
}

// TestStatusLeavesTheSourceAlone: what the server completes is its own copy.
func TestStatusLeavesTheSourceAlone(t *testing.T) {
	t.Parallel()
	status := example()
	status.NotReady = make([]string, 0, 8)
	status.completed()
	newPage(status.completed())
	want := example()
	want.NotReady = []string{}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConnected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer, unreachable time.Time
		want                bool
	}{
		"never asked":  {},
		"answers":      {answer: at(9, 0), want: true},
		"away":         {answer: at(9, 0), unreachable: at(9, 1)},
		"never answer": {unreachable: at(9, 1)},
	}
	for name, test := range tests {
		s := Status{Consul: Consul{LastAnswer: test.answer, UnreachableSince: test.unreachable}}
		if got := s.completed().Consul.Connected; got != test.want {
			t.Errorf("%s: got %v; want %v", name, got, test.want)
		}
	}
}

// TestOddText: whatever a check prints, the answers stay what they claim to be.
func TestOddText(t *testing.T) {
	t.Parallel()
	status := example()
	status.Services[1].ID = "\xff\"'\n{}"
	status.Services[1].Checks[0].Output = "\x00\xfe</pre>\u2028"
	status.Templates[2].Name = "\xff\\"
	s := start(t, &board{status: status})
	var got Status
	if err := json.Unmarshal([]byte(s.get("/v1/status").body), &got); err != nil {
		t.Errorf("/v1/status: %v", err)
	}
	if got := s.get("/metrics"); got.status != http.StatusOK || !strings.Contains(got.body, `jorc_template_unsettled{state="waiting",template="`+"\uFFFD"+`\\"} 1`) {
		t.Errorf("/metrics: %d\n%s", got.status, got.body)
	}
}

// TestConcurrentReads: all answers at once, while the status changes.
func TestConcurrentReads(t *testing.T) {
	t.Parallel()
	source := &board{status: example()}
	s := start(t, source)
	var group sync.WaitGroup
	for _, path := range []string{"/", "/v1/status", "/metrics", "/healthz", "/healthz?ready"} {
		for range 4 {
			group.Go(func() {
				for range 5 {
					if got, err := s.try(http.MethodGet, path, ""); err != nil || got.body == "" {
						t.Errorf("%s: %d %v", path, got.status, err)
					}
					s.o.Metrics.Observe(Job{Took: time.Millisecond, Changed: 1})
				}
			})
		}
	}
	for i := range 100 {
		source.set(func(s *Status) { *s = example(); s.Consul.Watches = i })
	}
	group.Wait()
}
