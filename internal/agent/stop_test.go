package agent_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// TestStopWhileReloading: a reload command that never ends does not keep the
// agent from ending; the next one makes it good.
func TestStopWhileReloading(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
template "t" {
  contents       = "{{ key \"k\" }}"
  destination    = "DIR/t"
  reload         = ["sh", "-c", "echo run >>DIR/runs; trap '' TERM; test -e DIR/quick || while :; do sleep 60; done"]
  reload_timeout = "1h"
}
`)
	h.stopWithin = time.Millisecond
	h.put("k", "1")
	h.start()
	h.wantFile("runs", "run\n")
	if err := h.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	h.write("quick", "")
	h.start()
	h.wantFile("runs", "run\nrun\n")
	h.wantTemplate("t", func(s web.Template) bool { return s.State == web.TemplateRendered })
	h.wantFile("t", "1")
}

// TestStopWithoutConsul: an agent that is to deregister its services ends also
// when Consul is frozen.
func TestStopWithoutConsul(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), "on_stop = \"deregister\"\n"+before)
	h.put("k", "1")
	h.start()
	h.wantFile("t", "1")
	h.wantServices("jorc", "web", "old")
	h.server.Freeze()
	if err := h.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	h.server.Thaw()
	if err := contains(h.log.String(), "cannot apply on_stop: services unchanged"); err != nil {
		t.Error(err)
	}
}

// TestWatchdog: the service manager gets watchdog notifications, also while
// interrupted replacements are repaired.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
template "t" {
  contents    = "x"
  destination = "DIR/t"
  reload      = ["sh", "-c", "echo run >>DIR/runs; while ! test -e DIR/go; do sleep 0.1; done"]
}
`)
	h.watchdog, h.stopWithin = 2*time.Second, time.Millisecond
	h.start()
	h.eventually("WATCHDOG=1", func() error { return contains(h.notified.String(), "WATCHDOG=1\nWATCHDOG=1") })
	h.wantFile("runs", "run\n")
	if err := h.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	h.notified = &buffer{}
	h.start()
	h.wantFile("runs", "run\nrun\n")
	h.eventually("WATCHDOG=1", func() error { return contains(h.notified.String(), "WATCHDOG=1\nWATCHDOG=1") })
	h.write("go", "")
	h.wantTemplate("t", func(s web.Template) bool { return s.State == web.TemplateRendered })
	if got := h.agent.Status().Unhealthy; got != "" {
		t.Errorf("unhealthy: %s", got)
	}
}
