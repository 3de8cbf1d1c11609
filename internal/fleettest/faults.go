//go:build linux

package fleettest

import (
	"fmt"
	"slices"
	"strings"
)

// chains makes the chains of rules that faults fill.
func (m *Machine) chains() error {
	return m.rules("-A INPUT -j CUT\n-A INPUT -j LOSS\n", "CUT", "LOSS")
}

// rules loads rules into the machine's packet filter; chains are emptied first.
func (m *Machine) rules(rules string, chains ...string) error {
	var b strings.Builder
	b.WriteString("*filter\n")
	for _, c := range chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	return m.space.within(func() error {
		return runWith(b.String()+rules+"COMMIT\n", "iptables-restore", "--noflush", "--wait")
	})
}

// Partition drops all packets between the machines of a and those of b, until
// Heal. Connections hang: they are not reset.
func (f *Fleet) Partition(a, b []*Machine) {
	f.t.Helper()
	for _, m := range a {
		for _, o := range b {
			f.cuts[m] = append(f.cuts[m], o.IP)
			f.cuts[o] = append(f.cuts[o], m.IP)
		}
	}
	f.must("partition", f.each(slices.Concat(a, b), f.applyCuts))
}

// CutOff separates a host from all others.
func (f *Fleet) CutOff(m *Machine) {
	f.t.Helper()
	f.Partition([]*Machine{m}, slices.DeleteFunc(f.machines(), func(o *Machine) bool { return o == m }))
}

// Heal ends all partitions.
func (f *Fleet) Heal() {
	f.t.Helper()
	clear(f.cuts)
	f.must("heal", f.each(f.machines(), f.applyCuts))
}

func (f *Fleet) applyCuts(m *Machine) error {
	var b strings.Builder
	for _, ip := range f.cuts[m] {
		fmt.Fprintf(&b, "-A CUT -s %s -j DROP\n", ip)
	}
	return m.rules(b.String(), "CUT")
}

// Loss makes the machine lose so many of 100 packets that come in; 0 ends it.
func (m *Machine) Loss(percent int) {
	m.fleet.t.Helper()
	rule := ""
	if percent > 0 {
		rule = fmt.Sprintf("-A LOSS -i eth0 -m statistic --mode random --probability %.2f -j DROP\n", float64(percent)/100)
	}
	m.fleet.must("loss on "+m.Name, m.rules(rule, "LOSS"))
}

// Slow bounds the machine's link in both directions to a rate in tc's terms,
// such as 256kbit; empty ends it.
func (m *Machine) Slow(rate string) {
	m.fleet.t.Helper()
	for _, end := range []struct {
		space  space
		device string
	}{{m.space, "eth0"}, {m.at, m.port}} {
		args := []string{"-n", string(end.space), "qdisc", "replace", "dev", end.device, "root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms"}
		if rate == "" {
			args = []string{"-n", string(end.space), "qdisc", "del", "dev", end.device, "root"}
		}
		m.fleet.must("slow link of "+m.Name, run("tc", args...))
	}
}
