package consul_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestInstances: what a reader returns is what a complete answer says, after each kind
// of change, and an instance that did not change is the same value as before.
func TestInstances(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	put := func(i, port int, status string) {
		t.Helper()
		node := fmt.Sprintf("n%02d", i)
		err := c.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1",
			Service: &consul.AgentService{ID: "web", Service: "web", Port: port, Tags: []string{"a\"b", "é\n"}, Meta: map[string]string{"x": "]}"}},
			Checks:  consul.HealthChecks{{Node: node, CheckID: "c", Name: "c", ServiceID: "web", Status: status, Output: `{"a": "\"`}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		put(i, 80, "passing")
	}
	made := 0
	all := consul.NewInstances(c, consul.InstancesOf{Service: "web"}, func(e *consul.ServiceEntry) *consul.ServiceEntry { made++; return e })
	var last []*consul.ServiceEntry
	read := func(what string, wantMade int) {
		t.Helper()
		made = 0
		got, meta, err := all.Read(t.Context(), consul.Query{})
		want, wantMeta, wantErr := c.HealthService(t.Context(), "web", "", false, consul.Query{})
		if err != nil || wantErr != nil || meta.Index != wantMeta.Index || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %d instances at index %d, %v; want %d at %d, %v", what, len(got), meta.Index, err, len(want), wantMeta.Index, wantErr)
		}
		if made != wantMade {
			t.Errorf("%s: %d instances were decoded, want %d", what, made, wantMade)
		}
		last = got
	}
	read("first", 20)
	kept := last[3]
	read("no change", 0)
	put(7, 80, "critical")
	read("a check", 1)
	if last[3] != kept {
		t.Error("an instance that did not change was decoded again")
	}
	put(7, 81, "passing")
	put(8, 81, "passing")
	read("two ports and a check", 2)
	if err := c.CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: "n03"}); err != nil {
		t.Fatal(err)
	}
	read("one less", 0)
	put(3, 80, "passing")
	read("one more", 1)
	passing := consul.NewInstances(c, consul.InstancesOf{Service: "web", Passing: true, Tag: "a\"b"}, func(e *consul.ServiceEntry) string { return e.Node.Node })
	put(5, 80, "critical")
	got, _, err := passing.Read(t.Context(), consul.Query{})
	if err != nil || len(got) != 19 {
		t.Errorf("%d instances pass, %v; want 19", len(got), err)
	}
	none := consul.NewInstances(c, consul.InstancesOf{Service: "no/such service"}, func(*consul.ServiceEntry) int { return 1 })
	if got, _, err := none.Read(t.Context(), consul.Query{}); err != nil || len(got) != 0 {
		t.Errorf("a service that does not exist has %v, %v", got, err)
	}
}
