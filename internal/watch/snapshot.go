package watch

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"
	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/replace"
)

// snapshot is the last good data on local disk. It lets guards remember across
// restarts, and lets a start without Consul render what has no file yet. It
// holds no secret of Vault, and only root may read it.
type snapshot struct {
	Format   int
	Data     map[string]any            // dependency id → value
	Indexes  map[string]uint64         // dependency id → Consul's index
	Accepted map[string]map[string]any // template → dependency id → what its file is made of
	Sources  map[string]string         // template → hash of its text
	Written  map[string]replace.Hash   // template → hash of what its file was brought to; see on_edit
}

const snapshotFormat = 1

func snapshotPath(dir string) string { return filepath.Join(dir, "snapshot.gob") }

// loadSnapshot reads what an earlier process left. None, or one that cannot be
// read, is nil; the latter with an error to tell.
func loadSnapshot(dir string) (*snapshot, error) {
	if dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(snapshotPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot of the last data: %w", err)
	}
	var w wireSnapshot
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&w); err != nil {
		return nil, fmt.Errorf("snapshot of the last data %s is damaged, continuing without it: %w", snapshotPath(dir), err)
	}
	if w.Format != snapshotFormat {
		return nil, fmt.Errorf("snapshot of the last data %s has format %d, this jorc reads %d: continuing without it", snapshotPath(dir), w.Format, snapshotFormat)
	}
	s, err := w.snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot of the last data %s is damaged, continuing without it: %w", snapshotPath(dir), err)
	}
	return s, nil
}

func (s *snapshot) save(dir string) error {
	w, err := s.wire()
	if err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(w); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	if err := durable.WriteFile(snapshotPath(dir), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	return nil
}

// hash identifies a template's text.
func (t *tmpl) hash() string {
	if t.src == nil {
		return ""
	}
	return hex.EncodeToString(t.src.sum[:])
}

// saver writes snapshots, one at a time. The engine's loop owns it.
type saver struct {
	dir    string
	log    hclog.Logger
	dirty  bool
	next   time.Time     // not before then
	saving chan struct{} // closed when the running save has ended; nil: none runs
}

// due is when a save should begin; ok is false when none should.
func (s *saver) due() (time.Time, bool) { return s.next, s.dirty && s.dir != "" && s.saving == nil }

// begin saves in the background and calls ended when it is done.
func (s *saver) begin(snap *snapshot) {
	s.dirty = false
	done := make(chan struct{})
	s.saving = done
	start := time.Now()
	go func() {
		defer close(done)
		if err := snap.save(s.dir); err != nil {
			s.log.Warn(err.Error())
		}
	}()
	s.next = start.Add(snapshotEvery)
}

// ended takes note that the running save is done.
func (s *saver) ended() { s.saving = nil }

// finish waits for a running save and saves what has changed since.
func (s *saver) finish(make func() *snapshot) {
	if s.saving != nil {
		<-s.saving
		s.saving = nil
	}
	if s.dirty && s.dir != "" {
		if err := make().save(s.dir); err != nil {
			s.log.Warn(err.Error())
		}
	}
}

// snapshotEvery spaces the snapshots of data that keeps changing.
const snapshotEvery = 5 * time.Second

// On disk a snapshot is gob, which keeps keys and values byte for byte, around
// JSON for what has come out of JSON: gob takes an empty list for none, and
// templates would render it differently.
type wireSnapshot struct {
	Format   int
	Data     map[string]wireValue
	Indexes  map[string]uint64
	Accepted map[string]map[string]wireValue
	Sources  map[string]string
	Written  map[string]replace.Hash
}

// wireValue is one value; Type says which of the fields it is in.
type wireValue struct {
	Type  string
	Text  string
	Pairs []*dep.KeyPair
	JSON  []byte
}

func (s *snapshot) wire() (*wireSnapshot, error) {
	w := &wireSnapshot{Format: s.Format, Indexes: s.Indexes, Accepted: map[string]map[string]wireValue{}, Sources: s.Sources, Written: s.Written}
	var err error
	if w.Data, err = wireValues(s.Data); err != nil {
		return nil, err
	}
	for name, values := range s.Accepted {
		w.Accepted[name] = make(map[string]wireValue, len(values))
		for id, value := range values {
			wired, same := w.Data[id], sameList(value, s.Data[id])
			if !same {
				if wired, err = wireOf(value); err != nil {
					return nil, fmt.Errorf("%s: %w", id, err)
				}
			}
			w.Accepted[name][id] = wired
		}
	}
	return w, nil
}

// sameList reports whether both are one list of services, which is encoded once.
func sameList(a, b any) bool {
	x, ok := a.([]*dep.HealthService)
	y, too := b.([]*dep.HealthService)
	return ok && too && len(x) > 0 && len(x) == len(y) && &x[0] == &y[0]
}

func (w *wireSnapshot) snapshot() (*snapshot, error) {
	s := &snapshot{Format: w.Format, Indexes: w.Indexes, Accepted: map[string]map[string]any{}, Sources: w.Sources, Written: w.Written}
	var err error
	if s.Data, err = values(w.Data); err != nil {
		return nil, err
	}
	for name, wired := range w.Accepted {
		if s.Accepted[name], err = values(wired); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func wireValues(values map[string]any) (map[string]wireValue, error) {
	wired := make(map[string]wireValue, len(values))
	for id, value := range values {
		v, err := wireOf(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		wired[id] = v
	}
	return wired, nil
}

func values(wired map[string]wireValue) (map[string]any, error) {
	values := make(map[string]any, len(wired))
	for id, w := range wired {
		v, err := w.value()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		values[id] = v
	}
	return values, nil
}

// Types of values that are not in JSON.
const (
	wireText  = "text"
	wirePairs = "pairs"
)

// jsonTypes are the other types of values, by their names on disk.
var jsonTypes = map[string]reflect.Type{
	"services":    reflect.TypeFor[[]*dep.HealthService](),
	"names":       reflect.TypeFor[[]*dep.CatalogSnippet](),
	"nodes":       reflect.TypeFor[[]*dep.Node](),
	"node":        reflect.TypeFor[*dep.CatalogNode](),
	"roots":       reflect.TypeFor[[]*consul.CARoot](),
	"datacenters": reflect.TypeFor[[]string](),
	"params":      reflect.TypeFor[profile.Params](),
}

func wireOf(value any) (w wireValue, err error) {
	switch v := value.(type) {
	case string:
		return wireValue{Type: wireText, Text: v}, nil
	case []*dep.KeyPair:
		return wireValue{Type: wirePairs, Pairs: v}, nil
	}
	for name, t := range jsonTypes {
		if reflect.TypeOf(value) == t {
			w.Type = name
			w.JSON, err = json.Marshal(value)
			return w, err
		}
	}
	return w, fmt.Errorf("cannot keep a %T", value)
}

func (w wireValue) value() (any, error) {
	switch w.Type {
	case wireText:
		return w.Text, nil
	case wirePairs:
		return append([]*dep.KeyPair{}, w.Pairs...), nil
	}
	t, ok := jsonTypes[w.Type]
	if !ok {
		return nil, fmt.Errorf("unknown type %q", w.Type)
	}
	v := reflect.New(t)
	err := json.Unmarshal(w.JSON, v.Interface())
	return v.Elem().Interface(), err
}
