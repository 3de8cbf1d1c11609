package agent_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestTrigger: what changes in Consul runs a workflow of this host, which finds
// what it was in a file.
func TestTrigger(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
trigger "pool" {
  service  = "db"
  workflow = "note"
}
workflow "note" {
  task "note" { script = "cp \"$JORC_CHANGE\" DIR/change" }
}
`)
	h.start()
	h.eventually("a first look", func() error {
		_, err := os.Stat(h.path("state/triggers/pool.json"))
		return err
	})
	h.register("db")
	h.eventually("the change", func() error {
		data, err := os.ReadFile(h.path("change"))
		if err != nil {
			return err
		}
		return contains(string(data), fmt.Sprintf(`"item":"%s/db","change":"added"`, h.server.Node))
	})
}
