package agent

import (
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
	doc durable.Doc[term]

	term  term // of this process; zero: it has begun none
	ended bool // on_lead has ended in term
}

// term is the time in which a host leads, once.
type term struct {
	Cluster string `json:"cluster"` // prefix and name
	Node    string `json:"node"`
}

func newLeadership(stateDir string) *leadership {
	return &leadership{doc: durable.NewDoc[term](filepath.Join(stateDir, "leading"), leadershipFormat)}
}

// last returns the term that began last and has not ended with on_step_down. A file that
// cannot be read is the file of such a term.
func (l *leadership) last(log hclog.Logger) (t term, led bool) {
	if l.term != (term{}) {
		return l.term, true
	}
	t, led, err := l.doc.Read()
	if err != nil {
		log.Warn("cannot read whether this host led: it counts as a former leader", "file", l.doc.Path(), "error", err)
		return term{}, true
	}
	return t, led
}

// begin begins a term, unless this process has begun it already.
func (l *leadership) begin(cluster, node string) error {
	if l.term != (term{}) {
		return nil
	}
	l.term, l.ended = term{Cluster: cluster, Node: node}, false
	return l.doc.Save(l.term)
}

// end ends the term.
func (l *leadership) end() error {
	l.term, l.ended = term{}, false
	return l.doc.Remove()
}
