package cluster_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
)

// TestMemberOf: one member alone is what it is among all, and the cluster's
// filter says the same of it.
func TestMemberOf(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	addNode(t, s, "one", "passing", "warning")
	addNode(t, s, "two", "critical", "passing")
	for _, node := range []string{"one", "two", "hostless"} {
		join(t, c, node, "db")
	}
	report := &consul.KVPair{Key: "jorc/prod/nodes/one", Value: []byte(`{"format":1,"version":"v7","states":{"config":{"state":"failed"}}}`)}
	if err := s.Client().KVPut(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	filter, err := profile.ParseValue(`Health == "warning" or Version == "v7" or Agent == "up"`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), profile.Scope{}, cluster.ParamFilter, filter, profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	f, err := c.Filter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Profile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range members(t, c, "") {
		got, err := c.MemberOf(t.Context(), node, cluster.NeedAll)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", node, got, err, want)
		}
		belongs, err := c.Belongs(t.Context(), d, node)
		if err != nil || belongs != f.Match(&want) {
			t.Errorf("%s belongs: got %t, %v, want %t", node, belongs, err, f.Match(&want))
		}
	}
	if _, err := c.MemberOf(t.Context(), "stranger", cluster.NeedAll); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("got %v, want ErrNoMember", err)
	}
}
