package slots

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/kv"
)

// simulation is a group whose claims see it late: each decides on a moment of
// the past that has its own key.
type simulation struct {
	random  *rand.Rand
	moments []map[string]kv.Leaf[record] // the keys after each step
	max     []int
	claims  []*simulated
}

type simulated struct {
	key                     string
	created, held, released int // moments; held and released are 0 before
}

func (s *simulation) write(change func(keys map[string]kv.Leaf[record])) {
	keys := map[string]kv.Leaf[record]{}
	for key, leaf := range s.moments[len(s.moments)-1] {
		keys[key] = leaf
	}
	change(keys)
	s.moments, s.max = append(s.moments, keys), append(s.max, s.max[len(s.max)-1])
}

// step makes one claim do something that it might do next, or resizes the group.
func (s *simulation) step(t *testing.T) {
	moment := len(s.moments)
	var live []*simulated
	for _, c := range s.claims {
		if c.released == 0 {
			live = append(live, c)
		}
	}
	switch op := s.random.IntN(10); {
	case op == 0:
		limit := s.random.IntN(4)
		s.write(func(keys map[string]kv.Leaf[record]) {
			keys["group/g"] = kv.Leaf[record]{Entry: kv.Entry[record]{Value: record{Max: &limit}}}
		})
		s.max[moment] = limit
	case op < 3 || len(live) == 0:
		c := &simulated{key: claimKey("n", "g", fmt.Sprint(moment)), created: moment}
		s.claims = append(s.claims, c)
		s.write(func(keys map[string]kv.Leaf[record]) {
			keys[c.key] = kv.Leaf[record]{Entry: kv.Entry[record]{Session: "s", Created: uint64(moment)}}
		})
	default:
		c := live[s.random.IntN(len(live))]
		if c.held > 0 || op == 9 { // a session may end while its claim waits
			c.released = moment
			s.write(func(keys map[string]kv.Leaf[record]) { delete(keys, c.key) })
			return
		}
		seen := c.created + s.random.IntN(moment-c.created)
		g, err := groupIn(s.moments[seen], "g")
		if err != nil {
			t.Fatal(err)
		}
		if turn, _ := g.turn(c.key); turn == admitted {
			c.held = max(seen, 1)
			if !g.alone(c.key) {
				s.write(func(keys map[string]kv.Leaf[record]) {
					leaf := keys[c.key]
					leaf.Value.Holds = true
					keys[c.key] = leaf
				})
			}
		}
	}
}

// TestTurn: whatever the claims see late, none is admitted while as many hold a
// slot as the group has, and none passes another.
func TestTurn(t *testing.T) {
	t.Parallel()
	admissions := 0
	for seed := range uint64(300) {
		s := &simulation{random: rand.New(rand.NewPCG(seed, 1)), moments: []map[string]kv.Leaf[record]{{}}, max: []int{1}}
		for range 200 {
			s.step(t)
		}
		for _, c := range s.claims { // the first of all has its slot at once, before it sees that
			for moment := c.created; moment < len(s.moments) && (c.held == 0 || moment < c.held) && (c.released == 0 || moment < c.released); moment++ {
				if g, err := groupIn(s.moments[moment], "g"); err == nil && g.claims[0].key == c.key {
					c.held = moment
				}
			}
		}
		for i, c := range s.claims {
			if c.held == 0 {
				continue
			}
			admissions++
			holders := 0
			for _, other := range s.claims {
				if other.held > 0 && other.held <= c.held && (other.released == 0 || other.released > c.held) {
					holders++
				}
			}
			if limit := s.max[c.held]; limit > 0 && holders > limit {
				t.Fatalf("seed %d: %d hold one of %d slots at moment %d", seed, holders, limit, c.held)
			}
			if slices.ContainsFunc(s.claims[:i], func(o *simulated) bool {
				return (o.released == 0 || o.released > c.held) && (o.held == 0 || o.held > c.held)
			}) {
				t.Fatalf("seed %d: %s passed a claim that was ahead of it", seed, c.key)
			}
		}
	}
	if admissions < 1000 {
		t.Errorf("%d admissions; the simulation tests nothing", admissions)
	}
}

// TestTurnIsLive: if all claims see the present, no claim waits although a slot
// is free and all claims ahead hold one.
func TestTurnIsLive(t *testing.T) {
	t.Parallel()
	leaf := func(created uint64, holds bool) kv.Leaf[record] {
		return kv.Leaf[record]{Entry: kv.Entry[record]{Session: "s", Created: created, Value: record{Holds: holds}}}
	}
	keys := map[string]kv.Leaf[record]{
		claimKey("n", "g", "a"): leaf(7, false), claimKey("m", "g", "b"): leaf(8, true), claimKey("n", "g", "c"): leaf(9, false),
		claimKey("k", "g", "d"): leaf(10, false), claimKey("k", "other", "e"): leaf(1, false), claimKey("k", "g", "stray"): {},
	}
	for limit, want := range map[int]string{0: "admitted follows", 1: "full follows", 2: "full follows", 3: "admitted follows"} {
		keys["group/g"] = kv.Leaf[record]{Entry: kv.Entry[record]{Value: record{Max: &limit}}}
		g, err := groupIn(keys, "g")
		if err != nil {
			t.Fatal(err)
		}
		names := map[turn]string{admitted: "admitted", full: "full", follows: "follows", absent: "absent"}
		third, _ := g.turn(claimKey("n", "g", "c"))
		fourth, ahead := g.turn(claimKey("k", "g", "d"))
		if got := names[third] + " " + names[fourth]; got != want || ahead.id != "c" {
			t.Errorf("with %d slots: got %s behind %s; want %s", limit, got, ahead.id, want)
		}
	}
}
