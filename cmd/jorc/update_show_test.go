package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/pace"
)

// TestShowRollout: the answer has who triggered the rollout, why and when, and one set of
// counts; attention names the cause and the next attempt before the end of a pause.
func TestShowRollout(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.want("update trigger v1 --max-parallel 2 --reason kernel", 0)
	o.want("update show", 0, "started", " by ", ": kernel")
	o.report("v1", "n1", "n2")
	var got struct {
		Counts, Now pace.Counts
	}
	if err := json.Unmarshal([]byte(o.run("update show -o json").stdout), &got); err != nil || got.Now.Done != 2 || got.Counts != got.Now {
		t.Errorf("update show -o json: %+v, %v", got, err)
	}
	o.want("update pause --reason lunch", 0)
	o.want("cluster attention", 1, "jorc update resume")
	o.want("status set config failed --host n3", 0)
	paused := func() (cause, command string) {
		var all struct {
			Problems []struct{ Kind, Cause, Command string }
		}
		if err := json.Unmarshal([]byte(o.run("cluster attention -o json").stdout), &all); err != nil {
			t.Fatal(err)
		}
		for _, p := range all.Problems {
			if p.Kind == "change_stopped" {
				return p.Cause, p.Command
			}
		}
		return "", ""
	}
	cause, command := paused()
	if !strings.Contains(cause, "lunch") || !strings.Contains(cause, "then 'jorc update retry HOST' (n3), then 'jorc update resume'") || !strings.HasSuffix(command, "update why n3") {
		t.Errorf("attention: %q, %q", cause, command)
	}
}
