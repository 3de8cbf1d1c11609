package watch

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	dep "github.com/hashicorp/consul-template/dependency"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// TestNodesThatAreGone: a node that left the catalog is forgotten, and what was on it is read again; nodes that come
// and go for months leave nothing behind.
func TestNodesThatAreGone(t *testing.T) {
	t.Parallel()
	changes := make(chan batch, 10)
	web := &dependency{id: "web", kind: kindService, name: "web"}
	reads := 0
	w := &sharedWatcher{
		sources: &sources{changes: changes}, byName: map[string][]*dependency{"web": {web}}, places: newPlaces(), sweep: concurrency.NewSignal(),
		trackers: map[string]*sharedTracker{"web": {fetch: func(context.Context, consul.Query) (any, consul.Meta, error) {
			reads++
			return []*dep.HealthService{{Node: "stays", Name: "web"}}, consul.Meta{}, nil
		}}},
	}
	moved := w.moved(t.Context())
	w.places.note("web", []*dep.HealthService{{Node: "stays"}, {Node: "goes"}})
	w.places.compare("goes", map[string]consul.ServiceIndex{"web": {Service: "web", ModifyIndex: 7}})
	moved(consul.Update[any]{Value: map[string]uint64{"stays": 1, "goes": 2}})
	if reads != 0 {
		t.Errorf("%d reads before anything has changed", reads)
	}
	moved(consul.Update[any]{Value: map[string]uint64{"stays": 1}})
	if got := w.places.nodes(); !cmp.Equal(got, []string{"stays"}) || len(w.places.indexes) != 0 {
		t.Errorf("known are %v, with %d indexes; want the node that stays, without one", got, len(w.places.indexes))
	}
	if reads != 1 || len(changes) != 1 {
		t.Errorf("%d reads of the service that was on it, %d changes; want one", reads, len(changes))
	}
}
