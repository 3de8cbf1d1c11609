package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/durable"
)

// leadershipFormat is the format of the file of a leadership.
const leadershipFormat = 1

// leadership is what a host keeps of its leadership: in its state directory, so that a
// leader that lost its place while its agent was away steps down at the next start; and in
// memory, so that a reload does not run on_lead again. One part at a time uses it.
type leadership struct {
	file string

	term  term // of this process; zero: it has begun none
	ended bool // on_lead has ended in term
}

// term is the time in which a host leads, once.
type term struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // prefix and name
	Node    string `json:"node"`
}

func newLeadership(stateDir string) *leadership {
	return &leadership{file: filepath.Join(stateDir, "leading")}
}

// last returns the term that began last and has not ended with on_step_down. A file that
// cannot be read is the file of such a term.
func (l *leadership) last(log hclog.Logger) (t term, led bool) {
	if l.term != (term{}) {
		return l.term, true
	}
	doc, err := os.ReadFile(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false
	}
	if err == nil {
		err = json.Unmarshal(doc, &t)
	}
	if err != nil || t.Format != leadershipFormat {
		log.Warn("cannot read whether this host led: it counts as a former leader", "file", l.file, "error", err)
		return term{}, true
	}
	return t, true
}

// begin begins a term, unless this process has begun it already.
func (l *leadership) begin(cluster, node string) error {
	if l.term != (term{}) {
		return nil
	}
	l.term, l.ended = term{Format: leadershipFormat, Cluster: cluster, Node: node}, false
	return durable.WriteJSON(l.file, l.term, 0o750)
}

// end ends the term.
func (l *leadership) end() error {
	l.term, l.ended = term{}, false
	err := os.Remove(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, durable.SyncDir(filepath.Dir(l.file)))
}
