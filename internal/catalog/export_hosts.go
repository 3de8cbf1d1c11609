package catalog

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// hosts is a fragment of a hosts file: per address the names of its nodes, and
// then of the services that answer there. Addresses that are none, and names
// that cannot be host names, are left out.
func hosts(s *Snapshot) []byte {
	nodes, services := addressBook{}, addressBook{}
	for _, i := range s.Instances {
		nodes.add(i.NodeAddress, i.NodeName())
		services.add(i.Address, i.Service+".service."+i.Datacenter+".consul")
		services.add(i.Address, i.Service+".service.consul")
	}
	all := slices.Concat(slices.Collect(maps.Keys(nodes)), slices.Collect(maps.Keys(services)))
	slices.SortFunc(all, compareAddresses)
	var b strings.Builder
	for _, addr := range slices.Compact(all) {
		names := slices.Concat(slices.Sorted(maps.Keys(nodes[addr])), slices.Sorted(maps.Keys(services[addr])))
		fmt.Fprintf(&b, "%s\t%s\n", addr, strings.Join(names, " "))
	}
	return []byte(b.String())
}

// addressBook is the names of each address.
type addressBook map[string]map[string]bool

func (b addressBook) add(address, name string) {
	addr, err := netip.ParseAddr(address)
	if err != nil || addr.Zone() != "" || !hostName(name) {
		return
	}
	if b[addr.String()] == nil {
		b[addr.String()] = map[string]bool{}
	}
	b[addr.String()][name] = true
}

// hostName tells whether s can stand in a hosts file: letters, digits, hyphens
// and underscores between dots.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, oddInHostName) {
			return false
		}
	}
	return true
}

func oddInHostName(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}
