//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleettest"
)

// oneLease starts a fleet of which one host may be out of service, and observes that.
func oneLease(t *testing.T, specs ...fleettest.HostSpec) *fleettest.Fleet {
	t.Helper()
	for i := range specs {
		specs[i].Config = "member {}\nreboot_command = [\"touch\", \"$DIR/reboot\"]\n"
	}
	f := fleettest.New(t, fleettest.Options{Hosts: specs})
	f.Jorc("cluster", "budget", "set", "--max-out", "1").OK()
	f.Observer.Always("one host has a lease", func(k fleettest.Keys) error {
		if all := k.Leased(); len(all) > 1 {
			return fmt.Errorf("%v have", all)
		}
		return nil
	})
	f.Observer.AlwaysChecks("one host is in maintenance", fleettest.FewInMaintenance(1))
	return f
}

func hasLease(f *fleettest.Fleet, want ...string) {
	f.Eventually(fmt.Sprintf("the hosts with a lease to be %v", want), func(context.Context) error {
		if all := f.Observer.Keys().Leased(); !slices.Equal(all, want) {
			return fmt.Errorf("they are %v", all)
		}
		return nil
	})
}

// TestLeases: all candidates for orchestration ask to be rebooted at the same time, and are, one after the other,
// while the leader of Consul's servers is killed.
func TestLeases(t *testing.T) {
	t.Parallel()
	f := oneLease(t, fleettest.HostSpec{Name: "a", Orchestrator: true, Boots: true}, fleettest.HostSpec{Name: "b", Orchestrator: true, Boots: true})
	orchestrator(t, f)
	asked := make(chan fleettest.Result)
	for _, h := range f.Hosts {
		go func() { asked <- h.Jorc("maintenance", "reboot", "--drain", "1s", "--reason", "kernel") }()
	}
	left := slices.Clone(f.Hosts)
	for len(left) > 0 {
		var h *fleettest.Host
		f.Eventually("a host to be rebooted", func(context.Context) error {
			for _, one := range left {
				if slices.Contains(f.Observer.Keys().Leased(), one.Name) {
					h = one
					return nil
				}
			}
			return errors.New("none has a lease")
		})
		if len(left) == len(f.Hosts) {
			t.Logf("the leader of the servers is killed while %s has its lease", h.Name)
			s := f.Leader()
			s.Kill()
			s.Start()
		}
		(<-asked).OK()
		if _, err := os.Stat(h.Path("reboot")); err != nil {
			t.Fatal(err)
		}
		h.Reboot()
		t.Logf("%s was rebooted", h.Name)
		left = slices.DeleteFunc(left, func(o *fleettest.Host) bool { return o == h })
	}
	hasLease(f)
}

// awaitHost is a host for the states of a lease: a job of `work` runs until there is a file `finish`, and its check
// fails while there is one `sick`.
const awaitHost = `
member {}
reboot_command = ["touch", "$DIR/reboot"]
service "app" {
  port = 8080
  check {
    script   = ["/bin/sh", "-c", "test ! -e $DIR/sick || exit 2"]
    interval = "1s"
  }
}
workflow "work" {
  task "work" {
    script     = "touch $DIR/working; while [ ! -e $DIR/finish ]; do sleep 0.05; done"
    idempotent = true
  }
}
workflow "patch" {
  disturbs = true
  task "patch" {
    script     = "echo patched >> $DIR/patched"
    idempotent = true
  }
}
`

// leasing starts a fleet with a budget of twice as many hosts as may have a lease at a time, one that may orchestrate and
// others, and observes that no more are out of service than *allowed.
func leasing(t *testing.T, leases int, boots bool, others ...string) (f *fleettest.Fleet, allowed *atomic.Int32) {
	t.Helper()
	specs := []fleettest.HostSpec{{Name: "orchestrator", Config: awaitHost, Orchestrator: true}}
	for _, name := range others {
		specs = append(specs, fleettest.HostSpec{Name: name, Config: awaitHost, Boots: boots})
	}
	f = fleettest.New(t, fleettest.Options{Hosts: specs})
	orchestrator(t, f)
	allowed = new(atomic.Int32)
	allowed.Store(int32(2 * leases))
	f.Jorc("cluster", "budget", "set", "--max-out", fmt.Sprint(2*leases)).OK()
	f.Observer.Always("few hosts are out of service for jorc", func(k fleettest.Keys) error {
		if out, leased := outForJorc(k), k.Leased(); len(out) > int(allowed.Load()) || len(leased) > leases {
			return fmt.Errorf("%v are out, %v for a lease", out, leased)
		}
		return nil
	})
	return f, allowed
}

// inBackground runs jorc's command line on a host.
func inBackground(h *fleettest.Host, args ...string) (ended chan fleettest.Result) {
	ended = make(chan fleettest.Result, 1)
	go func() { ended <- h.Jorc(args...) }()
	return ended
}

// waitLease waits until the lease of a host is in a state by what its agent says.
func waitLease(f *fleettest.Fleet, h *fleettest.Host, state string) {
	f.Eventually("the lease of "+h.Name+" to be "+state, func(context.Context) error {
		if r := h.Jorc("maintenance", "show", "-o", "plain"); !strings.Contains(r.Stdout, "state\t"+state) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// placed gives a host a lease that has its place and waits for the end of a task.
func placed(f *fleettest.Fleet, h *fleettest.Host) (begun chan fleettest.Result) {
	f.Jorc("cluster", "run", "work", "--id", "work", "--filter", fmt.Sprintf("Node == %q", h.Name)).OK()
	f.Eventually("the task to run", func(context.Context) error {
		_, err := os.Stat(h.Path("working"))
		return err
	})
	begun = inBackground(h, "maintenance", "begin", "--reason", "placed")
	waitLease(f, h, "placed")
	return begun
}

// agents waits until Consul sees the agents of hosts as up or down.
func agents(f *fleettest.Fleet, want string, hosts ...*fleettest.Host) {
	f.Eventually("agents to be "+want, func(context.Context) error {
		members := f.Jorc("cluster", "members", "--fields", "Node,Agent", "-o", "plain").Stdout
		for _, h := range hosts {
			if !strings.Contains(members, h.Name+"\t"+want) {
				return errors.New(members)
			}
		}
		return nil
	})
}

// TestLeaseCutOff: hosts that are cut off when they accepted a lease, while they drain, when they are out of service, and
// after their reboot keep their places, also when the sessions of their agents are gone, until an operator gives one of them
// up; others wait, or use what is left of the budget. When the hosts are back their leases continue, and
// those whose time is over end on healthy hosts, and only there.
func TestLeaseCutOff(t *testing.T) {
	t.Parallel()
	lost := []string{"drains", "over", "placed", "rebooted", "sick"}
	f, allowed := leasing(t, len(lost), true, append(lost, "other")...)
	var away []*fleettest.Host
	for _, name := range lost {
		away = append(away, f.Host(name))
	}
	drains, over, rebooted, sick, other := f.Host("drains"), f.Host("over"), f.Host("rebooted"), f.Host("sick"), f.Host("other")
	begun := placed(f, f.Host("placed"))
	rebooted.Jorc("maintenance", "reboot", "--reason", "kernel").OK()
	drained := inBackground(drains, "maintenance", "begin", "--drain", "20s")
	waitLease(f, drains, "draining")
	for _, h := range []*fleettest.Host{over, sick} {
		h.Jorc("maintenance", "begin", "--for", "10s").OK()
	}
	hasLease(f, lost...)
	for _, h := range away {
		f.CutOff(h.Machine)
	}
	sick.Write("sick", "")
	rebooted.Reboot()
	agents(f, "down", away...)

	t.Log("no place is left for a lease, and five are for others")
	if r := other.Jorc("maintenance", "begin", "--timeout", "0"); r.Code != 124 || !strings.Contains(r.Stderr, "leases: 5 of 5 hosts are out of service for one: ") {
		t.Errorf("begin beside hosts that are away: %+v", r)
	}
	patch := func(id string) { f.Jorc("cluster", "run", "patch", "--id", id, "--filter", `Node == "other"`).OK() }
	patch("left")
	f.Jorc("cluster", "wait", "--for", "run=left", "--timeout", "2m").OK()

	t.Log("no place is left")
	f.Jorc("cluster", "budget", "set", "--max-out", "5").OK()
	allowed.Store(5)
	patch("waits")
	f.Eventually("the run to wait", func(context.Context) error {
		return containsAll(f.Jorc("cluster", "runs", "waits").Stdout, "the budget: 5 of 5 hosts are out of service")
	})
	f.Jorc("change", "give-up", over.Name, "--reason", "it does not come back").OK()
	f.Jorc("cluster", "wait", "--for", "run=waits", "--timeout", "2m").OK()
	hasLease(f, "drains", "placed", "rebooted", "sick")
	allowed.Store(10)
	f.Jorc("cluster", "budget", "set", "--max-out", "10").OK()
	other.Jorc("maintenance", "begin").OK()
	hasLease(f, "drains", "other", "placed", "rebooted", "sick")
	ends := []chan fleettest.Result{inBackground(other, "maintenance", "end")}

	(<-drained).OK() // it needs no server for that
	waitLease(f, over, "ending")

	t.Log("the hosts are back")
	f.Heal()
	agents(f, "up", away...)
	waitLease(f, drains, "ready")
	waitLease(f, f.Host("placed"), "placed")
	f.Host("placed").Write("finish", "")
	(<-begun).OK()
	for _, h := range []*fleettest.Host{drains, f.Host("placed")} {
		ends = append(ends, inBackground(h, "maintenance", "end"))
	}
	f.Eventually("trouble on the host that is not healthy", func(context.Context) error {
		return containsAll(f.Jorc("cluster", "attention").Stdout, sick.Name, "its time is over", "app: ")
	})
	if all := f.Observer.Keys().Leased(); !slices.Contains(all, sick.Name) {
		t.Errorf("%v have leases, want %s among them", all, sick.Name)
	}
	sick.Remove("sick")
	for _, end := range ends {
		(<-end).OK()
	}
	hasLease(f)
	for _, h := range away {
		waitLease(f, h, "none")
	}
}

// TestLeaseUpgrade: agents are killed and started again from another program, the orchestrator's, too, while the leases of
// their hosts are in each state. Each lease continues as the same one, and ends.
func TestLeaseUpgrade(t *testing.T) {
	t.Parallel()
	states := []string{"asked", "draining", "ending", "placed", "ready"}
	f, _ := leasing(t, 4, false, states...)
	var hosts []*fleettest.Host
	for _, name := range states {
		hosts = append(hosts, f.Host(name))
	}
	next := f.Operator.Path("jorc-next")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags=urfave_cli_no_docs", "-ldflags=-s -w -buildid= -X main.version=next", "-o", next, "./cmd/jorc")
	build.Dir, build.Env = consultest.Root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	calls := []chan fleettest.Result{placed(f, f.Host("placed"))}
	f.Host("ready").Jorc("maintenance", "begin").OK()
	f.Host("ending").Jorc("maintenance", "begin").OK()
	calls = append(calls, inBackground(f.Host("draining"), "maintenance", "begin", "--drain", "20s"))
	waitLease(f, f.Host("draining"), "draining")
	hasLease(f, states[1:]...)
	calls = append(calls, inBackground(f.Host("asked"), "maintenance", "begin"))
	f.Eventually("a host to wait for a place", func(context.Context) error {
		return containsAll(f.Host("asked").Jorc("maintenance", "show").Stdout, "asked", "leases: 4 of 4")
	})
	calls = append(calls, inBackground(f.Host("ending"), "maintenance", "end"))
	waitLease(f, f.Host("ending"), "ending")
	for _, h := range f.Hosts {
		h.Upgrade(next)
	}
	for _, h := range f.Hosts {
		h.WaitReady()
		if s, err := h.Status(t.Context()); err != nil || s.Version != "next" {
			t.Errorf("%s runs the version %q: %v", h.Name, s.Version, err)
		}
	}
	f.Host("placed").Write("finish", "")
	for _, call := range calls {
		(<-call).OK()
	}
	var ends []chan fleettest.Result
	for _, name := range []string{"asked", "draining", "placed", "ready"} {
		h := f.Host(name)
		waitLease(f, h, "ready")
		ends = append(ends, inBackground(h, "maintenance", "end"))
	}
	for _, call := range ends {
		(<-call).OK()
	}
	hasLease(f)
	f.Jorc("cluster", "wait", "--for", "run=work", "--timeout", "2m").OK()
	for _, h := range hosts {
		if wishes, grants := leasesOf(f, h); len(wishes) != 1 || len(grants) != 1 {
			t.Errorf("%s asked for %d leases and had %d, want one", h.Name, len(wishes), len(grants))
		}
	}
}

// leasesOf are the leases that a host ever asked for, and the grants that it accepted for one.
func leasesOf(f *fleettest.Fleet, h *fleettest.Host) (wishes, grants map[string]bool) {
	wishes, grants = map[string]bool{}, map[string]bool{}
	for _, change := range f.Observer.History("nodes/" + h.Name) {
		var report struct {
			Lease  struct{ ID string }
			Grants []struct{ Change, ID, State string }
		}
		_ = json.Unmarshal([]byte(change.Value), &report) // one that does not exist says nothing
		if report.Lease.ID != "" {
			wishes[report.Lease.ID] = true
		}
		for _, g := range report.Grants {
			if g.Change == "lease."+h.Name && g.ID != "" {
				grants[g.ID] = true
			}
		}
	}
	return wishes, grants
}
