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
	"github.com/jorc/jorc/internal/text"
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

// LeftOut is what an export lacks, because the program that reads it would take it for
// something else than a name or an address.
type LeftOut struct {
	Count  int
	First  ServiceInstance
	Reason string // why the first is left out
}

// String returns one line, however much is left out; empty: nothing is.
func (l LeftOut) String() string {
	if l.Count == 0 {
		return ""
	}
	line := fmt.Sprintf("left out of the export: service %q on node %q: %s", text.Truncate(l.First.Service, shownName), text.Truncate(l.First.Node, shownName), l.Reason)
	if l.Count > 1 {
		line += fmt.Sprintf("; and %d more", l.Count-1)
	}
	return line
}

// shownName is how much of a name that a host chose a message shows, in bytes.
const shownName = 60

func (l *LeftOut) add(i ServiceInstance, reason string) {
	if l.Count++; l.Count == 1 {
		l.First, l.Reason = i, reason
	}
}

// Export renders a snapshot; equal snapshots give equal bytes. Hosts choose the names and
// addresses: what the format's reader would not take as such is escaped or left out. The
// only error is an unknown format.
func Export(s *Snapshot, format string) (data []byte, leftOut LeftOut, err error) {
	switch format {
	case FormatHiera:
		data, err = hiera(s, &leftOut)
	case FormatJSON:
		data, err = exportJSON(s)
	case FormatPrometheus:
		data, err = prometheus(s, &leftOut)
	case FormatHosts:
		data = hosts(s, &leftOut)
	default:
		err = fmt.Errorf("unknown format %q", format)
	}
	return data, leftOut, err
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
func hiera(s *Snapshot, leftOut *LeftOut) ([]byte, error) {
	addresses := map[string][]string{}
	for _, i := range s.Instances {
		for _, name := range slices.Sorted(maps.Keys(i.Interfaces)) {
			address := i.Interfaces[name]
			switch {
			case strings.Contains(i.Service+name+address, "%{"):
				leftOut.add(i, "Hiera would evaluate the %{ in its name, interface or address")
			case strings.HasPrefix(name, ":") || strings.Contains(name, "::"):
				leftOut.add(i, "with the :: in the name of its interface it would be another service's")
			default:
				key := "services::" + i.Service + "::" + name
				addresses[key] = append(addresses[key], address)
			}
		}
	}
	lists := make(map[string][]hieraText, len(addresses))
	for key, list := range addresses {
		slices.SortFunc(list, compareAddresses)
		for _, address := range slices.Compact(list) {
			lists[key] = append(lists[key], hieraText(address))
		}
	}
	var b bytes.Buffer
	b.WriteString("---\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(lists); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return b.Bytes(), e.Close()
}

// hieraText is a text for Puppet, whose YAML has more numbers, dates and truths than
// the encoder knows, and symbols: ::1 is one.
type hieraText string

// MarshalYAML quotes all but addresses and names. The template
// hiera-services.yaml.ctmpl does the same.
func (t hieraText) MarshalYAML() (any, error) {
	s := string(t)
	if numberedAddress().MatchString(s) || namedAddress().MatchString(s) && !rubyWord().MatchString(s) {
		return s, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}, nil
}

// A named address has a letter that no number has.
var (
	numberedAddress = text.Pattern(`^([0-9A-Fa-f][0-9A-Fa-f.:]*|::)$`)
	namedAddress    = text.Pattern(`(?i)^[a-z0-9_][a-z0-9_.-]*$`)
	rubyWord        = text.Pattern(`(?i)^([0-9a-fox_.-]*|null|yes|no|true|false|on|off)$`)
)

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
func prometheus(s *Snapshot, leftOut *LeftOut) ([]byte, error) {
	groups := []targetGroup{}
	for _, i := range s.Instances {
		switch {
		case i.Port == 0:
			continue
		case !address(i.Address) || i.Port < 0 || i.Port > 65535:
			leftOut.add(i, notAnAddress)
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

const notAnAddress = "its address is neither an IP address nor the name of a host, or its port is none"

// address reports whether a client can connect to s.
func address(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || hostName(strings.TrimSuffix(s, "."))
}

// hosts renders a fragment of a hosts file: for each address the names of its
// nodes, then of its services. The names of hosts in place of addresses are left out, as
// are all that cannot be addresses, and names that cannot be those of hosts.
func hosts(s *Snapshot, leftOut *LeftOut) []byte {
	nodes, services := addressBook{}, addressBook{}
	for _, i := range s.Instances {
		switch {
		case !address(i.Address):
			leftOut.add(i, notAnAddress)
		case !hostName(i.NodeName()) || !hostName(i.Service+".service."+i.Datacenter+".consul"):
			leftOut.add(i, "its name, or its node's, cannot be the name of a host")
		}
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
