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
	known  map[digest]known[T] // by the text of the instance, of the last answer
	order  []part              // of the last answer
	next   map[digest]known[T] // of the answer that is being read, as parts
	parts  []part
}

// known is what was made of an instance, and its place in the answer.
type known[T any] struct {
	value T
	place int
}

// part is the text of one instance.
type part struct {
	digest digest
	length int
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
		known: map[digest]known[T]{}, next: map[digest]known[T]{},
	}
}

// Read returns what was made of each instance, in Consul's order.
func (i *Instances[T]) Read(ctx context.Context, q Query) ([]T, Meta, error) {
	return read(ctx, i.client, "read service", i.name, q, func(o *api.QueryOptions) ([]T, *api.QueryMeta, error) {
		list, meta, err := bulk(i.client, i.ask, i.list)(o)
		if err == nil {
			i.known, i.next = i.next, i.known
			i.order, i.parts = i.parts, i.order
		}
		clear(i.next)
		i.parts = i.parts[:0]
		return list, meta, err
	})
}

func (i *Instances[T]) list(s *scanner) []T {
	i.ask.size = len(s.text)
	list := make([]T, 0, len(i.known))
	expected := 0 // the next instance has probably the text of this one of the last answer
	s.array(func() {
		p, v, ok := i.again(s, expected)
		if !ok {
			text := s.nested()
			if s.err != nil {
				return
			}
			p = part{i.digest(text), len(text)}
			if v, ok = i.known[p.digest]; !ok {
				var e ServiceEntry
				if err := json.Unmarshal(text, &e); err != nil {
					s.fail()
					return
				}
				v = known[T]{value: i.of(&e), place: expected}
			}
		}
		expected = v.place + 1
		if !ok {
			expected-- // it may have come in between
		}
		v.place = len(i.parts)
		i.next[p.digest] = v
		i.parts = append(i.parts, p)
		list = append(list, v.value)
	})
	return list
}

// again reads an instance whose text is that of a place in the last answer. Its digest says
// so: its end need not be searched for.
func (i *Instances[T]) again(s *scanner, place int) (p part, v known[T], ok bool) {
	if place >= len(i.order) || s.next() == 0 {
		return p, v, false
	}
	p = i.order[place]
	if len(s.text)-s.at < p.length || i.digest(s.text[s.at:s.at+p.length]) != p.digest {
		return p, v, false
	}
	s.at += p.length
	v, ok = i.known[p.digest]
	return p, v, ok
}

func (i *Instances[T]) digest(text []byte) digest {
	return digest{maphash.Bytes(i.seeds[0], text), maphash.Bytes(i.seeds[1], text)}
}
