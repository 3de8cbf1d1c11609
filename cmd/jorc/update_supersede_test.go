package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
)

const supersedeConf = `
http { address = "127.0.0.1:0" }
member { roles = ["web"] }
orchestrator { interval = "1s" }
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "echo {{ .Version }} >>DIR/begun; test ! -e DIR/fail" }
}
`

// closedWindow is a window that is closed now and for at least a day.
func closedWindow() string {
	return time.Now().UTC().AddDate(0, 0, 3).Format("Mon") + " 03:00-03:01 UTC"
}

// supersedeMachine is a host with the role web that runs a1, and an orchestrator.
func supersedeMachine(t *testing.T) *machine {
	t.Helper()
	s := consultest.Start(t)
	m := newMachine(t, s, supersedeConf)
	m.must("cluster", "init", "default")
	m.must("update", "trigger", "a1")
	m.agent()
	if err := m.client.CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: "db-1", Address: "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	m.must("cluster", "join", "--node", "db-1", "--role", "db")
	m.wantShown("the host to run a1", func(s shownRollout) bool { return s.Version == "a1" && s.Now.Done == 1 })
	return m
}

func (m *machine) shown() (s shownRollout) {
	m.t.Helper()
	if err := json.Unmarshal([]byte(m.must("update", "show", "-o", "json").stdout), &s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *machine) wantShown(what string, ok func(shownRollout) bool) {
	m.t.Helper()
	m.eventually(what, func() error {
		if s := m.shown(); !ok(s) {
			return fmt.Errorf("update show: %s, %+v, grants %+v, failed %+v, waits %q", s.StateText(), s.Now, s.Grants, s.Failed, s.Waits)
		}
		return nil
	})
}

// note adds a line to what the host noted when it began.
func (m *machine) note(line string) {
	m.t.Helper()
	m.write("begun", m.read("begun")+line+"\n")
}

// TestSupersedingPolicy: a host that still has a grant of the rollout before
// begins with the next version only as the policy in force allows.
func TestSupersedingPolicy(t *testing.T) {
	t.Parallel()
	for _, before := range []struct {
		name   string
		fails  bool
		policy []string
	}{
		{name: "waits for min-healthy", policy: []string{"--max-parallel", "2", "--min-healthy", "1h"}},
		{name: "failed", fails: true, policy: []string{"--max-parallel", "2", "--max-failures", "1"}},
	} {
		for _, after := range []struct {
			name, why string
			policy    []string
			lift      []string
		}{
			{"window", "outside the window until ", []string{"--max-parallel", "2", "--window", closedWindow()}, []string{"--window", "always"}},
			{"role kept back", `the policy keeps back role "web"`, []string{"--max-parallel", "2", "--order", "db=1,web=0"}, []string{"--order", "db=1,web"}},
		} {
			t.Run(before.name+", "+after.name, func(t *testing.T) {
				t.Parallel()
				m := supersedeMachine(t)
				want := "a1\na2\n"
				if before.fails {
					m.write("fail", "")
				}
				m.must(append([]string{"update", "trigger", "a2"}, before.policy...)...)
				m.wantShown("the host to have a grant of a2, and to wait", func(s shownRollout) bool {
					return len(s.Grants) == 1 && s.Grants[0].Version == "a2" && m.read("begun") == want && (len(s.Failed) == 1) == before.fails
				})
				m.must(append([]string{"update", "trigger", "a3"}, after.policy...)...)
				m.eventually("why the host waits", func() error { return lacks(m.run("update", "why").stdout, after.why) })
				for range 3 {
					m.must("cluster", "orchestrate")
				}
				m.note("lifted")
				if before.fails {
					m.remove("fail")
				}
				m.must(append([]string{"update", "trigger", "a3"}, after.lift...)...)
				m.wantFile("begun", want+"lifted\na3\n")
				m.must("cluster", "leave", "--node", "db-1") // no agent runs there, and a wait waits for members that are down
				m.must("update", "wait", "--timeout", "5m")
			})
		}
	}
}

// TestDownWithGrant: a host that went down with a grant of the rollout before is
// out of service in the next one and no failure of it; trigger names the host.
func TestDownWithGrant(t *testing.T) {
	t.Parallel()
	m := supersedeMachine(t)
	m.must("cluster", "leave", "--node", "db-1")
	m.must("cluster", "join", "--node", "gone", "--role", "web") // Consul's catalog does not have it
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	m.put("jorc/default/nodes/gone", `{"format":1,"version":"a1","grants":[{"change":"version","id":"1.1.x","tag":"a2","state":"accepted","since":"`+since+`"}]}`)
	policy := []string{"--max-parallel", "2", "--max-failures", "0", "--on-failure", "rollback"}
	got := m.run(append([]string{"update", "trigger", "a3", "--require-converged"}, policy...)...)
	if got.code != exitFailed || !strings.Contains(got.stderr, "gone") {
		t.Errorf("--require-converged: %+v", got)
	}
	if s := m.shown(); s.Version != "a1" {
		t.Errorf("the refused trigger made %s the version", s.Version)
	}
	got = m.must(append([]string{"update", "trigger", "a3"}, policy...)...)
	if !strings.Contains(got.stderr, "out of service: gone: ") {
		t.Errorf("trigger does not name the host that is out of service: %q", got.stderr)
	}
	m.wantShown("the rollout to be done beside the host that is down", func(s shownRollout) bool { return s.Phase == pace.Done })
	s := m.shown()
	if s.Version != "a3" || s.Now.Done != 1 || s.Now.Down != 1 || len(s.Failed) != 0 || s.RollbackOf != nil {
		t.Errorf("update show: %s, %+v, failed %+v, rollback %+v", s.Version, s.Now, s.Failed, s.RollbackOf)
	}
}

// TestFrozenAcrossWindow: a host and an orchestrator that are stopped while the
// window ends begin nothing when they continue.
func TestFrozenAcrossWindow(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, supersedeConf)
	m.must("cluster", "init", "default")
	m.must("update", "trigger", "a1")
	d := m.agent()
	m.wantShown("the host to run a1", func(s shownRollout) bool { return s.Version == "a1" && s.Now.Done == 1 })
	d.signal(consultest.StopSignal)
	closes := time.Now().Add(65 * time.Second).Truncate(time.Minute).UTC()
	m.must("update", "trigger", "a2", "--max-parallel", "1", "--window", closes.Add(-time.Hour).Format("15:04")+"-"+closes.Format("15:04"))
	m.eventually("the window to be over", func() error {
		if now := time.Now(); now.Before(closes) {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	d.signal(consultest.ContinueSignal)
	m.eventually("why the host waits", func() error { return lacks(m.run("update", "why").stdout, "outside the window until ") })
	m.eventually("cycles after the stop", func() error {
		if got := m.run("cluster", "orchestrate"); got.code != 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	m.note("lifted")
	m.must("update", "trigger", "a2", "--window", "always")
	m.wantFile("begun", "a1\nlifted\na2\n")
}

// TestFrozenWithOffer: a host that is stopped while it has an open offer begins
// nothing when it continues after the window's end, while the orchestrator that made
// the offer is stopped, too, and cannot withdraw it.
func TestFrozenWithOffer(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 2)
	host := newMachine(t, servers[0], strings.Replace(supersedeConf, "orchestrator { interval = \"1s\" }", "", 1))
	other := newMachine(t, servers[1], strings.Replace(supersedeConf, "member { roles = [\"web\"] }", "", 1))
	other.must("cluster", "init", "default")
	other.must("update", "trigger", "a1")
	agent, orchestrator := host.agent(), other.agent()
	other.wantShown("the host to run a1", func(s shownRollout) bool { return s.Version == "a1" && s.Now.Done == 1 })
	agent.signal(consultest.StopSignal)
	var closes time.Time
	var grant change.Grant
	other.eventually("an offer to the host", func() error {
		if !time.Now().Before(closes) {
			closes = time.Now().Add(80 * time.Second).Truncate(time.Minute).UTC()
			window := closes.Add(-time.Hour).Format("15:04") + "-" + closes.Format("15:04")
			other.must("update", "trigger", "a2", "--max-parallel", "1", "--window", window)
		}
		p, _, err := other.client.KVGet(t.Context(), "jorc/default/host/"+servers[0].Node+"/grants", consul.Query{})
		if err != nil || p == nil {
			return fmt.Errorf("no grant: %v", err)
		}
		var granted change.Grants
		err = json.Unmarshal(p.Value, &granted)
		grant = granted.Of(cluster.VersionChange)
		if err != nil || grant.State != pace.Offered || !grant.Until.Equal(closes) {
			return fmt.Errorf("%s, %v", p.Value, err)
		}
		return nil
	})
	orchestrator.signal(consultest.StopSignal)
	other.eventually("the window to be over", func() error {
		if now := time.Now(); now.Before(closes) {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	agent.signal(consultest.ContinueSignal)
	other.eventually("the host to decline the offer", func() error {
		var report cluster.Report
		p, _, err := other.client.KVGet(t.Context(), "jorc/default/nodes/"+servers[0].Node, consul.Query{})
		if err != nil || p == nil {
			return fmt.Errorf("no report: %v", err)
		}
		if err := json.Unmarshal(p.Value, &report); err != nil || report.Answered(cluster.VersionChange).Declined != grant.ID {
			return fmt.Errorf("%s, %v", p.Value, err)
		}
		return lacks(report.Answered(cluster.VersionChange).Reason, "the window is over")
	})
	orchestrator.signal(consultest.ContinueSignal)
	other.eventually("why the host waits", func() error {
		return lacks(other.run("update", "why", servers[0].Node).stdout, "outside the window until ")
	})
	for range 3 {
		other.eventually("a cycle", func() error {
			if got := other.run("cluster", "orchestrate"); got.code != 0 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	host.note("lifted")
	other.must("update", "trigger", "a2", "--window", "always")
	host.wantFile("begun", "a1\nlifted\na2\n")
}

// TestStrangers: grants and reports of 3,000 hosts that are not members
// take no place in a rollout, and cost the orchestrator no request of their own.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	proxy := s.Proxy()
	m := newMachine(t, s, supersedeConf)
	m.must("cluster", "init", "default")
	own := m.env
	m.env = append(slices.Clone(own), "CONSUL_HTTP_ADDR="+proxy.Addr)
	m.agent()
	m.env = own
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members").stdout, s.Node) })
	var cost []int // of each rollout, in requests of the agent
	for i, n := range []int{1, 3000} {
		m.strangers(n)
		version, before := fmt.Sprintf("v%d", i), proxy.Asked("/v1/")
		m.must("update", "trigger", version, "--max-parallel", "1")
		m.must("update", "wait", "--timeout", "5m")
		cost = append(cost, proxy.Asked("/v1/")-before)
		shown := m.shown()
		if shown.Now.Members != 1 || shown.Now.Done != 1 || len(shown.Strangers) != min(n, 10) || shown.StrangerCount != n {
			t.Errorf("beside %d strangers: %+v, strangers %v of %d", n, shown.Now, shown.Strangers, shown.StrangerCount)
		}
		if got := m.must("update", "show").stdout; strings.Count(got, "ghost") > 10 {
			t.Errorf("update show lists all strangers: %s", got)
		}
	}
	t.Logf("requests of the agent in a rollout beside 1 and 3,000 strangers: %v", cost)
	if cost[1] > cost[0]+200 {
		t.Errorf("a rollout beside 3,000 strangers takes %d requests, one beside one takes %d", cost[1], cost[0])
	}
}

// strangers writes what n hosts that are not members could hold.
func (m *machine) strangers(n int) {
	m.t.Helper()
	var ops consul.TxnOps
	flush := func() {
		if ok, answer, err := m.client.Txn(m.t.Context(), "strangers", ops); err != nil || !ok {
			m.t.Fatalf("%+v, %v", answer, err)
		}
		ops = nil
	}
	for k := range n {
		ghost := fmt.Sprintf("ghost%d", k)
		for key, value := range map[string]string{
			"host/" + ghost + "/grants":          `{"format":1,"grants":[{"change":"version","id":"1.1.x","tag":"v0","state":"offered","since":"2020-01-01T00:00:00Z"}]}`,
			"nodes/" + ghost:                     `{"format":1,"version":"v0","grants":[{"change":"version","id":"1.1.x","tag":"v0","state":"accepted","since":"2020-01-01T00:00:00Z"}]}`,
			"slots/rollout/wait/" + ghost + "/x": `{}`,
		} {
			ops = append(ops, &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: "jorc/default/" + key, Value: []byte(value)}})
		}
		if len(ops) >= 60 || k == n-1 {
			flush()
		}
	}
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(m.path(name)); err != nil {
		m.t.Fatal(err)
	}
}

// TestWaitThroughAnotherPolicy: an operator who waits for a version sees who triggered the
// same version with another policy, and which it is; the wait continues. A later wait and
// `update show` say it, too.
func TestWaitThroughAnotherPolicy(t *testing.T) {
	t.Parallel()
	program := builtOnce(t)
	o := newOperated(t)
	bob := maps.Clone(o.env)
	bob["USER"] = "bob"
	o.want("update trigger v1", 0)
	o.report("v1", "n1", "n2", "n3")
	o.want("update trigger v2 --max-parallel 1", 0)
	wait := exec.CommandContext(t.Context(), program, "update", "wait")
	var said output
	wait.Env, wait.Stderr = []string{"PATH=" + os.Getenv("PATH"), consultest.NoConfig}, &said
	for name, v := range o.env {
		wait.Env = append(wait.Env, name+"="+v)
	}
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wait.Process.Kill() }) // it may have ended
	n := 1
	consultest.Eventually(t, "ann to see the policy of bob", func(context.Context) error {
		n++ // until the wait has begun nothing is news to it
		if got := jorc(t, bob, "update", "trigger", "v2", "--max-parallel", fmt.Sprint(n)); got.code != 0 {
			t.Fatalf("bob: %+v", got)
		}
		return cmp.Or(lacks(said.String(), "the policy of v2 was changed by bob at "), lacks(said.String(), "; the wait for v2 continues"))
	})
	o.want("update show", 0, "(changed by bob at ")
	o.report("v2", "n1", "n2", "n3")
	orchestrate(t, o.s)
	orchestrate(t, o.s)
	if err := wait.Wait(); err != nil {
		t.Errorf("update wait: %v: %s", err, said.String())
	}
	o.want("update wait", 0, "the policy of v2 was changed by bob at ", "max-parallel "+fmt.Sprint(n))
	if got := jorc(t, bob, "update", "wait"); got.code != 0 || !strings.Contains(got.stderr, "changed by bob") {
		t.Errorf("bob waits: %+v", got)
	}
}
