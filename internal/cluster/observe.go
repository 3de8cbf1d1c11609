package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Observation is what there is of a cluster. Documents that cannot be read hide
// nothing else: Unreadable says why, by key, with kv.ErrDamaged or kv.ErrNewer.
type Observation struct {
	Profile    profile.Document
	Exists     bool // there is a profile
	Leaders    Leaders
	Control    Control
	Records    map[string]Record // of the members that can be read
	Members    []Member          // the same in order of their names, without Version and Status
	Inventory  []consul.NodeInfo
	Unreadable map[string]error
}

// Observe reads all of the cluster but what its nodes report, with four
// requests. It returns a class of package consul; consul.ErrDenied also when the
// token does not see everything.
func (c *Cluster) Observe(ctx context.Context) (Observation, error) {
	o := Observation{Records: map[string]Record{}, Unreadable: map[string]error{}}
	var s sources
	var own *kv.Result
	g, ctx := errgroup.WithContext(ctx)
	var holds map[string]kv.Leaf[Hold]
	g.Go(func() error {
		pairs, err := c.store.List(ctx, PrefixHosts)
		s.records, holds = c.members.Decode(pairs), c.holds.Decode(pairs)
		return err
	})
	g.Go(func() (err error) { s.nodes, err = whole(c.client.CatalogHosts(ctx, consul.Query{})); return err })
	g.Go(func() (err error) { s.inventory, err = whole(c.client.Inventory(ctx, consul.Query{})); return err })
	g.Go(func() (err error) {
		own, err = c.store.Txn().Get(KeyProfile).Get(KeyLeaders).Get(KeyControl).Get(KeyLayout).Commit(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return o, err
	}
	if err := c.layoutOf(own); err != nil {
		return o, err
	}
	p, badProfile := c.profile.From(own)
	l, badLeaders := c.leaders.From(own)
	k, badControl := c.control.From(own)
	for key, err := range map[string]error{KeyProfile: badProfile, KeyLeaders: badLeaders, KeyControl: badControl} {
		if errors.Is(err, consul.ErrDenied) {
			return o, err
		}
		o.unreadable(key, err)
	}
	o.Profile, o.Exists, o.Leaders, o.Control = p.Value, p.Exists, l.Value, k.Value
	o.Control.Nodes = nil
	for node, leaf := range holds {
		if o.unreadable(HoldKey(node), leaf.Err) {
			leaf.Value = Hold{Reason: "its hold cannot be read"}
		}
		if o.Control.Nodes == nil {
			o.Control.Nodes = map[string]Hold{}
		}
		o.Control.Nodes[node] = leaf.Value
	}
	s.leaders, o.Inventory = o.Leaders, s.inventory
	for _, node := range slices.Sorted(maps.Keys(s.records)) {
		leaf := s.records[node]
		if o.unreadable(MemberKey(node), leaf.Err) {
			delete(s.records, node)
			continue
		}
		o.Records[node] = leaf.Value
	}
	o.Members = s.members(catalog.PresenceID(c.name), NeedCatalog|needChecks|NeedServices)
	return o, nil
}

func (o *Observation) unreadable(key string, err error) bool {
	if err != nil {
		o.Unreadable[key] = err
	}
	return err != nil
}
