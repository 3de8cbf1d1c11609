package workflow

import (
	"errors"
	"testing"
)

func TestForget(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{}, sh("one", "[ -e $DIR/now ] || { touch $DIR/now; exit 196; }"))
	want(t, "state", h.run().State, Pending)
	if err := h.Forget("j"); !errors.Is(err, ErrBusy) {
		t.Errorf("Forget of an open job = %v, want ErrBusy", err)
	}
	want(t, "state", h.run().State, Success)
	if err := h.Forget("j"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"j", "never"} {
		if err := h.Forget(id); !errors.Is(err, ErrNoJob) {
			t.Errorf("Forget(%s) = %v, want ErrNoJob", id, err)
		}
	}
	if _, err := h.Job("j"); !errors.Is(err, ErrNoJob) {
		t.Errorf("Job = %v, want ErrNoJob", err)
	}
}
