package pace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// leases are the hosts that are out for a lease, over all changes that are one. Together they get at
// most half of the budget, so that hosts which ask for themselves never keep everything else waiting; without a
// budget of the cluster one host at a time.
type leases struct {
	allowed int
	nodes   []string // with an open grant of a lease, in order
}

// newLeases counts the leases of a situation.
func newLeases(places *Account, all []*Survey) *leases {
	l := &leases{allowed: 1}
	if b := places.Budget(); b != nil && b.MaxOut != (Amount{}) {
		l.allowed = max(1, places.limits[limitKey{OfCluster, ""}]/2)
	}
	for _, v := range all {
		if !v.Lease {
			continue
		}
		for m := range v.everyone() {
			if m.Part.Granted() {
				l.take(m.Node)
			}
		}
	}
	return l
}

// admit returns whether another host may be taken out for a lease, and the limit that forbids it
// otherwise. A nil leases has no limit.
func (l *leases) admit() (Limit, bool) {
	if l == nil || len(l.nodes) < l.allowed {
		return Limit{}, true
	}
	return Limit{Kind: OfLeases, Name: strings.Join(l.nodes[:min(len(l.nodes), mostNamed)], ", "), Allowed: l.allowed, Out: len(l.nodes)}, false
}

func (l *leases) take(node string) {
	if i, known := slices.BinarySearchFunc(l.nodes, node, cmp.Compare[string]); !known {
		l.nodes = slices.Insert(l.nodes, i, node)
	}
}

// leasesText is a limit of leases in words.
func leasesText(l Limit) string {
	return fmt.Sprintf("leases: %d of %d hosts are out of service for one: %s", l.Out, l.Allowed, l.Name)
}
