package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/durable"
)

// Formats of Export.
const (
	FormatHiera      = "hiera"
	FormatJSON       = "json"
	FormatPrometheus = "prometheus"
	FormatHosts      = "hosts"
)

// ExportFormats lists all formats.
func ExportFormats() []string {
	return []string{FormatHiera, FormatJSON, FormatPrometheus, FormatHosts}
}

// Export renders a snapshot; equal snapshots give equal bytes. The only error is
// an unknown format.
func Export(s *Snapshot, format string) ([]byte, error) {
	switch format {
	case FormatHiera:
		return hiera(s)
	case FormatJSON:
		return exportJSON(s)
	case FormatPrometheus:
		return prometheus(s)
	case FormatHosts:
		return hosts(s), nil
	}
	return nil, fmt.Errorf("unknown format %q", format)
}

// WriteExport writes data to path. A file with the same content is not touched.
// A replaced file keeps owner, mode, ACL and extended attributes; lost names the
// ones that could not be kept. A new file gets mode 0644.
func WriteExport(path string, data []byte) (changed bool, lost []string, err error) {
	if err := durable.RemoveTempOf(path); err != nil {
		return false, nil, fmt.Errorf("export: %w", err)
	}
	return durable.Update(path, data, 0o644)
}

// hiera renders a mapping services::<service>::<interface> → addresses.
func hiera(s *Snapshot) ([]byte, error) {
	addresses := map[string][]string{}
	for _, i := range s.Instances {
		for name, address := range i.Interfaces {
			key := "services::" + i.Service + "::" + name
			addresses[key] = append(addresses[key], address)
		}
	}
	for key, list := range addresses {
		slices.SortFunc(list, compareAddresses)
		addresses[key] = slices.Compact(list)
	}
	var b bytes.Buffer
	b.WriteString("---\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(addresses); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return b.Bytes(), e.Close()
}

// exportJSON renders an object service → instances, with every service of the
// catalog.
func exportJSON(s *Snapshot) ([]byte, error) {
	all := make(map[string][]ServiceInstance, len(s.Services))
	for _, name := range s.Services {
		all[name] = []ServiceInstance{}
	}
	for _, i := range s.Instances {
		all[i.Service] = append(all[i.Service], i)
	}
	return indented(map[string]any{"services": all})
}

// targetGroup is one group of Prometheus' file_sd format.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// prometheus renders a file for file_sd_configs: a group per instance with a
// port, with the meta labels of consul_sd_configs.
func prometheus(s *Snapshot) ([]byte, error) {
	groups := []targetGroup{}
	for _, i := range s.Instances {
		if i.Port == 0 {
			continue
		}
		labels := map[string]string{
			"job": i.Service, "node": i.Node,
			"__meta_consul_service": i.Service, "__meta_consul_service_id": i.ID,
			"__meta_consul_node": i.Node, "__meta_consul_dc": i.Datacenter,
			"__meta_consul_tags": "," + strings.Join(i.Tags, ",") + ",",
		}
		for _, k := range slices.Sorted(maps.Keys(i.Meta)) { // of two keys with one label name the last wins
			labels["__meta_consul_service_metadata_"+labelName(k)] = i.Meta[k]
		}
		groups = append(groups, targetGroup{[]string{net.JoinHostPort(i.Address, strconv.Itoa(i.Port))}, labels})
	}
	return indented(groups)
}

// labelName replaces characters that the name of a Prometheus label must not
// contain by underscores.
func labelName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return b.Bytes(), nil
}

// hosts renders a fragment of a hosts file: for each address the names of its
// nodes, then of its services. Invalid addresses and names that cannot be host
// names are left out.
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

// addressBook maps each address to its names.
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

// hostName reports whether s is allowed in a hosts file: letters, digits,
// hyphens and underscores between dots.
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
