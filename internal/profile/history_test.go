package profile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/profile"
)

// changes makes changes of a document with a history.
type changes struct {
	t *testing.T
	e profile.Editor
	d profile.Document
	h profile.History
}

func (c *changes) do(change func(*profile.Editor, profile.Document) (profile.Document, error)) {
	c.t.Helper()
	next, err := change(&c.e, c.d)
	if err != nil {
		c.t.Fatal(err)
	}
	c.h = c.h.With(profile.Change{Command: "test", By: "ann"}, c.d, next, 0)
	c.d = next
}

func (c *changes) set(role, key, value string) {
	c.t.Helper()
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Set(d, profile.Scope{Role: role}, key, js(c.t, value), profile.Ref{})
	})
}

func (c *changes) schema(key, schema string) {
	c.t.Helper()
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetSchema(d, key, js(c.t, schema))
	})
}

func (c *changes) stored() string {
	c.t.Helper()
	data, err := json.Marshal(c.h)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// TestHistoryRevertsEverything: what random changes did to params, roles, meta and schemas is
// undone step by step, up to the first document, to the byte; also from a history that was
// stored in between.
func TestHistoryRevertsEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := &changes{t: t, d: shared(t, `{"n":1.0,"null":null,"o":{"a":[1,{"b":2e3}]}}`)}
		documents := []profile.Document{c.d}
		for range 30 {
			key, role := fmt.Sprintf("k%d", r.IntN(4)), []string{"", "", "db", "web"}[r.IntN(4)]
			c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
				s := profile.Scope{Role: role}
				switch r.IntN(6) {
				case 0:
					return e.Remove(d, s, key, profile.Ref{})
				case 1:
					return e.SetMeta(d, key, js(t, `"m"`))
				case 2:
					return e.RemoveMeta(d, key)
				case 3:
					return e.SetSchema(d, key, js(t, fmt.Sprintf(`{"description":"%d"}`, r.IntN(9))))
				case 4:
					return e.SetParams(d, s, profile.Params{key: js(t, "null"), "other": js(t, fmt.Sprint(r.IntN(3)))})
				}
				return e.Set(d, s, key, js(t, []string{`1`, `1.0`, `null`, `"<&>"`, `{"a":[null]}`}[r.IntN(5)]), profile.Ref{})
			})
			documents = append(documents, c.d)
		}
		var stored profile.History
		if err := json.Unmarshal([]byte(c.stored()), &stored); err != nil {
			t.Fatal(err)
		}
		for i := len(stored.Changes) - 1; i >= 0; i-- {
			if !stored.Covers(c.d) && i == len(stored.Changes)-1 || stored.Gap(i) {
				t.Fatalf("seed %d: change %d: a gap", seed, i)
			}
			next, err := c.e.Revert(c.d, stored, stored.Changes[i].Number)
			if err != nil {
				t.Fatalf("seed %d: revert %d: %v", seed, stored.Changes[i].Number, err)
			}
			if c.d = next; !next.Identical(documents[i]) {
				t.Fatalf("seed %d: after the revert of %d:\n%s, want\n%s", seed, stored.Changes[i].Number, next.Indented(), documents[i].Indented())
			}
		}
	}
}

// TestHistoryRevertRefuses: what changed since is not overwritten, and the change that did it
// is named; what is so already, or is not of the change, does not count.
func TestHistoryRevertRefuses(t *testing.T) {
	t.Parallel()
	c := &changes{t: t, d: shared(t, `{"a":1,"b":1}`)}
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetParams(d, profile.Scope{}, profile.Params{"a": js(t, "2"), "b": js(t, "2")})
	})
	c.set("", "c", "1")
	if _, err := c.e.Revert(c.d, c.h, 1); err != nil {
		t.Errorf("with another param that changed: %v", err)
	}
	c.set("db", "b", "7")
	c.set("", "b", `"hunter2"`)
	_, err := c.e.Revert(c.d, c.h, 1)
	var refused *profile.RevertError
	if !errors.As(err, &refused) || !errors.Is(err, profile.ErrMismatch) || fmt.Sprint(refused.Items, refused.Since) != "[b] [4]" {
		t.Errorf("b changed since: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error has a value: %v", err)
	}
	c.set("", "b", "2")
	if d, err := c.e.Revert(c.d, c.h, 1); err != nil || d.Params["b"].String() != "1" || d.Params["a"].String() != "1" || d.Params["c"].String() != "1" || d.Roles["db"]["b"].String() != "7" {
		t.Errorf("b is as the change left it again: %v, %v", d.Params, err)
	}
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) { return e.Revert(d, c.h, 1) })
	if d, err := c.e.Revert(c.d, c.h, 1); err != nil || !d.Identical(c.d) {
		t.Errorf("a second time: %v; want nothing to do", err)
	}
	if d, err := c.e.Revert(c.d, c.h, c.h.Changes[len(c.h.Changes)-1].Number); err != nil || d.Params["a"].String() != "2" {
		t.Errorf("revert of the revert: %v, %v", d.Params, err)
	}
	if _, err := c.e.Revert(c.d, c.h, 99); !errors.Is(err, profile.ErrNoChange) || !strings.Contains(err.Error(), "1 to 6") {
		t.Errorf("a change that does not exist: %v", err)
	}
	direct, err := c.e.Set(c.d, profile.Scope{}, "a", js(t, "9"), profile.Ref{})
	if err != nil {
		t.Fatal(err)
	}
	if c.h.Covers(direct) {
		t.Error("a write without a record is not noticed")
	}
	last := c.h.With(profile.Change{}, direct, c.d, 0)
	if !last.Gap(len(last.Changes)-1) || last.Gap(1) {
		t.Error("no gap where a change was not recorded, or one where all were")
	}
}

// TestHistoryHoldsNoSecrets: a value that a schema declares secret is in no history, whether
// it was declared before or later; it cannot be brought back, and its addition can be undone.
func TestHistoryHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-and-more"
	for _, declared := range []string{"before", "later", "removed"} {
		c := &changes{t: t, d: shared(t, `{}`)}
		schema := `{"type":"string","secret":true,"default":"` + secret + `"}`
		if declared != "later" {
			c.schema("pw", schema)
		}
		c.set("db", "pw", `"`+secret+`"`)
		c.set("", "pw", `"`+secret+`"`)
		c.set("", "pw", `"other"`)
		c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
			return e.Remove(d, profile.Scope{Role: "db"}, "pw", profile.Ref{})
		})
		if declared == "later" {
			if !strings.Contains(c.stored(), secret) {
				t.Errorf("%s: the test proves nothing: the value was not there before it was declared secret", declared)
			}
			for _, items := range c.h.Shown(declaring(t, c.d, "pw", schema)) {
				for _, i := range items {
					if strings.Contains(i.String(), secret) {
						t.Errorf("%s: shown although the profile declares it secret by now: %s", declared, i)
					}
				}
			}
			c.schema("pw", schema)
		}
		if declared == "removed" {
			c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) { return e.RemoveSchema(d, "pw") })
		}
		if text := c.stored(); strings.Contains(text, secret) {
			t.Errorf("%s: the history has the value: %s", declared, text)
		}
		for _, items := range c.h.Shown(c.d) {
			for _, i := range items {
				if strings.Contains(i.String(), secret) {
					t.Errorf("%s: %s", declared, i)
				}
			}
		}
		at := c.h.Of("pw")[0].Number
		if declared != "later" {
			at++ // the schema came first
		}
		if _, err := c.e.Revert(c.d, c.h, at+2); !errors.Is(err, profile.ErrInvalid) || !strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: revert of a secret value: %v", declared, err)
		}
		c.set("", "pw", `"new"`)
		c.set("", "added", "1")
		c.schema("added", `{"secret":true}`)
		if d, err := c.e.Revert(c.d, c.h, c.h.Changes[len(c.h.Changes)-2].Number); err != nil || len(d.Params) != len(c.d.Params)-1 {
			t.Errorf("%s: revert of an addition: %v", declared, err)
		}
	}
}

func declaring(t *testing.T, d profile.Document, key, schema string) profile.Document {
	t.Helper()
	var e profile.Editor
	d, err := e.SetSchema(d, key, js(t, schema))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestHistoryIsBounded: 200 changes in 128 KiB are kept; the oldest lose their values first, and a
// change without them says so.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	c := &changes{t: t, d: shared(t, `{}`)}
	for i := range 250 {
		c.set("", "n", fmt.Sprint(i))
	}
	if n := len(c.h.Changes); n != 200 || c.h.Changes[0].Number != 51 {
		t.Errorf("%d changes from number %d, want 200 from 51", n, c.h.Changes[0].Number)
	}
	large := strings.Repeat("x", 50<<10)
	for i := range 5 {
		c.set("", "large", fmt.Sprintf("%q", fmt.Sprint(i)+large))
	}
	last := c.h.Changes[len(c.h.Changes)-1].Number
	if size := len(c.stored()); size > 129<<10 {
		t.Errorf("the history has %d bytes", size)
	}
	if len(c.h.Changes) != 200 {
		t.Errorf("%d changes, want 200: values go first", len(c.h.Changes))
	}
	if _, err := c.e.Revert(c.d, c.h, last); err != nil {
		t.Errorf("revert of the last: %v", err)
	}
	madeRoom := false
	for n := last; n > last-4; n-- { // the oldest of them is the first whose value made room
		next, err := c.e.Revert(c.d, c.h, n)
		if err == nil {
			c.d = next
			continue
		}
		if n == last || !errors.Is(err, profile.ErrInvalid) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("revert of %d: %v", n, err)
		}
		madeRoom = true
		break
	}
	if !madeRoom {
		t.Error("no value made room")
	}
	many := profile.Params{}
	for i := range 5000 {
		many[fmt.Sprintf("param-%d", i)] = js(t, "1")
	}
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetParams(d, profile.Scope{}, many)
	})
	newest := c.h.Changes[len(c.h.Changes)-1]
	if newest.More == 0 || len(c.stored()) > 129<<10 {
		t.Errorf("a change of 5,000 params: %d items and %d more in %d bytes", len(newest.Items), newest.More, len(c.stored()))
	}
	if _, err := c.e.Revert(c.d, c.h, newest.Number); !errors.Is(err, profile.ErrInvalid) {
		t.Errorf("revert of a change of which items are left out: %v", err)
	}
	small := c.h.With(profile.Change{}, c.d, shared(t, `{}`), 1)
	if n := len(small.Changes); n != 1 {
		t.Errorf("without room %d changes are kept, want the newest", n)
	}
}

// TestHistoryShows: values before and after, in words.
func TestHistoryShows(t *testing.T) {
	t.Parallel()
	c := &changes{t: t, d: shared(t, `{"a":1}`)}
	c.set("", "a", "2")
	c.set("db", "a", `"x"`)
	c.set("", "a", "3")
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Remove(d, profile.Scope{Role: "db"}, "a", profile.Ref{})
	})
	c.do(func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.SetMeta(d, "note", js(t, "null"))
	})
	var got []string
	for _, items := range c.h.Shown(c.d) {
		for _, i := range items {
			got = append(got, i.String())
		}
	}
	want := []string{"a: 1 → 2", `role db: a added: "x"`, "a: 2 → 3", `role db: a removed: "x"`, "meta note added: null"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(c.h.Of("note")); n != 1 {
		t.Errorf("%d changes are about note, want 1", n)
	}
}
