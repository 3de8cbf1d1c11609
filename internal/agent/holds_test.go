package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
)

// TestHolds: what is held stays as it is; while the cluster is paused nothing new
// begins, and what has begun goes on.
func TestHolds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		now         converge.Hold
		free, begin bool
	}{
		{"nothing", converge.Hold{}, true, true},
		{"held", converge.Hold{Held: "why"}, false, false},
		{"paused", converge.Hold{Paused: "why"}, true, false},
	} {
		for what, wait := range map[string]struct {
			on   func(*holds, context.Context) error
			want bool
		}{
			"free": {(*holds).free, test.free}, "begin": {(*holds).begin, test.begin},
		} {
			h := &holds{}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- wait.on(h, ctx) }()
			watched := func() bool {
				h.now.mu.Lock()
				defer h.now.mu.Unlock()
				return h.now.changed != nil
			}
			waits := func(context.Context) error {
				if !watched() {
					return errors.New("nobody waits")
				}
				return nil
			}
			consultest.Eventually(t, what+" to wait", waits)
			h.now.set(test.now)
			if !wait.want {
				consultest.Eventually(t, what+" to wait again", waits)
				h.now.set(converge.Hold{Held: "another reason"})
				consultest.Eventually(t, what+" to wait for ever", waits)
				cancel()
			}
			if err := <-ended; (err == nil) != wait.want {
				t.Errorf("%s: %s returned %v", test.name, what, err)
			}
			cancel()
		}
	}
}
