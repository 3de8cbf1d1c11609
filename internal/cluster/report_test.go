package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/cluster"
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Hour)
)

var errTest = errors.New("a test's own")

func TestDocumentAt(t *testing.T) {
	t.Parallel()
	d := cluster.Report{}.At("v1", noon)
	if same := d.At("v1", later); same.Since != noon || same.Previous != "" {
		t.Errorf("the same version again: %+v", same)
	}
	if next := d.At("v3", later); next.Version != "v3" || next.Previous != "v1" || next.Since != later {
		t.Errorf("the next version: %+v", next)
	}
}

func TestDocumentWith(t *testing.T) {
	t.Parallel()
	first := cluster.Report{}.With("config", cluster.CategoryState{State: cluster.StateFailed, Version: "v1", Detail: "a"}, noon)
	again := first.With("config", cluster.CategoryState{State: cluster.StateFailed, Version: "v1", Detail: "b"}, later)
	if s := again.States["config"]; s.Since != noon || s.Detail != "b" {
		t.Errorf("the same state with another detail: %+v", s)
	}
	if s := first.States["config"]; s.Detail != "a" {
		t.Errorf("the document it came from has changed: %+v", s)
	}
	if s := first.With("config", cluster.CategoryState{State: cluster.StateFailed, Version: "v2"}, later).States["config"]; s.Since != later || s.Detail != "" {
		t.Errorf("the same state of another version: %+v", s)
	}
	long := strings.Repeat("ö", 10_000) + "the end\xff"
	if s := first.With("config", cluster.CategoryState{State: cluster.StateFailed, Detail: long}, noon).States["config"]; len(s.Detail) > 8<<10 ||
		!strings.HasSuffix(s.Detail, "the end\uFFFD") || !utf8.ValidString(s.Detail) {
		t.Errorf("a long detail: %d bytes, %q", len(s.Detail), s.Detail[len(s.Detail)-20:])
	}
}

// TestTemplateProblems: a report has few problems of templates, in an order, and what a
// host wrote is bounded when it is read.
func TestTemplateProblems(t *testing.T) {
	t.Parallel()
	problem := func(name, state string) cluster.TemplateProblem {
		return cluster.TemplateProblem{Name: name, State: state, Since: noon, Detail: strings.Repeat("x ", 500) + "\x1b"}
	}
	all := []cluster.TemplateProblem{problem("b", cluster.TemplateWaiting), problem("z", cluster.TemplateFailed), problem("a", cluster.TemplateWaiting)}
	for i := range 20 {
		all = append(all, problem(fmt.Sprintf("c%02d", i), cluster.TemplateWaiting))
	}
	report := cluster.Report{}.WithTemplates(all)
	kept, more := report.TemplateProblems()
	if len(kept) != 10 || more != 13 || kept[0].Name != "z" || kept[1].Name != "a" || kept[2].Name != "b" {
		t.Errorf("%d others, %+v", more, kept)
	}
	if data, err := json.Marshal(report); err != nil || len(data) > 5000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if empty := report.WithTemplates(nil); !empty.Equal(cluster.Report{}) {
		t.Errorf("without problems: %+v", empty)
	}
	hostile := cluster.Report{MoreTemplates: -5, Templates: make([]cluster.TemplateProblem, 1000)}
	hostile.Templates[0] = cluster.TemplateProblem{Name: "n\n\x1b[2J", State: "<b>", Detail: strings.Repeat("\u202e", 100_000)}
	kept, more = hostile.TemplateProblems()
	if p := kept[0]; len(kept) != 10 || more != 990 || p.Name != "n \uFFFD[2J" || p.State != cluster.TemplateWaiting || len(p.Detail) > 200 || strings.Contains(p.Detail, "\u202e") {
		t.Errorf("%d others, %+v", more, kept[0])
	}
	why := cluster.Explain(cluster.WhyFacts{Node: "n", Desired: "v1", Report: cluster.Report{Version: "v1"}.WithTemplates(all)})
	if last := why.Reasons[len(why.Reasons)-1]; why.Pending || last.Reason != cluster.WhyTemplate || last.Detail != "and 13 other templates" {
		t.Errorf("why: %+v", why)
	}
}

// TestExpiring: a report has few of what ends, in an order, and what a host wrote is bounded when
// it is read.
func TestExpiring(t *testing.T) {
	t.Parallel()
	var all []cluster.Expiring
	for i := range 20 {
		all = append(all, cluster.Expiring{Kind: "certificate", Name: fmt.Sprintf("template.c%02d", i), Until: noon.Add(time.Duration(20-i)*time.Hour + time.Millisecond)})
	}
	report := cluster.Report{}.WithExpiring(append(all, cluster.Expiring{Kind: "token", Name: "vault.token"}))
	kept := report.EndsSoon()
	if len(kept) != 10 || kept[0].Name != "vault.token" || kept[1].Name != "template.c19" || !kept[1].Until.Equal(noon.Add(time.Hour)) || kept[9].Name != "template.c11" {
		t.Errorf("got %+v", kept)
	}
	if again := report.WithExpiring(append(all, cluster.Expiring{Kind: "token", Name: "vault.token"})); !again.Equal(report) {
		t.Errorf("the same gives another report: %+v, %+v", again, report)
	}
	if empty := report.WithExpiring(nil); !empty.Equal(cluster.Report{}) {
		t.Errorf("without any: %+v", empty)
	}
	hostile := cluster.Report{Expiring: make([]cluster.Expiring, 1000)}
	hostile.Expiring[0] = cluster.Expiring{Kind: "<b>\x1b[2J", Name: strings.Repeat("\u202e", 100_000)}
	if kept := hostile.EndsSoon(); len(kept) != 10 || strings.Contains(kept[0].Kind, "\x1b") || len(kept[0].Name) > 256 || strings.Contains(kept[0].Name, "\u202e") {
		t.Errorf("%d, %+v", len(kept), kept[0])
	}
}

// TestStateJSON: what a newer jorc wrote survives, and a state may stand alone.
func TestStateJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{`"failed"`, `{"state":"failed"}`},
		{`{"state":"success","since":"2026-11-21T12:00:00Z","log_url":"a<b"}`, `{"state":"success","since":"2026-11-21T12:00:00Z","log_url":"a<b"}`},
		{`{"state":"success","z":[1, 2],"attempts":3}`, `{"state":"success","attempts":3,"z":[1,2]}`},
		{`{"State":"success"}`, `{"state":"success"}`},
		{`{}`, `{"state":""}`},
	} {
		var s cluster.CategoryState
		if err := json.Unmarshal([]byte(test.in), &s); err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		got, err := s.MarshalJSON()
		if err != nil || string(got) != test.want {
			t.Errorf("%s came back as %s, %v; want %s", test.in, got, err, test.want)
		}
	}
	d := cluster.Report{States: map[string]cluster.CategoryState{"config": {}}}
	if err := json.Unmarshal([]byte(`{"states":{"config":{"state":"failed","attempts":3}}}`), &d); err != nil {
		t.Fatal(err)
	}
	d = d.With("config", cluster.CategoryState{State: cluster.StateSuccess}, noon)
	if got, err := json.Marshal(d); err != nil || !strings.Contains(string(got), `"attempts":3`) {
		t.Errorf("a change lost what a newer jorc wrote: %s, %v", got, err)
	}
	for _, bad := range []string{`[]`, `7`, `"x`, `{"state":1}`} {
		if err := json.Unmarshal([]byte(bad), &cluster.CategoryState{}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestPendencyOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		desired    string
		desiredErr error
		local      string
		localErr   error
		want       cluster.PendingChange
	}{
		{"v2", nil, "v1", nil, cluster.UpdatePending},
		{"v2", nil, "v2", nil, cluster.UpToDate},
		{"v1", nil, "v10", nil, cluster.UpdatePending},
		{"v2", nil, "", cluster.ErrNoVersion, cluster.UpdatePending},
		{"v2", nil, "", cluster.ErrVersionFile, cluster.UpdatePending},
		{"v2", nil, "", errTest, cluster.PendingUnknown},
		{"", nil, "v1", nil, cluster.NoDesiredVersion},
		{"", nil, "", cluster.ErrNoVersion, cluster.NoDesiredVersion},
		{"", errTest, "v1", nil, cluster.PendingUnknown},
		{"", errTest, "", cluster.ErrNoVersion, cluster.NoDesiredVersion},
		{"", errTest, "", cluster.ErrVersionFile, cluster.PendingUnknown},
	} {
		if got := cluster.PendingChangeOf(test.desired, test.desiredErr, test.local, test.localErr); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}

// FuzzStateJSON: what another program wrote is read or refused, and what was read is
// written so that it is read again as the same.
func FuzzStateJSON(f *testing.F) {
	for _, seed := range []string{`"failed"`, `{"state":"success","more":{"a":[1]}}`, `{"ſtate":"x"}`, `{"State":"a","state":"b"}`, `null`, `{"since":"9999-12-31T23:59:59Z"}`, "{\"\xff\":1}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d cluster.Report
		if json.Unmarshal([]byte(`{"states":{"config":`+string(data)+`}}`), &d) != nil {
			return
		}
		d = d.With("config", cluster.CategoryState{State: cluster.StateFailed, Detail: "x"}, noon)
		written, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		var again cluster.Report
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s became %s: %v", data, written, err)
		}
		if s := again.States["config"]; s.State != cluster.StateFailed || s.Detail != "x" {
			t.Errorf("%s became %s, which reads %+v", data, written, s)
		}
	})
}

// TestAnswersKeepTheirPlaces: a host that says the same again in one of its changes reports nothing new, so that it writes nothing.
func TestAnswersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	version := cluster.Answer{Change: cluster.VersionChange, ID: "1.1.a", Tag: "v1", State: cluster.GrantDone}
	lease := cluster.Answer{Change: cluster.LeaseChange("n"), ID: "1.2.a", Tag: "l", State: cluster.GrantAccepted}
	both := cluster.Report{}.WithAnswer(version).WithAnswer(lease)
	if again := both.WithAnswer(version); !again.Equal(both) {
		t.Errorf("the same answer again: %+v, was %+v", again.Grants, both.Grants)
	}
	lease.State = cluster.GrantDone
	if next := both.WithAnswer(lease); next.Answered(lease.Change) != lease || next.Answered(version.Change) != version || both.Answered(lease.Change) == lease {
		t.Errorf("another answer: %+v, was %+v", next.Grants, both.Grants)
	}
	if next := both.WithAnswer(cluster.Answer{Change: version.Change}); next.Answered(lease.Change).ID == "" || next.Answered(version.Change).ID != "" {
		t.Errorf("without an answer: %+v", next.Grants)
	}
}
