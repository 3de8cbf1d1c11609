package doctor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/templatetree"
	"github.com/jorc/jorc/internal/watch"
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
	pathOf := func(cluster, key string) string {
		whole := path.Join(c.Prefix, cluster, key)
		if strings.HasSuffix(key, "/") {
			whole += "/"
		}
		return whole
	}
	optional := func(resource, access, segment, what string) {
		l.add(need{consul.Right{Resource: resource, Access: access, Segment: segment}, what, true})
	}
	for i := range c.Templates {
		if slot := c.Templates[i].Slot; slot != "" {
			l.add(need{Right: consul.Right{Resource: "session", Access: "write", Segment: l.node}, why: "slot " + quoted(slot)})
			for _, key := range cluster.AgentKeys(cluster.PurposeSlots, l.node, slot) {
				l.key("write", pathOf(c.Cluster, key), "slot "+quoted(slot))
			}
		}
	}
	for i := range c.Templates {
		if s := c.Templates[i].Stage; s != nil {
			for _, key := range cluster.AgentKeys(cluster.PurposeReport, l.node, "") {
				l.key("write", pathOf(c.Cluster, key), "stage "+quoted(s.Name))
			}
		}
	}
	writes := func(what, cluster string, names ...string) {
		for _, name := range names {
			optional("key", "write", pathOf(cluster, name), what)
		}
	}
	own := func(p cluster.Purpose) { writes(string(p), c.Cluster, cluster.AgentKeys(p, l.node, "")...) }
	if c.Static != nil {
		own(cluster.PurposeReport)
		optional("node", "write", l.node, "maintenance while it is out of service")
	}
	if c.Member != nil {
		own(cluster.PurposeMember)
		writes("election of leaders", c.Cluster, cluster.WritableKeys(cluster.KindElector, "")...)
		own(cluster.PurposeRuns)
		optional("session", "write", l.node, "election of leaders")
	}
	if o := c.Orchestrator; o != nil && o.Enabled {
		optional("session", "write", l.node, "orchestrator")
		names := o.Clusters
		if len(names) == 0 {
			names = []string{c.Cluster}
		}
		for _, name := range names {
			writes("orchestrator", name, cluster.WritableKeys(cluster.KindOrchestrator, "")...)
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

// templateReads lists the rights for the names that a template contains literally;
// names that it computes are unknown. A template that cannot be read or parsed needs
// no rights here: the check of the configuration reports it.
func templateReads(t *config.Template) []consul.Right {
	text, err := watch.Text(t)
	if err != nil {
		return nil
	}
	trees, err := templatetree.Parse(text, t.LeftDelim, t.RightDelim)
	if err != nil {
		return nil
	}
	var r reads
	for _, name := range sortedKeys(trees) {
		templatetree.Walk(trees[name].Root, func(n parse.Node) {
			if p, ok := n.(*parse.PipeNode); ok {
				r.pipe(p)
			}
		})
	}
	return r.rights
}

// reads collects rights from calls of consul-template's functions.
type reads struct{ rights []consul.Right }

func (r *reads) pipe(p *parse.PipeNode) {
	given := "" // a string that is piped into the next command
	for _, c := range p.Cmds {
		arg, known := given, true
		if len(c.Args) > 1 {
			var s *parse.StringNode
			if s, known = c.Args[1].(*parse.StringNode); known {
				arg = s.Text
			}
		}
		if f, ok := c.Args[0].(*parse.IdentifierNode); ok && known {
			r.call(f.Ident, arg)
		}
		given = ""
		if s, ok := c.Args[0].(*parse.StringNode); ok && len(c.Args) == 1 {
			given = s.Text
		}
	}
}

// call adds the right for one call; arg is empty if the call has no argument or a
// computed one.
func (r *reads) call(function, arg string) {
	switch function {
	case "service", "connect":
		if name, ok := serviceIn(arg); ok {
			r.add("service", "read", name)
		}
	case "caLeaf":
		if arg != "" {
			r.add("service", "write", arg)
		}
	case "node":
		if arg != "" && !strings.Contains(arg, "@") {
			r.add("node", "read", arg)
		}
	case "nodes":
		if !strings.Contains(arg, "@") {
			r.add("node", "read", "")
		}
	case "services":
		if !strings.Contains(arg, "@") {
			r.add("service", "read", "")
		}
	case "key", "keyExists", "keyExistsGet", "keyOrDefault":
		if name, ok := keyIn(arg); ok {
			r.add("key", "read", name)
		}
	case "ls", "safeLs", "tree", "safeTree":
		if name, ok := keyIn(arg); ok {
			r.add("key", "read", strings.TrimPrefix(strings.TrimSuffix(name, "/")+"/", "/"))
		}
	}
}

// keyIn returns the key in "KEY[?ns=…][@DC]"; ok is false for other datacenters.
func keyIn(text string) (name string, ok bool) {
	name, _, _ = strings.Cut(text, "?")
	return strings.TrimPrefix(name, "/"), text != "" && !strings.Contains(text, "@")
}

func (r *reads) add(resource, access, segment string) {
	r.rights = append(r.rights, consul.Right{Resource: resource, Access: access, Segment: segment})
}

// maxRights is how many rights Consul checks per request.
const maxRights = 64

// rights checks that the token has what jorc needs: one finding per missing
// right, or one for all.
func (e *examination) rights(ctx context.Context) []Finding {
	const name = "acl"
	if !e.answers() {
		return unanswered(name)
	}
	node, err := e.name()
	if unknownToken(err) {
		return unknown(name, err)
	}
	// Without a name the token lacks agent:read; what is asked for then is "".
	configured := len(e.Paths) > 0 && e.Problem == nil
	needed := needsOf(e.Config, node, configured)
	var missing []need
	for batch := range slices.Chunk(needed, maxRights) {
		asked := make([]consul.Right, len(batch))
		for i, n := range batch {
			asked[i] = n.Right
		}
		allowed, err := bounded(ctx, e.Timeout, func(ctx context.Context) ([]bool, error) { return e.client.Authorize(ctx, asked...) })
		if err != nil {
			return one(name, Fail, why(err), remedyFor(err))
		}
		for i, n := range batch {
			if !allowed[i] {
				missing = append(missing, n)
			}
		}
	}
	return classifyRights(name, len(needed), missing)
}

func classifyRights(name string, asked int, missing []need) []Finding {
	if len(missing) == 0 {
		return one(name, OK, fmt.Sprintf("the token has all %d rights that jorc asks for", asked), "")
	}
	found := make([]Finding, len(missing))
	for i, n := range missing {
		status := Fail
		if n.optional {
			status = Warn
		}
		found[i] = Finding{name, status, fmt.Sprintf("%s:%s on %q is missing: %s", n.Resource, n.Access, n.Segment, n.why), "grant " + n.rule()}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
