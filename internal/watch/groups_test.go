package watch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func keyDep(name string) *dependency {
	return &dependency{id: "kv.get(" + name + ")", kind: kindKey, name: name}
}

func prefixDep(name string) *dependency {
	return &dependency{id: "kv.list(" + name + ")", kind: kindPrefix, name: name}
}

// checkGroups verifies what must hold of every grouping.
func checkGroups(t *testing.T, deps []*dependency, n int, groups []*group) {
	t.Helper()
	scopes, seen := map[scope]bool{}, map[*dependency]int{}
	ids := map[string]bool{}
	for _, d := range deps {
		scopes[d.scope] = true
	}
	for _, g := range groups {
		if ids[g.id()] {
			t.Errorf("two groups %q", g.id())
		}
		ids[g.id()] = true
		if len(g.deps) == 0 {
			t.Errorf("group %q is empty", g.prefix)
		}
		for _, d := range g.deps {
			seen[d]++
			if !strings.HasPrefix(d.name, g.prefix) || d.scope != g.scope {
				t.Errorf("%q of %v is in group %q of %v", d.name, d.scope, g.prefix, g.scope)
			}
		}
	}
	for _, d := range deps {
		if seen[d] != 1 {
			t.Errorf("%s is in %d groups; want one", d.id, seen[d])
		}
	}
	if limit := max(n, len(scopes)); len(groups) > limit {
		t.Errorf("%d groups; want at most %d", len(groups), limit)
	}
	for _, f := range families(groups) {
		members := 0
		for _, g := range groups {
			if !g.exact() && g.scope == f.scope && strings.HasPrefix(g.prefix, f.prefix) {
				members++
			}
		}
		if f.prefix == "" || f.groups < 2 || members < f.groups {
			t.Errorf("%d groups are below %q; want the %d of its family, at least 2", members, f.prefix, f.groups)
		}
	}
	shuffled := slices.Clone(deps)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if again := groupKeys(shuffled, n); !reflect.DeepEqual(again, groups) {
		t.Errorf("another order gives other groups: %v; want %v", prefixes(again), prefixes(groups))
	}
}

func prefixes(groups []*group) []string {
	var list []string
	for _, g := range groups {
		list = append(list, fmt.Sprintf("%s(%d)", g.prefix, len(g.deps)))
	}
	return list
}

func TestGroupKeys(t *testing.T) {
	t.Parallel()
	var numbered, random []*dependency
	for i := range 1000 {
		numbered = append(numbered, keyDep(fmt.Sprintf("bench/k%05d", i)))
		random = append(random, keyDep(fmt.Sprintf("%x/%x", rand.Uint64(), rand.Uint32())))
	}
	elsewhere := keyDep("a@dc2")
	elsewhere.scope.datacenter = "dc2"
	for name, tt := range map[string]struct {
		deps    []*dependency
		n       int
		largest int // members of the largest group
	}{
		"one key":                   {[]*dependency{keyDep("a")}, 8, 1},
		"all keys alone":            {[]*dependency{keyDep("a"), keyDep("b"), keyDep("a/b")}, 8, 1},
		"no room":                   {[]*dependency{keyDep("a"), keyDep("b")}, 1, 2},
		"no room at all":            {[]*dependency{keyDep("a"), keyDep("b")}, 0, 2},
		"a key and its prefix":      {[]*dependency{keyDep("a"), prefixDep("a"), keyDep("a/b")}, 8, 3},
		"a prefix beside keys":      {[]*dependency{prefixDep("a/"), keyDep("b"), keyDep("a")}, 8, 1},
		"keys below a prefix":       {[]*dependency{prefixDep("a/"), keyDep("a/b"), keyDep("a/c")}, 8, 3},
		"numbers":                   {numbered, 48, 100},
		"random":                    {random, 48, 250},
		"two datacenters, no room":  {[]*dependency{keyDep("a"), keyDep("b"), elsewhere}, 1, 2},
		"names cut within a letter": {[]*dependency{keyDep("ü"), keyDep("ö"), keyDep("\xff"), keyDep("")}, 8, 1},
	} {
		groups := groupKeys(tt.deps, tt.n)
		checkGroups(t, tt.deps, tt.n, groups)
		most := 0
		for _, g := range groups {
			most = max(most, len(g.deps))
		}
		if most > tt.largest {
			t.Errorf("%s: groups %v; want at most %d in one", name, prefixes(groups), tt.largest)
		}
	}
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	numbered := func(pattern string) (deps []*dependency) {
		for i := range 300 {
			deps = append(deps, keyDep(fmt.Sprintf(pattern, i)))
		}
		return deps
	}
	elsewhere := numbered("app/%03d")
	for _, d := range elsewhere {
		d.scope.datacenter = "dc2"
	}
	for name, tt := range map[string]struct {
		deps []*dependency
		want []string
	}{
		"one directory":           {numbered("app/x-%03d"), []string{"app/x-"}},
		"none":                    {numbered("x-%03d"), []string{"x-"}},
		"nothing in common":       {numbered("%03d"), nil},
		"two of three":            {slices.Concat(numbered("a/%03d"), numbered("b/%03d"), []*dependency{keyDep("c/1"), keyDep("c/2")}), []string{"a/", "b/"}},
		"two datacenters":         {slices.Concat(numbered("app/%03d"), elsewhere), []string{"app/", "app/"}},
		"a prefix that is a dot":  {numbered("app/.%03d"), []string{"app/"}},
		"a prefix with a space":   {numbered("app/b %03d"), []string{"app/"}},
		"a directory with spaces": {numbered("a b/c-%03d"), []string{"a b/c-"}},
	} {
		var got []string
		for _, f := range families(groupKeys(tt.deps, 46)) {
			got = append(got, f.prefix)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: families %q; want %q", name, got, tt.want)
		}
	}
}

func FuzzGroupKeys(f *testing.F) {
	f.Add("a b a/b |a |a/ c@2", uint8(3))
	f.Add("x/1 x/2 x/3 |x y ü ö", uint8(2))
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		unique := map[string]*dependency{}
		for name := range strings.FieldsSeq(text) {
			name, dc, _ := strings.Cut(name, "@")
			d := keyDep(name)
			if rest, ok := strings.CutPrefix(name, "|"); ok {
				d = prefixDep(rest)
			}
			d.scope.datacenter = dc
			d.id += "@" + dc
			unique[d.id] = d
		}
		deps := slices.Collect(maps.Values(unique))
		checkGroups(t, deps, int(n), groupKeys(deps, int(n)))
	})
}

func TestPlanStaysWithinItsPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ keys, services, connect, others, files int }{
		{1, 0, 0, 0, 0},
		{10_000, 0, 0, 0, 0},
		{0, 1000, 0, 0, 0},
		{100, 100, 0, 5, 0},
		{1000, 48, 0, 0, 100},
		{0, 48, 0, 0, 0},
		{5, 40, 0, 3, 0},
		{1, 47, 0, 0, 0},
		{1, 48, 0, 0, 500},
		{1000, 1000, 10, 10, 10},
		{3, 3, 3, 3, 3},
	} {
		const places = 48
		wanted := map[string]*dependency{}
		add := func(k kind, n int) {
			for i := range n {
				d := &dependency{kind: k, name: fmt.Sprintf("%s-%03d", k, i)}
				d.id = string(k) + d.name
				wanted[d.id] = d
			}
		}
		add(kindKey, tt.keys)
		add(kindService, tt.services)
		add(kindConnect, tt.connect)
		add(kindNode, tt.others)
		add(kindFile, tt.files)
		p := makePlan(wanted, places)
		used := len(p.groups) + len(p.families) + len(p.own) - tt.files
		if len(p.shared) > 0 {
			used += sharedCost
		}
		if used > places {
			t.Errorf("%+v: %d places are used; want at most %d", tt, used, places)
		}
		if tt.keys+tt.services+tt.connect+tt.others <= places && (len(p.shared) > 0 || len(p.groups) != tt.keys) {
			t.Errorf("%+v: %d groups, %d services share, though there is a place for each", tt, len(p.groups), len(p.shared))
		}
		covered := len(p.own) + len(p.shared)
		for _, g := range p.groups {
			covered += len(g.deps)
		}
		if covered != len(wanted) {
			t.Errorf("%+v: %d of %d are covered", tt, covered, len(wanted))
		}
		if again := makePlan(wanted, places); !reflect.DeepEqual(again, p) {
			t.Errorf("%+v: another plan the second time", tt)
		}
	}
}
