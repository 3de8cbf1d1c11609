package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// ErrNothingWaits: no host waits for new content.
var ErrNothingWaits = errors.New("no host waits for new content")

// Exemption is content that hosts take although they are frozen, or beyond the budget, because an
// operator said so: what waited then. Other content waits.
type Exemption struct {
	// Exceptions say what for, and why.
	pace.Exceptions
	By    string    `json:"by,omitempty"`
	Since time.Time `json:"since"`
	// Inputs are what changes. Contents are digests of the content of hosts that want more inputs
	// than are known.
	Inputs   cluster.StageInputs `json:"inputs,omitzero"`
	Contents []string            `json:"contents,omitempty"`
}

// of reports whether the exemption is of what a host wants.
func (e Exemption) of(r cluster.StageReport) bool {
	if slices.Contains(e.Contents, r.Wants) {
		return true
	}
	news := func(i cluster.StageInput) bool { return !e.Inputs.Has(i.Digest) }
	return r.Changed.More == 0 && len(r.Changed.List) > 0 && !slices.ContainsFunc(r.Changed.List, news)
}

// exceptions are the rules that a host need not follow for what it wants.
func (s Stops) exceptions(r cluster.StageReport) (all pace.Exceptions) {
	for _, e := range s.Exempt {
		if e.of(r) {
			all = all.Or(e.Exceptions)
		}
	}
	return all
}

// mostContents bounds the contents of an exemption.
const mostContents = 2000

// add makes the exemption one of what hosts want.
func (e Exemption) add(hosts []Host) Exemption {
	for _, h := range hosts {
		if e.of(h.Report) {
			continue
		}
		if h.Report.Changed.More > 0 || len(h.Report.Changed.List) == 0 || len(e.Inputs.List)+len(h.Report.Changed.List) > mostStepInputs {
			if len(e.Contents) < mostContents {
				e.Contents = append(e.Contents, h.Report.Wants)
			}
			continue
		}
		for _, i := range h.Report.Changed.List {
			if !e.Inputs.Has(i.Digest) {
				e.Inputs.List = append(e.Inputs.List, i)
			}
		}
	}
	return e
}

// Exempt lets hosts take what they wait for now although a rule of the cluster forbids it, as e says: e has
// no content yet. With a node it is only what that host waits for, which others may wait for, too. It returns
// the hosts that waited; ErrNothingWaits, or what kv.Doc.CompareAndSwap returns.
func (s *Stages) Exempt(ctx context.Context, c *fleet.Cluster, stage, node string, e Exemption) (waiting []Host, err error) {
	state, err := c.Load(ctx, cluster.NeedState)
	if err != nil {
		return nil, err
	}
	for _, h := range HostsOf(&state)[stage] {
		if h.Report.Wants != "" && !h.Report.Open() && (node == "" || h.Node == node) {
			waiting = append(waiting, h)
		}
	}
	if len(waiting) == 0 {
		return nil, fmt.Errorf("stage %q: %w", stage, ErrNothingWaits)
	}
	doc := s.stops(stage)
	return waiting, kv.RetryConflicts(ctx, func() error {
		old, err := doc.Get(ctx)
		if err != nil {
			return err
		}
		next := old.Value
		left := slices.DeleteFunc(slices.Clone(waiting), func(h Host) bool {
			old := next.exceptions(h.Report)
			return old.Or(e.Exceptions) == old
		})
		if len(left) == 0 {
			return nil
		}
		next.Exempt = append(slices.Clone(next.Exempt), e.add(left))
		_, err = doc.CompareAndSwap(ctx, old, next)
		return err
	})
}
