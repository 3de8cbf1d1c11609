package trigger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/durable"
)

// state is what a trigger has handled. It is written before a job is run and
// after it has ended.
type state struct {
	Of      string            `json:"of"`              // kind and name of what is watched
	Known   bool              `json:"known"`           // there is something to compare with
	Since   int64             `json:"since"`           // Unix time of its first observation; tells jobs of a state that was lost from later ones
	Count   int               `json:"count"`           // of changes
	Items   map[string]string `json:"items,omitempty"` // digests by item
	Event   uint64            `json:"event,omitempty"` // the last one handled
	Pending *pending          `json:"pending,omitempty"`
}

// pending is a job that is to be run to its end.
type pending struct {
	Job    string          `json:"job"`
	Change json.RawMessage `json:"change"`
}

// after is the state once o has been handled.
func (s state) after(o Observation) state {
	next := s
	next.Known = true
	if next.Since == 0 {
		next.Since = time.Now().Unix()
	}
	if o.Happened {
		if o.Anew {
			next.Event = 0
		}
		next.Event = max(next.Event, o.UpTo)
		for name := range o.Items {
			next.Event = max(next.Event, number(name))
		}
		return next
	}
	next.Items = make(map[string]string, len(o.Items))
	for name, value := range o.Items {
		next.Items[name] = digest(value)
	}
	return next
}

func digest(value Item) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:12])
}

func compare(a, b string) int { return strings.Compare(a, b) }

// load reads the state of a trigger on of. One that cannot be understood, or is
// about something else, counts as none: what is there next is taken as it is.
func load(file, of string) (state, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Of: of}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("what the trigger has seen: %w", err)
	}
	var s state
	if json.Unmarshal(data, &s) != nil || s.Of != of {
		return state{Of: of}, nil
	}
	return s, nil
}

// save writes next down and makes it the state.
func (w *watcher) save(next state) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(w.file), 0o700); err != nil {
		return fmt.Errorf("what the trigger has seen cannot be kept: %w", err)
	}
	if err := durable.WriteFile(w.file, data, 0o600); err != nil {
		return fmt.Errorf("what the trigger has seen cannot be kept: %w", err)
	}
	w.seen = next
	return nil
}
