package watch

import (
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/consul"
)

// news is what a batch of changes says about reading data, for the log: a line
// for each kind of trouble that begins, not one for each dependency.
type news struct {
	answers int
	failed  change      // the first that begins to fail
	data    *dependency // failed's
	others  int         // that do too
}

// note takes in a change; begins tells whether a failure is the first in a row.
func (n *news) note(d *dependency, c change, begins bool) {
	switch {
	case c.err == nil:
		n.answers++
	case begins && n.failed.err == nil:
		n.failed, n.data = c, d
	case begins:
		n.others++
	}
}

// tell writes the log and returns whether Consul is absent now; was is whether
// it was before.
func (n *news) tell(log hclog.Logger, was bool) (absent bool) {
	err := n.failed.err
	switch {
	case err == nil && n.answers > 0 && was:
		log.Info("data is read from Consul again")
		return false
	case err == nil:
		return was
	case !errors.Is(err, consul.ErrUnreachable):
		log.Warn("data cannot be read; what is made of it stays as it is", "data", n.data, "others", n.others, "error", n.data.reading(err))
		return was
	case !was:
		log.Warn("Consul does not answer; files stay as they are until it does", "error", err)
	}
	return true
}
