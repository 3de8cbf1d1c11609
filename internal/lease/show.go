package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Shown is the lease of a host as other hosts see it.
type Shown struct {
	Node    string    `json:"node"`
	State   string    `json:"state"` // waiting, granted, given up
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // when its time is over
	Waits   string    `json:"waits"`          // why it has no place, or does not end
	Code    pace.Code `json:"code"`           // of Waits; empty: none is known
	Ordered bool      `json:"ordered"`        // by an operator, with 'jorc maintenance begin --node'
	Trouble bool      `json:"trouble"`        // its time is over, and the host is not healthy
}

// States of a Shown.
const (
	ShownWaiting = "waiting"
	ShownGranted = "granted"
	ShownGivenUp = "given up"
)

// ShowAll reads the leases of all hosts, in order of their names, with one request and one for each of
// them. It returns consul.ErrDenied or consul.ErrUnreachable.
func ShowAll(ctx context.Context, c *fleet.Cluster) ([]Shown, error) {
	reports, err := c.Reports().List(ctx)
	if err != nil {
		return nil, err
	}
	all := []Shown{}
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		one, ok, err := shown(ctx, c, node, reports[node].Entry.Value)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, one)
		}
	}
	return all, nil
}

// ShowOne reads the lease of one host; ok is false without one.
func ShowOne(ctx context.Context, c *fleet.Cluster, node string) (s Shown, ok bool, err error) {
	report, _, err := c.Report(ctx, node)
	if err != nil {
		return s, false, err
	}
	return shown(ctx, c, node, report)
}

func shown(ctx context.Context, c *fleet.Cluster, node string, r cluster.Report) (s Shown, ok bool, err error) {
	if _, asks := change.LeaseOf(node, r, change.Grants{}); !asks {
		return s, false, nil // its grants need not be read
	}
	e, err := change.GrantsAt(c.Store(), node).Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return s, false, err
	}
	l, _ := change.LeaseOf(node, r, e.Value)
	return Show(l), true, nil
}

// Show returns a lease as other hosts see it.
func Show(l change.Lease) Shown {
	wish, part := l.Wish, l.Part("")
	s := Shown{Node: l.Node, State: ShownWaiting, Reason: wish.Reason, Since: wish.Since, Until: wish.Until, Waits: wish.Trouble, Ordered: wish.Order != "", Trouble: wish.Trouble != ""}
	switch {
	case part.GivenUp():
		s.State = ShownGivenUp
	case part.Open():
		s.State = ShownGranted
	case l.Grant.Waits != nil:
		s.Waits, s.Code = l.Grant.Waits.Reason, l.Grant.Waits.Code
	}
	return s
}

// Progress is how far the host is with its lease: one in trouble failed. Its zone is not known here.
func (s Shown) Progress() pace.HostProgress {
	h := pace.HostProgress{Node: s.Node, State: pace.Pending, Since: s.Since, Detail: s.Waits}
	switch {
	case s.State == ShownGivenUp:
		h.State = pace.Left
	case s.Trouble:
		h.State = pace.Failed
	case s.State == ShownGranted:
		h.State = pace.Working
	}
	return h
}

// Blocker is what a lease that waits waits for.
func (s Shown) Blocker() pace.Blocker {
	switch s.Code {
	case pace.BecauseFreeze:
		return pace.BlockedByFreeze
	case pace.BecauseHalted:
		return pace.BlockedByCluster
	}
	return pace.BlockedByHosts
}

// ErrNone: the host has no lease.
var ErrNone = errors.New("it has no lease")

// GiveUp gives up on the lease of a host: it no longer counts as out of service, and its place is
// free. by is who does, and reason why. It returns ErrNone for a host without a place, or what
// kv.Doc.Update returns.
func GiveUp(ctx context.Context, c *fleet.Cluster, node, by, reason string) error {
	report, _, err := c.Report(ctx, node)
	if err != nil {
		return err
	}
	answer := report.Answered(cluster.LeaseChange(node))
	if !answer.Open() {
		return fmt.Errorf("host %q: %w that it could give up", node, ErrNone)
	}
	_, err = change.GiveUp(ctx, c.Store(), node, answer, by, reason, time.Now())
	return err
}

// Wait returns once the host has no lease, or with ctx's error.
func Wait(ctx context.Context, c *fleet.Cluster, node string) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	over := false
	err := c.Reports().At(node).Watch(watch, func(u kv.Update[cluster.Report]) {
		_, wishes := u.Entry.Value.Wish()
		if u.Err == nil && !wishes && !u.Entry.Value.Answered(cluster.LeaseChange(node)).Open() {
			over = true
			cancel()
		}
	})
	if over {
		return nil
	}
	return err
}
