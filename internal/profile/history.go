package profile

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// History is the last changes of a document, the oldest first, each with what the document
// had before: its inverse. It holds no secret value, see Document.Secret, only digests.
type History struct {
	// ID keys the digests: those of another history cannot be compared with them. The
	// numbers of another history are those of other changes.
	ID      string   `json:"id"`
	Changes []Change `json:"changes"`
}

// Change is one change of a document.
type Change struct {
	Number  uint64    `json:"number"` // from 1; one for each change
	Time    time.Time `json:"time"`   // by the clock of its author
	Command string    `json:"command,omitempty"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	// From and To are the digests of the document before and after.
	From  string `json:"from"`
	To    string `json:"to"`
	Items []Item `json:"items"`
	// More is how many items are left out, as they are too many. The change has no
	// inverse then.
	More int `json:"more,omitempty"`
}

// Sections of a document that an item can be in.
const (
	InParams  = "params"
	InMeta    = "meta"
	InSchemas = "schemas"
	InOther   = "document" // a member of the document that a newer jorc may know
)

// Item is one named value that a change made, changed or removed.
type Item struct {
	In   string `json:"in"`             // InParams, InMeta, InSchemas or InOther
	Role string `json:"role,omitempty"` // whose param it is; empty: the cluster's
	Key  string `json:"key"`
	// Was and Is are the digests of the value before and after; empty: there was, or is,
	// none.
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
	// Before is the value before as JSON. It is missing for a secret one, and for one that
	// had to make room.
	Before json.RawMessage `json:"before,omitempty"`
	Secret bool            `json:"secret,omitempty"`
}

// Bounds of a history.
const (
	maxChanges    = 200
	maxHistory    = 128 << 10 // bytes: a profile of 200 KiB still fits into one transaction with it
	maxChangeText = 300       // bytes of each text of a change
	maxItemBytes  = 16 << 10  // bytes of all items of one change without their values
)

// Name is the item in words: "k", "role db: k", "schema k".
func (i Item) Name() string {
	switch {
	case i.Role != "":
		return "role " + i.Role + ": " + i.Key
	case i.In == InMeta:
		return "meta " + i.Key
	case i.In == InSchemas:
		return "schema " + i.Key
	case i.In == InOther:
		return "member " + i.Key
	}
	return i.Key
}

// holder returns the section of d that the item is in.
func (i Item) holder(d Document) Params {
	switch i.In {
	case InParams:
		return d.In(Scope{i.Role})
	case InMeta:
		return d.Meta
	case InSchemas:
		return d.Schemas
	}
	return d.unknown
}

// in returns d with p as the section that the item is in.
func (i Item) in(d Document, p Params) Document {
	switch i.In {
	case InParams:
		return d.in(Scope{i.Role}, p)
	case InMeta:
		d.Meta = p
	case InSchemas:
		d.Schemas = p
	default:
		d.unknown = p
	}
	return d
}

// secretIn reports whether d declares the item's value secret. The schema of a secret
// param is secret itself when it holds values.
func (i Item) secretIn(d Document) bool {
	switch i.In {
	case InParams:
		return d.Secret(i.Key)
	case InSchemas:
		return d.Secret(i.Key) && holdsValues(d.Schemas[i.Key].tree)
	}
	return false
}

// holdsValues reports whether a schema quotes values.
func holdsValues(schema any) bool {
	switch t := schema.(type) {
	case []any:
		return slices.ContainsFunc(t, holdsValues)
	case map[string]any:
		for name, part := range t {
			switch name {
			case "default", "const", "enum", "examples":
				return true
			}
			if holdsValues(part) {
				return true
			}
		}
	}
	return false
}

// digest is the digest of a value, or of a document; empty for nil.
func (h History) digest(data []byte) string {
	if data == nil {
		return ""
	}
	sum := hmac.New(sha256.New, []byte(h.ID))
	sum.Write(data)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// now is the digest of the item's value in d.
func (h History) now(i Item, d Document) string {
	if v, ok := i.holder(d)[i.Key]; ok {
		return h.digest(v.JSON())
	}
	return ""
}

// Covers reports whether d is what the last change left: no other write changed it since.
func (h History) Covers(d Document) bool {
	n := len(h.Changes)
	return n == 0 || h.Changes[n-1].To == h.digest(d.encode())
}

// Gap reports whether the change at index i does not follow the one before it: between
// them something wrote the document without a record.
func (h History) Gap(i int) bool {
	return i > 0 && h.Changes[i-1].Number+1 == h.Changes[i].Number && h.Changes[i-1].To != h.Changes[i].From
}

// With returns the history with the change from old to next as its newest one, with the
// author and time of c, in at most size bytes (0: as many as a history may have). The
// oldest changes lose their values first, then they go. Values that next declares secret
// are taken out of all changes.
func (h History) With(c Change, old, next Document, size int) History {
	if h.ID == "" {
		h = History{ID: rand.Text()}
	}
	c.Number = 1
	if n := len(h.Changes); n > 0 {
		c.Number = h.Changes[n-1].Number + 1
	}
	for _, s := range []*string{&c.Command, &c.By, &c.Reason} {
		*s = text.Line(*s, maxChangeText)
	}
	c.From, c.To = h.digest(old.encode()), h.digest(next.encode())
	c.Items, c.More = h.items(old, next)
	kept := slices.Clone(h.Changes[max(0, len(h.Changes)-maxChanges+1):])
	for i := range kept {
		kept[i] = kept[i].without(func(i Item) bool { return i.secretIn(next) })
	}
	h.Changes = append(kept, c)
	if size <= 0 {
		size = maxHistory
	}
	return h.bounded(min(size, maxHistory))
}

// items are the differences between two documents, and how many are left out.
func (h History) items(old, next Document) (items []Item, more int) {
	items = []Item{}
	room := maxItemBytes
	add := func(in, role string, before, after Params) {
		for _, key := range differingText(before, after) {
			i := Item{In: in, Role: role, Key: key}
			i.Was, i.Is = h.now(i, old), h.now(i, next)
			i.Secret = i.secretIn(old) || i.secretIn(next)
			if room -= encodedSize(i); room < 0 {
				more++
				continue
			}
			if v, ok := before[key]; ok && !i.Secret {
				i.Before = v.JSON()
			}
			items = append(items, i)
		}
	}
	add(InParams, "", old.Params, next.Params)
	roles := slices.Concat(slices.Collect(maps.Keys(old.Roles)), slices.Collect(maps.Keys(next.Roles)))
	slices.Sort(roles)
	for _, role := range slices.Compact(roles) {
		add(InParams, role, old.Roles[role], next.Roles[role])
	}
	add(InMeta, "", old.Meta, next.Meta)
	add(InSchemas, "", old.Schemas, next.Schemas)
	add(InOther, "", old.unknown, next.unknown)
	return items, more
}

// differingText returns the names, sorted, of what is not written the same in both.
func differingText(a, b Params) []string {
	names := a.clone()
	maps.Copy(names, b)
	return slices.DeleteFunc(names.Keys(), func(key string) bool {
		v, inA := a[key]
		w, inB := b[key]
		return inA == inB && v.String() == w.String()
	})
}

// without returns the change without the values of items that drop selects; they count as
// secret.
func (c Change) without(drop func(Item) bool) Change {
	if !slices.ContainsFunc(c.Items, func(i Item) bool { return !i.Secret && drop(i) }) {
		return c
	}
	c.Items = slices.Clone(c.Items)
	for n, i := range c.Items {
		if drop(i) {
			c.Items[n].Before, c.Items[n].Secret = nil, true
		}
	}
	return c
}

// bare returns the change without values.
func (c Change) bare() Change {
	c.Items = slices.Clone(c.Items)
	for n := range c.Items {
		c.Items[n].Before = nil
	}
	return c
}

// bounded returns the history in at most size bytes; the newest change stays.
func (h History) bounded(size int) History {
	sizes, total := make([]int, len(h.Changes)), 0
	for i, c := range h.Changes {
		sizes[i] = encodedSize(c)
		total += sizes[i]
	}
	last := len(h.Changes) - 1
	shrink := func(i int) {
		h.Changes[i] = h.Changes[i].bare()
		total -= sizes[i]
		sizes[i] = encodedSize(h.Changes[i])
		total += sizes[i]
	}
	for i := 0; i < last && total > size; i++ {
		shrink(i)
	}
	first := 0
	for ; first < last && total > size; first++ {
		total -= sizes[first]
	}
	if total > size {
		shrink(last)
	}
	h.Changes = h.Changes[first:]
	return h
}

// encodedSize is the size of a part of a history in JSON, with a comma.
func encodedSize(v any) int {
	data, _ := json.Marshal(v) // cannot fail: texts, numbers, a time, JSON
	return len(data) + 1
}

// Of returns the changes that are about the param key, of the cluster or a role, its schema
// or the entry of meta with that name.
func (h History) Of(key string) []Change {
	return slices.DeleteFunc(slices.Clone(h.Changes), func(c Change) bool {
		return !slices.ContainsFunc(c.Items, func(i Item) bool { return i.Key == key })
	})
}

// Was and Is of what a person is shown of an item.
type Shown struct {
	Item
	// Old and New are the values before and after; nil: the param was absent, or the value is not kept.
	Old, New *Value
}

// Shown returns the items of each change with their values, as far as these are kept and d,
// the present document, does not declare them secret. A value after a change is the value
// before the next one, or that of d.
func (h History) Shown(d Document) [][]Shown {
	all := make([][]Shown, len(h.Changes))
	type place struct{ in, role, key string }
	later := map[place]*Value{}
	for n := len(h.Changes) - 1; n >= 0; n-- {
		for _, i := range h.Changes[n].Items {
			s := Shown{Item: i}
			at := place{i.In, i.Role, i.Key}
			v, known := later[at]
			if now, exists := i.holder(d)[i.Key]; !known && exists {
				v = &now
			}
			if v != nil && i.Is == h.digest(v.JSON()) {
				s.New = v
			}
			if before, err := ParseJSON(i.Before); i.Before != nil && err == nil {
				s.Old = &before
			}
			later[at] = s.Old
			if i.Secret || i.secretIn(d) {
				s.Old, s.New, s.Secret = nil, nil, true
			}
			all[n] = append(all[n], s)
		}
	}
	return all
}

// String is the item with its values in words, for one line.
func (s Shown) String() string {
	side := func(digest string, v *Value) string {
		switch {
		case digest == "":
			return ""
		case v != nil:
			return shortenTo(v.String(), maxShown)
		case s.Secret:
			return "secret " + digest
		}
		return "digest " + digest
	}
	old, now := side(s.Was, s.Old), side(s.Is, s.New)
	switch {
	case old == "":
		return s.Name() + " added: " + now
	case now == "":
		return s.Name() + " removed: " + old
	}
	return s.Name() + ": " + old + " → " + now
}

// maxShown bounds a value in a line of text, in bytes.
const maxShown = 60

// ErrNoChange: the history has no such change.
var ErrNoChange = errors.New("not in the history")

// RevertError says which items have changed since a change that was to be reverted: nothing
// is written. It is an ErrMismatch.
type RevertError struct {
	Number uint64
	Items  []string // in words
	Since  []uint64 // the changes that changed them, where they are known
}

func (e *RevertError) Error() string {
	since := "by a write that the history does not have"
	if len(e.Since) > 0 {
		numbers := make([]string, len(e.Since))
		for i, n := range e.Since {
			numbers[i] = strconv.FormatUint(n, 10)
		}
		since = "by change " + strings.Join(numbers, ", ")
	}
	return fmt.Sprintf("change %d is not reverted: %s changed since, %s: revert that first, or set the values themselves", e.Number, namesOf(e.Items), since)
}

// Unwrap makes errors.Is find ErrMismatch.
func (e *RevertError) Unwrap() error { return ErrMismatch }

// namesOf lists the first of names.
func namesOf(names []string) string {
	const most = 5
	shown := make([]string, min(len(names), most))
	for i := range shown {
		shown[i] = strconv.Quote(shorten(names[i]))
	}
	return text.FewOf(", ", shown, len(names))
}

// Revert returns d with what the change with that number changed as it was before, checked
// like any other change. It returns d when it is so already; ErrNoChange; a *RevertError when
// some of it has changed since; or ErrInvalid when a value before is not kept.
func (e *Editor) Revert(d Document, h History, number uint64) (Document, error) {
	at := slices.IndexFunc(h.Changes, func(c Change) bool { return c.Number == number })
	if at < 0 {
		return Document{}, h.unknown(number)
	}
	c := h.Changes[at]
	done := c.More == 0
	failed := &RevertError{Number: number}
	for _, i := range c.Items {
		now := h.now(i, d)
		done = done && now == i.Was
		if now != i.Is {
			failed.Items = append(failed.Items, i.Name())
			failed.Since = append(failed.Since, h.changedAfter(at, i)...)
		}
	}
	switch {
	case done:
		return d, nil
	case len(failed.Items) > 0:
		slices.Sort(failed.Since)
		failed.Since = slices.Compact(failed.Since)
		return Document{}, failed
	case c.More > 0:
		return Document{}, invalid("change %d cannot be reverted: it changed %d values, more than the history keeps; apply the former ones with 'jorc cluster profile params FILE'", number, len(c.Items)+c.More)
	}
	next := d.clone()
	for _, i := range c.Items {
		p := i.holder(next)
		switch {
		case i.Was == "":
			p = p.without(i.Key)
		case i.Before == nil && i.Secret:
			return Document{}, invalid("change %d cannot be reverted: %q is secret, and the history has only the digest of its former value; set that yourself", number, shorten(i.Name()))
		case i.Before == nil:
			return Document{}, invalid("change %d cannot be reverted: the former value of %q had to make room; set it yourself", number, shorten(i.Name()))
		default:
			v, err := ParseJSON(i.Before)
			if err != nil {
				return Document{}, damaged("the former value of %q in change %d cannot be read", shorten(i.Name()), number)
			}
			p = p.with(i.Key, v)
		}
		next = i.in(next, p)
	}
	return e.finish(d, next)
}

// unknown is ErrNoChange with what there is.
func (h History) unknown(number uint64) error {
	have := "it is empty"
	if n := len(h.Changes); n > 0 {
		have = fmt.Sprintf("it has %d to %d", h.Changes[0].Number, h.Changes[n-1].Number)
	}
	return fmt.Errorf("change %d of the profile: %w: %s; 'jorc cluster profile history' lists them", number, ErrNoChange, have)
}

// changedAfter are the numbers of the changes behind the one at index at that changed i.
func (h History) changedAfter(at int, i Item) (numbers []uint64) {
	for _, c := range h.Changes[at+1:] {
		if slices.ContainsFunc(c.Items, func(j Item) bool { return j.In == i.In && j.Role == i.Role && j.Key == i.Key }) {
			numbers = append(numbers, c.Number)
		}
	}
	return numbers
}
