// Package blocker waits for services: it parses what is waited for, asks
// Consul's DNS whether it is there, and lets a blocking query on the health
// API wake it up so that it seldom asks in vain.
package blocker

import (
	"context"
	"net"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
)

// DNS decides. *catalog.Resolver is one.
type DNS interface {
	SRV(ctx context.Context, name string) (catalog.SRVAnswer, error)
	Addresses(ctx context.Context, name string, v6 bool) (catalog.AddressAnswer, error)
}

// Health wakes up, counts what DNS cannot carry, and tells why. FromClient
// makes one.
type Health interface {
	// Watch hands over the instances now and whenever they change.
	Watch(ctx context.Context, s ServiceQuery, handle func(HealthUpdate)) error
	// Read hands over the instances once.
	Read(ctx context.Context, s ServiceQuery) HealthUpdate
	// MayRead asks whether the token may read the service at all.
	MayRead(ctx context.Context, service string) (bool, error)
}

// ServiceQuery names instances in Consul's catalog.
type ServiceQuery struct {
	Service    string
	Tag        string
	Datacenter string
}

// HealthUpdate is all instances of a service, critical ones included.
type HealthUpdate = consul.Update[[]*consul.ServiceEntry]

// Blocker waits for needs. It is safe for concurrent use.
type Blocker struct {
	dns    DNS
	health Health // nil: there is no HTTP API
	dialer net.Dialer
}

// New returns a Blocker that asks dns and is woken by health, which may be nil
// for waits with Options.DNSOnly.
func New(dns DNS, health Health) *Blocker { return &Blocker{dns: dns, health: health} }

// FromClient is the Health of a Consul client.
func FromClient(c *consul.Client) Health { return clientHealth{c} }

type clientHealth struct{ client *consul.Client }

func (h clientHealth) source(s ServiceQuery) consul.Source[[]*consul.ServiceEntry] {
	return func(ctx context.Context, q consul.Query) ([]*consul.ServiceEntry, consul.Meta, error) {
		q.Datacenter = s.Datacenter
		return h.client.HealthService(ctx, s.Service, s.Tag, false, q)
	}
}

func (h clientHealth) Watch(ctx context.Context, s ServiceQuery, handle func(HealthUpdate)) error {
	return consul.Watch(ctx, h.client, consul.Query{}, h.source(s), handle)
}

func (h clientHealth) Read(ctx context.Context, s ServiceQuery) HealthUpdate {
	v, meta, err := h.source(s)(ctx, consul.Query{})
	return HealthUpdate{Value: v, Meta: meta, Err: err}
}

func (h clientHealth) MayRead(ctx context.Context, service string) (bool, error) {
	allowed, err := h.client.Authorize(ctx, consul.Right{Resource: "service", Access: "read", Segment: service})
	return err == nil && allowed[0], err
}
