package watch

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/profile"
)

func instance(node string) *dep.HealthService { return &dep.HealthService{Node: node, ID: "web"} }

// step is one thing that happens to a store.
type step struct {
	change  change
	after   time.Duration // since the beginning
	settle  bool          // settle instead of put
	changed bool
	value   any
	known   bool
	until   time.Duration // of the doubt; 0: none
}

func TestStore(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	two, one := []*dep.HealthService{instance("a"), instance("b")}, []*dep.HealthService{instance("a")}
	other := []*dep.HealthService{instance("a"), instance("c")}
	all := []*dep.HealthService{instance("a"), instance("b"), instance("c")}
	broken := errors.New("no answer")
	for name, tt := range map[string]struct {
		past  map[string]any
		steps []step
	}{
		"values come, change and repeat": {steps: []step{
			{change: change{value: "1"}, changed: true, value: "1", known: true},
			{change: change{value: "1"}, value: "1", known: true},
			{change: change{value: "2"}, changed: true, value: "2", known: true},
			{change: change{value: nil}, changed: true, value: nil, known: true},
		}},
		"a key that was never there": {steps: []step{
			{change: change{err: broken}},
			{change: change{value: nil}, changed: true, known: true},
			{change: change{value: nil}, known: true},
		}},
		"a failure changes nothing": {steps: []step{
			{change: change{value: "1"}, changed: true, value: "1", known: true},
			{change: change{err: broken}, value: "1", known: true},
			{change: change{value: "1"}, value: "1", known: true},
		}},
		"a loss after a failure is doubted, then believed": {steps: []step{
			{change: change{value: two}, changed: true, value: two, known: true},
			{change: change{err: broken}, value: two, known: true},
			{change: change{value: one}, after: time.Second, value: two, known: true, until: time.Second + doubtFailure},
			{settle: true, after: 2 * time.Second, value: two, known: true, until: time.Second + doubtFailure},
			{settle: true, after: time.Second + doubtFailure, changed: true, value: one, known: true},
		}},
		"a loss is not believed while nothing answers": {steps: []step{
			{change: change{value: two}, changed: true, value: two, known: true},
			{change: change{value: one, doubt: afterReset}, value: two, known: true, until: time.Minute},
			{change: change{err: broken}, after: time.Second, value: two, known: true, until: time.Minute},
			{settle: true, after: time.Minute, value: two, known: true, until: time.Minute},
			{change: change{value: one}, after: time.Hour, value: two, known: true, until: time.Hour + doubtFailure},
			{settle: true, after: time.Hour + doubtFailure, changed: true, value: one, known: true},
		}},
		"what comes back ends the doubt": {steps: []step{
			{change: change{value: two}, changed: true, value: two, known: true},
			{change: change{value: one, doubt: afterReset}, value: two, known: true, until: time.Minute},
			{change: change{value: two}, value: two, known: true},
			{settle: true, after: time.Hour, value: two, known: true},
		}},
		"later losses wait for the same moment": {steps: []step{
			{change: change{value: two}, changed: true, value: two, known: true},
			{change: change{value: one, doubt: afterReset}, value: two, known: true, until: time.Minute},
			{change: change{value: []*dep.HealthService{}}, after: time.Second, value: two, known: true, until: time.Minute},
			{settle: true, after: time.Minute, changed: true, value: []*dep.HealthService{}, known: true},
		}},
		"a stronger doubt takes longer": {steps: []step{
			{change: change{value: two}, changed: true, value: two, known: true},
			{change: change{value: one, doubt: afterFailure}, value: two, known: true, until: doubtFailure},
			{change: change{value: one, doubt: afterReset}, value: two, known: true, until: time.Minute},
		}},
		"gains are never doubted, and what is lost stays meanwhile": {steps: []step{
			{change: change{value: one}, changed: true, value: one, known: true},
			{change: change{value: two, doubt: afterReset}, changed: true, value: two, known: true},
			{change: change{value: other, doubt: afterReset}, changed: true, value: all, known: true, until: time.Minute},
			{change: change{value: other}, after: time.Second, value: all, known: true, until: time.Minute},
			{settle: true, after: time.Minute, changed: true, value: other, known: true},
		}},
		"an index that went backwards is doubted": {steps: []step{
			{change: change{value: "1", index: 90}, changed: true, value: "1", known: true},
			{change: change{value: nil, index: 10}, value: "1", known: true, until: time.Minute},
			{change: change{value: nil, index: 11}, value: "1", known: true, until: time.Minute},
			{change: change{value: "2", index: 12}, changed: true, value: "2", known: true},
			{change: change{value: nil, index: 13}, changed: true, known: true},
		}},
		"what an earlier process knew is doubted too": {past: map[string]any{"x": "1"}, steps: []step{
			{change: change{value: nil, index: 10}, until: time.Minute},
			{settle: true, after: time.Minute, changed: true, known: true},
		}},
		"what an earlier process knew and is there": {past: map[string]any{"x": "1"}, steps: []step{
			{change: change{value: "2", index: 10}, changed: true, value: "2", known: true},
		}},
		"what an earlier process knew, deleted meanwhile": {past: map[string]any{"x": "1"}, steps: []step{
			{change: change{value: nil, index: 101}, changed: true, known: true},
		}},
	} {
		s := newStore(time.Minute)
		s.remember(tt.past, map[string]uint64{"x": 100})
		for i, st := range tt.steps {
			st.change.id, st.change.at = "x", begin.Add(st.after)
			var changed bool
			var settle time.Time
			if st.settle {
				changed = s.settle("x", begin.Add(st.after))
			} else {
				changed, settle = s.put(st.change)
			}
			got := s.get("x")
			if changed != st.changed || got.known != st.known || got.known && !same(got.value, st.value) {
				t.Errorf("%s, step %d: changed %v, known %v, value %v; want %v, %v, %v", name, i, changed, got.known, got.value, st.changed, st.known, st.value)
			}
			if want := begin.Add(st.until); got.doubtful != (st.until > 0) || got.doubtful && (!got.until.Equal(want) || !st.settle && st.change.err == nil && !settle.Equal(want)) {
				t.Errorf("%s, step %d: doubtful %v until %s, settle %s; want %s", name, i, got.doubtful, got.until, settle, want)
			}
			if st.change.err == nil && got.err != nil && !st.settle {
				t.Errorf("%s, step %d: error %v stays after an answer", name, i, got.err)
			}
		}
	}
}

func same(a, b any) bool {
	if a, ok := a.([]*dep.HealthService); ok {
		b, ok := b.([]*dep.HealthService)
		return ok && len(a) == len(b) && len(missing(a, b, instanceKey)) == 0
	}
	return a == b
}

func TestLost(t *testing.T) {
	t.Parallel()
	node := func(ids ...string) *dep.CatalogNode {
		n := &dep.CatalogNode{Node: &dep.Node{Node: "n"}}
		for _, id := range ids {
			n.Services = append(n.Services, &dep.CatalogNodeService{ID: id})
		}
		return n
	}
	for _, tt := range []struct {
		old, now any
		want     bool
	}{
		{"a", nil, true},
		{"a", "", false},
		{nil, nil, false},
		{nil, "a", false},
		{[]*dep.KeyPair{{Path: "a"}}, []*dep.KeyPair{}, true},
		{[]*dep.KeyPair{{Path: "a"}}, []*dep.KeyPair{{Path: "a", Value: "new"}}, false},
		{[]*dep.CatalogSnippet{{Name: "a"}}, []*dep.CatalogSnippet{{Name: "b"}}, true},
		{[]*dep.Node{{Node: "a"}}, []*dep.Node{{Node: "a"}, {Node: "b"}}, false},
		{[]*dep.Node{{Node: "a"}}, nil, true},
		{node("a"), node(), true},
		{node("a"), node("b"), true},
		{node("a"), &dep.CatalogNode{}, true},
		{node(), node("a"), false},
		{&dep.CatalogNode{}, &dep.CatalogNode{}, false},
	} {
		if got := lost(tt.old, tt.now); got != tt.want {
			t.Errorf("lost(%v, %v) = %v; want %v", tt.old, tt.now, got, tt.want)
		}
	}
}

// TestUnion: what is doubted stays beside what is new.
func TestUnion(t *testing.T) {
	t.Parallel()
	node := func(address string, ids ...string) *dep.CatalogNode {
		n := &dep.CatalogNode{Node: &dep.Node{Node: "n", Address: address}}
		for _, id := range ids {
			n.Services = append(n.Services, &dep.CatalogNodeService{ID: id, Service: id})
		}
		return n
	}
	for _, tt := range []struct{ old, now, want any }{
		{"a", nil, "a"},
		{[]*dep.KeyPair{{Path: "a", Value: "1"}, {Path: "c", Value: "1"}}, []*dep.KeyPair{{Path: "b", Value: "2"}, {Path: "c", Value: "2"}}, []*dep.KeyPair{{Path: "a", Value: "1"}, {Path: "b", Value: "2"}, {Path: "c", Value: "2"}}},
		{[]*dep.KeyPair{{Path: "a"}}, nil, []*dep.KeyPair{{Path: "a"}}},
		{[]*dep.HealthService{instance("a"), instance("c")}, []*dep.HealthService{instance("b")}, []*dep.HealthService{instance("a"), instance("b"), instance("c")}},
		{[]*dep.HealthService{instance("c"), instance("a")}, []*dep.HealthService{instance("a")}, []*dep.HealthService{instance("a"), instance("c")}},
		{[]*dep.CatalogSnippet{{Name: "a"}}, []*dep.CatalogSnippet{{Name: "b"}}, []*dep.CatalogSnippet{{Name: "a"}, {Name: "b"}}},
		{[]*dep.Node{{Node: "b"}}, []*dep.Node{{Node: "a"}}, []*dep.Node{{Node: "a"}, {Node: "b"}}},
		{profile.Params{"a": profile.Value{}}, profile.Params{"b": profile.Value{}}, profile.Params{"a": profile.Value{}, "b": profile.Value{}}},
		{node("1", "a"), node("2", "b"), node("2", "a", "b")},
		{node("1", "a"), &dep.CatalogNode{}, node("1", "a")},
	} {
		old, now := fmt.Sprint(tt.old), fmt.Sprint(tt.now)
		if diff := cmp.Diff(tt.want, union(tt.old, tt.now), cmp.AllowUnexported(profile.Value{})); diff != "" {
			t.Errorf("union(%v, %v) (-want +got):\n%s", tt.old, tt.now, diff)
		}
		if fmt.Sprint(tt.old) != old || fmt.Sprint(tt.now) != now {
			t.Errorf("union(%v, %v) changed its arguments", tt.old, tt.now)
		}
	}
}

func TestStoreKeepsNoSecretOnDisk(t *testing.T) {
	t.Parallel()
	s := newStore(time.Minute)
	wanted := map[string]*dependency{
		"k": {kind: kindKey}, "secret": {kind: kindForeign, vault: true}, "leaf": {kind: kindCALeaf, vault: true},
		"file": {kind: kindFile}, "peers": {kind: kindForeign}, "none": {kind: kindKey}, "unknown": {kind: kindKey},
	}
	for _, id := range []string{"k", "secret", "leaf", "file", "peers", "dropped"} {
		s.put(change{id: id, value: "v", index: 3})
	}
	s.put(change{id: "none"})
	s.remember(map[string]any{"later": "w", "none": "gone"}, map[string]uint64{"later": 2, "none": 2})
	values, indexes := s.all(wanted)
	if len(values) != 2 || values["k"] != "v" || values["later"] != "w" || indexes["k"] != 3 || indexes["later"] != 2 || len(indexes) != 2 {
		t.Errorf("on disk: %v, %v; want k, and what is not known yet", values, indexes)
	}
}
