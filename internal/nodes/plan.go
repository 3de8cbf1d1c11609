package nodes

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// op is one write to an index key.
type op struct {
	key    string
	value  []byte
	remove bool
}

// add adds the operation to t.
func (o op) add(t *kv.Txn) {
	if o.remove {
		t.Delete(o.key)
		return
	}
	t.Set(o.key, o.value)
}

// wanted are the index keys that follow from a document.
func wanted(d Document) map[slot][]byte {
	want := make(map[slot][]byte, 1+len(d.States))
	if d.Version != "" {
		want[slot{"", d.Version}] = []byte(d.Since.Format(time.RFC3339))
	}
	for category, s := range d.States {
		want[slot{category, s.State}] = indexValue(s)
	}
	return want
}

// plan returns what makes the index keys of node those of d. The first moved
// operations belong to the change of the document and must share its
// transaction; the others make good what somebody else wrote.
func (t traces) plan(node string, d Document) (ops []op, moved int) {
	want, was := wanted(d), wanted(t.doc.Value)
	all := map[slot]bool{}
	maps.Copy(all, set(maps.Keys(want)))
	maps.Copy(all, set(maps.Keys(t.index)))
	maps.Copy(all, set(maps.Keys(was))) // they may have come after the places were read
	var others []op
	for _, s := range slices.SortedFunc(maps.Keys(all), slot.compare) {
		value, there := want[s]
		found, exists := t.index[s]
		if there && exists && found.Value == string(value) {
			continue
		}
		o := op{key: s.key(node), value: value, remove: !there}
		if before, ok := was[s]; ok == there && string(before) == string(value) {
			others = append(others, o)
			continue
		}
		ops = append(ops, o)
	}
	return append(ops, others...), len(ops)
}

func (s slot) compare(o slot) int {
	return cmp.Or(cmp.Compare(s.category, o.category), cmp.Compare(s.name, o.name))
}

// known is what is known of the node: its document and, for a version or
// categories that this does not have, the index keys. Scripts that do not know
// the document write only those. Of two keys the one that was written last
// counts; names that jorc does not use are left out.
func (t traces) known() Document {
	d := t.doc.Value
	d.States = maps.Clone(d.States)
	newest := map[string]uint64{}
	for s, e := range t.index {
		if e.Index < newest[s.category] || !s.usable() || has(t.doc.Value, s.category) {
			continue
		}
		newest[s.category] = e.Index
		if s.category == "" {
			d.Version, d.Since = s.name, parseTime(e.Value)
			continue
		}
		if d.States == nil {
			d.States = map[string]State{}
		}
		d.States[s.category] = stateOf(s.name, e.Value)
	}
	return d
}

// has tells whether the document says something of a category; the empty one
// is the version.
func has(d Document, category string) bool {
	if category == "" {
		return d.Version != ""
	}
	_, ok := d.States[category]
	return ok
}

// usable tells whether a document can hold the slot.
func (s slot) usable() bool {
	if s.category == "" {
		return CheckVersion(s.name) == nil
	}
	return CheckCategory(s.category) == nil && slices.Contains(States(), s.name)
}

// stateOf reads a state from its index key; scripts write other values than
// jorc does.
func stateOf(state, value string) State {
	var s State
	if trimmed := bytes.TrimSpace([]byte(value)); len(trimmed) > 0 && trimmed[0] == '{' {
		if err := s.UnmarshalJSON(trimmed); err != nil {
			s = State{}
		}
	}
	if s.Since.IsZero() {
		s.Since = parseTime(value)
	}
	return State{State: state, Since: s.Since, Detail: cluster.ClipDetail(s.Detail), Version: s.Version, LogURL: s.LogURL}
}

// parseTime reads RFC 3339; the zero time stands for anything else.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
