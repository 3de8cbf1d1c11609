package watch

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Sources  map[string]replace.Hash   // template → hash of its text
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
	s, err := readSnapshot(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("snapshot of the last data %s is damaged, continuing without it: %w", snapshotPath(dir), err)
	}
	if s.Format != snapshotFormat {
		return nil, fmt.Errorf("snapshot of the last data %s has format %d, this jorc reads %d: continuing without it", snapshotPath(dir), s.Format, snapshotFormat)
	}
	return s, nil
}

func (s *snapshot) save(dir string) error {
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	err := durable.Create(snapshotPath(dir), 0o600, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		if err := s.write(buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return fmt.Errorf("snapshot of the last data: %w", err)
	}
	return nil
}

// hash identifies a template's text; zero if it could not be loaded yet.
func (t *tmpl) hash() replace.Hash {
	if t.src == nil {
		return replace.Hash{}
	}
	return t.src.sum
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

// On disk a snapshot is a series of gob values: a head, then lists of data and lists of
// templates of at most wirePiece elements each. gob keeps keys and values byte for byte;
// one value for all would allocate 14 MB for 10,000 templates. What has come out of JSON is
// JSON in it: gob takes an empty list for none, and templates would render it differently.
const wirePiece = 256

type wireHead struct{ Format, Data, Templates int }

type wireDatum struct {
	ID    string
	Index uint64 // 0: not known
	Value wireValue
}

type wireTemplate struct {
	Name     string
	Source   replace.Hash
	Written  *replace.Hash // nil: not known
	Accepted []wireDatum
}

// wireValue is one value; Type says which of the fields it is in.
type wireValue struct {
	Type  string
	Text  string
	Pairs []*dep.KeyPair
	JSON  []byte
}

func (s *snapshot) write(w io.Writer) error {
	enc := gob.NewEncoder(w)
	if err := enc.Encode(wireHead{s.Format, len(s.Data), len(s.Sources)}); err != nil {
		return err
	}
	encoded := map[string]wireValue{} // the services, which templates may have accepted
	err := writePieces(enc, s.Data, func(d *wireDatum, id string, value any) (err error) {
		d.ID, d.Index = id, s.Indexes[id]
		if d.Value, err = wireOf(value); err == nil && d.Value.Type == wireServices {
			encoded[id] = d.Value
		}
		return err
	})
	if err != nil {
		return err
	}
	return writePieces(enc, s.Sources, func(t *wireTemplate, name string, source replace.Hash) (err error) {
		t.Name, t.Source = name, source
		if sum, ok := s.Written[name]; ok {
			known := sum // only what is known is allocated
			t.Written = &known
		}
		for id, value := range s.Accepted[name] {
			d := wireDatum{ID: id}
			if sameList(value, s.Data[id]) {
				d.Value = encoded[id]
			} else if d.Value, err = wireOf(value); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			t.Accepted = append(t.Accepted, d)
		}
		return nil
	})
}

// writePieces encodes what set makes of the entries of all, in lists of one piece of memory.
func writePieces[V, T any](enc *gob.Encoder, all map[string]V, set func(to *T, key string, value V) error) error {
	piece := make([]T, 0, min(len(all), wirePiece))
	for key, value := range all {
		var zero T
		piece = append(piece, zero)
		if err := set(&piece[len(piece)-1], key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if len(piece) < cap(piece) {
			continue
		}
		if err := enc.Encode(piece); err != nil {
			return err
		}
		piece = piece[:0]
	}
	if len(piece) == 0 {
		return nil
	}
	return enc.Encode(piece)
}

// sameList reports whether both are one list of services, which is encoded once.
func sameList(a, b any) bool {
	x, ok := a.([]*dep.HealthService)
	y, too := b.([]*dep.HealthService)
	return ok && too && len(x) > 0 && len(x) == len(y) && &x[0] == &y[0]
}

// readSnapshot reads the head alone if the format is another one.
func readSnapshot(r io.Reader) (*snapshot, error) {
	dec := gob.NewDecoder(r)
	var head wireHead
	if err := dec.Decode(&head); err != nil || head.Format != snapshotFormat {
		return &snapshot{Format: head.Format}, err
	}
	s := &snapshot{
		Format: head.Format, Data: map[string]any{}, Indexes: map[string]uint64{}, Accepted: map[string]map[string]any{},
		Sources: map[string]replace.Hash{}, Written: map[string]replace.Hash{},
	}
	err := readPieces(dec, head.Data, func(d *wireDatum) (err error) {
		if d.Index > 0 {
			s.Indexes[d.ID] = d.Index
		}
		s.Data[d.ID], err = d.Value.value()
		return err
	})
	if err != nil {
		return nil, err
	}
	err = readPieces(dec, head.Templates, func(t *wireTemplate) error { return t.addTo(s) })
	return s, err
}

// readPieces decodes so many elements and calls take with each.
func readPieces[T any](dec *gob.Decoder, count int, take func(*T) error) error {
	for count > 0 {
		var piece []T
		if err := dec.Decode(&piece); err != nil {
			return err
		}
		if len(piece) == 0 || len(piece) > count {
			return fmt.Errorf("a list of %d elements where %d are left", len(piece), count)
		}
		for i := range piece {
			if err := take(&piece[i]); err != nil {
				return err
			}
		}
		count -= len(piece)
	}
	return nil
}

func (t *wireTemplate) addTo(s *snapshot) error {
	s.Sources[t.Name] = t.Source
	if t.Written != nil {
		s.Written[t.Name] = *t.Written
	}
	if len(t.Accepted) == 0 {
		return nil
	}
	accepted := make(map[string]any, len(t.Accepted))
	for _, d := range t.Accepted {
		value, err := d.Value.value()
		if err != nil {
			return fmt.Errorf("%s: %w", d.ID, err)
		}
		accepted[d.ID] = value
	}
	s.Accepted[t.Name] = accepted
	return nil
}

// Types of values that are not in JSON.
const (
	wireText  = "text"
	wirePairs = "pairs"

	wireServices = "services"
)

// jsonTypes are the other types of values, by their names on disk.
var jsonTypes = map[string]reflect.Type{
	wireServices:  reflect.TypeFor[[]*dep.HealthService](),
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
