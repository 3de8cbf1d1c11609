package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/pace"
)

const arrivalConf = `
http { address = "127.0.0.1:0" }
orchestrator { interval = "1s" }
member { roles = ["ROLE"] }
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "true" }
}
`

// arrivalFleet is three hosts with agents that run a1, web, db and cache, beside a manager
// and a logical member without hosts.
type arrivalFleet struct {
	*machine // of web
	db       *machine
	dbAgent  *process
	names    []string // of web, db and cache
}

func newArrivalFleet(t *testing.T) *arrivalFleet {
	t.Helper()
	f := &arrivalFleet{}
	for i, s := range consultest.StartCluster(t, 3) {
		m := newMachine(t, s, strings.Replace(arrivalConf, "ROLE", []string{"web", "db", "cache"}[i], 1))
		f.names = append(f.names, s.Node)
		switch i {
		case 0:
			f.machine = m
			m.must("cluster", "init", "default")
			m.must("cluster", "join", "--node", "boss", "--role", "manager")
			m.must("cluster", "join", "--node", "ghost")
			m.must("update", "trigger", "a1")
		case 1:
			f.db = m
		}
		if a := m.agent(); i == 1 {
			f.dbAgent = a
		}
	}
	f.eventually("all hosts to be members", func() error {
		members := f.run("cluster", "members").stdout
		return errors.Join(lacks(members, f.names[0]), lacks(members, f.names[1]), lacks(members, f.names[2]))
	})
	f.want(0, nil, "update", "wait", "--timeout", "5m")
	return f
}

// want runs a command and wants its code, and parts of what it prints.
func (m *machine) want(code int, parts []string, args ...string) {
	m.t.Helper()
	got := m.run(args...)
	if got.code != code {
		m.t.Errorf("jorc %s exits %d, want %d: %s%s", strings.Join(args, " "), got.code, code, got.stdout, got.stderr)
	}
	for _, part := range parts {
		if err := lacks(got.stdout+got.stderr, part); err != nil {
			m.t.Errorf("jorc %s: %v", strings.Join(args, " "), err)
		}
	}
}

// wantTimeout wants a wait to end at its timeout, with parts of what it prints. A timeout may
// be too short for the first read on a busy machine: then a longer one is tried.
func (m *machine) wantTimeout(parts []string, args ...string) {
	m.t.Helper()
	for _, timeout := range []string{"1s", "5s", "30s"} {
		got := m.run(append(args, "--timeout", timeout)...)
		if got.code != exitTimeout {
			m.t.Fatalf("jorc %v exits %d, want %d: %s", args, got.code, exitTimeout, got.stderr)
		}
		var err error
		for _, part := range parts {
			err = errors.Join(err, lacks(got.stderr, part))
		}
		if err == nil {
			return
		}
		if timeout == "30s" {
			m.t.Errorf("jorc %v: %v", args, err)
		}
	}
}

// verify is a command that checks all hosts of the fleet.
func (f *arrivalFleet) verify(version string) []string {
	return append([]string{"update", "verify", version}, f.names...)
}

// TestWaitForTheHeld: a held member takes part: waits exit 6 and name it when only it is
// missing, verify exits 1 and names it. Managers and logical members take no part.
func TestWaitForTheHeld(t *testing.T) {
	t.Parallel()
	f := newArrivalFleet(t)
	db := f.names[1]
	f.want(0, []string{"boss is left out: managers take no part"}, "update", "verify", "a1", db, "boss")
	f.want(0, []string{"ghost is left out: it is a logical member"}, "update", "verify", "a1", db, "ghost")
	f.want(1, []string{"none of the hosts takes part"}, "update", "verify", "a1", "boss")
	for _, policy := range [][]string{nil, {"--max-parallel", "3"}} {
		version := fmt.Sprintf("held%d", len(policy))
		f.must("cluster", "hold", "--node", db, "--reason", "its disk is replaced")
		f.must(append([]string{"update", "trigger", version}, policy...)...)
		held := []string{db + ": it is held", "its disk is replaced"}
		f.want(exitStopped, append(held, "2 of 3 members run "+version, "jorc cluster unhold"), "update", "wait", "--timeout", "5m")
		f.want(exitStopped, held, "cluster", "wait", "--for", "version="+version, "--timeout", "5m")
		f.want(0, nil, "cluster", "wait", "--for", "version="+version, "--filter", `"web" in Roles`, "--timeout", "5m")
		f.want(exitFailed, held, f.verify(version)...)
		f.want(exitFailed, held, append([]string{"verify_hosts", version}, f.names...)...)
		f.want(exitFailed, []string{db}, "update", "single", version)
		f.must("cluster", "unhold", "--node", db)
		f.want(0, nil, "update", "wait", "--timeout", "5m")
		f.want(0, nil, "cluster", "wait", "--for", "version="+version, "--timeout", "5m")
		f.want(0, nil, f.verify(version)...)
		f.want(0, nil, "update", "single", version)
	}
}

// TestWaitForTheDrained: a member that an operator drained takes part: its checks do not
// pass, so waits exit 6 and name it.
func TestWaitForTheDrained(t *testing.T) {
	t.Parallel()
	f := newArrivalFleet(t)
	maint := func(flags ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), consultest.Binary(t), append([]string{"maint"}, flags...)...)
		cmd.Env = f.db.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("consul maint %v: %v: %s", flags, err, out)
		}
	}
	for _, policy := range [][]string{nil, {"--max-parallel", "3", "--max-failures", "1"}} {
		version := fmt.Sprintf("drained%d", len(policy))
		maint("-enable", "-reason", "its disk is replaced")
		f.must(append([]string{"update", "trigger", version}, policy...)...)
		drained := f.names[1] + ": it is in maintenance"
		f.want(exitStopped, []string{drained, "2 of 3 members run " + version, "consul maint -disable"}, "update", "wait", "--timeout", "5m")
		f.want(exitStopped, []string{drained}, "cluster", "wait", "--for", "version="+version, "--timeout", "5m")
		f.want(exitFailed, []string{drained}, f.verify(version)...)
		maint("-disable")
		f.want(0, nil, "update", "wait", "--timeout", "5m")
		f.want(0, nil, f.verify(version)...)
	}
}

// TestWaitForTheDown: a member whose agent is down at the old version takes part, also
// in a rollout that is done beside it.
func TestWaitForTheDown(t *testing.T) {
	t.Parallel()
	f := newArrivalFleet(t)
	f.dbAgent.signal(syscall.SIGTERM)
	f.dbAgent.wantExit(0)
	down := []string{f.names[1] + ": its host or its agent is down"}
	for _, policy := range [][]string{nil, {"--max-parallel", "3"}} {
		version := fmt.Sprintf("down%d", len(policy))
		f.must(append([]string{"update", "trigger", version}, policy...)...)
		f.wantShown("the rollout to be done beside "+f.names[1], func(s shownRollout) bool { return s.Phase == pace.Done && s.Now.Done == 2 })
		f.wantTimeout(append(down, "2 of 3 members run "+version), "update", "wait")
		f.wantTimeout(append(down, "1 of 3 members are not at version "+version), "cluster", "wait", "--for", "version="+version)
		f.want(exitFailed, down, f.verify(version)...)
		f.want(0, []string{"missing", down[0]}, "update", "show", "-o", "plain")
	}
	f.db.agent()
	f.want(0, nil, "update", "wait", "--timeout", "5m")
	f.want(0, nil, f.verify("down2")...)
}

// TestWaitForAnotherOrder: a role that the policy keeps back takes no part, until the same
// version is triggered again with an order that admits it.
func TestWaitForAnotherOrder(t *testing.T) {
	t.Parallel()
	f := newArrivalFleet(t)
	db := f.names[1]
	f.must("update", "trigger", "a2", "--order", "web=1,db=0", "--max-parallel", "3")
	f.want(0, nil, "update", "wait", "--timeout", "5m")
	f.want(0, nil, "cluster", "wait", "--for", "version=a2", "--timeout", "5m")
	f.want(0, []string{db + ` is left out: the policy keeps back role "db"`}, f.verify("a2")...)
	f.want(0, []string{db + ` does not count: the policy keeps back role "db"`}, "update", "single", "a2")
	f.want(0, []string{"a1"}, "update", "running")
	f.must("cluster", "hold", "--node", db)
	f.must("update", "trigger", "a2", "--order", "web=1,db=1")
	f.want(exitStopped, []string{db + ": it is held"}, "update", "wait", "--timeout", "5m") // not 0 at once
	f.want(exitFailed, []string{db}, f.verify("a2")...)
	f.must("cluster", "unhold", "--node", db)
	f.want(0, nil, "update", "wait", "--timeout", "5m")
	f.want(0, nil, f.verify("a2")...)
}

// TestWaitAfterRollback: a wait that begins after a rollback is for the version that is
// desired then; one that began before fails and names it.
func TestWaitAfterRollback(t *testing.T) {
	t.Parallel()
	f := newArrivalFleet(t)
	f.must("update", "trigger", "a2", "--max-parallel", "3", "--window", closedWindow())
	proxy := f.server.Proxy()
	own := f.env
	f.env = append(slices.Clone(own), "CONSUL_HTTP_ADDR="+proxy.Addr)
	before := f.start("update", "wait", "--timeout", "5m")
	f.env = own
	f.eventually("the wait to have begun", func() error {
		if n := proxy.Asked("/v1/txn"); n < 2 { // it knows what it waits for
			return fmt.Errorf("it read %d times", n)
		}
		return nil
	})
	f.must("update", "rollback", "--reason", "slow")
	f.want(0, nil, "update", "wait", "--timeout", "5m")
	before.wantExit(exitFailed)
	before.wantSaid("a2 is rolled back to a1, which is desired now: slow")
	f.want(0, nil, f.verify("a1")...)
}
