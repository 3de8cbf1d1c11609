package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// back lets a rollback by the policy run to its end: all hosts that are offered a grant arrive, and
// the most that went back at the same time are returned, with the order of the zones and roles.
func back(t *testing.T, d rollout.Document, v rollout.State) (end rollout.Document, most int, zones, roles []string) {
	t.Helper()
	for range 200 {
		p := rollout.Plan(d, v, noon)
		d = p.Document
		for _, o := range p.Offers {
			m := v.Members[slices.IndexFunc(v.Members, func(m rollout.Member) bool { return m.Node == o.Node })]
			if len(zones) == 0 || zones[len(zones)-1] != m.Zone {
				zones = append(zones, m.Zone)
			}
			if role := m.Roles[0]; len(roles) == 0 || roles[len(roles)-1] != role {
				roles = append(roles, role)
			}
		}
		most = max(most, len(p.Offers))
		v = changed(v, offered(p), func(m *rollout.Member) {
			m.Version, m.Arrived = d.Version, noon
			m.Grant, m.Answer, m.Config = change.Grant{}, cluster.Answer{}, cluster.CategoryState{}
		})
		if len(p.Offers) == 0 && len(p.Decisions) == 0 {
			break
		}
	}
	return d, most, zones, roles
}

// TestRollbackKeepsLimits: a rollback by the policy keeps to the policy's limits and its
// order, and has none of its gates and windows.
func TestRollbackKeepsLimits(t *testing.T) {
	t.Parallel()
	fleet := func(failed string) rollout.State {
		return fleetOf(12, func(i int, m *rollout.Member) {
			m.Zone, m.Roles = string(rune('a'+i%3)), []string{[]string{"web", "db"}[i/6%2]}
			arrive(m)
			if m.Node == failed {
				fail(m)
				m.Version = "v1"
			}
		})
	}
	for _, test := range []struct {
		name   string
		policy pace.Policy
		budget *pace.Budget
		most   int
		zones  int      // how often the zone changes; 0: any number
		roles  []string // in this order
	}{
		{name: "max_parallel", policy: pace.Policy{MaxParallel: pace.Amount{N: 2}}, most: 2},
		{name: "zones", policy: pace.Policy{MaxParallel: pace.Amount{N: 3}, ZoneByZone: true}, most: 3, zones: 3},
		{name: "order", policy: pace.Policy{MaxParallel: pace.Amount{N: 3}, Order: []pace.Role{{Name: "web"}, {Name: "db"}}}, most: 3, roles: []string{"web", "db"}},
		{name: "budget", policy: pace.Policy{MaxParallel: pace.Amount{N: 6}}, budget: &pace.Budget{MaxOut: pace.Amount{N: 3}}, most: 3},
		{
			name: "order with a limit", policy: pace.Policy{MaxParallel: pace.Amount{N: 6}, Order: []pace.Role{{Name: "db", Limit: pace.Amount{N: 1}}, {Name: "web", Limit: pace.Amount{N: 2}}}},
			most: 2, roles: []string{"db", "web"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := test.policy
			p.OnFailure, p.ApproveEach, p.Bake, p.Gate.Workflow = pace.OnFailureRollback, true, pace.Duration(1e9), "slo"
			window, err := pace.ParseWindows("Sun 01:00-02:00 UTC")
			if err != nil {
				t.Fatal(err)
			}
			p.Canary, p.Windows = 1, window
			d, v := started(t, p), fleet("n3")
			v.Places = pace.NewAccount(test.budget, nil)
			d.Phase, d.Batch, d.Promoted = pace.Batch, 1, true
			d = rollout.Plan(d, v, noon).Document
			if d.Phase != pace.RollingBack || d.Version != "v1" {
				t.Fatalf("it is %s of %s", d.StateText(), d.Version)
			}
			end, most, zones, roles := back(t, d, v)
			switch {
			case end.Phase != pace.Done:
				t.Errorf("it ends as %s: %v", end.StateText(), rollout.Describe(end, v, noon).Waits)
			case most != test.most:
				t.Errorf("%d go back at once, want %d", most, test.most)
			case test.zones > 0 && len(zones) != test.zones:
				t.Errorf("the zones go back as %v", zones)
			case test.roles != nil && !slices.Equal(roles, test.roles):
				t.Errorf("the roles go back as %v, want %v", roles, test.roles)
			}
		})
	}
}

// TestRollbackFirst: a rollback takes back hosts that are out of service between two versions
// first, in their places, also where their turn would come later: the only place may be theirs.
// Then no host of another zone is at work beside them.
func TestRollbackFirst(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(*rollout.Document){
		"by the policy": func(d *rollout.Document) { d.Phase = pace.RollingBack },
		"by an operator": func(d *rollout.Document) {
			d.Promoted = true
			d.Policy.Canary, d.Policy.Batches = 1, amounts(t, "2,100%")
		},
	} {
		for places, zones := range map[int]bool{1: true, 3: true, 2: false} {
			t.Run(fmt.Sprint(name, places, zones), func(t *testing.T) {
				t.Parallel()
				d := started(t, pace.Policy{MaxParallel: pace.Amount{N: places}, ZoneByZone: zones})
				d.RollbackOf = &rollout.Rollback{Version: "v3", Reason: "broken"}
				back(&d)
				v := fleetOf(9, func(i int, m *rollout.Member) {
					m.Zone, m.Version = string(rune('a'+i%3)), "v3"
				})
				order := inOrder(d.Policy, v)
				late := order[len(order)-1]
				v = changed(v, []string{late}, func(m *rollout.Member) {
					grant(m)
					m.Grant.Tag, m.Answer.Tag, m.Answer.State = "v3", "v3", cluster.GrantStranded
				})
				p, _ := planned(d, v, noon)
				d = p.Document
				got := offered(p)
				if !slices.Contains(got, late) || zones && len(got) != 1 {
					t.Errorf("%v are offered a grant, want %s", got, late)
				}
				v = changed(v, []string{late}, grant)
				if got := offered(rollout.Plan(d, v, noon)); zones && len(got) > 0 {
					t.Errorf("while it is at work %v of another zone are offered a grant", got)
				}
				v = changed(v, []string{late}, func(m *rollout.Member) {
					arrive(m)
					m.Grant, m.Answer = change.Grant{}, cluster.Answer{}
				})
				if p, _ := planned(d, v, noon); len(offered(p)) == 0 {
					t.Error("once it is back no host is offered a grant")
				}
			})
		}
	}
}
