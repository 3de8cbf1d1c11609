package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
)

const orderConf = `
http { address = "127.0.0.1:0" }
orchestrator { interval = "1s" }
member { roles = ["ROLE"] }
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "echo ROLE {{ .Version }} >>LOG" }
}
`

// TestOrderOfLiveRoles: with two hosts of two roles the order of the policy in
// force decides every start, also of a host that has a grant of the rollout before.
func TestOrderOfLiveRoles(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 2)
	web := newMachine(t, servers[0], "")
	db := newMachine(t, servers[1], "")
	for role, m := range map[string]*machine{"web": web, "db": db} {
		m.configure(strings.NewReplacer("ROLE", role, "LOG", web.path("log")).Replace(orderConf))
	}
	host := servers[0].Node
	web.must("cluster", "init", "default")
	web.agent()
	db.agent()
	web.eventually("both hosts to be members", func() error {
		members := web.run("cluster", "members").stdout
		return errors.Join(lacks(members, servers[0].Node), lacks(members, servers[1].Node))
	})
	step := func(want string, args ...string) {
		t.Helper()
		web.must(append([]string{"update", "trigger"}, args...)...)
		web.wantFile("log", want)
	}
	cycles := func(why, want string) {
		t.Helper()
		web.eventually("why the web host waits", func() error { return lacks(web.run("update", "why", host).stdout, why) })
		for range 3 {
			web.must("cluster", "orchestrate")
		}
		if got := web.read("log"); got != want {
			t.Errorf("the hosts began %q, want %q", got, want)
		}
	}

	log := "web a2\n"
	step(log, "a2", "--order", "web=1,db=1", "--min-healthy", "1h")
	cycles("it runs a2 since ", log) // and has to be healthy for an hour

	web.must("update", "trigger", "a3", "--order", "db=1,web=0")
	log += "db a3\n"
	web.wantFile("log", log)
	web.wantShown("the db host to be done", func(s shownRollout) bool { return s.Phase == pace.Done })
	cycles(`the policy keeps back role "web"`, log)

	log += "db a4\n"
	step(log, "a4", "--order", "db=1,web=1", "--min-healthy", "1h")
	cycles("not admitted yet", log)

	log += "web a4\n"
	step(log, "a4", "--order", "db=1,web=1", "--min-healthy", "0s")
	web.must("update", "wait", "--timeout", "0")
}
