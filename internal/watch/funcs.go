package watch

import (
	"maps"
	"strings"
	"text/template"

	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/profile"
)

// functions are the template functions of one execution. They take the place
// of consul-template's own, because those tell what they asked for only when
// an execution succeeds: `{{ (index (service "web") 0).Port }}` fails as long
// as nothing has fetched the service it failed for.
func (x *execution) functions() template.FuncMap {
	m := x.ownFunctions()
	maps.Copy(m, x.foreignFunctions())
	maps.Copy(m, x.boundedFunctions())
	maps.Copy(m, x.opts.Functions)
	for _, name := range guardedFunctions {
		if !x.opts.allows(name) {
			m[name] = x.refused(name, "list it in template_options { allow_functions }")
		}
	}
	for _, name := range printingFunctions {
		m[name] = x.refused(name, "it would print values to jorc's own output; use spew_sdump or spew_sprintf")
	}
	m["writeToFile"] = x.refused("writeToFile", "it would write at every execution, past checks, links and rights: give the file a template of its own")
	for _, name := range nomadFunctions {
		m[name] = x.refused(name, "jorc does not talk to Nomad")
	}
	return m
}

// ownFunctions are the functions that need nothing of consul-template's.
func (x *execution) ownFunctions() template.FuncMap {
	return template.FuncMap{
		"key": x.key, "keyExists": x.keyExists, "keyOrDefault": x.keyOrDefault,
		"ls": x.list(topLevel, true), "safeLs": x.list(topLevel, false),
		"tree": x.list(allBelow, true), "safeTree": x.list(allBelow, false),
		"service": x.service, "connect": x.connect, "services": x.services,
		"node": x.node, "nodes": x.nodes, "datacenters": x.datacenters,
		"caRoots": x.caRoots, "caLeaf": x.caLeaf,
		"file": x.file, "param": x.param, "paramExists": x.paramExists, "paramOr": x.paramOr,
		"env": x.env, "mustEnv": x.mustEnv, "envOrDefault": x.envOrDefault,
		"loop": x.loop, "sprig_fail": x.failOnPurpose,
		tick: x.tick, enter: x.enter, line: markLine,
	}
}

// guardedFunctions reach outside of the template.
var guardedFunctions = []string{"plugin"}

// printingFunctions write to stdout.
var printingFunctions = []string{"spew_dump", "spew_printf"}

var nomadFunctions = []string{
	"nomadServices", "nomadService", "nomadVarList", "nomadVarListSafe", "nomadVar", "nomadVarExists",
}

func (x *execution) refused(name, remedy string) func(...any) (string, error) {
	return func(...any) (string, error) {
		return "", x.fail("function %s is switched off: %s", name, remedy)
	}
}

// recall returns the data of d, or none while it has not been fetched.
func recall[T any](x *execution, d *dependency, none T) (T, bool) {
	value, ok := x.recall(d)
	if !ok {
		return none, false
	}
	v, ok := value.(T)
	if !ok {
		return none, true // a key that does not exist has the value nil
	}
	return v, true
}

func (x *execution) kv(text string) (*dependency, error) {
	q, err := dep.NewKVGetQuery(text)
	if err != nil {
		return nil, x.invalid(text, err)
	}
	return newDependency(kindKey, q, dep.KVGetQueryRe, text), nil
}

// key waits for a key to exist.
func (x *execution) key(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	d, err := x.kv(text)
	if err != nil {
		return "", err
	}
	value, ok := x.recall(d)
	if ok && value == nil {
		x.waitFor(d, "does not exist")
	}
	s, _ := value.(string)
	return s, nil
}

func (x *execution) keyExists(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	d, err := x.kv(text)
	if err != nil {
		return false, err
	}
	value, ok := x.recall(d)
	return ok && value != nil, nil
}

func (x *execution) keyOrDefault(text, fallback string) (string, error) {
	if text == "" {
		return fallback, nil
	}
	d, err := x.kv(text)
	if err != nil {
		return "", err
	}
	if s, _ := recall(x, d, ""); s != "" {
		return s, nil
	}
	return fallback, nil
}

// list makes ls, tree and their safe variants, which wait while there is no key.
func (x *execution) list(keep func(*dep.KeyPair) bool, emptyIsSafe bool) func(string) ([]*dep.KeyPair, error) {
	return func(text string) ([]*dep.KeyPair, error) {
		pairs := []*dep.KeyPair{}
		if text == "" {
			return pairs, nil
		}
		q, err := dep.NewKVListQuery(text)
		if err != nil {
			return pairs, x.invalid(text, err)
		}
		d := newDependency(kindPrefix, q, dep.KVListQueryRe, text)
		all, ok := recall(x, d, pairs)
		for _, p := range all {
			if keep(p) {
				pairs = append(pairs, p)
			}
		}
		if ok && len(pairs) == 0 && !emptyIsSafe {
			x.waitFor(d, "holds no key")
		}
		return pairs, nil
	}
}

func topLevel(p *dep.KeyPair) bool { return p.Key != "" && !strings.Contains(p.Key, "/") }

func allBelow(p *dep.KeyPair) bool { return p.Key != "" && !strings.HasSuffix(p.Key, "/") }

func (x *execution) service(args ...string) ([]*dep.HealthService, error) {
	return x.health(kindService, dep.NewHealthServiceQuery, args)
}

func (x *execution) connect(args ...string) ([]*dep.HealthService, error) {
	return x.health(kindConnect, dep.NewHealthConnectQuery, args)
}

func (x *execution) health(k kind, parser func(string) (*dep.HealthServiceQuery, error), args []string) ([]*dep.HealthService, error) {
	none := []*dep.HealthService{}
	if len(args) == 0 || args[0] == "" {
		return none, nil
	}
	text := strings.Join(args, "|")
	q, err := parser(text)
	if err != nil {
		return nil, x.invalid(text, err)
	}
	list, _ := recall(x, newDependency(k, q, dep.HealthServiceQueryRe, text), none)
	return list, nil
}

func (x *execution) services(args ...string) ([]*dep.CatalogSnippet, error) {
	text := strings.Join(args, "")
	q, err := dep.NewCatalogServicesQuery(text)
	if err != nil {
		return nil, x.invalid(text, err)
	}
	list, _ := recall(x, newDependency(kindServices, q, dep.CatalogServicesQueryRe, text), []*dep.CatalogSnippet{})
	return list, nil
}

func (x *execution) nodes(args ...string) ([]*dep.Node, error) {
	text := strings.Join(args, "")
	q, err := dep.NewCatalogNodesQuery(text)
	if err != nil {
		return nil, x.invalid(text, err)
	}
	list, _ := recall(x, newDependency(kindNodes, q, dep.CatalogNodesQueryRe, text), []*dep.Node{})
	return list, nil
}

// node returns nil, which templates test with `with`, while nothing is known.
func (x *execution) node(args ...string) (any, error) {
	text := strings.Join(args, "")
	q, err := dep.NewCatalogNodeQuery(text)
	if err != nil {
		return nil, x.invalid(text, err)
	}
	n, ok := recall[*dep.CatalogNode](x, newDependency(kindNode, q, dep.CatalogNodeQueryRe, text), nil)
	if !ok || n == nil {
		return nil, nil
	}
	return n, nil
}

func (x *execution) datacenters(ignore ...bool) ([]string, error) {
	if len(ignore) > 1 {
		return nil, x.fail("wrong number of arguments, expected 0 or 1, but got %d", len(ignore))
	}
	list, _ := recall(x, &dependency{id: "catalog.datacenters", kind: kindDatacenter}, []string{})
	return list, nil
}

func (x *execution) caRoots(...string) (any, error) {
	value, _ := x.recall(&dependency{id: "connect.caroots", kind: kindCARoots})
	return value, nil
}

func (x *execution) caLeaf(args ...string) (any, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, nil
	}
	d := &dependency{id: "connect.caleaf(" + args[0] + ")", kind: kindCALeaf, name: args[0], asked: args[0], vault: true}
	value, _ := x.recall(d)
	return value, nil
}

// noParams is the answer where nothing gives params.
const noParams = "no params here: this jorc has no cluster"

// params are the effective params of this host's member; ok is false while they
// are not known.
func (x *execution) params() (p profile.Params, ok bool, err error) {
	if !x.opts.Params {
		return nil, false, x.fail(noParams)
	}
	p, ok = recall[profile.Params](x, &dependency{id: "params", kind: kindParams}, nil)
	return p, ok, nil
}

// param is a param as it is now. One that does not exist is an error: the file
// stays as it is.
func (x *execution) param(name string) (any, error) {
	p, known, err := x.params()
	if err != nil || !known {
		return "", err
	}
	v, ok := p[name]
	if !ok {
		shown := x.show(name)
		return nil, x.fail("param %s does not exist: set it, guard it with {{ if paramExists %s }}, or use {{ paramOr %s DEFAULT }}", shown, shown, shown)
	}
	return v.ForTemplate(), nil
}

// paramExists reports whether there is a param of that name, null included.
func (x *execution) paramExists(name string) (bool, error) {
	p, _, err := x.params()
	_, ok := p[name]
	return ok, err
}

// paramOr is a param as it is now, or fallback if it does not exist.
func (x *execution) paramOr(name string, fallback any) (any, error) {
	p, _, err := x.params()
	if v, ok := p[name]; ok {
		return v.ForTemplate(), err
	}
	return fallback, err
}
