package main

import (
	"context"
	"fmt"
	"time"
)

// keySpace is many keys below one prefix, with a template for each.
type keySpace struct {
	consul *consul
	prefix string
	values []string
}

func newKeySpace(n int) func(string, *consul) space {
	return func(name string, c *consul) space {
		s := &keySpace{consul: c, prefix: name + "/", values: make([]string, n)}
		for i := range s.values {
			s.values[i] = fmt.Sprintf("value-%d", i)
		}
		return s
	}
}

func (s *keySpace) key(i int) string { return fmt.Sprintf("%sapp-%05d", s.prefix, i) }

func (s *keySpace) fill(ctx context.Context) error {
	return s.consul.putKeys(ctx, len(s.values), func(i int) (string, string) { return s.key(i), s.values[i] })
}

func (s *keySpace) template(i int) string { return fmt.Sprintf("value = {{ key %q }}\n", s.key(i)) }

func (s *keySpace) content(i int) string { return "value = " + s.values[i] + "\n" }

func changeKey(ctx context.Context, s space, i, n int) error {
	k := s.(*keySpace)
	k.values[i] = fmt.Sprintf("changed-%d", n)
	return k.consul.putKey(ctx, k.key(i), k.values[i])
}

// Gaps between changes. consul-template lets 100 to 120 ms pass between two
// fetches of the same thing.
const (
	gapSame  = 130 * time.Millisecond
	gapOther = 30 * time.Millisecond
)

const (
	ownConsul = "consul-template opens a connection for each thing it watches and never finishes its first render with Consul's default of 200 " +
		"connections per client: it has a second Consul of its own with http_max_conns_per_client raised. jorc works with the default."
	keysAlone = "jorc alone: consul-template would need 10,000 connections to Consul, 50 times the default limit, and has each of its " +
		"10,000 templates executed for every change."
)

// keyWork is n keys, one template for each.
func keyWork(n int, s size) *work {
	ofFloor := map[int]float64{1: 1.15, 100: 1.2, 1000: 1.4, 10000: 1.8}
	st := step{
		what: fmt.Sprintf("change → file, %d keys", n), limit: noTarget, ofFloor: ofFloor[n], samples: s.samples, gap: gapOther, change: changeKey,
	}
	w := &work{
		name: fmt.Sprintf("%d keys", n), templates: n, space: newKeySpace(n),
		idle: n == 1000, memory: n >= 1000,
	}
	switch {
	case n == 1:
		w.name, st.what, st.gap = "1 key", "change → file, 1 key", gapSame
	case n == 100:
		st.ofPeer = 5
	case n > 1000:
		w.alone, w.maxRSS = keysAlone, maxLargeMB
	case n > 150:
		w.own = ownConsul
	}
	w.steps = []step{st}
	return w
}
