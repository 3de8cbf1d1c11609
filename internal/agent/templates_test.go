package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

const unusualTemplates = `
member {}
template "checked" {
  contents    = "{{ key \"checked\" }}"
  destination = "DIR/checked"
  check       = ["sh", "-c", "cat {{.Staged}}; grep -q good {{.Staged}}"]
}
template "missing" {
  contents    = "{{ key \"does/not/exist\" }}"
  destination = "DIR/missing"
}
template "usual" {
  contents    = "usual"
  destination = "DIR/usual"
}
`

// TestTemplateProblems: templates that failed or wait for long stand in the host's report
// for as long as they do, without a value and without output.
func TestTemplateProblems(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), unusualTemplates)
	h.templateReports = agent.TemplateReports{LongWait: time.Millisecond, Pause: time.Millisecond, MaxPause: time.Millisecond}
	h.put("checked", "s3cret-value")
	h.start()
	problems := func() (all []cluster.TemplateProblem, text string, err error) {
		r, _, err := h.cluster().Report(t.Context(), h.server.Node)
		if err == nil {
			all, _ = r.TemplateProblems()
		}
		pair, _, err := h.client.KVGet(t.Context(), "jorc/default/nodes/"+h.server.Node, consul.Query{Consistent: true})
		if err == nil && pair != nil {
			text = string(pair.Value)
		}
		return all, text, err
	}
	h.eventually("both are reported", func() error {
		all, text, err := problems()
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%+v, %v", all, err)
		}
		if p := all[0]; p.State == cluster.TemplateWaiting {
			return fmt.Errorf("got %+v", p) // its key has not been read yet
		}
		if p := all[0]; p.Name != "checked" || p.State != cluster.TemplateFailed || p.Detail != "its check failed" || p.Since.IsZero() {
			t.Errorf("got %+v", p)
		}
		if p := all[1]; p.Name != "missing" || p.State != cluster.TemplateWaiting || !strings.Contains(p.Detail, "does/not/exist") {
			return fmt.Errorf("got %+v", p)
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("the report has a value: %s", text)
		}
		return nil
	})
	h.put("checked", "good")
	h.put("does/not/exist", "it does")
	h.eventually("nothing is reported", func() error {
		if all, text, err := problems(); err != nil || len(all) > 0 || strings.Contains(text, "templates") {
			return fmt.Errorf("%s, %v", text, err)
		}
		return nil
	})

	// What an earlier agent reported goes.
	h.put("checked", "s3cret-value")
	h.eventually("it failed again", func() error {
		if all, _, err := problems(); err != nil || len(all) != 1 {
			return fmt.Errorf("%+v, %v", all, err)
		}
		return nil
	})
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.put("checked", "good")
	h.start()
	h.eventually("the earlier problem is gone", func() error {
		if all, _, err := problems(); err != nil || len(all) > 0 {
			return fmt.Errorf("%+v, %v", all, err)
		}
		return nil
	})
}

// TestFlappingTemplate: a template that fails and recovers all the time is reported once
// per pause.
func TestFlappingTemplate(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), unusualTemplates)
	h.templateReports = agent.TemplateReports{Pause: time.Hour, MaxPause: time.Hour}
	h.put("checked", "bad")
	h.start()
	report := func() (*consul.KVPair, error) {
		pair, _, err := h.client.KVGet(t.Context(), "jorc/default/nodes/"+h.server.Node, consul.Query{Consistent: true})
		return pair, err
	}
	var first *consul.KVPair
	h.eventually("the failure is reported", func() (err error) {
		if first, err = report(); err == nil && (first == nil || !strings.Contains(string(first.Value), "its check failed")) {
			err = fmt.Errorf("the report is %+v", first)
		}
		return err
	})
	for i := range 5 {
		for _, value := range []string{"good", "bad"} {
			h.put("checked", fmt.Sprint(value, " ", i))
			want := map[string]string{"good": "rendered", "bad": "failed"}[value]
			h.eventually("it is "+want, func() error {
				if got := h.agent.Status().Templates[0].State; got != want {
					return fmt.Errorf("it is %s", got)
				}
				return nil
			})
		}
	}
	if now, err := report(); err != nil || now.ModifyIndex != first.ModifyIndex && strings.Contains(string(now.Value), "its check failed") {
		t.Errorf("another failure was reported: %+v, %v", now, err)
	}
}

// TestRepairedTemplate: a report forgets a template at once that was repaired, also in the
// pause after the report of its failure.
func TestRepairedTemplate(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), unusualTemplates)
	h.templateReports = agent.TemplateReports{Pause: time.Hour, MaxPause: time.Hour}
	h.put("checked", "bad")
	h.start()
	problems := func(want int) func() error {
		return func() error {
			r, _, err := h.cluster().Report(t.Context(), h.server.Node)
			if all, _ := r.TemplateProblems(); err != nil || len(all) != want {
				return fmt.Errorf("%+v, %v", all, err)
			}
			return nil
		}
	}
	h.eventually("the failure is reported", problems(1))
	h.put("checked", "good")
	h.eventually("the repair is reported", problems(0))
}
