package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/orchestrator"
)

// orchestrating runs an orchestrator of the cluster "prod" until the test ends,
// or the returned function is called.
func orchestrating(t *testing.T, client *consul.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		o := orchestrator.Options{Client: client, Prefix: "jorc", Cluster: "prod", Node: "boss", Interval: time.Hour}
		_ = orchestrator.New(o).Run(ctx) // nil
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// TestOrchestrateDiscarded: a request for a cycle while one runs reports that it
// is discarded, and succeeds.
func TestOrchestrateDiscarded(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	proxy, reads := s.Proxy(), make(chan struct{})
	begins := sync.OnceFunc(func() { close(reads) })
	proxy.Do(func(r *http.Request) consultest.Fault {
		if r.URL.Path != "/v1/catalog/services" || !r.URL.Query().Has("node-meta") { // what each cycle reads
			return consultest.Fault{}
		}
		begins()
		return consultest.Fault{Hang: true}
	})
	orchestrating(t, proxy.Client())
	<-reads
	do(result{0, "discarded\n", ""}, "orchestrate")
	do(result{0, "{\n  \"cluster\": \"prod\",\n  \"outcome\": \"discarded\"\n}\n", ""}, "orchestrate", "-o", "json")
}

// wantJournal waits until the journal has n events.
func wantJournal(t *testing.T, s *consultest.Server, n uint64) {
	t.Helper()
	consultest.Eventually(t, "the journal", func(ctx context.Context) error {
		saved, err := orchestrator.ReadView(ctx, kv.New(s.Client(), "jorc/prod"))
		if err == nil && saved.Commit.Seq < n {
			err = errors.New("not yet")
		}
		return err
	})
}

func TestOrchestratorCommands(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{1, "", "jorc: cluster \"prod\": no such cluster: create it with 'jorc cluster init prod'\n"}, "orchestrate")
	do(result{0, "", ""}, "init", "prod")
	do(result{1, "", "jorc: cluster \"prod\": lock \"jorc/prod/orchestrate/lock\": the cluster has no orchestrator: " +
		"start an agent with an orchestrator block\n"}, "orchestrate")
	do(result{1, "", "jorc: cluster \"prod\" has no view: no orchestrator has run a cycle yet\n"}, "view")
	do(result{0, "[]\n", ""}, "events", "-o", "json")
	unorchestrated := "jorc: cluster \"prod\": the cluster has no orchestrator, so %s: start an agent with an orchestrator block\n"
	do(result{0, "[]\n", fmt.Sprintf(unorchestrated, "no cycles run")}, "report", "-o", "json")
	do(result{1, "", "jorc: cluster \"prod\": report 7 does not exist: 'jorc cluster report' lists the stored reports\n"}, "report", "7")
	do(result{2, "", "jorc: \"x\" is not the number of a report; see 'jorc cluster report --help'\n"}, "report", "x")
	do(result{2, "", "jorc: --limit is -1, but must be 0 or more; see 'jorc cluster events --help'\n"}, "events", "--limit", "-1")
	do(result{2, "", "jorc: --timeout is -1s, but must be 0 or more; see 'jorc cluster orchestrate --help'\n"}, "orchestrate", "--timeout", "-1s")

	do(result{0, "", ""}, "join", "--node", "a", "--role", "db", "--zone", "r1")
	stop := orchestrating(t, s.Client())
	wantJournal(t, s, 7)
	do(result{0, "", ""}, "join", "--node", "b", "--role", "web")
	wantJournal(t, s, 9)

	got := jorc(t, env, "cluster", "orchestrate", "-o", "json")
	var r orchestrator.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("orchestrate: %v, %+v", err, got)
	}
	if r.Trigger != "request" || r.Outcome != "unchanged" || r.Synced != 2 || r.Node != "boss" || r.Number == 0 {
		t.Errorf("report %+v", r)
	}
	do(result{0, "a\t\tr1\tdb,leader\tabsent\tdown\t\t\t\t\nb\t\t\tweb,worker\tabsent\tdown\t\t\t\t\n", ""}, "view", "-o", "plain")
	do(result{0, "all\t\t2\nlife\tabsent\t2\nagent\tdown\t2\nhealth\tnone\t2\nversion\tnone\t2\nrole\tdb\t1\nrole\tleader\t1\nrole\tweb\t1\nrole\tworker\t1\nzone\tnone\t1\nzone\tr1\t1\n", ""},
		"view", "--aggregate", "-o", "plain")
	got = jorc(t, env, "cluster", "view", "-o", "json")
	var v seen
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || v.Aggregate.Nodes != 2 || v.Nodes[0].Name != "a" || v.Nodes[0].Zone != "r1" || v.Seq != 9 ||
		v.Orchestrator != "boss" || !strings.Contains(got.stdout, `"managers": []`) || !strings.Contains(got.stdout, `"trouble": {}`) {
		t.Errorf("view: %v, %s", err, got.stdout)
	}
	columns := func(out string) (all []string) {
		for line := range strings.Lines(out) {
			cells := strings.Split(strings.TrimSpace(line), "\t")
			all = append(all, cells[0]+" "+cells[2]+" "+cells[3])
		}
		return all
	}
	last := []string{"8 operator_change jorc cluster join --node=b --role=web by unknown (host/b/member)", "9 member_joined b is a member: roles web,worker"}
	joined := []string{"7 member_joined a is a member: roles db,leader, zone r1", last[1]}
	for _, test := range []struct{ args, want []string }{
		{[]string{"--limit", "2"}, last}, {[]string{"--kind", "member_joined"}, joined}, {[]string{"--kind=member_joined", "--kind=node_down", "--limit=0"}, joined},
	} {
		got := jorc(t, env, append([]string{"cluster", "events", "-o", "plain"}, test.args...)...)
		if lines := columns(got.stdout); !slices.Equal(lines, test.want) || got.code != 0 {
			t.Errorf("events %v: %+v", test.args, got)
		}
	}
	got = jorc(t, env, "cluster", "report", "-o", "plain")
	if lines := strings.Split(strings.TrimSpace(got.stdout), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "boss\tstart\tchanged\t1\t0\t7 (1 to 7)") {
		t.Errorf("report: %+v", got)
	}
	if got := jorc(t, env, "cluster", "show", "-o", "plain"); !strings.Contains(got.stdout, "\norchestrator\tboss since 20") || got.stderr != "" {
		t.Errorf("show: %+v", got)
	}
	if got := jorc(t, env, "cluster", "report", "0"); got.code != 0 || !strings.Contains(got.stdout, "trigger") {
		t.Errorf("report 0: %+v", got)
	}

	stop()
	said := fmt.Sprintf(unorchestrated, "this view is of "+v.Time.UTC().Format(time.RFC3339))
	if got := jorc(t, env, "cluster", "view"); got.code != 0 || got.stderr != said {
		t.Errorf("view: %+v, want %q", got, said)
	}
	if got := jorc(t, env, "cluster", "show", "-o", "json"); !strings.Contains(got.stdout, "\"orchestrator\": null\n") {
		t.Errorf("show: %+v", got)
	}
}

// TestFollowEvents: events come as they are journalled, and a signal ends that.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_CLUSTER"] = "prod"
	do := doer(t, env)
	do(result{0, "", ""}, "init", "prod")
	orchestrating(t, s.Client())
	wantJournal(t, s, 2)
	var out output
	var stderr bytes.Buffer
	ctx, cancel := context.WithCancelCause(t.Context())
	h := testHost(env, nil, &stderr)
	h.stdout = &out
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"cluster", "events", "-f", "--kind", "member_joined", "-o", "json", "--limit", "1"}, h)
	}()
	for _, node := range []string{"a", "b"} {
		do(result{0, "", ""}, "join", "--node", node)
		consultest.Eventually(t, "the event of "+node, func(context.Context) error {
			if !strings.Contains(out.String(), `"kind":"member_joined","node":"`+node+`"`) {
				return errors.New(out.String())
			}
			return nil
		})
	}
	cancel(signalError{syscall.SIGINT})
	if code := <-ended; code != exitSignal+int(syscall.SIGINT) || stderr.String() != "jorc: interrupt\n" {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
