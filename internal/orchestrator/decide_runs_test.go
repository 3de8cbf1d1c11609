package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/workflow"
)

// granting runs an orchestrator in a process of its own.
func (s *site) granting(env ...string) *process {
	s.t.Helper()
	return s.process(append(env, grantOn+"=yes")...)
}

// decidedIn reports whether a request to Consul has a decision of a kind.
func (s *site) decidedIn(r *http.Request, kind string) bool {
	for key, value := range consultest.Writes(r) {
		if strings.HasPrefix(key, s.store.Path("orchestrate/decided/")) && strings.Contains(value, fmt.Sprintf("%q:%q", "kind", kind)) {
			return true
		}
	}
	return false
}

// dies runs an orchestrator in a process that is killed before or after Consul has the first decision of a
// kind: "before change_began".
func (s *site) dies(at string) {
	s.t.Helper()
	when, kind, _ := strings.Cut(at, " ")
	proxy := s.server.Proxy()
	started, ended := make(chan *process, 1), make(chan struct{})
	die := sync.OnceFunc(func() { (<-started).kill(); close(ended) })
	proxy.Do(func(r *http.Request) consultest.Fault {
		switch {
		case !s.decidedIn(r, kind):
			return consultest.Fault{}
		case when == "after":
			return consultest.Fault{Late: die}
		}
		die()
		return consultest.Fault{Hang: true}
	})
	started <- s.granting(orchestrateOn + "=" + proxy.Addr)
	s.eventually("an orchestrator to die "+at, func() error {
		select {
		case <-ended:
			return nil
		default:
			return errEventsPending
		}
	})
}

// worker does node's part in runs; workflow "good" succeeds, "bad" fails.
func (s *site) worker(node string) {
	s.t.Helper()
	w := runs.NewWorker(runs.WorkerOptions{Store: s.store, Node: node, Runner: workflow.New(workflow.Options{
		StateDir: s.t.TempDir(), Node: node, Workflows: []config.Workflow{
			{Name: "good", Tasks: []config.Task{{Name: "t", Command: []string{"true"}}}},
			{Name: "bad", Tasks: []config.Task{{Name: "t", Command: []string{"false"}}}},
		},
	})})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("worker: %v", err)
		}
	})
}

// TestRunsDecided kills orchestrators before and after each kind of transaction
// about runs: each decision is carried out once, and is in the journal once.
func TestRunsDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.worker("a")
	all := runs.New(s.store)
	kinds := []string{event.ChangeBegan, event.ChangeStepBegan, event.ChangeHostFailed, event.ChangeEnded}
	for _, kind := range kinds {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+kind, func(t *testing.T) {
				id := when + "-" + kind
				_, _, err := all.Ask(t.Context(), id, runs.Request{Workflow: "bad"}, "ann")
				s.must(nil, err)
				s.dies(when + " " + kind)
				told := func() (got []string) {
					for _, e := range s.events() {
						if e.After == id {
							got = append(got, e.Kind)
						}
					}
					return got
				}
				if got, want := s.undelivered(kind), map[string]int{"after": 1}[when]; got != want {
					t.Errorf("%d decisions %s wait for the journal, want %d", got, kind, want)
				}
				next := s.granting()
				t.Cleanup(next.kill)
				s.eventually("the run to have ended", func() error {
					d, err := all.Show(t.Context(), id)
					if err == nil && d.State != runs.Failed {
						err = errors.New(string(d.State))
					}
					return err
				})
				s.eventually("its events", func() error {
					if got := told(); !slices.Equal(got, kinds) {
						return fmt.Errorf("got %v, want %v", got, kinds)
					}
					return nil
				})
			})
		}
	}
}

// TestRulesDecided: that a rule is there, and is no longer there, is reported once,
// by whichever orchestrator makes it so.
func TestRulesDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.worker("a")
	count := func(kind string) (n int) {
		for _, e := range s.events() {
			if e.Kind == kind {
				n++
			}
		}
		return n
	}
	for i, step := range []struct{ rules, kind string }{
		{`[{"workflow": "good"}]`, event.RuleAdded},
		{`[{"workflow": "good", "after": 1}]`, event.RuleInvalid},
		{`[]`, event.RuleGone},
	} {
		v, err := profile.ParseValue(step.rules)
		s.must(nil, err)
		s.must(s.cluster.Set(t.Context(), profile.Scope{}, runs.ParamRules, v, profile.Ref{}))
		s.dies("before " + step.kind)
		next := s.granting()
		s.eventually(fmt.Sprintf("step %d: %s", i, step.kind), func() error {
			if count(step.kind) == 0 {
				return errEventsPending
			}
			return nil
		})
		next.kill()
		if n := count(step.kind); n != 1 {
			t.Errorf("%s is told %d times", step.kind, n)
		}
	}
}

// TestScheduledRuleDecided: orchestrators that kill themselves before and after they
// start what is due, or skip it, leave one run and one event of each kind for the due time.
func TestScheduledRuleDecided(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.host("a", "10.0.0.1", "passing", "passing")
	s.join("a", "web")
	s.worker("a")
	type point struct{ rule, when, kind string }
	started := []string{event.RuleDue, event.ChangeBegan, event.ChangeStepBegan, event.ChangeDone}
	var points []point
	var rules []string
	for i, kind := range []string{event.RuleDue, event.ChangeBegan, event.RuleMissed} {
		for _, when := range []string{"before", "after"} {
			p := point{fmt.Sprintf("r%d%s", i, when), when, kind}
			missed := "run-once"
			if kind == event.RuleMissed {
				missed = "skip"
			}
			points = append(points, p)
			rules = append(rules, fmt.Sprintf(`{"name": %q, "workflow": "good", "schedule": "0 3 * * *", "missed": %q}`, p.rule, missed))
		}
	}
	v, err := profile.ParseValue("[" + strings.Join(rules, ", ") + "]")
	s.must(nil, err)
	s.must(s.cluster.Set(t.Context(), profile.Scope{}, runs.ParamRules, v, profile.Ref{}))
	tables := kv.NewTree[runs.Timetable](s.store, "runs/.schedules/", 1)
	next := s.granting()
	s.eventually("the timetables", func() error {
		all, err := tables.List(t.Context())
		if len(all) < len(points) {
			return errors.Join(err, errEventsPending)
		}
		return err
	})
	for _, p := range points {
		t.Run(p.when+" "+p.kind, func(t *testing.T) {
			next.kill()
			all, err := tables.List(t.Context())
			s.must(nil, err)
			for name, leaf := range all {
				if strings.HasPrefix(name, p.rule+"-") {
					table := leaf.Value
					table.Due = table.Due.AddDate(0, 0, -3)
					s.must(tables.At(name).CompareAndSwap(t.Context(), leaf.Entry, table))
				}
			}
			told := func() (got []string) {
				for _, e := range s.events() {
					if strings.Contains(e.Text, fmt.Sprintf("%q", p.rule)) || strings.HasPrefix(e.After, "due-"+p.rule+"-") {
						got = append(got, e.Kind)
					}
				}
				return got
			}
			s.dies(p.when + " " + p.kind)
			if got, want := s.undelivered(p.kind), map[string]int{"after": 1}[p.when]; got != want {
				t.Errorf("%d decisions %s wait for the journal, want %d", got, p.kind, want)
			}
			next = s.granting()
			want := started
			if p.kind == event.RuleMissed {
				want = []string{p.kind}
			}
			s.eventually("the end of the due time", func() error {
				if got := told(); len(got) < len(want) {
					return fmt.Errorf("got %v, want %v", got, want)
				}
				return nil
			})
			if got := told(); !slices.Equal(got, want) {
				t.Errorf("got the events %v, want %v", got, want)
			}
			list, _, err := runs.New(s.store).List(t.Context())
			s.must(nil, err)
			n := 0
			for _, r := range list {
				if strings.HasPrefix(r.ID, "due-"+p.rule+"-") {
					n++
					if r.State != runs.Done || r.Counts.Done != 1 {
						t.Errorf("got %+v", r)
					}
				}
			}
			if n != len(want)/len(started) {
				t.Errorf("got %d runs, want %d", n, len(want)/len(started))
			}
		})
	}
}
