package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	dep "github.com/hashicorp/consul-template/dependency"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/replace"
)

func sample(t *testing.T) *snapshot {
	t.Helper()
	var checks consul.HealthChecks
	if err := json.Unmarshal([]byte(`[{"Node": "n", "CheckID": "c", "Status": "passing", "ServiceTags": [], "Output": "\u0000ü",
		"Definition": {"HTTP": "http://x", "Interval": "10s", "Timeout": "1s", "Header": {"A": ["b"]}}}, {"CheckID": "d", "ServiceTags": null}]`), &checks); err != nil {
		t.Fatal(err)
	}
	web := []*dep.HealthService{{
		Node: "n", NodeMeta: map[string]string{}, Name: "web", ID: "web-1", Tags: dep.ServiceTags{}, Port: 80,
		ServiceTaggedAddresses: map[string]consul.ServiceAddress{"lan": {Address: "10.0.0.1", Port: 80}},
		Checks:                 checks,
		Weights:                consul.AgentWeights{Passing: 1, Warning: 1},
	}, {Node: "m", Tags: dep.ServiceTags{"a", "b"}}}
	return &snapshot{
		Format: snapshotFormat,
		Data: map[string]any{
			"kv.get(text)": "text", "kv.get(empty)": "", "kv.get(binary)": "\x00\xff\xfe\n",
			"kv.list(none)": []*dep.KeyPair{}, "kv.list(some)": []*dep.KeyPair{{Path: "a/\xff", Key: "\xff", Value: "\xff\x00", ModifyIndex: 1 << 60}},
			"health.service(web|passing)": web, "health.service(none|passing)": []*dep.HealthService{},
			"catalog.services":    []*dep.CatalogSnippet{{Name: "consul", Tags: dep.ServiceTags{}}},
			"catalog.nodes":       []*dep.Node{{Node: "n", Meta: map[string]string{}, TaggedAddresses: nil}},
			"catalog.node(n)":     &dep.CatalogNode{Node: &dep.Node{Node: "n"}, Services: []*dep.CatalogNodeService{}},
			"catalog.node(none)":  &dep.CatalogNode{},
			"catalog.datacenters": []string{"dc1"},
			"connect.caroots":     []*consul.CARoot{{ID: "root", RootCertPEM: "pem"}},
		},
		Indexes:  map[string]uint64{"kv.get(text)": 7},
		Accepted: map[string]map[string]any{"t": {"health.service(web|passing)": web}},
		Sources:  map[string]replace.Hash{"t": {1, 2}, "u": {}},
		Written:  map[string]replace.Hash{"t": {3}},
	}
}

// A template must render the same from a snapshot as it did before, down to
// the difference between nothing and an empty list in JSON.
func TestSnapshotRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	want := sample(t)
	for i := range 2*wirePiece + 1 {
		want.Data[fmt.Sprint("kv.get(many/", i, ")")] = fmt.Sprint(i)
		want.Sources[fmt.Sprint("many-", i)] = replace.Hash{byte(i)}
	}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := loadSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for id, value := range want.Data {
		if !reflect.DeepEqual(got.Data[id], value) {
			t.Errorf("%s = %#v; want %#v", id, got.Data[id], value)
		}
	}
	if !reflect.DeepEqual(got.Accepted, want.Accepted) || !reflect.DeepEqual(got.Sources, want.Sources) || !reflect.DeepEqual(got.Indexes, want.Indexes) ||
		!reflect.DeepEqual(got.Written, want.Written) {
		t.Errorf("snapshot = %+v; want %+v", got, want)
	}
	info, err := os.Stat(snapshotPath(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600: values may be secrets", info.Mode(), err)
	}
}

func TestSnapshotThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if s, err := loadSnapshot(""); s != nil || err != nil {
		t.Errorf("without a directory: %v, %v", s, err)
	}
	if s, err := loadSnapshot(dir); s != nil || err != nil {
		t.Errorf("without a file: %v, %v", s, err)
	}
	s := sample(t)
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(snapshotPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string][]byte{
		"empty": {}, "text": []byte("not a snapshot"), "half": whole[:len(whole)/2], "short": whole[:len(whole)-1],
		"zeros": make([]byte, 4096), "other head": append([]byte{0xff, 0xff}, whole...),
	}
	for name, data := range broken {
		if err := os.WriteFile(snapshotPath(dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := loadSnapshot(dir); s != nil || err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v, %v; want no snapshot, and an error that says so", name, s, err)
		}
	}
	s.Format = snapshotFormat + 1
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	if s, err := loadSnapshot(dir); s != nil || err == nil || !strings.Contains(err.Error(), "format") {
		t.Errorf("other format: %v, %v; want no snapshot, and an error that says so", s, err)
	}
	if err := os.Remove(snapshotPath(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(snapshotPath(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err := loadSnapshot(dir); s != nil || err == nil {
		t.Errorf("a directory: %v, %v; want an error", s, err)
	}
}

func TestSaverWritesWhatCameLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &saver{dir: dir, log: hclog.NewNullLogger()}
	if _, due := s.due(); due {
		t.Error("a save is due though nothing changed")
	}
	s.dirty = true
	if _, due := s.due(); !due {
		t.Error("no save is due though something changed")
	}
	s.begin(&snapshot{Format: snapshotFormat, Data: map[string]any{"kv.get(k)": "1"}})
	if _, due := s.due(); due {
		t.Error("a second save is due while one is under way")
	}
	s.dirty = true
	s.finish(func() *snapshot {
		return &snapshot{Format: snapshotFormat, Data: map[string]any{"kv.get(k)": "2"}}
	})
	got, err := loadSnapshot(dir)
	if err != nil || got.Data["kv.get(k)"] != "2" {
		t.Errorf("saved %+v, %v; want what came last", got, err)
	}
	none := &saver{log: hclog.NewNullLogger(), dirty: true}
	none.finish(func() *snapshot { t.Error("a snapshot was made without a directory"); return nil })
}
