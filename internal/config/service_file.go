package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
)

// What Consul's service definitions may hold and jorc does not do.
var (
	unsupportedService = []string{
		"connect", "proxy", "token", "kind", "namespace", "partition", "socket_path", "locality", "ports",
		"agent_id", "replace_existing_checks", "datacenter",
	}
	unsupportedCheck = []string{
		"alias_node", "docker_container_id", "shell", "os_service", "output_max_size", "disable_redirects",
		"tcp_use_tls", "h2ping_use_tls", "service_id", "service_name", "node", "proxy_http", "proxy_grpc",
	}
)

// ParseServiceFile reads a service definition file of Consul: JSON, or HCL
// when its name ends in .hcl, with "service", "services", or one definition
// by itself; keys in snake_case or CamelCase. A check whose script is a string
// becomes Check.Shell. Errors are of type *Error.
func ParseServiceFile(path string) ([]Service, error) {
	d := newDecoder()
	src, err := readFile(path)
	if err != nil {
		d.errs = append(d.errs, err)
		return nil, d.err()
	}
	var services []Service
	if root := d.expression(path, src); root != nil {
		services = d.serviceFile(root)
	}
	if d.failed() {
		return nil, d.err()
	}
	return services, nil
}

// expression parses a whole file into one object, whichever syntax it has.
func (d *decoder) expression(name string, src []byte) hcl.Expression {
	if filepath.Ext(name) == ".hcl" {
		if f := d.parse(name, src); f != nil {
			return bodyObject(f.Body.(*hclsyntax.Body))
		}
		return nil
	}
	d.files[name] = &hcl.File{Bytes: src}
	if rng, err := nestingJSON(name, src); err != nil {
		d.errorf(rng, "Invalid syntax", "%v.", err)
		return nil
	}
	expr, diags := json.ParseExpression(src, name)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	return expr
}

func (d *decoder) serviceFile(root hcl.Expression) []Service {
	var services []Service
	read := func(d *decoder, a *hcl.Attribute) {
		for _, item := range d.items(a.Expr) {
			services = append(services, d.consulService(item))
		}
	}
	if d.isBareService(root) {
		return []Service{d.consulService(root)}
	}
	have := d.object(root, "a service file", fields{"service": read, "services": read}, nil)
	if !d.failed() && len(have) == 0 {
		d.errorf(root.Range(), "No service", `A service file holds "service": {…} or "services": […].`)
	}
	return services
}

// isBareService tells the body of a registration from a file of them.
func (d *decoder) isBareService(root hcl.Expression) bool {
	pairs, _ := hcl.ExprMap(root)
	named := false
	for _, p := range pairs {
		key, _ := constant(p.Key)
		if key.IsNull() || kindOf(p.Key) != kindString {
			continue
		}
		switch normal(key.AsString()) {
		case "service", "services":
			return false
		case "name", "id":
			named = true
		}
	}
	return named
}

func (d *decoder) consulService(expr hcl.Expression) Service {
	s := Service{}
	var checks []checkAt
	read := func(d *decoder, a *hcl.Attribute) {
		for _, item := range d.items(a.Expr) {
			checks = append(checks, d.consulCheck(item))
		}
	}
	f := serviceFields(&s)
	f["name"] = parsed(&s.Name, serviceName)
	f["check"], f["checks"] = read, read
	f["weights"] = func(d *decoder, a *hcl.Attribute) {
		s.Weights = &Weights{Passing: 1, Warning: 1}
		d.object(a.Expr, "weights", weightFields(s.Weights), nil)
	}
	have := d.object(expr, "a service", f, unsupportedService)
	def := expr.StartRange()
	if at, ok := have["name"]; ok {
		def = at
	}
	d.required(have, def, "A service", "name")
	d.finishService(&s, checks, have, def)
	return s
}

func (d *decoder) consulCheck(expr hcl.Expression) checkAt {
	c := checkAt{rng: expr.StartRange()}
	f := checkFields(&c.check)
	f["args"], f["script_args"] = command(&c.check.Script), command(&c.check.Script)
	f["check_id"] = f["id"]
	f["script"] = func(d *decoder, a *hcl.Attribute) {
		if kindOf(a.Expr) == kindString {
			nonEmpty(&c.check.Shell)(d, a)
			return
		}
		command(&c.check.Script)(d, a)
	}
	have := d.object(expr, "a check", f, unsupportedCheck)
	for alias, name := range map[string]string{"args": "script", "script_args": "script", "check_id": "id"} {
		at, ok := have[alias]
		if _, twice := have[name]; ok && twice {
			d.errorf(at, "Conflicting arguments", "%q and %q mean the same.", alias, name)
		} else if ok {
			have[name] = at
		}
	}
	d.finishCheck(&c, have)
	return c
}

// items are the elements of a list, or the one object that stands instead.
func (d *decoder) items(expr hcl.Expression) []hcl.Expression {
	if items, diags := hcl.ExprList(expr); !diags.HasErrors() {
		return items
	}
	return []hcl.Expression{expr}
}

// object reads an object whose keys may be written in Consul's two ways.
func (d *decoder) object(expr hcl.Expression, what string, f fields, unsupported []string) present {
	byName := map[string]string{}
	known := slices.Sorted(maps.Keys(f))
	for _, name := range known {
		byName[normal(name)] = name
	}
	have, seen := present{}, map[string]hcl.Range{}
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		d.errorf(expr.Range(), "Wrong type", "%s must be an object, not %s.", what, kindOf(expr))
		have[muddled] = expr.Range()
		return have
	}
	for _, p := range pairs {
		key, ok := d.str(p.Key, what)
		if !ok || key == "//" {
			continue
		}
		name, ok := byName[normal(key)]
		if !ok {
			have[muddled] = p.Key.Range()
			d.unknownKey(p.Key.Range(), key, what, known, unsupported)
			continue
		}
		if before, twice := seen[name]; twice {
			d.errorf(p.Key.Range(), "Duplicate key", "%q is already at %s.", key, position(before))
			continue
		}
		seen[name] = p.Key.Range()
		if kindOf(p.Value) == kindNull {
			continue
		}
		have[name] = p.Value.Range()
		f[name](d, &hcl.Attribute{Name: key, Expr: p.Value, Range: p.Value.Range(), NameRange: p.Key.Range()})
	}
	return have
}

func (d *decoder) unknownKey(rng hcl.Range, key, what string, known, unsupported []string) {
	for _, name := range unsupported {
		if normal(name) == normal(key) {
			d.errorf(rng, "Unsupported key", "Consul knows %s in %s, jorc does not support it.", strconv.Quote(key), what)
			return
		}
	}
	d.errorf(rng, "Unknown key", "%s is not known in %s.%s", strconv.Quote(key), what, suggest(key, known))
}

// normal makes CamelCase and snake_case the same.
func normal(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }
