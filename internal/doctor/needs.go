package doctor

import (
	"path"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

// need is a right and its purpose.
type need struct {
	consul.Right
	why      string
	optional bool // without it only the purpose in why is affected
}

// rule is the ACL rule that grants the right.
func (n need) rule() string {
	resource, name := n.Resource, n.Segment
	if name == "" || resource == "key" && strings.HasSuffix(name, "/") {
		resource += "_prefix"
	}
	return resource + " " + quoted(name) + " { policy = " + quoted(n.Access) + " }"
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// needsOf lists the rights that jorc needs on node for a configuration, as far as
// they can be known without running it. With service:write jorc registers a service
// and updates its checks.
func needsOf(c *config.Config, node string, configured bool) []need {
	l := &needs{node: node}
	l.add(need{consul.Right{Resource: "agent", Access: "read", Segment: node}, "node name and version", true})
	l.add(need{consul.Right{Resource: "node", Access: "read", Segment: node}, "health of this host", true})
	l.add(need{consul.Right{Resource: "service", Access: "write", Segment: "jorc"}, "jorc shows that it runs", !configured})
	for i := range c.Services {
		l.service("write", c.Services[i].Name, "service "+quoted(c.Services[i].Name)+" and its checks")
	}
	l.require(c.Requires, "requires")
	for i := range c.Templates {
		t := &c.Templates[i]
		what := "template " + quoted(t.Name)
		for _, r := range templateReads(t) {
			l.add(need{Right: r, why: what})
		}
		for _, name := range sortedKeys(t.MinInstances) {
			l.service("read", name, what)
		}
		l.require(t.Requires, what)
	}
	for _, w := range c.Workflows {
		for i := range w.Tasks {
			l.require(w.Tasks[i].Requires, "workflow "+quoted(w.Name))
		}
	}
	for _, t := range c.Triggers {
		what := "trigger " + quoted(t.Name)
		l.service("read", t.Service, what)
		l.key("read", t.Key, what)
		l.key("read", t.Prefix, what)
	}
	l.cluster(c)
	return l.sorted()
}

// needs collects rights without repeating them.
type needs struct {
	node string
	all  []need
}

func (l *needs) add(n need) {
	if !slices.ContainsFunc(l.all, func(other need) bool { return other.Right == n.Right }) {
		l.all = append(l.all, n)
	}
}

func (l *needs) service(access, name, what string) {
	if name != "" {
		l.add(need{Right: consul.Right{Resource: "service", Access: access, Segment: name}, why: what})
	}
}

func (l *needs) key(access, name, what string) {
	if name != "" {
		l.add(need{Right: consul.Right{Resource: "key", Access: access, Segment: name}, why: what})
	}
}

func (l *needs) require(all []config.Requires, what string) {
	for _, r := range all {
		if name, ok := serviceIn(r.Target); ok {
			l.service("read", name, what)
		}
	}
}

// cluster adds the rights for the shared state in KV.
func (l *needs) cluster(c *config.Config) {
	below := func(parts ...string) string { return path.Join(append([]string{c.Prefix, c.Cluster}, parts...)...) }
	optional := func(resource, access, segment, what string) {
		l.add(need{consul.Right{Resource: resource, Access: access, Segment: segment}, what, true})
	}
	for i := range c.Templates {
		if slot := c.Templates[i].Slot; slot != "" {
			l.add(need{Right: consul.Right{Resource: "session", Access: "write", Segment: l.node}, why: "slot " + quoted(slot)})
			l.key("write", below(cluster.PrefixSlots+"group", slot), "slot "+quoted(slot))
			l.key("write", below(cluster.PrefixSlots+"claim", l.node)+"/", "slot "+quoted(slot))
		}
	}
	writes := func(what, cluster string, names ...string) {
		for _, name := range names {
			key := path.Join(c.Prefix, cluster, name)
			if strings.HasSuffix(name, "/") {
				key += "/"
			}
			optional("key", "write", key, what)
		}
	}
	if c.Static != nil {
		writes("static configuration reports its version", c.Cluster, cluster.ReportKey(l.node))
		optional("node", "write", l.node, "maintenance while it is out of service")
	}
	if c.Member != nil {
		writes("membership", c.Cluster, cluster.MemberKey(l.node))
		writes("election of leaders", c.Cluster, cluster.KeyLeaders, cluster.KeyElection)
		writes("runs", c.Cluster, cluster.QueueKey(l.node))
		optional("session", "write", l.node, "election of leaders")
	}
	if o := c.Orchestrator; o != nil && o.Enabled {
		optional("session", "write", l.node, "orchestrator")
		names := o.Clusters
		if len(names) == 0 {
			names = []string{c.Cluster}
		}
		for _, name := range names {
			writes("orchestrator", name, "orchestrate/", cluster.PrefixView, cluster.PrefixEvents, cluster.KeyRollout, cluster.KeyDesired, cluster.PrefixRuns, cluster.PrefixHosts, cluster.PrefixRunning, cluster.PrefixStatus)
		}
	}
}

// sorted returns the required rights first, then the optional ones.
func (l *needs) sorted() []need {
	slices.SortStableFunc(l.all, func(a, b need) int {
		if a.optional == b.optional {
			return 0
		}
		if a.optional {
			return 1
		}
		return -1
	})
	return l.all
}

// serviceIn returns the service in "[TAG.]SERVICE[@DC][=N]" or, as templates write
// it, "[TAG.]SERVICE[?ns=…][@DC][~NEAR][|FILTER]". ok is false for full DNS
// names and other datacenters, to which the local ACLs do not apply.
func serviceIn(text string) (name string, ok bool) {
	if i := strings.LastIndexByte(text, '='); i >= 0 && !strings.ContainsAny(text, "?~|") {
		text = text[:i]
	}
	if strings.HasSuffix(text, ".") || strings.ContainsRune(text, '@') {
		return "", false
	}
	if i := strings.IndexAny(text, "?~|"); i >= 0 {
		text = text[:i]
	}
	text = text[strings.LastIndexByte(text, '.')+1:]
	return text, text != ""
}
