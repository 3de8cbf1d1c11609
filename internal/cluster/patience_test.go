package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// TestElectPatiently: without any agent, a leader that goes on failing is
// replaced after the grace, one that recovers is not, and one that nobody
// could replace stays.
func TestElectPatiently(t *testing.T) {
	t.Parallel()
	c, s := initialized(t)
	addNode(t, s, "a", consul.HealthPassing, consul.HealthPassing)
	join(t, c, "a")
	timing := cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 500 * time.Millisecond}
	var waited [][]string
	elect := func(during func(), want ...string) {
		t.Helper()
		waited = nil
		l, err := c.ElectPatiently(t.Context(), timing, func(failing, retired []string) {
			waited = append(waited, failing, retired)
			if during != nil {
				during()
			}
		})
		if err != nil || !slices.Equal(l.Leader, want) {
			t.Errorf("ElectPatiently = %+v, %v; want %q", l, err, want)
		}
	}
	elect(nil, "a")
	addNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
	elect(nil, "a") // nobody better
	if len(waited) != 0 {
		t.Errorf("waited for %q; nobody could take the place", waited)
	}
	addNode(t, s, "b", consul.HealthPassing, consul.HealthPassing)
	join(t, c, "b")
	elect(func() { addNode(t, s, "a", consul.HealthPassing, consul.HealthPassing) }, "a")
	if len(waited) != 2 || !slices.Equal(waited[0], []string{"a"}) {
		t.Errorf("waited for %q; want that a recovers", waited)
	}
	addNode(t, s, "a", consul.HealthCritical, consul.HealthPassing)
	elect(nil, "b")
	if len(waited) != 4 || !slices.Equal(waited[0], []string{"a"}) || !slices.Equal(waited[3], []string{"a"}) {
		t.Errorf("waited for %q; want a failing, then a retired", waited)
	}
	l, err := c.Leaders(t.Context())
	if err != nil || !slices.Equal(l.Leader, []string{"b"}) || len(l.Retired) != 0 {
		t.Errorf("Leaders = %+v, %v; want b, nobody retired", l, err)
	}
}
