//go:build soak

package watch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// Ten thousand templates of as many keys stay within Consul's limits while the
// keys change, and while Consul is killed and comes back.
func TestTenThousandTemplates(t *testing.T) {
	s := consultest.Start(t, consultest.Persistent())
	h := newHost(t, s)
	const n = 10_000
	key := func(i int) string { return fmt.Sprintf("many/%02d/key-%d", i%37, i) }
	values := make([]string, n)
	var ops consul.TxnOps
	set := func(i int, value string) {
		values[i] = value
		ops = append(ops, &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: key(i), Value: []byte(value)}})
		if len(ops) == 64 {
			h.txn(ops)
			ops = nil
		}
	}
	flush := func() { h.txn(ops); ops = nil }
	templates := make([]config.Template, n)
	for i := range n {
		set(i, "0")
		templates[i] = h.tmpl(fmt.Sprint(i), fmt.Sprintf("{{ key %q }}", key(i)))
	}
	flush()
	h.run(templates...)
	all := func() {
		t.Helper()
		for i, v := range values {
			h.want(fmt.Sprint(i), v)
		}
		if c := h.client.Stats().Connections; c > 64 {
			t.Errorf("%d connections", c)
		}
	}
	all()
	for round := range 20 {
		for range 500 {
			set(rand.N(n), fmt.Sprint("round ", round))
		}
		flush()
		if round == 10 {
			s.Kill()
			s.Restart()
		}
		all()
	}
	for i := range n {
		set(i, "end")
	}
	flush()
	all()
}
