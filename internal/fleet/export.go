package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Export reads the cluster. One host's documents do not keep it from the others:
// leftOut is called with each that the archive lacks, by key below the cluster's, and
// with what is wrong with it. These are records that cannot be read, or that Import would
// refuse, and params that schemas refuse. A hold that cannot be read is one in the
// archive, as it is for the host. It returns cluster.ErrNoCluster, or what reading returns.
func (c *Cluster) Export(ctx context.Context, leftOut func(key string, err error)) (cluster.Archive, error) {
	r, err := c.store.Txn().Get(cluster.KeyProfile).Get(cluster.KeyLeaders).Get(cluster.KeyControl).Get(cluster.KeyLayout).Commit(ctx)
	if err == nil {
		err = c.layoutOf(r)
	}
	if err != nil {
		return cluster.Archive{}, err
	}
	p, err := c.profile.From(r)
	if err != nil {
		return cluster.Archive{}, err
	}
	if !p.Exists {
		return cluster.Archive{}, c.missing(ctx)
	}
	l, err := c.leaders.From(r)
	if err != nil {
		return cluster.Archive{}, err
	}
	h, err := c.control.From(r)
	if err != nil {
		return cluster.Archive{}, err
	}
	pairs, err := c.store.List(ctx, cluster.PrefixHosts)
	if err != nil {
		return cluster.Archive{}, err
	}
	members, holds := c.members.Decode(pairs), c.holds.Decode(pairs)
	a := cluster.Archive{Format: cluster.ExportFormat, Name: c.name, Profile: p.Value.Value(), Leaders: l.Value, Members: map[string]cluster.Record{}}
	control := h.Value.Clone()
	for _, node := range slices.Sorted(maps.Keys(holds)) {
		hold, err := cluster.ReadableHold(holds[node])
		err = cmp.Or(cluster.CheckNode(node), err)
		if err != nil {
			leftOut(cluster.HoldKey(node), err)
		}
		if cluster.CheckNode(node) != nil {
			continue
		}
		if control.Nodes == nil {
			control.Nodes = map[string]cluster.Hold{}
		}
		control.Nodes[node] = hold
	}
	if h.Exists || len(holds) > 0 {
		a.Control = &control
	}
	for _, node := range slices.Sorted(maps.Keys(members)) {
		r := members[node].Value
		if err := cmp.Or(members[node].Err, cluster.CheckNode(node), r.Validate()); err != nil {
			leftOut(cluster.MemberKey(node), err)
			continue
		}
		r.Keeper, r.Workflows, r.Static, r.Disturbing, r.Orchestrates = "", nil, nil, nil, false // an agent writes them, not an operator
		for _, key := range slices.Sorted(maps.Keys(r.Params)) {
			if _, err := c.editor.CheckOwn(p.Value, node, nil, profile.Params{key: r.Params[key]}); err != nil {
				leftOut(fmt.Sprintf("%s: param %q", cluster.MemberKey(node), key), err)
				delete(r.Params, key)
			}
		}
		a.Members[node] = r
	}
	return a, nil
}

// Import makes the cluster what a says, under this cluster's own name. Where
// there is a cluster already nothing is written, and kv.ErrConflict returned,
// unless its profile is as Init makes it, or replace is set: then the profile and all that a names take the place
// of what is there, and other members stay. The profile is written last, so
// that a cluster which was imported in part does not exist yet, and importing again goes
// on. Only members lead, and a present leader continues, so that there
// are never more leaders than there are to be.
func (c *Cluster) Import(ctx context.Context, a cluster.Archive, replace bool) error {
	old, err := c.profile.Get(ctx)
	damagedProfile := replace && errors.Is(err, kv.ErrDamaged)
	if err != nil && !damagedProfile {
		return err
	}
	next, err := c.imported(a)
	if err != nil {
		return err
	}
	fresh, err := profile.New(c.name)
	if err != nil {
		return err
	}
	if old.Exists && !replace && !fresh.Identical(old.Value) {
		if next.Identical(old.Value) {
			return nil
		}
		return fmt.Errorf("cluster %q exists already and its profile differs: %w: nothing was written; --replace overwrites it", c.name, kv.ErrConflict)
	}
	if err := c.checkImport(a, next); err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(a.Members)) {
		files := a.Members[node]
		under := func() (profile.Document, error) { return next, nil }
		_, _, err := c.changeRecordUnder(ctx, under, node, true, func(have cluster.Record) (cluster.Record, error) {
			files.Keeper, files.Workflows, files.Static = have.Keeper, have.Workflows, have.Static
			files.Disturbing, files.Orchestrates = have.Disturbing, have.Orchestrates
			return files, nil
		})
		if replace && errors.Is(err, kv.ErrDamaged) {
			_, err = c.replaceDamaged(ctx, node, files)
		}
		if err != nil {
			return fmt.Errorf("import member %q: %w", node, err)
		}
	}
	if a.Control != nil {
		if err := c.importHolds(ctx, a.Control.Nodes); err != nil {
			return fmt.Errorf("import holds of nodes: %w", err)
		}
	}
	t := c.store.Txn()
	l, err := c.leaders.Get(ctx)
	if err != nil && !(replace && errors.Is(err, kv.ErrDamaged)) {
		return err
	}
	h, err := c.control.Get(ctx)
	damaged := replace && errors.Is(err, kv.ErrDamaged)
	if err != nil && !damaged {
		return err
	}
	c.leaders.SwapIn(t, l, l.Value.Restored(a))
	if control := a.Control; control != nil || damaged {
		c.control.SwapIn(t, h, cmp.Or(control, &cluster.Control{}).Clone()) // none: nothing was halted
	}
	t.Set(cluster.KeyLayout, []byte(strconv.Itoa(cluster.Layout)))
	if _, err := t.Commit(ctx); err != nil {
		return err
	}
	if old.Exists && !damagedProfile {
		var record *profileRecorder
		ctx, record = c.withHistory(ctx)
		record.old, record.next = old.Value, next
	}
	_, err = c.profile.CompareAndSwap(ctx, old, next)
	return err
}

// importHolds makes the holds of nodes those of an archive.
func (c *Cluster) importHolds(ctx context.Context, wanted map[string]cluster.Hold) error {
	have, err := c.holds.List(ctx)
	if err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(have)) {
		if _, stays := wanted[node]; !stays {
			if err := c.holds.At(node).Delete(ctx, have[node].Index); err != nil {
				return err
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		old := have[node]
		if old.Exists && old.Err == nil && old.Value == wanted[node] {
			continue
		}
		if _, err := c.holds.At(node).CompareAndSwap(ctx, old.Entry, wanted[node]); err != nil {
			return err
		}
	}
	return nil
}

// checkImport checks all params of an archive as if they were set.
func (c *Cluster) checkImport(a cluster.Archive, next profile.Document) error {
	if err := c.editor.CheckAll(next); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, node := range slices.Sorted(maps.Keys(a.Members)) {
		if _, err := c.editor.CheckOwn(next, node, nil, a.Members[node].Params); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	return nil
}

// imported returns the archive's profile under this cluster's name.
func (c *Cluster) imported(a cluster.Archive) (profile.Document, error) {
	d, err := a.Document()
	if err != nil || d.Name == c.name {
		return d, err
	}
	fresh, err := profile.New(c.name)
	if err != nil {
		return d, err
	}
	d.Name = c.name
	d.Params, err = d.Params.Set(profile.SelfKey, fresh.Params[profile.SelfKey], profile.Ref{})
	return d, err
}
