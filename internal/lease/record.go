package lease

import (
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
)

// record is what this host knows of its lease, in the file lease.json. It is written before
// anything follows from it; the host's report follows from it.
type record struct {
	Wish       string        `json:"wish,omitempty"` // names this lease; empty: the host has no lease
	ID         string        `json:"id,omitempty"`   // of the caller
	Reason     string        `json:"reason,omitempty"`
	For        time.Duration `json:"for,omitempty"`
	Drain      time.Duration `json:"drain,omitempty"`
	MinHealthy time.Duration `json:"min_healthy,omitempty"`
	Keep       time.Duration `json:"keep,omitempty"`
	Connected  bool          `json:"connected,omitempty"`
	Ordered    bool          `json:"ordered,omitempty"` // by an operator, on another host
	Since      time.Time     `json:"since,omitzero"`

	Grant change.Held `json:"grant,omitzero"`
	Boot  string      `json:"boot,omitempty"` // of the host, when it accepted

	Age     durable.Stopwatch `json:"age,omitzero"`     // since the acceptance
	Out     bool              `json:"out,omitempty"`    // in maintenance, or about to be
	Drained durable.Stopwatch `json:"drained,omitzero"` // since maintenance is on
	Ready   bool              `json:"ready,omitempty"`  // the caller may go ahead
	Ending  bool              `json:"ending,omitempty"`
	Returns bool              `json:"returns,omitempty"` // it waits for the host to be healthy, for long
	Over    bool              `json:"over,omitempty"`    // the host is back in service; its report is to say so
	Lost    bool              `json:"lost,omitempty"`    // what the host knew of it was lost
	Trouble string            `json:"trouble,omitempty"`

	Obeyed string `json:"obeyed,omitempty"` // the last order of which the lease is over
}

const recordFormat = 2

// ended is the record once the lease is over.
func (r record) ended() record {
	if r.Ordered {
		return record{Obeyed: r.ID}
	}
	return record{Obeyed: r.Obeyed}
}

// over is when the time of the lease is over; zero: it has no place yet.
func (r record) over() time.Time {
	if !r.Grant.Open() || r.For == 0 {
		return time.Time{}
	}
	return r.Grant.Since.Add(r.For)
}

// held is the grant as the protocol knows it.
func (r record) held() change.Held {
	if r.Over {
		r.Grant.Ended = r.Grant.Since // some time: no report has it
	}
	return r.Grant
}

// in returns what a report says of the lease, in place of what d says.
func (r record) in(d cluster.Report, node string) cluster.Report {
	if r.Wish == "" || r.Over {
		return d.Wishing(nil).WithAnswer(cluster.Answer{Change: cluster.LeaseChange(node)})
	}
	w := cluster.Wish{ID: r.Wish, Reason: r.Reason, Since: r.Since, Until: r.over(), Returns: r.Returns, Trouble: r.Trouble}
	if r.Ordered {
		w.Order, w.Ready = r.ID, r.Ready && !r.Ending
	}
	return d.Wishing(&w).WithAnswer(r.Grant.Answer(cluster.LeaseChange(node)))
}
