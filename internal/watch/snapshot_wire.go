package watch

import (
	"encoding/json"
	"fmt"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/replace"
)

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
		if w.Accepted[name], err = wireValues(values); err != nil {
			return nil, err
		}
	}
	return w, nil
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

// Types of values in JSON.
const (
	wireText        = "text"
	wirePairs       = "pairs"
	wireServices    = "services"
	wireNames       = "names"
	wireNodes       = "nodes"
	wireNode        = "node"
	wireRoots       = "roots"
	wireDatacenters = "datacenters"
	wireParams      = "params"
)

func wireOf(value any) (w wireValue, err error) {
	switch v := value.(type) {
	case string:
		return wireValue{Type: wireText, Text: v}, nil
	case []*dep.KeyPair:
		return wireValue{Type: wirePairs, Pairs: v}, nil
	case []*dep.HealthService:
		w.Type = wireServices
	case []*dep.CatalogSnippet:
		w.Type = wireNames
	case []*dep.Node:
		w.Type = wireNodes
	case *dep.CatalogNode:
		w.Type = wireNode
	case []*consul.CARoot:
		w.Type = wireRoots
	case []string:
		w.Type = wireDatacenters
	case profile.Params:
		w.Type = wireParams
	default:
		return w, fmt.Errorf("cannot keep a %T", value)
	}
	w.JSON, err = json.Marshal(value)
	return w, err
}

func (w wireValue) value() (any, error) {
	switch w.Type {
	case wireText:
		return w.Text, nil
	case wirePairs:
		return append([]*dep.KeyPair{}, w.Pairs...), nil
	case wireServices:
		return decode[[]*dep.HealthService](w.JSON)
	case wireNames:
		return decode[[]*dep.CatalogSnippet](w.JSON)
	case wireNodes:
		return decode[[]*dep.Node](w.JSON)
	case wireNode:
		return decode[*dep.CatalogNode](w.JSON)
	case wireRoots:
		return decode[[]*consul.CARoot](w.JSON)
	case wireDatacenters:
		return decode[[]string](w.JSON)
	case wireParams:
		return decode[profile.Params](w.JSON)
	}
	return nil, fmt.Errorf("unknown type %q", w.Type)
}

func decode[T any](data []byte) (any, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}
