package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// followed is the last that a watch of params said.
type followed struct {
	mu  sync.Mutex
	now profile.Params
	err error
}

func follow(t *testing.T, p fleet.Params) *followed {
	t.Helper()
	f := &followed{err: errors.New("nothing was said yet")}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- p.Watch(ctx, func(now profile.Params, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.now, f.err = now, err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v, want ctx's error", err)
		}
	})
	return f
}

// wait waits until param key is what is wanted, null if it does not exist.
func (f *followed) wait(t *testing.T, key, want string) {
	t.Helper()
	consultest.Eventually(t, fmt.Sprintf("param %s to be %s", key, want), func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err == nil && f.now[key].String() != want {
			return fmt.Errorf("it is %s", f.now[key])
		}
		return f.err
	})
}

// TestParamsWatch: every layer that changes is seen, with what derived roles
// bring, and a profile that is gone is an error.
func TestParamsWatch(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.New(t)
	f := follow(t, c.ParamsOf("n1"))
	consultest.Eventually(t, "no profile to be told", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !errors.Is(f.err, cluster.ErrNoCluster) {
			return fmt.Errorf("got %v", f.err)
		}
		return nil
	})
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(scope profile.Scope, text string) {
		t.Helper()
		_, err := c.Set(t.Context(), scope, "size", clustertest.Value(t, text), profile.Ref{})
		do(err)
	}
	_, err := c.Init(t.Context(), fleet.InitOptions{})
	do(err)
	f.wait(t, "cluster/profile", fmt.Sprintf("%q", c.Name()))
	set(profile.Scope{}, "1")
	f.wait(t, "size", "1")
	set(profile.Scope{Role: cluster.RoleLeader}, "2")
	f.wait(t, "size", "1")
	_, err = c.Join(t.Context(), "n1", func(r cluster.Record) (cluster.Record, error) { return r, nil })
	do(err)
	f.wait(t, "size", "2") // it leads, as the first to join
	do(c.SetMemberParam(t.Context(), "n1", "size", clustertest.Value(t, "3"), profile.Ref{}))
	f.wait(t, "size", "3")
}
