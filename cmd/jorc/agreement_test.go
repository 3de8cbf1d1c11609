package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

const agreementConf = `
http { address = "127.0.0.1:0" }
member { roles = ["manager"] }
orchestrator { interval = "1s" }
`

// situation is a host, and what every command says about it.
type situation struct {
	host   string
	role   string
	report string              // what the host reported
	grant  string              // what the orchestrator stored
	checks consul.HealthChecks // beside jorc's own
	absent bool                // Consul's catalog does not have it
	counts func(*pace.Counts)  // how `update show` counts it; nil: it takes no part
	why    []string
	code   int // of `update why`
}

// TestAgreement: `update show`, `update why`, `cluster view`, `cluster show` and
// `cluster members` say the same about a host in every situation.
func TestAgreement(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, agreementConf)
	m.must("cluster", "init", "default")
	at := func(version string) string { return `{"format":1,"version":"` + version + `"}` }
	now := time.Now().UTC().Format(time.RFC3339)
	open := func(state string) string {
		return `{"format":1,"version":"v1","grants":[{"change":"version","id":"1.1.x","tag":"v2","state":"` + state + `","since":"` + now + `"}]}`
	}
	maintenance := func(notes string) consul.HealthChecks {
		return consul.HealthChecks{{CheckID: "_node_maintenance", Name: "Node Maintenance Mode", Status: "critical", Notes: notes}}
	}
	critical := consul.HealthChecks{{CheckID: "disk", Name: "disk", Status: "critical"}}
	waiting := func(c *pace.Counts) { c.Waiting++ }
	held := func(c *pace.Counts) { c.Held++ }
	working := func(c *pace.Counts) { c.Working++ }
	window := "outside the window until "
	situations := []situation{
		{host: "done", report: at("v2"), counts: func(c *pace.Counts) { c.Done++ }, why: []string{"it runs v2"}},
		{host: "plain", report: at("v1"), counts: waiting, why: []string{window}, code: exitFailed},
		{host: "down", absent: true, report: at("v1"), counts: func(c *pace.Counts) { c.Down++ }, why: []string{"the host is not in Consul's catalog"}, code: exitFailed},
		{host: "critical", checks: critical, report: at("v1"), counts: waiting, why: []string{"disk is critical", window}, code: exitFailed},
		{host: "by-hand", checks: maintenance("disks"), report: at("v1"), counts: held, why: []string{"an operator or another program has put it into maintenance", window}, code: exitFailed},
		{
			host: "by-jorc", checks: maintenance(consul.JorcNote + " update to v2"), report: open("accepted"), counts: working,
			why: []string{"jorc has put it into maintenance", "it has a grant of v2 since "}, code: exitFailed,
		},
		{
			host: "returning", report: strings.Replace(open("accepted"), `"version":"v1"`, `"version":"v2"`, 1), counts: working,
			why: []string{"it runs v2", "it counts as out of service until all its checks have passed for 1h0m0s (--min-healthy)"},
		},
		{host: "failed", report: open("failed"), counts: func(c *pace.Counts) { c.Failed++ }, why: []string{"stays out of service and tries again by itself"}, code: exitFailed},
		{
			host: "given-up", report: open("accepted"), grant: `{"format":1,"grants":[{"change":"version","id":"1.1.x","tag":"v2","state":"given up","by":"ann","since":"` + now + `"}]}`,
			counts: func(c *pace.Counts) { c.GivenUp++ }, why: []string{"an operator gave up on it at "}, code: exitFailed,
		},
		{host: "held", report: at("v1"), counts: held, why: []string{"convergence is held since", "disk is replaced"}, code: exitStopped},
		{host: "held-role", role: "db", report: at("v1"), counts: held, why: []string{"convergence is held since", "schema"}, code: exitStopped},
		{host: "kept", role: "cache", report: at("v1"), why: []string{`the policy keeps back role "cache"`}, code: exitFailed},
	}
	var want pace.Counts
	for _, it := range situations {
		m.situate(it)
		if it.counts != nil {
			want.Members++
			it.counts(&want)
		}
	}
	m.must("cluster", "hold", "--node", "held", "--reason", "disk is replaced")
	m.must("cluster", "hold", "--role", "db", "--reason", "schema")
	d := m.agent()
	m.must("update", "trigger", "v2", "--max-parallel", "100%", "--max-failures", "1", "--min-healthy", "1h", "--order", "cache=0", "--window", closedWindow())
	m.eventually("a view of all hosts", func() error {
		for _, it := range situations {
			if err := lacks(m.run("cluster", "view").stdout, it.host); err != nil {
				return err
			}
		}
		return nil
	})
	m.must("cluster", "orchestrate")
	m.agree(situations, want)

	shown := m.shown()
	if !shown.Orchestrated || shown.Previous == shown.Version {
		t.Errorf("orchestrated %v, previous %q of %q", shown.Orchestrated, shown.Previous, shown.Version)
	}
	lock := m.command("cluster", "lock", "backup", "--", "sleep", "1000")
	if err := lock.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually("why to name the slot", func() error { return lacks(m.run("update", "why").stdout, `it holds a slot of group "backup" since `) })
	if err := lock.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = lock.Wait() // it ends by the signal
	m.must("update", "pause", "--reason", "lunch")
	if got := m.run("update", "why", "plain"); got.code != exitStopped || !strings.Contains(got.stdout, ": lunch") {
		t.Errorf("why of a paused rollout: %+v", got)
	}
	m.must("update", "resume")
	d.signal(syscall.SIGTERM)
	d.wantExit(0)
	m.eventually("the lock to be free", func() error { return lacks(m.run("update", "why", "plain").stdout, "no orchestrator runs") })
	if m.shown().Orchestrated {
		t.Error("update show knows an orchestrator, and update why does not")
	}
}

// situate makes a host what a situation says.
func (m *machine) situate(it situation) {
	m.t.Helper()
	role := it.role
	if role == "" {
		role = "web"
	}
	m.must("cluster", "join", "--node", it.host, "--role", role)
	m.put("jorc/default/nodes/"+it.host, it.report)
	if it.grant != "" {
		m.put("jorc/default/host/"+it.host+"/grants", it.grant)
	}
	if it.absent {
		return
	}
	id := catalog.PresenceID("default")
	checks := consul.HealthChecks{{CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: "passing"}}
	for _, check := range append(checks, it.checks...) {
		check.Node = it.host
		checks = append(checks, check)
	}
	err := m.client.CatalogRegister(m.t.Context(), &consul.CatalogRegistration{
		Node: it.host, Address: m.server.IP, Service: &consul.AgentService{ID: id, Service: "jorc"}, Checks: checks[1:],
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// agree compares what the commands say about the hosts.
func (m *machine) agree(situations []situation, want pace.Counts) {
	t := m.t
	t.Helper()
	var view seen
	var whole shown
	var members []cluster.Member
	for args, answer := range map[string]any{"cluster view": &view, "cluster show": &whole, "cluster members": &members} {
		if err := json.Unmarshal([]byte(m.must(append(strings.Fields(args), "-o", "json")...).stdout), answer); err != nil {
			t.Fatalf("jorc %s: %v", args, err)
		}
	}
	shown := m.shown()
	if shown.Now != want {
		t.Errorf("update show counts %+v, want %+v", shown.Now, want)
	}
	n := shown.Now
	apart := 0
	for _, group := range shown.Apart {
		apart += group.Count
	}
	if sum := n.Done + n.Failed + n.Working + n.Down + n.Waiting + n.GivenUp + n.Held; sum != n.Members {
		t.Errorf("the counts of update show add up to %d of %d members", sum, n.Members)
	}
	if all := n.Members + apart; all != view.Aggregate.Nodes || all != whole.Members || all != len(members) {
		t.Errorf("update show has %d members, cluster view %d, cluster show %d, cluster members %d", all, view.Aggregate.Nodes, whole.Members, len(members))
	}
	if boss := []string{m.server.Node}; !slices.Equal(view.Whole.Managers, boss) || !slices.Equal(whole.Managers, boss) {
		t.Errorf("managers are %v in cluster view, %v in cluster show, want %v", view.Whole.Managers, whole.Managers, boss)
	}
	if len(shown.Down) != n.Down || len(shown.Failed) != n.Failed {
		t.Errorf("update show counts %+v and names %v as down, %v as failed", n, shown.Down, shown.Failed)
	}
	for _, it := range situations {
		i := slices.IndexFunc(view.Nodes, func(v seenNode) bool { return v.Name == it.host })
		if i < 0 {
			t.Errorf("cluster view does not have %s", it.host)
			continue
		}
		v := view.Nodes[i]
		gone := cluster.Liveness(v.Life).Detached()
		if down := slices.Contains(shown.Down, it.host); down != gone || gone != it.absent || gone != (v.Agent == cluster.AgentDown) {
			t.Errorf("%s: down in update show %v; life %s, agent %s in cluster view", it.host, down, v.Life, v.Agent)
		}
		why := m.run("update", "why", it.host)
		if why.code != it.code {
			t.Errorf("update why %s: exit %d, want %d", it.host, why.code, it.code)
		}
		for _, text := range it.why {
			if !strings.Contains(why.stdout, text) {
				t.Errorf("update why %s lacks %q: %s", it.host, text, why.stdout)
			}
		}
		granted := slices.ContainsFunc(shown.Grants, func(g rollout.Granted) bool { return g.Node == it.host })
		if granted != strings.Contains(why.stdout, "grant  ") {
			t.Errorf("%s has a grant in update show: %v; update why: %s", it.host, granted, why.stdout)
		}
		kept := slices.ContainsFunc(shown.Apart, func(o rollout.Out) bool { return slices.Contains(o.Nodes, it.host) })
		if kept != (it.counts == nil) {
			t.Errorf("%s takes no part in update show: %v", it.host, kept)
		}
		out := slices.ContainsFunc(shown.Out, func(o rollout.Out) bool { return slices.Contains(o.Nodes, it.host) })
		if sick := v.Health != consul.HealthPassing; it.counts != nil && !granted && out != sick {
			t.Errorf("%s is out of service in update show: %v; health %q in cluster view", it.host, out, v.Health)
		}
	}
	if t.Failed() {
		t.Logf("%+v", shown.Status)
	}
}

// TestRetry: each 'update retry' makes the host try again at once, however long the
// pause after its failures is by then; 'update why' names the next try.
func TestRetry(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), agreementConf+`
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "echo >>DIR/tries; test -e DIR/good" }
}
`)
	m.must("cluster", "init", "default")
	m.agent()
	m.must("update", "trigger", "v1")
	tries := func() int { return strings.Count(m.read("tries"), "\n") }
	failed := func(more int) { // the host also tries by itself, about a minute later
		t.Helper()
		m.eventually(fmt.Sprintf("%d tries", more), func() error {
			if got := tries(); got < more {
				return fmt.Errorf("got %d", got)
			}
			return lacks(m.run("update", "why").stdout, "; the next try is at ")
		})
	}
	failed(1)
	for range 6 {
		before := tries()
		m.must("update", "retry")
		failed(before + 1)
	}
	m.write("good", "")
	m.must("update", "retry", m.server.Node)
	m.eventually("the host to converge", func() error { return lacks(m.run("update", "why").stdout, "it runs v1 since ") })
	if got := m.run("update", "why"); got.code != exitOK {
		t.Errorf("update why: %+v", got)
	}
}

// TestHoldFile: what the hold file of a host says is known on every machine, also
// without a policy, and nowhere once the file is gone.
func TestHoldFile(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, strings.Replace(agreementConf, `"manager"`, `"web"`, 1)+`
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "true" }
}
`)
	m.must("cluster", "init", "default")
	m.agent()
	m.must("cluster", "wait", "--for", "members=1")
	m.must("update", "trigger", "v1")
	m.must("update", "wait")
	idle := m.value("jorc/default/nodes/" + s.Node)
	m.write("state/hold", "disk \x1b[31mswap\n"+strings.Repeat("x", 5000))
	m.must("update", "trigger", "v2")
	file := "held by the file " + m.path("state/hold") + ": disk \uFFFD[31mswap xxx"
	commands := map[string]string{
		"update why " + s.Node + " --state-dir " + m.path("elsewhere"): file,
		"update show":          s.Node + ": it cannot begin: " + file,
		"cluster view":         file,
		"cluster view -o json": file,
	}
	for args, want := range commands {
		m.eventually("jorc "+args, func() error {
			got := m.run(strings.Fields(args)...).stdout
			if len(got) > 5000 {
				return fmt.Errorf("%d bytes", len(got))
			}
			return lacks(got, want)
		})
	}
	if got := m.run("update", "why", s.Node, "--state-dir", m.path("elsewhere")); got.code != exitStopped {
		t.Errorf("update why of a held host: %+v, want exit 6", got)
	}
	if err := os.Remove(m.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	m.must("update", "wait")
	for args := range commands {
		m.eventually("jorc "+args+" without the file", func() error {
			if got := m.run(strings.Fields(args)...).stdout; strings.Contains(got, "held by") {
				return fmt.Errorf("got %s", got)
			}
			return nil
		})
	}
	if now := m.value("jorc/default/nodes/" + s.Node); strings.Contains(idle, "hold") || strings.Contains(now, "hold") {
		t.Errorf("the report of a host without a hold file is %s, then %s", idle, now)
	}
}

// TestWaitingHost: what keeps a host, be it a hold file or a place that another host has,
// stands in 'update show', 'update why' on this host and elsewhere, and 'cluster runs'.
func TestWaitingHost(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, strings.Replace(agreementConf, `"manager"`, `"web"`, 1)+`
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "true" }
}
`)
	m.must("cluster", "init", "default")
	m.agent()
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members").stdout, s.Node) })
	m.must("update", "trigger", "v1", "--max-parallel", "1")
	m.must("update", "wait")
	m.write("state/hold", "disk swap\n")
	m.situate(situation{host: "slow", report: `{"format":1,"version":"v1"}`}) // the rollout begins with it, as the other is held
	m.must("update", "trigger", "v2", "--max-parallel", "1")
	m.must("cluster", "run", "converge", "--id", "r", "--node", s.Node)
	file := "held by the file " + m.path("state/hold") + ": disk swap"
	says := func(text string, commands ...string) {
		t.Helper()
		for _, args := range commands {
			m.eventually("jorc "+args, func() error { return lacks(m.run(strings.Fields(args)...).stdout, text) })
		}
	}
	elsewhere := "update why " + s.Node + " --state-dir " + m.path("elsewhere")
	says(s.Node+": it cannot begin: "+file, "update show")
	says(file, "update why", elsewhere, "cluster runs", "cluster runs r")
	if got := m.run("update", "why"); got.code != exitStopped {
		t.Errorf("update why of a held host: %+v, want exit 6", got)
	}

	now := time.Now().UTC().Format(time.RFC3339)
	m.situate(situation{host: "slow", report: `{"format":1,"version":"v1","grants":[{"change":"version","id":"1.1.x","tag":"v2","state":"accepted","since":"` + now + `"}]}`})
	says("grant      slow: accepted of v2", "update show")
	if err := os.Remove(m.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	says("1 may be out of service at one time, and are: slow (grant since "+now, "update why", elsewhere)
	says("slow to finish", "update show")
	if got := m.run("update", "why"); got.code != exitFailed {
		t.Errorf("update why of a host that waits for a place: %+v, want exit 1", got)
	}
	m.must("cluster", "wait", "--for", "run=r")
}
