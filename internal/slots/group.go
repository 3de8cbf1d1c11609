package slots

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Group is the document of one group: who may go, and who is next. It is a
// value; its methods return what becomes of it and leave it as it is.
type Group struct {
	// Max is how many may hold a slot at one time; 0: any number.
	Max     int                `json:"max"`
	Holders map[string]Holding `json:"holders"` // by name: <node>/<id>
	Queue   []string           `json:"queue"`   // names of who waits, the next one first
}

// Holding is what is known of a claim, besides its name.
type Holding struct {
	Since   time.Time `json:"since"` // when it was granted; of one that waits, when it came
	Reason  string    `json:"reason,omitempty"`
	Session string    `json:"session,omitempty"` // what the claim ends with; empty: it ends by hand only
	// Called, of a claim that waited outside: it is to look who is in front of it.
	Called bool `json:"called,omitempty"`
}

// Enter puts name at the end of the queue, unless it is in the group.
func (g Group) Enter(name string) Group {
	if g.has(name) {
		return g
	}
	g.Queue = append(slices.Clone(g.Queue), name)
	return g
}

// Leave takes names out of the group, whether they hold a slot or wait.
func (g Group) Leave(names ...string) Group {
	out := func(name string) bool { return slices.Contains(names, name) }
	if slices.ContainsFunc(g.Queue, out) {
		g.Queue = slices.DeleteFunc(slices.Clone(g.Queue), out)
	}
	holders := maps.Clone(g.Holders)
	maps.DeleteFunc(holders, func(name string, _ Holding) bool { return out(name) })
	g.Holders = holders
	return g
}

// Resize changes how many may hold a slot. Those who do keep theirs.
func (g Group) Resize(limit int) Group {
	g.Max = max(0, limit)
	return g
}

// Next returns who may go now: the first of the queue, as many as there are
// free slots, at most n.
func (g Group) Next(n int) []string {
	return g.Queue[:min(len(g.Queue), g.room(), n)]
}

// Admit gives free slots to the first of the queue, one for each of
// admissions, which are those of Next in its order.
func (g Group) Admit(admissions ...Holding) Group {
	next := g.Next(len(admissions))
	if len(next) == 0 {
		return g
	}
	holders := maps.Clone(g.Holders)
	if holders == nil {
		holders = map[string]Holding{}
	}
	for i, name := range next {
		holders[name] = admissions[i]
	}
	g.Holders, g.Queue = holders, slices.Clone(g.Queue[len(next):])
	return g
}

// Holds tells whether name holds a slot.
func (g Group) Holds(name string) bool {
	_, ok := g.Holders[name]
	return ok
}

// has tells whether name holds a slot or waits for one.
func (g Group) has(name string) bool { return g.Holds(name) || g.Place(name) >= 0 }

// Without returns the holders that are not among names, in order.
func (g Group) Without(names []string) []string {
	among, without := set(names), []string(nil)
	for name := range g.Holders {
		if !among[name] {
			without = append(without, name)
		}
	}
	slices.Sort(without)
	return without
}

// Place is how many wait in front of name; -1: it does not wait.
func (g Group) Place(name string) int { return slices.Index(g.Queue, name) }

// room is how many slots are free.
func (g Group) room() int {
	if g.Max <= 0 {
		return math.MaxInt
	}
	return max(0, g.Max-len(g.Holders))
}

// sound makes a group of a document that others may have written: a holder
// does not wait, nobody waits twice, and limits are not negative.
func (g Group) sound() Group {
	g.Max = max(0, g.Max)
	seen := map[string]bool{}
	var queue []string
	for _, name := range g.Queue {
		if !seen[name] && !g.Holds(name) {
			seen[name] = true
			queue = append(queue, name)
		}
	}
	if len(queue) != len(g.Queue) {
		g.Queue = queue
	}
	if g.Holders == nil {
		g.Holders = map[string]Holding{}
	}
	if g.Queue == nil {
		g.Queue = []string{}
	}
	return g
}

// equal tells whether writing g over old would change anything.
func (g Group) equal(old Group) bool {
	return g.Max == old.Max && slices.Equal(g.Queue, old.Queue) && maps.EqualFunc(g.Holders, old.Holders, Holding.equal)
}

// maxReason bounds Reason, in bytes, where a claim's key is taken over into the
// document: it is the host that writes that key.
const maxReason = 1 << 10

// bounded returns h as a document takes it.
func (h Holding) bounded() Holding {
	if len(h.Reason) > maxReason {
		h.Reason = strings.ToValidUTF8(h.Reason[:maxReason], "") + "…"
	}
	return h
}

func (h Holding) equal(o Holding) bool {
	return h.Since.Equal(o.Since) && h.Reason == o.Reason && h.Session == o.Session
}
