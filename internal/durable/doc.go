package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrDamaged: a document cannot be used, and was renamed.
var ErrDamaged = errors.New("damaged")

// Doc is one JSON document on the disk, with the number of its format.
type Doc[T any] struct {
	path   string
	format int
}

// mostDoc bounds a document, in bytes.
const mostDoc = 1 << 20

// NewDoc returns the document at path. It does no I/O.
func NewDoc[T any](path string, format int) Doc[T] { return Doc[T]{path, format} }

// Load reads the document; found is false without one. A document that is damaged, or of another format,
// is renamed to NAME.bad: then found is false, and the error is ErrDamaged.
func (d Doc[T]) Load() (v T, found bool, err error) {
	data, err := ReadFile(d.path, mostDoc)
	if errors.Is(err, fs.ErrNotExist) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	var f struct {
		Format int `json:"format"`
	}
	err = json.Unmarshal(data, &f)
	switch {
	case err == nil && f.Format != d.format:
		err = fmt.Errorf("format %d, expected %d", f.Format, d.format)
	case err == nil:
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		var none T
		return none, false, SetAside(d.path, err)
	}
	return v, true, nil
}

// SetAside renames the file at path, which cannot be used for the reason why, to NAME.bad. It returns
// ErrDamaged with why, and what kept the file from being renamed.
func SetAside(path string, why error) error {
	err := fmt.Errorf("%s is %w: %w: it was renamed to %s.bad", path, ErrDamaged, why, filepath.Base(path))
	return errors.Join(err, os.Rename(path, path+".bad"))
}

// Save replaces the document by v, the JSON of which must be an object. It creates the directory if it does
// not exist.
func (d Doc[T]) Save(v T) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	rest := bytes.TrimPrefix(data, []byte("{"))
	if len(rest) == len(data) {
		return fmt.Errorf("%s: %T is no object in JSON", d.path, v)
	}
	if !bytes.HasPrefix(rest, []byte("}")) {
		rest = append([]byte(","), rest...)
	}
	return WriteJSON(d.path, json.RawMessage(append(fmt.Appendf(nil, `{"format":%d`, d.format), rest...)), 0o750)
}
