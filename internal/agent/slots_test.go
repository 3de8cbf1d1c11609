package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/web"
)

// slotted reloads for as long as there is no file "go".
const slotted = `
node = "NODE"
template "pool" {
	contents     = "{{ key \"pool\" }}"
	destination  = "DIR/pool"
	reload       = ["sh", "-c", "until [ -e DIR/go ]; do sleep 0.02; done"]
	slot         = "edge"
	max_parallel = 1
}`

// TestReloadsTakeTurns lets two hosts reload in one slot.
func TestReloadsTakeTurns(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	first := newHost(t, s, strings.ReplaceAll(slotted, "NODE", "n1"))
	second := newHost(t, s, strings.ReplaceAll(slotted, "NODE", "n2"))
	groups := slots.New(kv.New(s.Client(), "jorc/default"), slots.Options{})
	holder := func() (e slots.Entry) {
		v, _, err := groups.Show(t.Context(), "edge")
		if err == nil && len(v.Holders) == 1 {
			e = v.Holders[0]
		}
		return e
	}
	first.put("pool", "1")
	first.start()
	first.eventually("the first host's slot", func() error {
		if e := holder(); e.Node != "n1" || e.Reason != "reload of template pool" {
			return fmt.Errorf("got %+v", e)
		}
		return nil
	})
	second.start()
	second.wantTemplate("pool", func(s web.Template) bool {
		return strings.Contains(strings.Join(s.Waiting, "\n"), `a slot of "edge"`)
	})
	first.write("go", "")
	first.wantTemplate("pool", func(s web.Template) bool { return s.State == "rendered" })
	second.eventually("the second host's slot", func() error {
		if e := holder(); e.Node != "n2" {
			return fmt.Errorf("got %+v", e)
		}
		return nil
	})
	second.write("go", "")
	second.wantFile("pool", "1")
	second.wantTemplate("pool", func(s web.Template) bool { return s.State == "rendered" })
	first.eventually("a free slot", func() error {
		if e := holder(); e.Node != "" {
			return fmt.Errorf("got %+v", e)
		}
		return nil
	})
}
