package watch

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/consul"
)

// kind is what sort of data a dependency is, and so how it is fetched.
type kind string

const (
	kindKey        kind = "key"
	kindPrefix     kind = "key prefix"
	kindService    kind = "service"
	kindConnect    kind = "mesh service"
	kindServices   kind = "services"
	kindNode       kind = "node"
	kindNodes      kind = "nodes"
	kindDatacenter kind = "datacenters"
	kindCARoots    kind = "mesh CA roots"
	kindCALeaf     kind = "mesh certificate"
	kindFile       kind = "file"
	kindParams     kind = "params"
	kindForeign    kind = "" // fetched by consul-template's own code: Vault and peerings
)

// dependency is one thing that templates are made of. Two with the same id are
// the same thing and are fetched once.
type dependency struct {
	id      string
	kind    kind
	name    string // key, prefix, service, node or path; may be empty
	asked   string // what the template asked for, with tags and scope
	tag     string
	filters []string // of service states
	scope   scope
	near    string
	foreign query          // of kindForeign
	made    dep.Dependency // of kindForeign: what foreign makes
	vault   bool           // its data is a secret: never written to disk
	hidden  bool           // its name may be a value: no log or status shows it
}

// scope is where in the federation a dependency lives.
type scope struct {
	datacenter, namespace, partition, peer, samenessGroup string
}

func (s scope) query() consul.Query {
	return consul.Query{
		Datacenter: s.datacenter, Namespace: s.namespace, Partition: s.partition,
		Peer: s.peer, SamenessGroup: s.samenessGroup,
	}
}

// String names the dependency for logs and statuses.
func (d *dependency) String() string {
	switch {
	case d.hidden && d.vault:
		return "secret " + computed
	case d.hidden:
		return strings.TrimSpace(string(d.kind) + " " + computed)
	}
	return d.label()
}

// shownName is the name alone.
func (d *dependency) shownName() string {
	if d.hidden {
		return computed
	}
	return d.name
}

// label names the dependency, whatever its name is made of.
func (d *dependency) label() string {
	if d.kind == kindForeign {
		return d.id
	}
	if d.name == "" {
		return string(d.kind)
	}
	text := string(d.kind) + " " + d.name
	if d.tag != "" {
		text = string(d.kind) + " " + d.tag + "." + d.name
	}
	if d.scope.datacenter != "" {
		text += "@" + d.scope.datacenter
	}
	return text
}

// dependencies are what one template uses, sorted by id. A slice, because most
// templates use few, and a map of one takes 250 bytes.
type dependencies []*dependency

func dependenciesOf(used map[string]*dependency) dependencies {
	return slices.SortedFunc(maps.Values(used), func(a, b *dependency) int { return strings.Compare(a.id, b.id) })
}

func (s dependencies) has(id string) bool {
	_, ok := slices.BinarySearchFunc(s, id, func(d *dependency, id string) int { return strings.Compare(d.id, id) })
	return ok
}

// are reports whether used holds the same dependencies or, if it may hold fewer, no
// others.
func (s dependencies) are(used map[string]*dependency, fewer bool) bool {
	if len(used) > len(s) || len(used) < len(s) && !fewer {
		return false
	}
	same := 0
	for _, d := range s {
		if now := used[d.id]; now != nil && now.hidden == d.hidden {
			same++
		}
	}
	return same == len(used)
}

// passingOnly reports whether Consul can do the filtering.
func (d *dependency) passingOnly() bool {
	return len(d.filters) == 1 && d.filters[0] == dep.HealthPassing
}

// newDependency takes apart what consul-template's own constructor has accepted: re is
// the expression that it matched, q the query that it made.
func newDependency(k kind, q dep.Dependency, re *regexp.Regexp, text string) *dependency {
	m := named(re, text)
	params, _ := url.ParseQuery(m["query"]) // the constructor has refused what does not parse
	d := &dependency{
		id: q.String(), kind: k, asked: text, tag: m["tag"], near: m["near"],
		name: m["name"] + m["key"] + m["prefix"],
		scope: scope{
			datacenter: m["dc"], namespace: params.Get(dep.QueryNamespace), partition: params.Get(dep.QueryPartition),
			peer: params.Get(dep.QueryPeer), samenessGroup: params.Get(dep.QuerySamenessGroup),
		},
	}
	if k == kindKey || k == kindPrefix {
		d.name = strings.TrimPrefix(d.name, "/") // as Consul's API does once more
	}
	if k == kindService || k == kindConnect {
		d.filters = healthFilters(m["filter"])
	}
	return d
}

// healthFilters is consul-template's reading of "a,b" behind the bar: sorted,
// passing if the text is empty.
func healthFilters(text string) []string {
	var filters []string
	for f := range strings.SplitSeq(text, ",") {
		if f = strings.TrimSpace(f); f != "" {
			filters = append(filters, f)
		}
	}
	if text == "" {
		return []string{dep.HealthPassing}
	}
	slices.Sort(filters)
	return filters
}

func named(re *regexp.Regexp, text string) map[string]string {
	m := map[string]string{}
	match := re.FindStringSubmatch(text)
	for i, name := range re.SubexpNames() {
		if name != "" && i < len(match) {
			m[name] = match[i]
		}
	}
	return m
}
