package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/durable"
)

// TestDoc: a document is read as it was written; one that is damaged, or of another format, is renamed
// and counts as absent.
func TestDoc(t *testing.T) {
	t.Parallel()
	type doc struct {
		Name string `json:"name,omitempty"`
		Size int    `json:"size,omitempty"`
	}
	path := filepath.Join(t.TempDir(), "new", "doc.json")
	d := durable.NewDoc[doc](path, 3)
	if v, found, err := d.Load(); v != (doc{}) || found || err != nil {
		t.Errorf("without a document: %+v, %v, %v", v, found, err)
	}
	for _, want := range []doc{{}, {"web", 2}} {
		if err := d.Save(want); err != nil {
			t.Fatal(err)
		}
		if v, found, err := d.Load(); v != want || !found || err != nil {
			t.Errorf("%+v, %v, %v; want %+v", v, found, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, text := range []string{"", "{", `{"format":2,"name":"web"}`, `{"name":"web"}`, `{"format":3,"name":7}`, `[]`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func() (doc, bool, error){d.Read, d.Load} {
			if v, found, err := read(); v != (doc{}) || found || !errors.Is(err, durable.ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("%q: %+v, %v, %v", text, v, found, err)
			}
		}
		if kept, err := os.ReadFile(path + ".bad"); err != nil || string(kept) != text {
			t.Errorf("%q was kept as %q, %v", text, kept, err)
		}
		if _, found, err := d.Load(); found || err != nil {
			t.Errorf("after the damage: %v, %v", found, err)
		}
	}
	if err := errors.Join(d.Save(doc{Name: "web"}), d.Remove(), d.Remove()); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, found, err := d.Read(); found || err != nil {
		t.Errorf("once it is removed: %v, %v", found, err)
	}
	if err := durable.NewDoc[[]int](path, 1).Save([]int{1}); err == nil {
		t.Error("a list is no object")
	}
}
