package consul

import (
	"context"
	"encoding/json"
	"hash/maphash"

	"github.com/hashicorp/consul/api"
)

// Instances reads the instances of one service again and again. A change concerns few
// of the instances of a large service, but Consul answers with all of them. So what is
// made of an instance is kept, and only instances are decoded whose text differs from
// those of the last answer. It is not safe for concurrent use.
type Instances[T any] struct {
	client *Client
	name   string
	ask    request
	of     func(*ServiceEntry) T
	seeds  [2]maphash.Seed
	known  map[digest]T // by the text of the instance, of the last answer
	next   map[digest]T
}

// digest identifies a text, up to 2^-128.
type digest [2]uint64

// InstancesOf selects the instances of a service.
type InstancesOf struct {
	Service string
	Tag     string // empty: any
	Mesh    bool   // instances that accept connections of the service mesh
	Passing bool   // instances whose checks all pass
}

// NewInstances returns a reader of the instances of a service; of makes the value for
// an instance, which must not be changed later. NewInstances does no I/O.
func NewInstances[T any](c *Client, which InstancesOf, of func(*ServiceEntry) T) *Instances[T] {
	kind := "service"
	if which.Mesh {
		kind = "connect"
	}
	ask := request{path: "/v1/health/" + kind + "/" + which.Service, tag: which.Tag, passing: which.Passing}
	return &Instances[T]{
		client: c, name: which.Service, ask: ask, of: of,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		known: map[digest]T{}, next: map[digest]T{},
	}
}

// Read returns what was made of each instance, in Consul's order.
func (i *Instances[T]) Read(ctx context.Context, q Query) ([]T, Meta, error) {
	return read(ctx, i.client, "read service", i.name, q, func(o *api.QueryOptions) ([]T, *api.QueryMeta, error) {
		list, meta, err := bulk(i.client, i.ask, i.list)(o)
		if err == nil {
			i.known, i.next = i.next, i.known
		}
		clear(i.next)
		return list, meta, err
	})
}

func (i *Instances[T]) list(s *scanner) []T {
	list := make([]T, 0, len(i.known))
	s.array(func() {
		text := s.nested()
		if s.err != nil {
			return
		}
		key := digest{maphash.Bytes(i.seeds[0], text), maphash.Bytes(i.seeds[1], text)}
		v, ok := i.known[key]
		if !ok {
			var e ServiceEntry
			if err := json.Unmarshal(text, &e); err != nil {
				s.fail()
				return
			}
			v = i.of(&e)
		}
		i.next[key] = v
		list = append(list, v)
	})
	return list
}
