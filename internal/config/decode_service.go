package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

var onStopWords = []string{"keep", "deregister", "maintenance"}

// serviceFields are what jorc's configuration and Consul's service files have
// in common.
func serviceFields(s *Service) fields {
	return fields{
		"id":                  parsed(&s.ID, serviceName),
		"address":             nonEmpty(&s.Address),
		"port":                number(&s.Port, 0, 65535),
		"tags":                texts(&s.Tags),
		"meta":                textMap(&s.Meta),
		"tagged_addresses":    taggedAddresses(&s.TaggedAddresses),
		"enable_tag_override": boolean(&s.EnableTagOverride),
	}
}

func weightFields(w *Weights) fields {
	return fields{"passing": number(&w.Passing, 1, 65535), "warning": number(&w.Warning, 0, 65535)}
}

func (d *decoder) service(b *hcl.Block) Service {
	s := Service{Name: b.Labels[0]}
	if err := serviceName(s.Name); err != nil {
		d.errorf(b.LabelRanges[0], "Invalid service", "%v.", err)
		s.Name = ""
	}
	var checks []checkAt
	f := serviceFields(&s)
	f["on_stop"] = oneOf(&s.OnStop, onStopWords...)
	have := d.body(b.Body, f, nested{
		"weights": {once: true, read: func(b *hcl.Block) {
			s.Weights = &Weights{Passing: 1, Warning: 1}
			d.body(b.Body, weightFields(s.Weights), nil)
		}},
		"check": {read: func(b *hcl.Block) { checks = append(checks, d.check(b)) }},
	})
	d.finishService(&s, checks, have, b.LabelRanges[0])
	return s
}

// finishService fills in what a service's parts take from each other.
func (d *decoder) finishService(s *Service, checks []checkAt, have present, def hcl.Range) {
	rng := def
	if s.ID == "" {
		s.ID = s.Name
	} else if at, ok := have["id"]; ok {
		rng = at
	}
	if s.ID != "" {
		d.claim("service id", "", s.ID, rng, serviceName)
	}
	for name, a := range s.TaggedAddresses {
		if a.Port == 0 {
			a.Port = s.Port
			s.TaggedAddresses[name] = a
		}
	}
	for i, c := range checks {
		if c.check.ID == "" {
			c.check.ID = "service:" + s.ID
			if len(checks) > 1 {
				c.check.ID = fmt.Sprintf("service:%s:%d", s.ID, i+1)
			}
		}
		if s.ID != "" {
			d.claim("check id", "", c.check.ID, c.rng, func(id string) error { return plain(id) })
		}
		s.Checks = append(s.Checks, c.check)
	}
}

// taggedAddresses reads name → "host" or "host:port", or Consul's objects.
func taggedAddresses(p *map[string]Address) field {
	return func(d *decoder, a *hcl.Attribute) {
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
		have := d.object(expr, fmt.Sprintf("the address %q", name), fields{
			"address": nonEmpty(&addr.Host), "port": number(&addr.Port, 0, 65535),
		}, nil)
		d.required(have, expr.Range(), fmt.Sprintf("The address %q", name), "address")
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
