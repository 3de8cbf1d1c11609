package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Policy is a policy of Consul's ACLs.
type Policy struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Rules       string `json:"rules"`

	former string // the name that earlier versions gave to it
}

// Kinds of policies.
const (
	PolicyAgent        = string(cluster.KindAgent)
	PolicyOperator     = string(cluster.KindOperator)
	PolicyOrchestrator = string(cluster.KindOrchestrator)
	PolicyElector      = string(cluster.KindElector)
)

// Policies returns the least that a cluster's callers need: the agent on node, an
// operator, and an orchestrator on node. An agent may write the keys of its own
// node and slots; an operator everything of the cluster; an orchestrator what an
// agent may and the documents that it decides.
func (c *Cluster) Policies(node string) []Policy {
	return []Policy{
		c.policy(cluster.KindAgent, "the agent on node "+node, node, c.readRules(), c.agentRules(node)),
		c.policy(cluster.KindOperator, "an operator", "", c.readRules(), c.operatorRules()),
		c.policy(cluster.KindOrchestrator, "the orchestrator on node "+node, node, c.readRules(), c.agentRules(node), c.keyRules(cluster.KindOrchestrator, "")),
	}
}

// ElectorPolicy returns what an agent needs beside its own policy when its member
// may lead: the lock of the election, and to write who leads while it has it.
func (c *Cluster) ElectorPolicy() Policy {
	return c.policy(cluster.KindElector, "agents whose members may lead", "", c.keyRules(cluster.KindElector, ""))
}

// DNSPolicy returns what Consul's own agent on every host needs to answer DNS, as 'jorc wait'
// uses it, when Consul denies by default: the token that DNS takes, an agent's token of
// type dns or default, is not jorc's. It is the same for all clusters.
func DNSPolicy() Policy {
	return Policy{
		Name: "jorc-dns", Description: "jorc: Consul's DNS on every host, as 'jorc wait' uses it: consul acl set-agent-token dns TOKEN, or the token default",
		Rules: policyText([]rule{{"node_prefix", "", "read"}, {"service_prefix", "", "read"}}),
	}
}

func (c *Cluster) policy(kind cluster.Kind, what, node string, rules ...[]rule) Policy {
	where := ""
	if c.prefix != defaultPrefix {
		where = fmt.Sprintf(" below %q", c.prefix)
	}
	return Policy{
		Name: c.policyName(string(kind), node), Description: fmt.Sprintf("jorc: %s of cluster %q%s", what, c.name, where),
		Rules: policyText(slices.Concat(rules...)), former: c.formerName(string(kind), node),
	}
}

// readRules let see the cluster and who serves what.
func (c *Cluster) readRules() []rule {
	return []rule{
		{"key_prefix", c.store.Path(""), "read"},
		{"node_prefix", "", "read"},
		{"service_prefix", "", "read"},
		{"agent_prefix", "", "read"},
	}
}

// keyRules are the rules for WritableKeys.
func (c *Cluster) keyRules(kind cluster.Kind, node string) []rule {
	var rules []rule
	for _, key := range cluster.WritableKeys(kind, node) {
		r := rule{"key", c.store.Path(key), "write"}
		if strings.HasSuffix(key, "/") {
			r.resource = "key_prefix"
		}
		rules = append(rules, r)
	}
	return rules
}

// agentRules let one node speak for itself.
func (c *Cluster) agentRules(node string) []rule {
	return append(c.keyRules(cluster.KindAgent, node),
		rule{"session", node, "write"},
		rule{"node", node, "write"},
		rule{"service_prefix", "", "write"},
	)
}

func (c *Cluster) operatorRules() []rule {
	return []rule{
		{"key_prefix", c.store.Path(""), "write"},
		{"session_prefix", "", "write"},
	}
}

// rule is one rule in Consul's language.
type rule struct{ resource, name, access string }

// policyText writes rules, of two for the same only the one that gives more.
func policyText(rules []rule) string {
	var lines []string
	for i, r := range rules {
		wider := slices.ContainsFunc(rules[i+1:], func(o rule) bool {
			return o.resource == r.resource && o.name == r.name && o.access == "write"
		})
		if !wider {
			lines = append(lines, fmt.Sprintf("%s %s { policy = %q }", r.resource, strconv.Quote(r.name), r.access))
		}
	}
	return strings.Join(lines, "\n")
}

// defaultPrefix is the prefix that the names of policies leave out.
const defaultPrefix = "jorc"

// maxPolicyName is the length of the longest name of a policy.
const maxPolicyName = 128

// policyName is the name of the policy for a kind of token: jorc-agent-web1, and
// jorc-agent-web1_prod in another cluster than default. A name that Consul does not take, which
// has other characters than letters, digits, dashes and underscores or is too long, is
// changed and ends with a digest.
func (c *Cluster) policyName(kind, node string) string {
	var parts []string
	if node != "" {
		parts = append(parts, node)
	}
	if c.name != cluster.DefaultName || c.prefix != defaultPrefix {
		parts = append(parts, c.name)
	}
	if c.prefix != defaultPrefix {
		parts = append(parts, c.prefix)
	}
	name := "jorc-" + kind
	if len(parts) > 0 {
		name += "-" + strings.Join(parts, "_")
	}
	if accepted := strings.Map(policyRune, name); accepted != name || len(name) > maxPolicyName {
		return withDigest(accepted, kind, c.prefix, c.name, node)
	}
	return name
}

// formerName is the name that earlier versions gave to a policy.
func (c *Cluster) formerName(kind, node string) string {
	segments := []string{kind, c.prefix, c.name}
	if node != "" {
		segments = append(segments, node)
	}
	name := "jorc"
	for _, s := range segments {
		if s != "" {
			name += "-" + strings.Map(policyRune, s)
		}
	}
	return withDigest(name, segments...)
}

// policyRune is r, or a dash if the name of a policy cannot have it.
func policyRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		return r
	}
	return '-'
}

// withDigest ends name with a digest of segments.
func withDigest(name string, segments ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(segments, "\x00")))
	return fmt.Sprintf("%s-%x", name[:min(len(name), maxPolicyName-9)], sum[:4])
}

// mayRead returns consul.ErrDenied unless the token may read all keys below
// each of prefixes. Consul leaves out what a token may not see, and tells that
// only to tokens that it knows: to the others emptiness proves nothing.
func (c *Cluster) mayRead(ctx context.Context, prefixes ...string) error {
	rights := make([]consul.Right, len(prefixes))
	for i, p := range prefixes {
		rights[i] = c.ReadKey(p)
	}
	return c.authorize(ctx, rights)
}

// viewed are the keys, or the beginnings of keys, that a view of a cluster is made from.
var viewed = []string{
	cluster.KeyDesired, cluster.KeyLayout, cluster.KeyControl, cluster.KeyVersion, cluster.KeyLeaders, cluster.PrefixHosts, cluster.PrefixReports, cluster.KeyProfile, cluster.PrefixRuns, cluster.PrefixSlots,
	cluster.PrefixView, cluster.PrefixEvents, cluster.PrefixHistory, cluster.PrefixStages, cluster.PrefixChanges, cluster.PrefixAudit, "orchestrate/",
}

// MayView returns consul.ErrDenied unless the token may read all keys of the cluster, all
// nodes and all services, as far as one rule for all of them says: a rule for one key, node or
// service may still deny that. Denied finds these.
func (c *Cluster) MayView(ctx context.Context) error {
	err := c.authorize(ctx, []consul.Right{
		{Resource: "key", Access: "read", Segment: c.store.Path("")}, {Resource: "node", Access: "read"}, {Resource: "service", Access: "read"},
	})
	if err != nil {
		return err
	}
	return c.MayRead(ctx, viewed...)
}

// MayLoad is MayView for the state of the cluster alone.
func (c *Cluster) MayLoad(ctx context.Context) error {
	rights := []consul.Right{{Resource: "node", Access: "read"}, {Resource: "service", Access: "read"}}
	for _, key := range statePrefixes {
		rights = append(rights, c.ReadKey(key))
	}
	return c.authorize(ctx, rights)
}

// ViewedKeys reads the names of the keys that a view of the cluster is made from, below the
// cluster's prefix, with one request.
func (c *Cluster) ViewedKeys(ctx context.Context) ([]string, error) {
	keys, _, err := c.client.KVKeys(ctx, c.store.Path(""), "", consul.Query{Consistent: c.consistent})
	if err != nil {
		return nil, err
	}
	names := keys[:0]
	for _, key := range keys {
		name := strings.TrimPrefix(key, c.store.Path(""))
		if slices.ContainsFunc(viewed, func(prefix string) bool {
			return name == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(name, prefix)
		}) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ReadKey is the right to read a key below the cluster's prefix.
func (c *Cluster) ReadKey(key string) consul.Right {
	return consul.Right{Resource: "key", Access: "read", Segment: c.store.Path(key)}
}

// KeyOf returns the key below the cluster's prefix that a right is about; ok is false for
// other rights.
func (c *Cluster) KeyOf(r consul.Right) (key string, ok bool) {
	key, ok = strings.CutPrefix(r.Segment, c.store.Path(""))
	return key, ok && r.Resource == "key"
}

// Bounds of Denied: up to fewRights are asked for one by one, and so are at most mostRights
// that a list leaves out.
const (
	fewRights  = 4 * consul.MaxAuthorize
	mostRights = 16 * consul.MaxAuthorize
)

// Denied returns which of rights, to read keys of the cluster, nodes and services, the token
// lacks. Many are looked for in the lists that Consul gives to the token; what a list leaves
// out is asked for, and counts as denied where that would be too much: three lists and 16
// requests at most, whatever the number of rights. It returns a class of package consul;
// consul.ErrDenied if the token may not list keys.
func (c *Cluster) Denied(ctx context.Context, rights []consul.Right) (denied []consul.Right, err error) {
	if len(rights) > fewRights {
		listed, err := c.listed(ctx)
		if err != nil {
			return nil, err
		}
		rights = slices.DeleteFunc(slices.Clone(rights), func(r consul.Right) bool { return listed[r] })
	}
	asked := rights[:min(len(rights), mostRights)]
	if len(asked) > 0 {
		allowed, err := c.client.Authorize(ctx, asked...)
		if err != nil {
			return nil, err
		}
		for i, ok := range allowed {
			if !ok {
				denied = append(denied, asked[i])
			}
		}
	}
	return append(denied, rights[len(asked):]...), nil
}

// listed are the rights that the token has by what Consul lists for it.
func (c *Cluster) listed(ctx context.Context) (map[consul.Right]bool, error) {
	var keys []string
	var nodes map[string]uint64
	var services map[string][]string
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { keys, err = c.ViewedKeys(ctx); return err })
	g.Go(func() (err error) { nodes, _, err = c.client.NodeIndexes(ctx, consul.Query{}); return err })
	g.Go(func() (err error) { services, _, err = c.client.CatalogServices(ctx, consul.Query{}); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := make(map[consul.Right]bool, len(keys)+len(nodes)+len(services))
	for _, key := range keys {
		all[c.ReadKey(key)] = true
	}
	for node := range nodes {
		all[ReadNode(node)] = true
	}
	for service := range services {
		all[ReadService(service)] = true
	}
	return all, nil
}

// ReadNode is the right to read a node.
func ReadNode(name string) consul.Right {
	return consul.Right{Resource: "node", Access: "read", Segment: name}
}

// ReadService is the right to read a service.
func ReadService(name string) consul.Right {
	return consul.Right{Resource: "service", Access: "read", Segment: name}
}

// RightText is a right in words, as Consul writes it.
func RightText(r consul.Right) string {
	return fmt.Sprintf("%s:%s on %q", r.Resource, r.Access, r.Segment)
}

// MayRead returns consul.ErrDenied unless the token may read the keys below all prefixes.
// Consul leaves keys that a token may not read out of a list without an error.
func (c *Cluster) MayRead(ctx context.Context, prefixes ...string) error {
	var rights []consul.Right
	for _, prefix := range prefixes {
		rights = append(rights, c.ReadKey(prefix))
	}
	return c.authorize(ctx, rights)
}

// maySeeCatalog returns consul.ErrDenied unless the token sees all nodes and
// services.
func (c *Cluster) maySeeCatalog(ctx context.Context) error {
	return c.authorize(ctx, []consul.Right{{Resource: "node", Access: "read"}, {Resource: "service", Access: "read"}})
}

func (c *Cluster) authorize(ctx context.Context, rights []consul.Right) error {
	allowed, err := c.client.Authorize(ctx, rights...)
	if err != nil {
		return err
	}
	var missing []string
	for i, ok := range allowed {
		if !ok {
			right := fmt.Sprintf("%s:%s on everything", rights[i].Resource, rights[i].Access)
			if rights[i].Segment != "" {
				right += fmt.Sprintf(" that begins with %q", rights[i].Segment)
			}
			missing = append(missing, right)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the token needs %s", consul.ErrDenied, strings.Join(missing, ", "))
}

// readKeys reads keys, as many as a transaction takes at a time, and returns the
// result that holds each.
func (c *Cluster) readKeys(ctx context.Context, keys []string) (map[string]*kv.Result, error) {
	results := make(map[string]*kv.Result, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), kv.MaxOps)
		t := c.store.Txn()
		for _, key := range keys[:n] {
			t.Get(key)
		}
		r, err := t.Commit(ctx)
		if err != nil {
			return nil, err
		}
		for _, key := range keys[:n] {
			results[key] = r
		}
		keys = keys[n:]
	}
	return results, nil
}

// conditions reads the conditions of hosts, with three requests whatever their
// number.
func (c *Cluster) conditions(ctx context.Context, hosts []string) (all map[string]cluster.Condition, err error) {
	if len(hosts) == 0 {
		return nil, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.maySeeCatalog(ctx) })
	g.Go(func() (err error) { all, err = c.Conditions(ctx, hosts); return err })
	return all, g.Wait()
}

// Bounds and default of a token's life.
const (
	MinTokenTTL     = time.Minute
	MaxTokenTTL     = 24 * time.Hour
	DefaultTokenTTL = 2 * time.Hour
)

// Token is an ACL token. String and logs leave out its secret.
type Token struct {
	Accessor string
	Secret   string
	Expires  time.Time
}

func (t Token) String() string { return "token " + t.Accessor }

// GoString keeps the secret out of %#v.
func (t Token) GoString() string { return t.String() }

// ProfileToken makes an ACL token for a job: it may write this cluster's profile
// and nothing else, read what members, leaders and runs are, and expires after
// ttl (0: 2 hours). It returns
// cluster.ErrInvalid for a ttl that Consul does not take, cluster.ErrNoACLs, consul.ErrDenied
// when the caller lacks acl:write, or another class of package consul.
func (c *Cluster) ProfileToken(ctx context.Context, ttl time.Duration) (Token, error) {
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	if ttl < MinTokenTTL || ttl > MaxTokenTTL {
		return Token{}, fmt.Errorf("a token that lives %v: %w: Consul takes %v to %v", ttl, cluster.ErrInvalid, MinTokenTTL, MaxTokenTTL)
	}
	t, err := c.mint(ctx, ttl)
	if err != nil {
		return Token{}, c.mintError(err)
	}
	return t, nil
}

func (c *Cluster) mint(ctx context.Context, ttl time.Duration) (Token, error) {
	p := c.policy(cluster.KindProfile, "the profile", "", c.readRules(), c.keyRules(cluster.KindProfile, ""))
	if _, err := PutPolicy(ctx, c.client, p); err != nil {
		return Token{}, err
	}
	t, err := c.client.CreateToken(ctx, p.Description, ttl, p.Name)
	if err != nil {
		return Token{}, err
	}
	token := Token{Accessor: t.AccessorID, Secret: t.SecretID}
	if t.ExpirationTime != nil {
		token.Expires = *t.ExpirationTime
	}
	return token, nil
}

func (c *Cluster) mintError(err error) error {
	switch {
	case consul.ACLsDisabled(err):
		return fmt.Errorf("make a token for the profile of cluster %q: %w: none is needed", c.name, cluster.ErrNoACLs)
	case errors.Is(err, consul.ErrDenied):
		return fmt.Errorf("make a token for the profile of cluster %q: only callers with acl:write can: %w", c.name, err)
	}
	return fmt.Errorf("make a token for the profile of cluster %q: %w", c.name, err)
}

// ErrForeignPolicy: a policy of that name is not jorc's, or another cluster's.
var ErrForeignPolicy = errors.New("it exists with another description: delete or rename it if it is not jorc's")

// PutPolicy creates Consul's policy of p's name, or updates it if its rules differ from p's;
// changed reports whether it wrote. A policy with the name that earlier versions gave to it is
// renamed, so that its tokens keep their rights. It returns ErrForeignPolicy when a policy
// with other rules has another description, or a class of package consul.
func PutPolicy(ctx context.Context, client *consul.Client, p Policy) (changed bool, err error) {
	have, err := client.PolicyByName(ctx, p.Name, consul.Query{})
	isNew := err == nil && have == nil
	if isNew && p.former != "" {
		have, err = client.PolicyByName(ctx, p.former, consul.Query{})
	}
	if err != nil {
		return false, err
	}
	next := consul.ACLPolicy{Name: p.Name, Description: p.Description, Rules: p.Rules}
	if have != nil {
		switch {
		case isNew: // under its former name
		case strings.TrimSpace(have.Rules) == strings.TrimSpace(p.Rules):
			return false, nil
		case have.Description != p.Description:
			return false, ErrForeignPolicy
		}
		next.ID = have.ID
	}
	_, err = client.PutPolicy(ctx, &next)
	if err != nil && isNew {
		// Another process may have created or renamed it meanwhile.
		if now, again := client.PolicyByName(ctx, p.Name, consul.Query{Consistent: true}); again == nil && now != nil {
			return false, nil
		}
	}
	return err == nil, err
}
