package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/kv"
)

// ReportVersion records that node runs version, and reports whether that was news. It
// writes nothing when it is known. It returns text.ErrName, consul.ErrRefused for names that
// this Consul takes in no key, or what ReportWriter.Change returns.
func (c *Cluster) ReportVersion(ctx context.Context, node, version string) (changed bool, err error) {
	if err := CheckVersion(version); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, runningKey(version, node)); err != nil {
		return false, err
	}
	return c.ReportWriter(node).Change(ctx, func(d Report) (Report, error) { return d.At(version, now()), nil })
}

// checkIndexKey returns text.ErrName, or consul.ErrRefused when this Consul does not read
// key, an index key of node.
func (c *Cluster) checkIndexKey(ctx context.Context, node, key string) error {
	if err := CheckNode(node); err != nil {
		return err
	}
	return c.store.CheckNames(ctx, key)
}

// SetState records the state of node in a category, and reports whether that was
// news; s.Since is not used. Without s.Version the state is about the desired
// version, or about the one that the node runs. A node that is provisioned
// stays so: ErrProvisioned. It returns text.ErrName, ErrBadState, consul.ErrRefused
// for names that this Consul takes in no key, or what
// ReportWriter.Change returns.
func (c *Cluster) SetState(ctx context.Context, node, category string, s CategoryState) (changed bool, err error) {
	if err := CheckState(category, s.State); err != nil {
		return false, err
	}
	if err := c.checkIndexKey(ctx, node, statusKey(category, s.State, node)); err != nil {
		return false, err
	}
	w := c.ReportWriter(node)
	return w.Change(ctx, func(d Report) (Report, error) {
		if category == CategoryProvisioned && d.States[category].State == StateSuccess {
			if s.State != StateSuccess {
				return d, fmt.Errorf("node %q: %w since %s: only 'jorc status decommission' ends that", node, ErrProvisioned, d.States[category].Since.Format(time.RFC3339))
			}
			return d, nil
		}
		s := s
		if s.Version == "" && CheckVersion(w.desired) == nil {
			s.Version = w.desired
		}
		if s.Version == "" {
			s.Version = d.Version
		}
		return d.With(category, s, now()).refreshed(category, now()), nil
	})
}

// Reports returns the reports of all nodes by name, to list or watch. They are
// changed with a ReportWriter only.
func (c *Cluster) Reports() kv.Tree[Report] { return c.reports }

// now is the time as reports hold it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
