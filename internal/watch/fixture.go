package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// Fixture is the data that a template is executed with in the place of Consul's, Vault's
// and the host's.
type Fixture struct {
	Host        string              // the name of this host's node
	Datacenters []string            // in the order that Consul gives
	Nodes       []FixtureNode       // besides the nodes of instances
	Instances   []FixtureInstance   // of services
	Services    map[string][]string // names of services, besides those of instances, and their tags
	Keys        map[string]string   // KEY, or KEY@DATACENTER
	Params      profile.Params      // the effective params of this host's member
	Secrets     map[string]any      // path in Vault → .Data of the secret
	SecretLists map[string][]string // path in Vault → what lists give
	Files       map[string]string   // path → content
	Env         map[string]string
}

// FixtureNode is a node of the catalog.
type FixtureNode struct {
	Name, Address, Datacenter string
	Meta, TaggedAddresses     map[string]string
}

// FixtureInstance is one instance of a service.
type FixtureInstance struct {
	Service, ID, Node     string // ID: default the service; Node: default the host
	NodeAddress, Address  string // Address: default that of the node
	Port                  int
	Tags                  []string
	Meta, NodeMeta        map[string]string
	TaggedAddresses       map[string]string // name → address, or address:port
	Status                string            // default passing
	Weight, WarningWeight int               // default 1
	Datacenter            string            // default that of the host
	Mesh                  bool              // the function connect gives it, not service
}

// ErrNoFixture: the template asks for data that a fixture cannot hold.
var ErrNoFixture = errors.New("a fixture cannot hold")

// Executed is what came out of a template that was executed with a fixture.
type Executed struct {
	Output []byte
	// Waits is what an agent would wait for before it writes the file; then there is no output.
	Waits []string
	// Err is why the execution failed.
	Err error

	lines func() []int
}

// Line returns the line of the template that wrote a line of the output, both from 1; 0: not
// known.
func (x *Executed) Line(output int) int {
	if x.lines == nil {
		return 0
	}
	lines := x.lines()
	if output < 1 || output > len(lines) {
		return 0
	}
	return lines[output-1]
}

// Execute executes the template of c with f as the engine does with data: the same
// functions, bounds and guards. The error is that of a template that cannot be loaded, or asks
// for what a fixture cannot hold (ErrNoFixture).
func Execute(ctx context.Context, c *config.Template, allow config.TemplateOptions, f *Fixture) (*Executed, error) {
	o := &options{TemplateOptions: bounds(allow), Params: true, LookupEnv: func(name string) (string, bool) {
		value, ok := f.Env[name]
		return value, ok
	}}
	t, err := newTmpl(c, o, false)
	if err != nil {
		return nil, err
	}
	t.src.sandboxPath = "" // the files are those of f; see fixtureView.recall
	v := &fixtureView{fixture: f, sandbox: c.SandboxPath, guarded: guarded{store: newStore(doubtReset), guard: t.guard, now: time.Now()}}
	r := t.src.execute(ctx, v)
	for id, h := range v.guarded.next {
		if _, ok := r.missing[id]; ok {
			r.missing[id] = "is held back: " + h.why
		}
	}
	if v.unsupported != nil {
		return nil, fmt.Errorf("template %q: %w %s", c.Name, ErrNoFixture, v.unsupported)
	}
	if r.err != nil && strings.HasPrefix(r.err.Error(), parsing) {
		return nil, fmt.Errorf("template %q: %w", c.Name, r.err)
	}
	x := &Executed{Output: r.output, Err: r.err}
	for _, w := range waits(&r) {
		x.Waits = append(x.Waits, w.text)
	}
	if r.err != nil || len(r.missing) > 0 {
		x.Output = nil
		return x, nil
	}
	x.lines = sync.OnceValue(func() []int { return t.src.outputLines(ctx, v, r.output) })
	return x, nil
}

// fixtureView gives an execution the data of a fixture, as guards let it see that.
type fixtureView struct {
	fixture     *Fixture
	sandbox     string
	guarded     guarded
	unsupported *dependency
}

func (v *fixtureView) recall(d *dependency) (any, bool) {
	if d.kind == kindFile && v.sandbox != "" && !strings.HasPrefix(path.Clean(d.name), strings.TrimSuffix(v.sandbox, "/")+"/") {
		return nil, false
	}
	value, known, can := v.fixture.value(d)
	if !can {
		v.unsupported = d
	}
	if !known {
		return nil, false
	}
	v.guarded.store.put(change{id: d.id, value: value, at: v.guarded.now})
	return v.guarded.recall(d)
}

// value is what templates see of d. known is false for what the fixture has not, can for what
// no fixture has.
func (f *Fixture) value(d *dependency) (value any, known, can bool) {
	switch d.kind {
	case kindKey:
		if value, ok := f.Keys[inDatacenter(d.name, d.scope.datacenter)]; ok {
			return value, true, true
		}
		return nil, true, true
	case kindPrefix:
		return f.pairs(d), true, true
	case kindService, kindConnect:
		return f.instances(d), true, true
	case kindServices:
		return snippets(f.services(d.scope.datacenter)), true, true
	case kindNode:
		return f.node(d), true, true
	case kindNodes:
		list := f.nodes(d.scope.datacenter)
		return nodes(list, true), true, true
	case kindDatacenter:
		return f.Datacenters, true, true
	case kindParams:
		if f.Params == nil {
			return profile.Params{}, true, true
		}
		return f.Params, true, true
	case kindFile:
		content, ok := f.Files[d.name]
		return content, ok, true
	case kindForeign:
		return f.foreign(d)
	}
	return nil, false, false
}

func inDatacenter(name, datacenter string) string {
	if datacenter == "" {
		return name
	}
	return name + "@" + datacenter
}

// pairs are the keys below the prefix d.
func (f *Fixture) pairs(d *dependency) []*dep.KeyPair {
	list := []*dep.KeyPair{}
	for _, full := range slices.Sorted(maps.Keys(f.Keys)) {
		key := full
		if d.scope.datacenter != "" {
			var there bool
			if key, there = strings.CutSuffix(full, "@"+d.scope.datacenter); !there {
				continue
			}
		}
		if strings.HasPrefix(key, d.name) {
			list = append(list, &dep.KeyPair{Path: key, Key: strings.TrimLeft(key[len(d.name):], "/"), Value: f.Keys[full]})
		}
	}
	return list
}

// entry is the instance as Consul's API gives it.
func (f *Fixture) entry(i *FixtureInstance) *consul.ServiceEntry {
	host := f.hostOf(i)
	id := cmp.Or(i.ID, i.Service)
	check := &consul.HealthCheck{Node: host, CheckID: "service:" + id, Name: i.Service, Status: cmp.Or(i.Status, dep.HealthPassing), ServiceID: id, ServiceName: i.Service}
	if i.Status == dep.HealthMaint {
		check.CheckID, check.Status = "_service_maintenance:"+id, dep.HealthCritical
	}
	n := f.nodeOf(i)
	tagged := make(map[string]consul.ServiceAddress, len(i.TaggedAddresses))
	for name, at := range i.TaggedAddresses {
		address := consul.ServiceAddress{Address: at, Port: i.Port}
		if h, p, err := net.SplitHostPort(at); err == nil {
			if port, err := strconv.Atoi(p); err == nil {
				address = consul.ServiceAddress{Address: h, Port: port}
			}
		}
		tagged[name] = address
	}
	return &consul.ServiceEntry{
		Node: n, Checks: consul.HealthChecks{check},
		Service: &consul.AgentService{
			ID: id, Service: i.Service, Tags: i.Tags, Meta: i.Meta, Port: i.Port, Address: i.Address, TaggedAddresses: tagged,
			Weights: consul.AgentWeights{Passing: cmp.Or(i.Weight, 1), Warning: cmp.Or(i.WarningWeight, 1)},
		},
	}
}

func (f *Fixture) hostOf(i *FixtureInstance) string { return cmp.Or(i.Node, f.Host, "host") }

// nodeOf is the node of an instance: as the fixture describes it, or made of the instance.
func (f *Fixture) nodeOf(i *FixtureInstance) *consul.Node {
	name := f.hostOf(i)
	for at := range f.Nodes {
		if n := &f.Nodes[at]; n.Name == name && n.Datacenter == i.Datacenter {
			return catalogNode(n)
		}
	}
	return catalogNode(&FixtureNode{Name: name, Address: cmp.Or(i.NodeAddress, i.Address), Datacenter: i.Datacenter, Meta: i.NodeMeta})
}

func catalogNode(n *FixtureNode) *consul.Node {
	return &consul.Node{Node: n.Name, Address: n.Address, Datacenter: cmp.Or(n.Datacenter, "dc1"), Meta: n.Meta, TaggedAddresses: n.TaggedAddresses}
}

// instances are the instances that the query d gives.
func (f *Fixture) instances(d *dependency) []*dep.HealthService {
	list := []*dep.HealthService{}
	for at := range f.Instances {
		i := &f.Instances[at]
		if i.Service != d.name || i.Mesh != (d.kind == kindConnect) || i.Datacenter != d.scope.datacenter || d.tag != "" && !slices.Contains(i.Tags, d.tag) {
			continue
		}
		if h := healthService(f.entry(i)); d.wants(h) {
			list = append(list, h)
		}
	}
	sort.Stable(dep.ByNodeThenID(list))
	return list
}

func (f *Fixture) services(datacenter string) map[string][]string {
	all := map[string][]string{}
	add := func(name string, tags []string) {
		known := all[name]
		for _, t := range tags {
			if !slices.Contains(known, t) {
				known = append(known, t)
			}
		}
		all[name] = known
	}
	for full, tags := range f.Services {
		if name, there := strings.CutSuffix(full, inDatacenter("", datacenter)); there && (datacenter != "" || !strings.Contains(full, "@")) {
			add(name, tags)
		}
	}
	for at := range f.Instances {
		if i := &f.Instances[at]; i.Datacenter == datacenter {
			add(i.Service, i.Tags)
		}
	}
	return all
}

func (f *Fixture) nodes(datacenter string) []*consul.Node {
	var list []*consul.Node
	seen := map[string]bool{}
	add := func(n *consul.Node) {
		if !seen[n.Node] {
			seen[n.Node] = true
			list = append(list, n)
		}
	}
	for at := range f.Nodes {
		if n := &f.Nodes[at]; n.Datacenter == datacenter {
			add(catalogNode(n))
		}
	}
	for at := range f.Instances {
		if i := &f.Instances[at]; i.Datacenter == datacenter {
			add(f.nodeOf(i))
		}
	}
	return list
}

// node is the node that d names, or the host's, and what it offers.
func (f *Fixture) node(d *dependency) *dep.CatalogNode {
	name := cmp.Or(d.name, f.Host, "host")
	for _, n := range f.nodes(d.scope.datacenter) {
		if n.Node != name {
			continue
		}
		found := &dep.CatalogNode{Node: node(n), Services: []*dep.CatalogNodeService{}}
		for at := range f.Instances {
			i := &f.Instances[at]
			if f.hostOf(i) != name || i.Datacenter != d.scope.datacenter {
				continue
			}
			s := f.entry(i).Service
			found.Services = append(found.Services, &dep.CatalogNodeService{
				ID: s.ID, Service: s.Service, Tags: sortedTags(s.Tags), Meta: s.Meta, Port: s.Port, Address: s.Address,
			})
		}
		sort.Stable(dep.ByService(found.Services))
		return found
	}
	return &dep.CatalogNode{}
}

// foreign is a secret of Vault, or a list of them.
func (f *Fixture) foreign(d *dependency) (value any, known, can bool) {
	switch d.made.(type) {
	case *dep.VaultReadQuery, *dep.VaultWriteQuery:
		data, ok := f.Secrets[d.asked].(map[string]any)
		return &dep.Secret{Data: data}, ok, true
	case *dep.VaultPKIQuery:
		data, ok := f.Secrets[d.asked].(map[string]any)
		return pemOf(data), ok, true
	case *dep.VaultListQuery:
		list, ok := f.SecretLists[d.asked]
		return list, ok, true
	}
	return nil, false, false
}

func pemOf(data map[string]any) dep.PemEncoded {
	field := func(name string) string {
		value, _ := data[name].(string)
		return value
	}
	p := dep.PemEncoded{Cert: field("Cert"), Key: field("Key"), CA: field("CA")}
	chain, _ := data["CAChain"].([]any)
	for _, c := range chain {
		if pem, ok := c.(string); ok {
			p.CAChain = append(p.CAChain, pem)
		}
	}
	return p
}

// Record returns the data that the engine's templates were last executed with. Call it after
// Once. The values of Vault's secrets, of params that secret names, and of keys, files and
// params whose names say that they are secrets, are placeholders; so are variables of environ
// that templates may read.
func (e *Engine) Record(secret func(param string) bool, environ []string) (*Fixture, error) {
	r := recorder{fixture: &Fixture{Keys: map[string]string{}, Services: map[string][]string{}, Secrets: map[string]any{}, SecretLists: map[string][]string{}, Files: map[string]string{}, Env: map[string]string{}}, secret: secret}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); allows(e.opts.AllowEnv, name) {
			r.fixture.Env[name] = unlessSecret(name, value)
		}
	}
	for _, u := range e.units {
		for _, t := range u.templates {
			for _, d := range t.used {
				if value := e.store.get(d.id); value.known {
					if err := r.take(d, value.value); err != nil {
						return nil, fmt.Errorf("template %q: %w", t.conf.Name, err)
					}
				}
			}
		}
	}
	r.dropNames()
	return r.fixture, nil
}

// recorder makes a fixture of data.
type recorder struct {
	fixture *Fixture
	secret  func(param string) bool
}

func (r *recorder) take(d *dependency, value any) error {
	f := r.fixture
	switch v := value.(type) {
	case nil:
	case []*dep.HealthService:
		for _, i := range v {
			r.instance(instanceOf(d, i))
		}
	case []*dep.CatalogSnippet:
		for _, s := range v {
			f.Services[inDatacenter(s.Name, d.scope.datacenter)] = s.Tags
		}
	case []*dep.Node:
		for _, n := range v {
			r.node(d, n)
		}
	case *dep.CatalogNode:
		r.catalogNode(d, v)
	case []*dep.KeyPair:
		for _, p := range v {
			f.Keys[inDatacenter(p.Path, d.scope.datacenter)] = unlessSecret(p.Path, p.Value)
		}
	case profile.Params:
		f.Params = profile.Params{}
		for name, p := range v {
			var err error
			if f.Params[name], err = r.param(name, p); err != nil {
				return err
			}
		}
	case string:
		if d.kind == kindFile {
			f.Files[d.name] = unlessSecret(d.name, v)
		} else {
			f.Keys[inDatacenter(d.name, d.scope.datacenter)] = unlessSecret(d.name, v)
		}
	case []string:
		if d.kind == kindDatacenter {
			f.Datacenters = v
		} else if _, ok := d.made.(*dep.VaultListQuery); ok {
			f.SecretLists[d.asked] = v
		}
	case *dep.Secret:
		f.Secrets[d.asked] = withoutValues(v.Data)
	case dep.PemEncoded:
		f.Secrets[d.asked] = map[string]any{"Cert": placeholder("Cert"), "Key": placeholder("Key"), "CA": placeholder("CA")}
	default:
		return fmt.Errorf("%w %s", ErrNoFixture, d)
	}
	return nil
}

// instance takes in an instance once, whatever queries give it.
func (r *recorder) instance(i FixtureInstance) {
	for at := range r.fixture.Instances {
		known := &r.fixture.Instances[at]
		if known.Service == i.Service && known.ID == i.ID && known.Node == i.Node && known.Datacenter == i.Datacenter && known.Mesh == i.Mesh {
			return
		}
	}
	r.fixture.Instances = append(r.fixture.Instances, i)
}

func instanceOf(d *dependency, h *dep.HealthService) FixtureInstance {
	i := FixtureInstance{
		Service: d.name, Node: h.Node, NodeAddress: h.NodeAddress, Port: h.Port, Tags: h.Tags, Meta: h.ServiceMeta, NodeMeta: h.NodeMeta,
		Datacenter: d.scope.datacenter, Mesh: d.kind == kindConnect, TaggedAddresses: map[string]string{},
	}
	if h.ID != d.name {
		i.ID = h.ID
	}
	if h.Address != h.NodeAddress {
		i.Address = h.Address
	}
	if h.Status != dep.HealthPassing {
		i.Status = h.Status
	}
	if h.Weights.Passing > 1 {
		i.Weight = h.Weights.Passing
	}
	if h.Weights.Warning > 1 {
		i.WarningWeight = h.Weights.Warning
	}
	for name, a := range h.ServiceTaggedAddresses {
		i.TaggedAddresses[name] = a.Address
		if a.Port != h.Port {
			i.TaggedAddresses[name] = net.JoinHostPort(a.Address, strconv.Itoa(a.Port))
		}
	}
	return i
}

func (r *recorder) node(d *dependency, n *dep.Node) {
	for _, known := range r.fixture.Nodes {
		if known.Name == n.Node && known.Datacenter == d.scope.datacenter {
			return
		}
	}
	r.fixture.Nodes = append(r.fixture.Nodes, FixtureNode{
		Name: n.Node, Address: n.Address, Datacenter: d.scope.datacenter, Meta: n.Meta, TaggedAddresses: n.TaggedAddresses,
	})
}

func (r *recorder) catalogNode(d *dependency, n *dep.CatalogNode) {
	if n.Node == nil {
		return
	}
	if d.name == "" {
		r.fixture.Host = n.Node.Node
	}
	r.node(d, n.Node)
	for _, s := range n.Services {
		i := FixtureInstance{Service: s.Service, Node: n.Node.Node, Address: s.Address, Port: s.Port, Tags: s.Tags, Meta: s.Meta, Datacenter: d.scope.datacenter}
		if s.ID != s.Service {
			i.ID = s.ID
		}
		r.instance(i)
	}
}

// dropNames leaves out the names of services that instances give, with all their tags.
func (r *recorder) dropNames() {
	named := r.fixture.Services
	r.fixture.Services = nil
	datacenters := map[string]bool{}
	for at := range r.fixture.Instances {
		datacenters[r.fixture.Instances[at].Datacenter] = true
	}
	for dc := range datacenters {
		for name, tags := range r.fixture.services(dc) {
			full := inDatacenter(name, dc)
			slices.Sort(tags)
			if listed, ok := named[full]; ok && slices.Equal(slices.Sorted(slices.Values(listed)), tags) {
				delete(named, full)
			}
		}
	}
	r.fixture.Services = named
}

func (r *recorder) param(name string, v profile.Value) (profile.Value, error) {
	if text.IsSecretName(name) || r.secret != nil && r.secret(name) {
		hidden, err := profile.Of(placeholder(name))
		return hidden, err
	}
	return v, nil
}

// unlessSecret is value, or a placeholder if the name says that it is a secret.
func unlessSecret(name, value string) string {
	if text.IsSecretName(name) {
		return placeholder(name)
	}
	return value
}

// placeholder replaces the value of a secret.
func placeholder(name string) string { return "value of " + name }

// withoutValues replaces all texts and numbers in the data of a secret.
func withoutValues(data map[string]any) map[string]any {
	out := make(map[string]any, len(data))
	for name, v := range data {
		out[name] = withoutValue(name, v)
	}
	return out
}

func withoutValue(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		return withoutValues(v)
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = withoutValue(name, e)
		}
		return list
	case nil, bool:
		return v
	}
	if reflect.TypeOf(v).Kind() == reflect.String && reflect.TypeOf(v) != reflect.TypeFor[string]() {
		return 0 // json.Number
	}
	return placeholder(name)
}
