package agent_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

func (h *host) cluster() *fleet.Cluster { return fleet.New(h.client, "jorc", "default") }

// wantRecord waits until the host's member record is as wanted.
func (h *host) wantRecord(what string, wanted func(cluster.Record) bool) {
	h.t.Helper()
	h.eventually(what, func() error {
		r, err := h.cluster().Record(h.t.Context(), h.server.Node)
		if err == nil && !wanted(r) {
			err = fmt.Errorf("got %+v", r)
		}
		return err
	})
}

// wantLines waits until the file of a name has these lines.
func (h *host) wantLines(name string, lines ...string) {
	h.t.Helper()
	h.wantFile(name, strings.Join(lines, "\n")+"\n")
}

const memberConf = `
service "web" { port = 80 }
requires "mysql" { count = 2 }
member {
  roles    = ["db"]
  zone     = "rack-7"
  params   = { disks = 4 }
  provides = ["ftp"]
}
`

// TestMember: the agent keeps its member record true to its files, corrects what
// others write, follows a reload, and stays a member when it stops.
func TestMember(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), memberConf)
	h.start()
	h.wantRecord("the record", func(r cluster.Record) bool {
		return slices.Equal(r.Roles, []string{"db"}) && r.Zone == "rack-7" && r.Params["disks"].String() == "4" &&
			slices.Equal(r.Provides, []string{"ftp", "web"}) && len(r.Requires) == 1 && r.Requires[0].Count == 2
	})
	if _, err := h.cluster().Join(t.Context(), h.server.Node, func(r cluster.Record) (cluster.Record, error) {
		r.Zone = "elsewhere"
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	h.wantRecord("the correction", func(r cluster.Record) bool { return r.Zone == "rack-7" })

	h.configure(strings.Replace(memberConf, "rack-7", "rack-8", 1))
	if got := h.reload(); !got.OK {
		t.Fatalf("got %+v", got)
	}
	h.wantRecord("the reload", func(r cluster.Record) bool { return r.Zone == "rack-8" })
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.wantRecord("a member that stopped", func(r cluster.Record) bool { return r.Zone == "rack-8" })
}

// TestReportedWorkflows: the record has the names of the workflows that the host
// defines, also an empty list of them, follows a reload, and is written only when these
// change.
func TestReportedWorkflows(t *testing.T) {
	t.Parallel()
	const workflows = "\nworkflow \"b\" {\n  task \"t\" { command = [\"true\"] }\n}\nworkflow \"a\" {\n  task \"t\" { command = [\"true\"] }\n}\n"
	const static = "\nstatic {\n  workflow = \"b\"\n  validation = \"gone\"\n}\n"
	h := newHost(t, consultest.Start(t), "member {}")
	wanted := func(workflows, static string) func(cluster.Record) bool {
		return func(r cluster.Record) bool {
			return r.Workflows != nil && r.Static != nil && strings.Join(r.Workflows, " ") == workflows && strings.Join(r.Static, " ") == static
		}
	}
	h.start()
	h.wantRecord("a host without workflows", wanted("", ""))
	h.configure("member {}" + workflows + static)
	if got := h.reload(); !got.OK {
		t.Fatalf("got %+v", got)
	}
	h.wantRecord("the reload", wanted("a b", "b gone"))
	written := func() int { return strings.Count(h.log.String(), "the member's record was written") }
	logged := func(n int) { // a stop may come between the write and its answer
		t.Helper()
		h.eventually(fmt.Sprintf("%d writes in the log", n), func() error {
			if got := written(); got < n {
				return fmt.Errorf("%d are in the log", got)
			}
			return nil
		})
	}
	logged(2)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.eventually("the second start", func() error { return contains(h.notified.String(), "STOPPING=1\nREADY=1") })
	h.configure("member { zone = \"z\" }" + static + workflows)
	if got := h.reload(); !got.OK {
		t.Fatalf("got %+v", got)
	}
	h.wantRecord("the last reload", func(r cluster.Record) bool { return r.Zone == "z" && wanted("a b", "b gone")(r) })
	logged(3)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if n := written(); n != 3 {
		t.Errorf("the record was written %d times, want 3", n)
	}
}

// TestLeaveOnStop: a clean stop ends the membership when it is configured to,
// and a reload does not.
func TestLeaveOnStop(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), "member { leave_on_stop = true }")
	h.start()
	h.wantRecord("the record", func(cluster.Record) bool { return true })
	h.configure("member {\n zone = \"z\"\n leave_on_stop = true\n}")
	h.reload()
	h.wantRecord("the reload", func(r cluster.Record) bool { return r.Zone == "z" })
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.cluster().Record(t.Context(), h.server.Node); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("got %v, want that the host is no member", err)
	}
}

const leadingConf = `
member {
  on_lead      = "promote"
  on_step_down = "demote"
}
workflow "promote" {
  task "note" { script = "echo leads >>DIR/told" }
}
workflow "demote" {
  task "note" { script = "echo led >>DIR/told" }
}
`

// TestLeading: workflows run when a member begins and ceases to lead, not when
// the agent restarts into nothing new, and a hold only puts them off.
func TestLeading(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), leadingConf)
	c := h.cluster()
	if _, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.write("state/hold", "being mended")
	h.start()
	h.eventually("the leader", func() error {
		l, err := c.Leaders(t.Context())
		if err == nil && !l.Leads(h.server.Node) {
			err = fmt.Errorf("got %+v", l)
		}
		return err
	})
	h.eventually("the held job", func() error { return contains(h.log.String(), "being mended") })
	if _, err := os.Stat(h.path("told")); err == nil {
		t.Error("a task has run on a host that is held")
	}
	if err := os.Remove(h.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	h.wantLines("told", "leads")
	if err := c.SetMemberParam(t.Context(), h.server.Node, cluster.ParamEligible, mustParse(t, "false"), profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	h.wantLines("told", "leads", "led")
}

func mustParse(t *testing.T, text string) profile.Value {
	t.Helper()
	v, err := profile.ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lose gives the host's place among the leaders to another member.
func (h *host) lose(other string) {
	h.t.Helper()
	c := h.cluster()
	if _, err := c.Join(h.t.Context(), other, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		h.t.Fatal(err)
	}
	if err := c.SetMemberParam(h.t.Context(), h.server.Node, cluster.ParamEligible, mustParse(h.t, "false"), profile.Ref{}); err != nil {
		h.t.Fatal(err)
	}
	l, err := c.Elect(h.t.Context())
	if err != nil || l.Leads(h.server.Node) {
		h.t.Fatalf("the leaders are %+v, %v", l, err)
	}
}

// TestStepDownAfterAbsence: a leader that lost its place while its agent was down runs
// on_step_down when it is back, once, before what a trigger asks for; and its former place is free
// from then on.
func TestStepDownAfterAbsence(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), leadingConf+`
trigger "config" {
  key      = "site/config"
  workflow = "react"
}
workflow "react" {
  task "note" { script = "echo reacts >>DIR/told" }
}
`)
	c := h.cluster()
	if _, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 1}); err != nil {
		t.Fatal(err)
	}
	h.put("site/config", "1")
	h.start()
	h.wantLines("told", "leads")
	h.put("site/config", "2")
	h.wantLines("told", "leads", "reacts")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.lose("other")
	h.put("site/config", "3")
	h.start()
	h.wantLines("told", "leads", "reacts", "led", "reacts")
	h.eventually("the free place", func() error {
		l, err := c.Leaders(t.Context())
		if err == nil && !l.Leads("other") {
			err = fmt.Errorf("got %+v", l)
		}
		return err
	})
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.put("site/config", "4")
	h.start()
	h.wantLines("told", "leads", "reacts", "led", "reacts", "reacts") // it did not lead this time
}

// TestOnLeadAfterReload: a reload does not run on_lead again, a restart does.
func TestOnLeadAfterReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), leadingConf)
	c := h.cluster()
	if _, err := c.Init(t.Context(), fleet.InitOptions{Leaders: 1}); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantLines("told", "leads")
	for i, zone := range []string{"a", "b"} {
		h.configure(inZone(leadingConf, zone))
		if got := h.reload(); !got.OK {
			t.Fatalf("got %+v", got)
		}
		h.wantLeading(2 + i)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantLines("told", "leads", "leads")
	h.lose("other")
	h.wantLines("told", "leads", "leads", "led")
}

// TestOnLeadEndsDuringReload: a job of on_lead that ends while a reload waits for it is
// not run again by the next configuration.
func TestOnLeadEndsDuringReload(t *testing.T) {
	t.Parallel()
	conf := strings.Replace(leadingConf, "echo leads >>DIR/told", "echo leads >>DIR/told; until [ -e DIR/end ]; do sleep 0.05; done", 1)
	h := newHost(t, consultest.Start(t), conf)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{Leaders: 1}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 5 {
		h.start()
		want = append(want, "leads")
		h.wantLines("told", want...)
		h.configure(inZone(conf, fmt.Sprint(i)))
		if got := h.reload(); !got.OK { // it waits for the task
			t.Fatalf("got %+v", got)
		}
		h.write("end", "")
		h.wantLeading(2 * (i + 1))
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		told, err := os.ReadFile(h.path("told"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(string(told)); !slices.Equal(got, want) {
			t.Fatalf("after %d reloads on_lead has run %d times, want %d", i+1, len(got), len(want))
		}
		if err := os.Remove(h.path("end")); err != nil {
			t.Fatal(err)
		}
	}
}

// inZone returns a configuration in which the member has a zone.
func inZone(conf, zone string) string {
	return strings.Replace(conf, "member {", "member {\n  zone = \""+zone+"\"", 1)
}

// wantLeading waits until the host has begun to lead, once in each start and after each
// reload.
func (h *host) wantLeading(times int) {
	h.t.Helper()
	h.eventually("the leader", func() error {
		if n := strings.Count(h.log.String(), "this member leads now"); n < times {
			return fmt.Errorf("it has begun to lead %d times, want %d", n, times)
		}
		return nil
	})
}
