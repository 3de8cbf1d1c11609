package watch_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/watch"
)

// TestDataThatArrivesDuringAnExecution: a template whose data arrives between two
// uses in one execution is executed again.
func TestDataThatArrivesDuringAnExecution(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t))
	h.edit = func(o *watch.Options) { o.Allow.AllowFunctions = []string{"plugin"} }
	script := h.path("script")
	if err := os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\nuntil [ -e '%s' ]; do sleep 0.01; done\n", h.path("go"))), 0o700); err != nil {
		t.Fatal(err)
	}
	h.run(h.tmpl("slow", `{{ key "k" }}{{ plugin "`+script+`" }}{{ key "k" }}`), h.tmpl("other", `{{ key "k" }}`))
	h.put("k", "v")
	h.want("other", "v")
	h.write("go", "")
	h.want("slow", "vv")
}

// TestDataThatIsUsedAgain: a change that arrives while no template uses the data is
// there when one does again, also while a busy engine still watches it.
func TestDataThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h, other := newHost(t, s), newHost(t, s)
	h.edit = func(o *watch.Options) { o.Allow.AllowFunctions = []string{"plugin"} }
	// The files that jorc follows locally cost no query: this keeps the engine busy.
	busy := h.path("busy-input")
	h.write("busy-input", "0")
	h.put("use", "yes")
	h.put("k", "0")
	h.run(
		h.tmpl("t", `{{ if eq (key "use") "yes" }}{{ key "k" }}{{ else }}unused{{ end }}`),
		h.tmpl("busy", `{{ file "`+busy+`" }}{{ plugin "sleep" "0.05" }}`, func(c *config.Template) { c.AllowEmpty = true }),
	)
	other.run(other.tmpl("k", `{{ key "k" }}`))
	h.want("t", "0")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.WriteFile(busy, []byte(fmt.Sprint(i)), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	for i := range 5 {
		value := fmt.Sprint(i + 1)
		h.put("use", "no")
		h.want("t", "unused")
		h.put("k", value)
		other.want("k", value)
		h.put("use", "yes")
		h.want("t", value)
	}
}
