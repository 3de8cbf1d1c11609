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

// ErrDamaged: a document cannot be used.
var ErrDamaged = errors.New("damaged")

// Doc is one JSON document on the disk, with the number of its format. Where T has a method Valid() error, what that does not
// accept is damaged.
type Doc[T any] struct {
	path   string
	format int
}

// mostDoc bounds a document, in bytes: the largest are of tens of thousands of files.
const mostDoc = 64 << 20

// NewDoc returns the document at path. It does no I/O.
func NewDoc[T any](path string, format int) Doc[T] { return Doc[T]{path, format} }

// Path returns where the document is.
func (d Doc[T]) Path() string { return d.path }

// Load is Read, and renames a document that is damaged to NAME.bad.
func (d Doc[T]) Load() (v T, found bool, err error) {
	v, found, err = d.Read()
	if why, is := errors.AsType[*damage](err); is {
		err = SetAside(d.path, why.err)
	}
	return v, found, err
}

// Read reads the document; found is false without one. The error is ErrDamaged for a document that is damaged, or of another
// format: then found is false, too.
func (d Doc[T]) Read() (v T, found bool, err error) {
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
	if is, checks := any(v).(interface{ Valid() error }); checks && err == nil {
		err = is.Valid()
	}
	if err != nil {
		var none T
		return none, false, &damage{d.path, err}
	}
	return v, true, nil
}

// damage is why a document cannot be used.
type damage struct {
	path string
	err  error
}

func (d *damage) Error() string   { return fmt.Sprintf("%s is %v: %v", d.path, ErrDamaged, d.err) }
func (d *damage) Unwrap() []error { return []error{ErrDamaged, d.err} }

// SetAside renames the file at path, which cannot be used for the reason why, to NAME.bad. It returns
// ErrDamaged with why, and what kept the file from being renamed.
func SetAside(path string, why error) error {
	err := fmt.Errorf("%s is %w: %w: it was renamed to %s.bad", path, ErrDamaged, why, filepath.Base(path))
	return errors.Join(err, os.Rename(path, path+".bad"))
}

// Save replaces the document, which only jorc's user may read, by v, the JSON of which must be an object. It creates the
// directory if it does not exist.
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
	data = append(append(fmt.Appendf(nil, `{"format":%d`, d.format), rest...), '\n')
	if len(data) > mostDoc {
		return fmt.Errorf("%s: %d bytes are too many for a document", d.path, len(data))
	}
	err = WriteFile(d.path, data, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
			return err
		}
		err = WriteFile(d.path, data, 0o600)
	}
	return err
}

// Remove removes the document; none may exist.
func (d Doc[T]) Remove() error {
	err := os.Remove(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, SyncDir(filepath.Dir(d.path)))
}
