package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// reportWrites are the transactions that replace n1's report on their way to Consul.
type reportWrites struct {
	server *server
	fault  consultest.Fault // of the first one

	mu   sync.Mutex
	held [][]byte // bodies of those with the fault
	sent int
}

// through returns a cluster whose requests w sees.
func (w *reportWrites) through() *fleet.Cluster {
	p := w.server.Proxy()
	p.Do(func(r *http.Request) consultest.Fault {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var ops []struct{ KV struct{ Verb, Key string } }
		if err != nil || json.Unmarshal(body, &ops) != nil {
			return consultest.Fault{}
		}
		for _, op := range ops {
			if op.KV.Verb == "cas" && op.KV.Key == "jorc/default/nodes/n1" {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.sent++; w.sent == 1 && (w.fault.Status > 0 || w.fault.Cut > 0 || w.fault.Hang) {
					w.held = append(w.held, body)
					return w.fault
				}
			}
		}
		return consultest.Fault{}
	})
	return fleet.New(p.Client(), "jorc", "default")
}

func (w *reportWrites) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// arriveLate brings what was held up to Consul, which must not carry it out.
func (w *reportWrites) arriveLate(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) != 1 {
		t.Fatalf("%d writes were held up, want 1", len(w.held))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+w.server.HTTPAddr+"/v1/txn", bytes.NewReader(w.held[0]))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body) // it is for the message only
	_ = response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("the late write: %s: %s", response.Status, text)
	}
}

func held(reason string) func(cluster.Report) (cluster.Report, error) {
	return func(d cluster.Report) (cluster.Report, error) { return d.WithHoldFile(reason), nil }
}

// TestReportWriterTogether: parts of an agent that report at the same time lose nothing,
// and never meet each other in Consul.
func TestReportWriterTogether(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t)
	writes := &reportWrites{server: s}
	w := writes.through().ReportWriter("n1")
	const parts, rounds = 4, 10
	asked := 0
	var all sync.WaitGroup
	for part := range parts {
		all.Go(func() {
			for round := range rounds {
				_, err := w.Change(t.Context(), func(d cluster.Report) (cluster.Report, error) {
					asked++ // the writer asks one after the other
					switch part {
					case 0:
						return d.WithHoldFile(fmt.Sprint("reason ", round)), nil
					case 1:
						return d.WithTemplates([]cluster.TemplateProblem{{Name: "t", State: cluster.TemplateFailed, Detail: fmt.Sprint(round)}}), nil
					case 2:
						return d.WithStage("edge", cluster.StageReport{Wants: fmt.Sprint(round)}), nil
					}
					return d.WithAnswer(cluster.Answer{Change: cluster.VersionChange, ID: fmt.Sprint(round)}), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	d := mustDocument(t, fleet.New(s.Client(), "jorc", "default"), "n1")
	if d.HoldFile != "reason 9" || len(d.Templates) != 1 || d.Templates[0].Detail != "9" || d.Stages["edge"].Wants != "9" || d.Answered(cluster.VersionChange).ID != "9" {
		t.Errorf("got %+v", d)
	}
	if got := writes.count(); got != parts*rounds || asked != parts*rounds {
		t.Errorf("%d changes took %d writes and were asked %d times", parts*rounds, got, asked)
	}
}

// TestReportWriterLate: a write without an answer, which Consul carries out much later or
// never, and a host that by then has nothing to report, or another thing.
func TestReportWriterLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before string // reason of the hold in the stored report; empty: no report
		next   string // what is to be reported after the write
	}{
		"nothing new":            {"before", "before"},
		"the same":               {"before", "late"},
		"another":                {"before", "next"},
		"no report, none wanted": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := newLedger(t)
			direct := fleet.New(s.Client(), "jorc", "default")
			if test.before != "" {
				mustChange(t, direct.ReportWriter("n1"), held(test.before))
			}
			t.Run("asked again", func(t *testing.T) {
				writes := &reportWrites{server: s, fault: consultest.Fault{Status: http.StatusInternalServerError}}
				wants := "late"
				mustChange(t, writes.through().ReportWriter("n1"), func(d cluster.Report) (cluster.Report, error) {
					defer func() { wants = test.next }()
					return held(wants)(d)
				})
				writes.arriveLate(t)
				wantHold(t, direct, test.next)
			})
			t.Run("the next change", func(t *testing.T) {
				mustChange(t, direct.ReportWriter("n1"), held(test.before))
				writes := &reportWrites{server: s, fault: consultest.Fault{Hang: true}}
				w := writes.through().ReportWriter("n1")
				ctx, cancel := context.WithCancel(t.Context())
				var first sync.WaitGroup
				first.Go(func() {
					_, err := w.Change(ctx, held("late"))
					clustertest.WantIs(t, "a change that was given up", err, consul.ErrOutcomeUnknown)
				})
				consultest.Eventually(t, "the write", func(context.Context) error {
					if writes.count() == 0 {
						return fmt.Errorf("none yet")
					}
					return nil
				})
				cancel()
				first.Wait()
				mustChange(t, w, held(test.next))
				writes.arriveLate(t)
				wantHold(t, direct, test.next)
				sent := writes.count()
				mustChange(t, w, held(test.next))
				mustChange(t, w, held(test.next))
				if got := writes.count(); got != sent {
					t.Errorf("%d writes of what is known", got-sent)
				}
			})
		})
	}
}

func mustChange(t *testing.T, w *fleet.ReportWriter, change func(cluster.Report) (cluster.Report, error)) {
	t.Helper()
	if _, err := w.Change(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

func wantHold(t *testing.T, l *fleet.Cluster, want string) {
	t.Helper()
	if got := mustDocument(t, l, "n1").HoldFile; got != want {
		t.Errorf("the report says %q, want %q", got, want)
	}
}

// TestReportWriterFenced: an acceptance is carried out once, or not at all, whatever else
// is written at that time and whether its answer arrives.
func TestReportWriterFenced(t *testing.T) {
	t.Parallel()
	accepted := cluster.Answer{Change: cluster.VersionChange, ID: "1.1.a", Tag: "v2", State: cluster.GrantAccepted}
	for name, test := range map[string]struct {
		fault consultest.Fault
		// between happens while the acceptance is decided on, or before it is sent again
		between func(*testing.T, *server, *fleet.Cluster)
		void    bool
		again   bool // it is decided on twice
	}{
		"at once":       {},
		"answer lost":   {fault: consultest.Fault{Cut: 1}, again: true},
		"request lost":  {fault: consultest.Fault{Status: http.StatusInternalServerError}, again: true},
		"host script":   {between: script, again: true},
		"offer is void": {between: withdraw, void: true},
		"offer is void, and a host script": {void: true, again: true, between: func(t *testing.T, s *server, l *fleet.Cluster) {
			withdraw(t, s, l)
			script(t, s, l)
		}},
		"request lost, offer is void": {fault: consultest.Fault{Status: http.StatusInternalServerError}, between: nil, void: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := newLedger(t)
			direct := fleet.New(s.Client(), "jorc", "default")
			mustReport(t, direct, "n1", "v1")
			put(t, s, "jorc/default/host/n1/grants", "an offer")
			offer, err := kv.NewText(nodesStore(s), "host/n1/grants").Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			writes := &reportWrites{server: s, fault: test.fault}
			w := writes.through().ReportWriter("n1")
			mustRead(t, w)
			asked := 0
			_, err = w.ChangeFenced(t.Context(), func(d cluster.Report) (cluster.Report, error) {
				asked++
				switch {
				case asked == 1 && test.between != nil:
					test.between(t, s, direct)
				case asked == 2 && test.void && test.between == nil:
					withdraw(t, s, direct)
				}
				return d.WithAnswer(accepted), nil
			}, func(txn *kv.Txn) { txn.CheckIndex("host/n1/grants", offer.Index) })
			got := mustDocument(t, direct, "n1")
			if test.void {
				clustertest.WantIs(t, "an acceptance of what is void", err, kv.ErrConflict)
				if got.Answered(cluster.VersionChange).Open() {
					t.Errorf("got %+v", got)
				}
			} else if err != nil || got.Answered(cluster.VersionChange) != accepted {
				t.Errorf("got %+v, %v", got, err)
			}
			if want := 1 + map[bool]int{true: 1}[test.again]; asked != want {
				t.Errorf("it was decided on %d times, want %d", asked, want)
			}
			if len(writes.held) > 0 {
				writes.arriveLate(t)
			}
			if after := mustDocument(t, direct, "n1"); after.Answered(cluster.VersionChange) != got.Answered(cluster.VersionChange) {
				t.Errorf("after the late acceptance: %+v", after.Answered(cluster.VersionChange))
			}
			if test.between != nil && mustDocument(t, direct, "n1").Version == "" {
				t.Error("another part's state is lost")
			}
		})
	}
}

func withdraw(t *testing.T, s *server, _ *fleet.Cluster) {
	t.Helper()
	put(t, s, "jorc/default/host/n1/grants", "withdrawn")
}

func script(t *testing.T, _ *server, l *fleet.Cluster) {
	t.Helper()
	mustState(t, l, "n1", "backup", cluster.CategoryState{State: cluster.StateSuccess})
}

// mustRead has the writer read the report.
func mustRead(t *testing.T, w *fleet.ReportWriter) {
	t.Helper()
	mustChange(t, w, func(d cluster.Report) (cluster.Report, error) { return d, nil })
}

// TestReportWriterFrozen: Consul stops in the middle of a write. The other parts wait until
// it is settled, one that is not wanted any longer leaves, and all that was reported is there.
func TestReportWriterFrozen(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t)
	writes := &reportWrites{server: s}
	w := writes.through().ReportWriter("n1")
	mustChange(t, w, held("before"))
	s.Freeze()
	var all sync.WaitGroup
	report := func(change func(cluster.Report) (cluster.Report, error)) {
		all.Go(func() {
			if _, err := w.Change(t.Context(), change); err != nil {
				t.Error(err)
			}
		})
	}
	report(held("frozen"))
	consultest.Eventually(t, "the write", func(context.Context) error {
		if n := writes.count(); n != 2 {
			return fmt.Errorf("%d are sent", n)
		}
		return nil
	})
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	_, err := w.Change(given, held("given up"))
	clustertest.WantIs(t, "a change that is given up", err, context.Canceled)
	report(func(d cluster.Report) (cluster.Report, error) {
		return d.WithAnswer(cluster.Answer{Change: cluster.VersionChange, ID: "1.1.a", State: cluster.GrantAccepted}), nil
	})
	report(func(d cluster.Report) (cluster.Report, error) {
		return d.WithStage("edge", cluster.StageReport{Wants: "x"}), nil
	})
	s.Thaw()
	all.Wait()
	d := mustDocument(t, fleet.New(s.Client(), "jorc", "default"), "n1")
	if d.HoldFile != "frozen" || d.Answered(cluster.VersionChange).ID != "1.1.a" || d.Stages["edge"].Wants != "x" {
		t.Errorf("got %+v", d)
	}
}

// TestReportWriterDamaged: a report that another program damaged or deleted comes back: with
// all that the host said when the document is damaged.
func TestReportWriterDamaged(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	w := l.ReportWriter("n1")
	mustChange(t, w, func(d cluster.Report) (cluster.Report, error) {
		return d.At("v1", d.Since).WithHoldFile("disk"), nil
	})
	mustRead(t, w)
	put(t, s, "jorc/default/nodes/n1", "{")
	mustRead(t, w)
	if d := mustDocument(t, l, "n1"); d.Version != "v1" || d.HoldFile != "disk" {
		t.Errorf("got %+v", d)
	}
	wantWhole(t, s, "n1")
}
