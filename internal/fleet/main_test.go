package fleet_test

import (
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

func param(t testing.TB, c *fleet.Cluster, key string) string {
	t.Helper()
	d, err := c.Profile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := d.Params[key]; ok {
		return v.String()
	}
	return "missing"
}

// index is the number of Consul's last write below prefix.
func index(t testing.TB, s *consultest.Server, prefix string) uint64 {
	t.Helper()
	_, meta, err := s.Client().KVList(t.Context(), prefix, consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return meta.Index
}

// noDamage fails the test for a document that an export leaves out.
func noDamage(t testing.TB) func(key string, err error) {
	return func(key string, err error) {
		t.Helper()
		t.Errorf("the export leaves out %s: %v", key, err)
	}
}

var errTest = errors.New("a test's own")
