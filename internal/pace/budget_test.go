package pace_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

func amount(t testing.TB, text string) pace.Amount {
	t.Helper()
	a, err := pace.ParseAmount(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// webs are n hosts of role web in zones a and b by turns.
func webs(n int) []pace.Host {
	all := make([]pace.Host, n)
	for i := range all {
		all[i] = pace.Host{Node: fmt.Sprintf("web-%d", i+1), Zone: string(rune('a' + i%2)), Roles: []string{"web"}}
	}
	return all
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	budget := func(change func(*pace.Budget)) *pace.Budget {
		b := new(pace.Budget)
		change(b)
		return b
	}
	const holder = "the budget: it holds the orchestrator's lock, so it goes last, and gives the lock away first"
	servers, candidates, both := []string{pace.ConsulServer}, []string{pace.Candidate}, []string{pace.ConsulServer, pace.Candidate}
	two := budget(func(b *pace.Budget) { b.MaxOut = amount(t, "2") })
	for _, test := range []struct {
		name   string
		budget *pace.Budget
		hosts  func([]pace.Host)
		node   string
		want   string // the limit; empty: it may be taken out
	}{
		{"no budget", nil, func(h []pace.Host) { h[0].Out, h[1].Out = "down", "down" }, "web-3", ""},
		{"room", two, func(h []pace.Host) { h[0].Out = "down" }, "web-3", ""},
		{"full", two, func(h []pace.Host) { h[0].Out, h[1].Out = "down", "critical" }, "web-3", "the budget: 2 of 2 hosts are out of service"},
		{"out already", two, func(h []pace.Host) { h[0].Out, h[1].Out = "down", "critical" }, "web-2", ""},
		{"only offered something, and no place is left beside the others", two, func(h []pace.Host) {
			h[0].Out, h[1].Out, h[2].Out, h[2].Offered = "down", "critical", "it has a lease", true
		}, "web-3", "the budget: 2 of 2 hosts are out of service"},
		{"only offered something, in its own place", two, func(h []pace.Host) { h[0].Out, h[1].Out, h[1].Offered = "down", "it has a lease", true }, "web-2", ""},
		{"only offered something, in a zone too many", budget(func(b *pace.Budget) { b.Zones = 1 }), func(h []pace.Host) {
			h[0].Out, h[0].For, h[1].Out, h[1].For, h[1].Offered = "grant", "version v2", "it has a lease", "lease web-2", true
		}, "web-2", "the budget: hosts of 1 of 1 zones are out of service"},
		{"only offered something, in the one zone", budget(func(b *pace.Budget) { b.Zones = 1 }), func(h []pace.Host) { h[1].Out, h[1].For, h[1].Offered = "it has a lease", "lease web-2", true }, "web-2", ""},
		{"an operator gave up on one", two, func(h []pace.Host) { h[0].Out, h[1].Out, h[1].GivenUp = "down", "grant", true }, "web-3", ""},
		{"one left long ago", two, func(h []pace.Host) { h[0].Out, h[1].Out, h[1].Gone = "down", "down", true }, "web-3", ""},
		{"lowered below what is out", two, func(h []pace.Host) { h[0].Out, h[1].Out, h[3].Out = "x", "x", "x" }, "web-3", "the budget: 3 of 2 hosts are out of service"},
		{
			"a share is of the members that are not gone", budget(func(b *pace.Budget) { b.MaxOut = amount(t, "50%") }),
			func(h []pace.Host) { h[0].Out, h[2].Gone, h[3].Gone = "down", true, true }, "web-2", "the budget: 1 of 1 hosts are out of service",
		},
		{
			"a role", budget(func(b *pace.Budget) { b.Roles = map[string]pace.Amount{"db": amount(t, "1")} }),
			func(h []pace.Host) { h[0].Roles, h[0].Out, h[2].Roles = []string{"db"}, "down", []string{"web", "db"} }, "web-3", `the budget: 1 of 1 hosts of role "db" are out of service`,
		},
		{
			"another role", budget(func(b *pace.Budget) { b.Roles = map[string]pace.Amount{"db": amount(t, "1")} }),
			func(h []pace.Host) { h[0].Roles, h[0].Out = []string{"db"}, "down" }, "web-3", "",
		},
		{
			"another zone", budget(func(b *pace.Budget) { b.Zones = 1 }), func(h []pace.Host) { h[0].Out, h[0].For = "grant", "version v2" }, "web-2",
			"the budget: hosts of 1 of 1 zones are out of service",
		},
		{"the same zone", budget(func(b *pace.Budget) { b.Zones = 1 }), func(h []pace.Host) { h[0].Out, h[0].For = "grant", "version v2" }, "web-3", ""},
		{
			"a host that failed leaves its zone", budget(func(b *pace.Budget) { b.Zones = 1 }),
			func(h []pace.Host) { h[0].Out, h[0].For, h[0].Failed = "grant", "version v2", true }, "web-2", "",
		},
		{"a host that is down occupies no zone", budget(func(b *pace.Budget) { b.Zones = 1 }), func(h []pace.Host) { h[0].Out = "down" }, "web-2", ""},
		{
			"a second Consul server", two, func(h []pace.Host) { h[0].Lone, h[0].Out, h[2].Lone = servers, "down", servers }, "web-3",
			"the budget: another Consul server is out of service, and one may be",
		},
		{
			"a second candidate", two, func(h []pace.Host) { h[0].Lone, h[0].Out, h[2].Lone = candidates, "down", candidates }, "web-3",
			"the budget: another candidate for orchestration is out of service, and one may be",
		},
		{"a Consul server beside a candidate", two, func(h []pace.Host) { h[0].Lone, h[0].Out, h[2].Lone = candidates, "down", servers }, "web-3", ""},
		{
			"a host that is both, beside a Consul server", two, func(h []pace.Host) { h[0].Lone, h[0].Out, h[2].Lone = servers, "down", both }, "web-3",
			"the budget: another Consul server is out of service, and one may be",
		},
		{
			"a host that is both, beside a candidate", two, func(h []pace.Host) { h[0].Lone, h[0].Out, h[2].Lone = candidates, "down", both }, "web-3",
			"the budget: another candidate for orchestration is out of service, and one may be",
		},
		{"the holder of the lock beside another candidate", two, func(h []pace.Host) { h[0].Lone, h[2].Lone, h[2].Holder = candidates, candidates, true }, "web-3", holder},
		{"the holder of the lock, critical", two, func(h []pace.Host) {
			h[0].Lone, h[2].Lone, h[2].Holder, h[2].Out = candidates, candidates, true, "critical"
		}, "web-3", holder},
		{"the holder of the lock, at work", two, func(h []pace.Host) {
			h[0].Lone, h[2].Lone, h[2].Holder, h[2].Out, h[2].For = candidates, candidates, true, "grant", "version v2"
		}, "web-3", ""},
		{"the holder of the lock is the only candidate", two, func(h []pace.Host) { h[2].Lone, h[2].Holder = candidates, true }, "web-3", ""},
		{
			"the other candidates are down or gone", two, func(h []pace.Host) {
				h[0].Lone, h[0].Out, h[0].Down, h[1].Lone, h[1].Out, h[1].Gone = candidates, "down", true, candidates, "down", true
				h[2].Lone, h[2].Holder = candidates, true
			}, "web-3", "",
		},
		{
			"the other candidate is critical", two, func(h []pace.Host) {
				h[0].Lone, h[0].Out, h[2].Lone, h[2].Holder = candidates, "critical", candidates, true
			}, "web-3", "the budget: another candidate for orchestration is out of service, and one may be",
		},
		{
			"the others are down, and the budget is used up", two, func(h []pace.Host) {
				h[0].Lone, h[0].Out, h[0].Down, h[1].Out, h[2].Lone, h[2].Holder = candidates, "down", true, "down", candidates, true
			}, "web-3", "the budget: 2 of 2 hosts are out of service",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosts := webs(4)
			test.hosts(hosts)
			limit, ok := pace.NewAccount(test.budget, hosts).Admit(test.node)
			if ok != (test.want == "") || !ok && limit.String() != test.want {
				t.Errorf("%s may be taken out: %t (%s), want %q", test.node, ok, limit, test.want)
			}
		})
	}
}

// TestNeverMoreThanTheBudget: in whatever order changes take hosts, no limit is exceeded
// but by what fell out by itself.
func TestNeverMoreThanTheBudget(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		hosts := webs(3 + r.IntN(20))
		fell := map[string]bool{}
		zones := map[string]bool{}
		for i := range hosts {
			if r.IntN(3) == 0 {
				hosts[i].Roles = append(hosts[i].Roles, "db")
			}
			if r.IntN(6) == 0 {
				hosts[i].Out, fell[hosts[i].Node] = "down", true
			}
			for _, word := range []string{pace.ConsulServer, pace.Candidate} {
				if r.IntN(4) == 0 {
					hosts[i].Lone = append(hosts[i].Lone, word)
				}
			}
		}
		b := &pace.Budget{MaxOut: pace.Amount{N: 1 + r.IntN(5)}, Roles: map[string]pace.Amount{"db": {N: 1 + r.IntN(2)}}, Zones: r.IntN(3)}
		a := pace.NewAccount(b, hosts)
		taken := map[string]bool{}
		for range 40 {
			h := hosts[r.IntN(len(hosts))]
			if _, ok := a.Admit(h.Node); ok {
				if a.Take(h.Node); !fell[h.Node] {
					taken[h.Node], zones[h.Zone] = true, true
				}
			}
		}
		db, dbFell := 0, 0
		for _, h := range hosts {
			if slices.Contains(h.Roles, "db") {
				if taken[h.Node] {
					db++
				}
				if fell[h.Node] {
					dbFell++
				}
			}
		}
		for _, word := range []string{pace.ConsulServer, pace.Candidate} {
			out, lone := 0, false
			for _, h := range hosts {
				if slices.Contains(h.Lone, word) && (taken[h.Node] || fell[h.Node]) {
					out++
					lone = lone || taken[h.Node]
				}
			}
			if lone && out > 1 {
				t.Fatalf("seed %d: %d hosts are out that are each a %s", seed, out, word)
			}
		}
		if n := len(taken); n > 0 && n+len(fell) > b.MaxOut.N {
			t.Fatalf("seed %d: %d were taken out beside %d, want at most %d out", seed, n, len(fell), b.MaxOut.N)
		}
		if most := b.Roles["db"].N; db > 0 && db+dbFell > most {
			t.Fatalf("seed %d: %d of role db were taken out beside %d, want at most %d out", seed, db, dbFell, most)
		}
		if b.Zones > 0 && len(zones) > b.Zones {
			t.Fatalf("seed %d: hosts of %d zones were taken out, want at most %d", seed, len(zones), b.Zones)
		}
	}
}

// TestLeftFor: a place goes to what restores, then to the change with the fewest hosts
// out, then to the oldest.
func TestLeftFor(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	version := pace.Demand{Change: "version", Open: 2, Created: noon, Nodes: []string{"web-4"}}
	stage := pace.Demand{Change: "stage edge", Open: 1, Created: noon.Add(time.Hour), Nodes: []string{"web-5"}}
	restore := version
	restore.Restores = true
	younger := pace.Demand{Change: "run x", Open: 1, Created: noon.Add(2 * time.Hour), Nodes: []string{"web-6"}}
	a := pace.NewAccount(&pace.Budget{MaxOut: amount(t, "1")}, webs(6))
	for _, test := range []struct {
		name   string
		mine   pace.Demand
		others []pace.Demand
		want   bool
	}{
		{"alone", version, nil, true},
		{"beside one with fewer hosts out", version, []pace.Demand{stage}, false},
		{"with fewer hosts out", stage, []pace.Demand{version}, true},
		{"it restores", restore, []pace.Demand{stage}, true},
		{"beside what restores", stage, []pace.Demand{restore}, false},
		{"older", stage, []pace.Demand{younger}, true},
		{"younger", younger, []pace.Demand{stage}, false},
		{"its own demand", stage, []pace.Demand{stage}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, ok := a.LeftFor(test.mine, test.others).Admit(test.mine.Nodes[0]); ok != test.want {
				t.Errorf("%s gets the place: %t, want %t", test.mine.Change, ok, test.want)
			}
		})
	}
}

// TestPlaceOfTheHolder: a place is kept for the host that holds the orchestrator's lock while
// it has not given the lock away, and it is named.
func TestPlaceOfTheHolder(t *testing.T) {
	t.Parallel()
	hosts := webs(3)
	for i := range hosts {
		hosts[i].Lone = []string{pace.Candidate}
	}
	hosts[0].Holder = true
	a := pace.NewAccount(&pace.Budget{MaxOut: pace.Amount{N: 1}}, hosts)
	first := pace.Demand{Change: "version", Nodes: []string{"web-1"}}
	if _, ok := a.LeftFor(pace.Demand{Change: "stage edge", Open: 1}, []pace.Demand{first}).Admit("web-2"); ok {
		t.Error("another change takes the place of the holder of the lock")
	}
	second := pace.Demand{Change: "run x", Nodes: []string{"web-1"}, Open: 1}
	if l, ok := a.LeftFor(pace.Demand{Change: "stage edge", Open: 2}, []pace.Demand{first, second}).Admit("web-1"); ok || l.Kind != pace.OfHolder {
		t.Errorf("another change takes the holder of the lock, for which a place is kept: %t (%s)", ok, l)
	}
	kept := pace.Demand{Change: "run y", Nodes: []string{"web-3"}}
	if _, ok := a.LeftFor(pace.Demand{Change: "stage edge", Open: 2}, []pace.Demand{kept}, "web-2").Admit("web-3"); ok {
		t.Error("a place is kept beside the only one, which the plan has taken")
	}
	if node, alone := a.Holder(); node != "web-1" || alone {
		t.Errorf("the holder is %q, alone %t; want web-1, which is not alone", node, alone)
	}
	for i := range hosts[1:] {
		hosts[i+1].Down = true
	}
	if node, alone := pace.NewAccount(nil, hosts).Holder(); node != "web-1" || !alone {
		t.Errorf("the holder is %q, alone %t; want web-1, which is alone", node, alone)
	}
}

func TestBudgetInJSON(t *testing.T) {
	t.Parallel()
	b := &pace.Budget{MaxOut: amount(t, "10%"), Roles: map[string]pace.Amount{"db": amount(t, "1")}, Zones: 1, By: "ann"}
	text, err := json.Marshal(b)
	if want := `{"max_out":"10%","roles":{"db":"1"},"zones":1,"by":"ann"}`; err != nil || string(text) != want {
		t.Errorf("it is stored as %s (%v), want %s", text, err, want)
	}
	back := new(pace.Budget)
	if err := json.Unmarshal(text, back); err != nil || !back.Equal(b) || back.String() != "10% of the hosts, 1 of role db, 1 zone" {
		t.Errorf("it is read as %q (%v)", back, err)
	}
	for _, bad := range []string{`{"max_out":"0"}`, `{"max_out":"101%"}`, `{"max_out":"-1"}`, `{"roles":{"db":"0%"}}`} {
		if json.Unmarshal([]byte(bad), new(pace.Budget)) == nil {
			t.Errorf("%s was read", bad)
		}
	}
	for _, bad := range []*pace.Budget{{}, {Zones: -1}, {Roles: map[string]pace.Amount{"db": {}}}} {
		if bad.Check() == nil {
			t.Errorf("%+v is a budget", bad)
		}
	}
}

// TestFailures: a budget that failed hosts use up names them and the ways out; one that is used up by
// hosts at work, or in maintenance, or of which a place is left does not.
func TestFailures(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	failed := func(h *pace.Host, since time.Time) {
		h.Out, h.For, h.Failed, h.Since = "its grant of v2 failed", "version v2", true, since
	}
	const ways = "; they failed: repair them, 'jorc update give-up HOST', 'jorc update rollback', or a larger budget ('jorc cluster budget set')"
	db := &pace.Budget{MaxOut: pace.Amount{N: 3}, Roles: map[string]pace.Amount{"db": {N: 1}}}
	for _, test := range []struct {
		name   string
		budget *pace.Budget
		hosts  func([]pace.Host)
		want   string // the cause; empty: failed hosts do not use it up
	}{
		{"no budget", nil, func(h []pace.Host) { failed(&h[0], noon) }, ""},
		{"one of two places", &pace.Budget{MaxOut: pace.Amount{N: 2}}, func(h []pace.Host) { failed(&h[0], noon) }, ""},
		{
			"both places", &pace.Budget{MaxOut: pace.Amount{N: 2}}, func(h []pace.Host) {
				failed(&h[0], noon)
				h[1].Out, h[1].Failed, h[1].Since = "it is down", true, noon.Add(time.Hour)
			},
			"the budget: 2 of 2 hosts are out of service: web-1 (its grant of v2 failed), web-2 (it is down)" + ways,
		},
		{"one is at work", &pace.Budget{MaxOut: pace.Amount{N: 2}}, func(h []pace.Host) {
			failed(&h[0], noon)
			h[1].Out, h[1].For = "it has a grant of v2", "version v2"
		}, ""},
		{"one is in maintenance", &pace.Budget{MaxOut: pace.Amount{N: 2}}, func(h []pace.Host) {
			failed(&h[0], noon)
			h[1].Out = "it is in maintenance"
		}, ""},
		{"an operator gave up on one", &pace.Budget{MaxOut: pace.Amount{N: 1}}, func(h []pace.Host) {
			failed(&h[0], noon)
			h[0].GivenUp = true
		}, ""},
		{
			"a role", db, func(h []pace.Host) {
				h[0].Roles = []string{"db"}
				failed(&h[0], noon.Add(time.Hour))
			},
			`the budget: 1 of 1 hosts of role "db" are out of service: web-1 (its grant of v2 failed)` + ways,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosts := webs(4)
			test.hosts(hosts)
			all := pace.NewAccount(test.budget, hosts).Failures()
			if test.want == "" {
				if len(all) > 0 {
					t.Errorf("%+v are named", all)
				}
				return
			}
			if len(all) != 1 || all[0].Cause != test.want || !all[0].Since.Equal(noon.Add(time.Hour)) {
				t.Errorf("%+v are named, want %q since %v", all, test.want, noon.Add(time.Hour))
			}
		})
	}
}

// TestOver: a change that goes over the budget takes hosts out beyond the limits of the cluster, of roles and zones, not
// two of which one may be out, and what it takes counts for the others.
func TestOver(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*pace.Budget{
		"cluster": {MaxOut: pace.Amount{N: 1}}, "role": {Roles: map[string]pace.Amount{"web": {N: 1}}}, "zones": {Zones: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := webs(4)
			hosts[0].Out, hosts[0].For = "it has a grant of v2", "version v2"
			hosts[0].Lone, hosts[3].Lone = []string{pace.ConsulServer}, []string{pace.ConsulServer}
			all := pace.NewAccount(b, hosts)
			if _, ok := all.Admit("web-2"); ok {
				t.Fatal("the budget admits web-2: the test shows nothing")
			}
			over := all.Over()
			if limit, ok := over.Admit("web-2"); !ok {
				t.Errorf("web-2 is not admitted: %s", limit)
			}
			if limit, ok := over.Admit("web-4"); ok || limit.Kind != pace.OfLone {
				t.Errorf("a second Consul server is admitted (%s)", limit)
			}
			before := all.Clone()
			over.Take("web-2")
			if !all.IsOut("web-2") || before.IsOut("web-2") {
				t.Error("what is taken over the budget does not count for others, or counts in a copy")
			}
		})
	}
	if (*pace.Account)(nil).Over() != nil {
		t.Error("no account has limits")
	}
}
