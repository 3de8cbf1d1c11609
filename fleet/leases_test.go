//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// leased are the hosts whose reports say that they have a lease.
func leased(k fleettest.Keys) (nodes []string) {
	for name, key := range k {
		node, is := strings.CutPrefix(name, "nodes/")
		var report struct {
			Grants []struct{ Change, ID, State string }
		}
		if !is || json.Unmarshal([]byte(key.Value), &report) != nil {
			continue
		}
		for _, g := range report.Grants {
			if g.Change == "lease."+node && g.State == "accepted" {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// oneLease starts a fleet of which one host may be out of service, and observes that.
func oneLease(t *testing.T, specs ...fleettest.HostSpec) *fleettest.Fleet {
	t.Helper()
	for i := range specs {
		specs[i].Config = "member {}\nreboot_command = [\"touch\", \"$DIR/reboot\"]\n"
	}
	f := fleettest.New(t, fleettest.Options{Hosts: specs})
	f.Jorc("cluster", "budget", "set", "--max-out", "1").OK()
	f.Observer.Always("one host has a lease", func(k fleettest.Keys) error {
		if all := leased(k); len(all) > 1 {
			return fmt.Errorf("%v have", all)
		}
		return nil
	})
	f.Observer.AlwaysChecks("one host is in maintenance", fleettest.FewInMaintenance(1))
	return f
}

func hasLease(f *fleettest.Fleet, want ...string) {
	f.Eventually(fmt.Sprintf("the hosts with a lease to be %v", want), func(context.Context) error {
		if all := leased(f.Observer.Keys()); !slices.Equal(all, want) {
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
				if slices.Contains(leased(f.Observer.Keys()), one.Name) {
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

// TestLeaseCutOff: a host that is cut off while it has a lease keeps its place, also when the session of its agent is
// gone, and has its lease when it comes back.
func TestLeaseCutOff(t *testing.T) {
	t.Parallel()
	f := oneLease(t, fleettest.HostSpec{Name: "a", Orchestrator: true}, fleettest.HostSpec{Name: "b"})
	orchestrator(t, f)
	lost, other := f.Host("b"), f.Host("a")
	lost.Jorc("maintenance", "begin", "--reason", "a disk").OK()
	f.CutOff(lost.Machine)
	f.Eventually("Consul to notice that the host is away", func(context.Context) error {
		if agent := f.Jorc("cluster", "members", "--fields", "Node,Agent", "-o", "plain").Stdout; !strings.Contains(agent, "b\tdown") {
			return errors.New(agent)
		}
		return nil
	})
	if r := other.Jorc("maintenance", "begin", "--timeout", "0"); r.Code != 124 || !strings.Contains(r.Stderr, "b") {
		t.Errorf("begin beside a host that is away: %+v", r)
	}
	f.Heal()
	f.Eventually("the host to be back", func(context.Context) error {
		if agent := f.Jorc("cluster", "members", "--fields", "Node,Agent", "-o", "plain").Stdout; !strings.Contains(agent, "b\tup") {
			return errors.New(agent)
		}
		return nil
	})
	hasLease(f, "b")
	if r := lost.Jorc("maintenance", "show", "-o", "plain"); !strings.Contains(r.Stdout, "state\tready") {
		t.Errorf("show: %+v", r)
	}
	lost.Jorc("maintenance", "end").OK()
	other.Jorc("maintenance", "begin").OK()
	hasLease(f, "a")
}
