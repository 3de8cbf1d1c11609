package doctor

import (
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/text"
)

// shownKeys bounds how many keys a finding names.
const shownKeys = 5

// keys checks that this Consul reads all keys that are stored below the cluster's prefix, and
// those of this node. It has no finding if it does.
func (e *examination) keys(ctx context.Context) []Finding {
	const name = "keys"
	if !e.answers() {
		return nil // another check reports it
	}
	store := fleet.New(e.client, e.Config.Prefix, e.Config.Cluster).Store()
	var own []string
	if node, err := e.name(); err == nil && node != "" {
		own = append(own, store.Path(cluster.HostPrefix(node)))
	}
	refused, err := bounded(ctx, e.Timeout, func(ctx context.Context) (map[string]error, error) {
		return e.client.RefusedKeys(ctx, own...)
	})
	if err == nil && len(refused) > 0 {
		return one(name, Fail, "this Consul refuses the keys of this node: "+why(refused[own[0]]),
			"give the node a name of letters, digits, '-', '_' and '.' (node), or run another version of Consul")
	}
	var stored []string
	if err == nil {
		refused, err = bounded(ctx, e.Timeout, func(ctx context.Context) (map[string]error, error) {
			var err error
			if stored, _, err = e.client.KVKeys(ctx, store.Path(""), "", consul.Query{}); err != nil {
				return nil, err
			}
			return e.client.RefusedKeys(ctx, stored...)
		})
	}
	switch {
	case err != nil:
		return nil // other checks report it
	case len(refused) == 0:
		return nil
	}
	var shown []string
	var first error
	for _, key := range stored { // in order
		if refused[key] == nil {
			continue
		}
		if len(shown) < shownKeys {
			shown = append(shown, fmt.Sprintf("%q", key))
		}
		if first == nil {
			first = refused[key]
		}
	}
	return one(name, Warn, "this Consul refuses to read stored keys: "+text.FewOf(", ", shown, len(refused))+": "+why(first),
		"use names of letters, digits, '-', '_' and '.'; only a transaction (/v1/txn) deletes such a key")
}
