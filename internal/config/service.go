package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/jorc/jorc/internal/text"
)

var onStopWords = []string{"keep", "deregister", "maintenance"}

// service decodes a service block of jorc's configuration or of a service file
// of Consul.
func (d *decoder) service(b *hcl.Block) Service {
	s, def := Service{Name: b.Labels[0]}, b.LabelRanges[0]
	if def == (hcl.Range{}) { // the label of a service file, which is reported
		def = b.TypeRange
	} else if err := checkServiceName(s.Name); err != nil {
		d.errorf(def, "Invalid service", "%v.", err)
		s.Name = ""
	} else if err := text.CheckLabel(s.Name); err != nil {
		d.faultf(def, "Invalid service", "Consul's DNS has no answer for %q, so 'jorc wait' never finds it: %v. Use letters, digits and dashes, 63 at most.", s.Name, err)
	}
	var checks []checkAt
	args := d.decode(b.Body, def, &s, custom{
		"tagged_addresses": d.taggedAddresses(&s.TaggedAddresses),
	}, nested{
		"weights": {once: true, read: func(b *hcl.Block) {
			s.Weights = &Weights{Passing: 1, Warning: 1}
			args := d.decode(b.Body, b.TypeRange, s.Weights, nil, nil)
			args.between(1, math.MaxUint16, "passing")
			args.between(0, math.MaxUint16, "warning")
		}},
		"check": {read: func(b *hcl.Block) { checks = append(checks, d.check(b)) }},
	})
	args.notEmpty("address")
	args.between(0, math.MaxUint16, "port")
	args.oneOf("on_stop", onStopWords...)
	rng := args.def
	if !args.ok("id") || !args.valid("id", checkServiceName(s.ID)) {
		s.ID = s.Name
	} else {
		rng = args.at("id")
	}
	for _, c := range checks {
		s.Checks = append(s.Checks, c.check)
	}
	s = s.WithDefaults()
	d.claimIDs(s, checks, rng)
	return s
}

// claimIDs checks that the ids of a service and of its checks are used once.
func (d *decoder) claimIDs(s Service, checks []checkAt, rng hcl.Range) {
	if s.ID == "" {
		return
	}
	d.claim("service id", "", s.ID, rng, checkServiceName)
	for i, c := range s.Checks {
		d.claim("check id", "", c.ID, checks[i].rng, text.CheckVisible)
	}
}

// WithDefaults returns s with its id, the ports of its tagged addresses, and the ids,
// intervals and timeouts of its checks.
func (s Service) WithDefaults() Service {
	s.ID = cmp.Or(s.ID, s.Name)
	s.TaggedAddresses, s.Checks = maps.Clone(s.TaggedAddresses), slices.Clone(s.Checks)
	for name, a := range s.TaggedAddresses {
		a.Port = cmp.Or(a.Port, s.Port)
		s.TaggedAddresses[name] = a
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		switch { // by the rules of Consul, which would assign the same ids
		case c.ID != "":
		case len(s.Checks) == 1:
			c.ID = "service:" + s.ID
		default:
			c.ID = fmt.Sprintf("service:%s:%d", s.ID, i+1)
		}
		timeout := defaultNetworkCheck
		switch {
		case c.TTL != 0, c.Alias != "":
			continue
		case len(c.Script) > 0, c.Shell != "":
			timeout = defaultScriptCheck
		}
		c.Interval, c.Timeout = cmp.Or(c.Interval, defaultCheckEvery), cmp.Or(c.Timeout, timeout)
	}
	return s
}

// taggedAddresses decodes name → "host" or "host:port", or Consul's objects.
func (d *decoder) taggedAddresses(p *map[string]Address) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		all := map[string]Address{}
		d.members(a.Expr, a.Name, func(name string, v hcl.Expression) {
			if strings.TrimSpace(name) == "" {
				d.errorf(v.Range(), "Invalid address", "The name of a tagged address must not be empty.")
				return
			}
			if addr, ok := d.address(v, name); ok {
				all[name] = addr
			}
		})
		*p = all
	}
}

func (d *decoder) address(expr hcl.Expression, name string) (Address, bool) {
	if kindOf(expr) == kindObject {
		var addr Address
		args := d.decode(d.objectBody(expr, fmt.Sprintf("the address %q", name)), expr.Range(), &addr, nil, nil)
		args.notEmpty("address")
		args.between(0, math.MaxUint16, "port")
		args.required(fmt.Sprintf("The address %q", name), "address")
		return addr, addr.Host != ""
	}
	s, ok := d.str(expr, name)
	if !ok {
		return Address{}, false
	}
	addr, err := parseAddress(s)
	if err != nil {
		d.errorf(expr.Range(), "Invalid address", "%v.", err)
		return Address{}, false
	}
	return addr, true
}

// Kinds of checks: with and without an interval.
var (
	activeChecks  = []string{"script", "http", "tcp", "udp", "grpc", "h2ping"}
	passiveChecks = []string{"ttl", "alias_service"}
)

// checkAt is a check and its position.
type checkAt struct {
	check Check
	rng   hcl.Range
}

func (d *decoder) check(b *hcl.Block) checkAt {
	var c Check
	args := d.decode(b.Body, b.TypeRange, &c, custom{
		"script":   d.checkScript(&c),
		"header":   d.headers(&c.Header),
		"ttl":      d.interval(&c.TTL),
		"interval": d.interval(&c.Interval),
		"timeout":  d.interval(&c.Timeout),

		"deregister_critical_service_after": d.interval(&c.DeregisterCriticalServiceAfter),
	}, nil)
	args.notEmpty("id", "method", "grpc", "tls_server_name")
	args.valid("http", checkURL(c.HTTP))
	args.valid("tcp", checkHostPort(c.TCP))
	args.valid("udp", checkHostPort(c.UDP))
	args.valid("h2ping", checkHostPort(c.H2Ping))
	args.valid("alias_service", checkServiceName(c.Alias))
	args.oneOf("status", "passing", "warning", "critical")
	args.between(0, math.MaxInt32, "success_before_passing", "failures_before_warning", "failures_before_critical")
	d.checkKinds(args)
	if w, k := c.FailuresBeforeWarning, c.FailuresBeforeCritical; w > k && k > 0 {
		d.errorf(args.at("failures_before_warning"), "Invalid number", `"failures_before_warning" must not be more than "failures_before_critical".`)
	}
	return checkAt{check: c, rng: args.at("id")}
}

// checkKinds checks that a check is of one kind, with what belongs to it.
func (d *decoder) checkKinds(args *arguments) {
	if args.has("id") {
		args.def = args.at("id")
	}
	args.exactlyOne("A check", append(activeChecks, passiveChecks...)...)
	active, passive := args.first(activeChecks), args.first(passiveChecks)
	switch {
	case active != "" && passive == "" && !args.has("interval"):
		d.errorf(args.def, "Missing argument", `A check of this kind needs an interval, such as interval = "10s".`)
	case active == "" && passive != "" && args.has("interval"):
		d.errorf(args.at("interval"), "Conflicting arguments", "A check with %s does not run at intervals.", passive)
	}
	for _, name := range []string{"method", "header", "body"} {
		if active != "" && args.has(name) && !args.has("http") {
			d.errorf(args.at(name), "Conflicting arguments", "%q belongs to checks with http.", name)
		}
	}
}

// checkScript decodes a check's script. In a service file of Consul a string is
// a shell command.
func (d *decoder) checkScript(c *Check) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if !d.consulFile || normal(a.Name) != "script" || kindOf(a.Expr) != kindString {
			d.command(&c.Script)(a)
			return
		}
		if c.Shell, _ = d.str(a.Expr, a.Name); c.Shell == "" {
			d.errorf(a.Expr.Range(), "Empty value", "%q must not be empty.", a.Name)
		}
	}
}

// headers decodes name → value or list of values.
func (d *decoder) headers(p *map[string][]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		all := map[string][]string{}
		d.members(a.Expr, a.Name, func(key string, v hcl.Expression) {
			values := []hcl.Expression{v}
			if kindOf(v) != kindString {
				values, _ = d.elements(v, key)
			}
			for i, value := range values {
				if s, ok := d.str(value, nth(key, i)); ok {
					all[key] = append(all[key], s)
				}
			}
		})
		*p = all
	}
}
