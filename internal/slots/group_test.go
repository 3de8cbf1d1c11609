package slots

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func at(second int) Holding { return Holding{Since: time.Unix(int64(second), 0).UTC()} }

// admitAll lets all go for whom there is room.
func admitAll(g Group) Group {
	admissions := make([]Holding, len(g.Next(len(g.Queue))))
	return g.Admit(admissions...)
}

func TestGroup(t *testing.T) {
	t.Parallel()
	three := admitAll(Group{Max: 2}.Enter("n/1").Enter("n/2").Enter("n/3"))
	tests := []struct {
		name    string
		group   Group
		holders []string
		queue   []string
	}{
		{"the first come", three, []string{"n/1", "n/2"}, []string{"n/3"}},
		{"asking twice is asking once", admitAll(three.Enter("n/3").Enter("n/1")), []string{"n/1", "n/2"}, []string{"n/3"}},
		{"a release hands on", admitAll(three.Leave("n/1")), []string{"n/2", "n/3"}, nil},
		{"a waiter that leaves", admitAll(three.Leave("n/3")), []string{"n/1", "n/2"}, nil},
		{"who is not there leaves", admitAll(three.Leave("n/9")), []string{"n/1", "n/2"}, []string{"n/3"}},
		{"a smaller limit keeps holders", admitAll(three.Resize(1)), []string{"n/1", "n/2"}, []string{"n/3"}},
		{"and lets nobody in", admitAll(three.Resize(1).Leave("n/1")), []string{"n/2"}, []string{"n/3"}},
		{"until there is room", admitAll(three.Resize(1).Leave("n/1", "n/2")), []string{"n/3"}, nil},
		{"a larger one lets in", admitAll(three.Resize(3)), []string{"n/1", "n/2", "n/3"}, nil},
		{"0 is no limit", admitAll(three.Resize(0).Enter("n/4")), []string{"n/1", "n/2", "n/3", "n/4"}, nil},
		{"nor is less", admitAll(three.Resize(-5)), []string{"n/1", "n/2", "n/3"}, nil},
	}
	for _, tt := range tests {
		if got := slices.Sorted(maps.Keys(tt.group.Holders)); !slices.Equal(got, tt.holders) {
			t.Errorf("%s: %v hold; want %v", tt.name, got, tt.holders)
		}
		if got := tt.group.Queue; !slices.Equal(got, tt.queue) {
			t.Errorf("%s: %v wait; want %v", tt.name, got, tt.queue)
		}
	}
	if len(three.Queue) != 1 || len(three.Holders) != 2 {
		t.Errorf("a value changed: %+v", three)
	}
}

func TestNextIsBounded(t *testing.T) {
	t.Parallel()
	g := Group{Max: 3}.Enter("a").Enter("b").Enter("c").Enter("d")
	for n, want := range map[int]int{0: 0, 2: 2, 3: 3, 9: 3} {
		if got := g.Next(n); len(got) != want {
			t.Errorf("Next(%d) = %v; want %d", n, got, want)
		}
	}
	if got := g.Admit(at(1), at(2)); got.Holders["a"] != at(1) || got.Holders["b"] != at(2) || len(got.Queue) != 2 {
		t.Errorf("Admit = %+v", got)
	}
}

func TestSound(t *testing.T) {
	t.Parallel()
	g := Group{Max: -1, Holders: map[string]Holding{"a": {}}, Queue: []string{"b", "a", "b", "c"}}.sound()
	if g.Max != 0 || !slices.Equal(g.Queue, []string{"b", "c"}) {
		t.Errorf("sound = %+v", g)
	}
	if empty := (Group{}).sound(); empty.Holders == nil || empty.Queue == nil {
		t.Errorf("sound of nothing = %+v; want it to be written as {} and []", empty)
	}
}

// history checks a group against what it must be after each step: never more
// admitted than there is room for, in the order in which they came.
type checker struct {
	group Group
	came  []string // all that wait, in their order
}

func (c *checker) step(next Group, admit bool) error {
	before := c.group
	if !admit {
		if len(next.Holders) > len(before.Holders) {
			return fmt.Errorf("%v became %v without Admit", before.Holders, next.Holders)
		}
		c.group = next
		return nil
	}
	admitted := 0
	for name := range next.Holders {
		if !before.Holds(name) {
			admitted++
		}
	}
	if admitted > 0 && next.Max > 0 && len(next.Holders) > next.Max {
		return fmt.Errorf("%d hold a slot of %d", len(next.Holders), next.Max)
	}
	if len(next.Queue) > 0 && next.room() > 0 {
		return fmt.Errorf("%v wait although there is room", next.Queue)
	}
	for _, name := range c.came[:admitted] {
		if !next.Holds(name) {
			return fmt.Errorf("%s was passed by: %v", name, next)
		}
	}
	c.came = c.came[admitted:]
	c.group = next
	if !slices.Equal(c.came, next.Queue) {
		return fmt.Errorf("%v wait; want %v", next.Queue, c.came)
	}
	return nil
}

// do carries out one step that is chosen by two numbers.
func (c *checker) do(op, arg byte) error {
	name := fmt.Sprintf("n/%d", arg%16)
	next := c.group
	switch op % 4 {
	case 0, 1:
		if !next.Holds(name) && next.Place(name) < 0 {
			c.came = append(c.came, name)
		}
		next = next.Enter(name)
	case 2:
		c.came = slices.DeleteFunc(slices.Clone(c.came), func(n string) bool { return n == name })
		next = next.Leave(name)
	case 3:
		next = next.Resize(int(arg%6) - 1)
	}
	if err := c.step(next, false); err != nil {
		return err
	}
	return c.step(admitAll(c.group), true)
}

func TestGroupProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := &checker{group: Group{Max: 2}}
		for step := range 300 {
			if err := c.do(byte(random.Uint32()), byte(random.Uint32())); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 0, 3, 2, 1, 3, 0, 3, 5})
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := &checker{group: Group{Max: 1}}
		for i := 0; i+1 < len(steps); i += 2 {
			if err := c.do(steps[i], steps[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	})
}
