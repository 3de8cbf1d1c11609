//go:build unix

package pace_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

// BenchmarkPlan decides about changes that reach 5,000 hosts, as an orchestrator does after each
// report: with steps alone, and with all that a policy and a cluster can say of the time and
// the order. cpu-ms/op is the processor time of all threads, the garbage collector's too.
func BenchmarkPlan(b *testing.B) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	steps := pace.Policy{MaxParallel: pace.Amount{N: 10, Percent: true}, Canary: 5}
	windows, err := pace.ParseWindows("Mon-Fri 08:00-18:00 Europe/Berlin; Sat 02:00-06:00 Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	all := steps
	all.Order, all.ZoneByZone, all.Windows = []pace.Role{{Name: "db"}, {Name: "web"}}, true, windows
	all.NodeDeadline, all.ProgressDeadline = pace.Duration(time.Hour), pace.Duration(2*time.Hour)
	freezes := pace.Freezes{{ID: "1", Weekly: &windows[0], Roles: []string{"db"}}, {ID: "2", Weekly: &windows[1]}}
	for _, test := range []struct {
		name    string
		changes int
		policy  pace.Policy
		freezes pace.Freezes
	}{
		{"changes=1", 1, steps, nil},
		{"changes=20", 20, steps, nil},
		{"changes=20,all", 20, all, freezes},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := fleet(test.policy, test.changes, now)
			s.Freezes = test.freezes
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				if len(pace.Plan(s, now)) != test.changes {
					b.Fatal("not all changes were planned")
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// fleet is 5,000 hosts, of which each change has reached half, and 100 are at work.
func fleet(policy pace.Policy, changes int, now time.Time) (s pace.Situation) {
	for i := range 5000 {
		host := pace.Host{Node: fmt.Sprintf("n%04d", i), Up: true, Zone: string(rune('a' + i%3)), Roles: []string{"web", "worker"}}
		if i%10 == 0 {
			host.Roles[0] = "db"
		}
		if i%50 == 1 {
			host.Parts = []pace.Part{{Change: fmt.Sprint("change-", i/50%changes), Answer: pace.Accepted, Tag: fmt.Sprint("v", i/50%changes), Accepted: now}}
			host.Out, host.For = "grant", host.Parts[0].Change
		}
		s.Hosts = append(s.Hosts, host)
	}
	for c := range changes {
		one := pace.Change{
			ID: fmt.Sprint("change-", c), Tag: fmt.Sprint("v", c), Policy: policy, Created: now, Disturbs: true,
			Progress: pace.Progress{Phase: pace.Batch, Batch: 1, Steps: 2, Since: now},
		}
		if policy.ZoneByZone {
			one.Group = &pace.Group{Place: 1, Zone: "b"}
		}
		for i := range s.Hosts {
			one.Wants = append(one.Wants, pace.Want{Node: s.Hosts[i].Node, Has: i%2 == 0})
		}
		s.Changes = append(s.Changes, one)
	}
	s.Places = pace.NewAccount(&pace.Budget{MaxOut: pace.Amount{N: 10, Percent: true}}, s.Hosts)
	return s
}

// processorTime is what this process used of the processors.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
