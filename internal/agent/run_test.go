package agent_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/web"
)

// TestServicesDoNotWait: services are registered whatever becomes of templates,
// and each template fails alone.
func TestServicesDoNotWait(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
service "web" {
  port = 80
  check {
    script   = ["true"]
    interval = "1s"
  }
}
template "good" {
  contents    = "{{ key \"good\" }}"
  destination = "DIR/good"
}
template "syntax" {
  contents    = "{{ if }}"
  destination = "DIR/syntax"
}
template "absent" {
  source      = "DIR/absent.ctmpl"
  destination = "DIR/absent"
}
template "waiting" {
  contents    = "{{ key \"waiting\" }}"
  destination = "DIR/waiting"
}
template "refused" {
  contents    = "x"
  destination = "DIR/refused"
  check       = ["false"]
}
template "gated" {
  contents    = "x"
  destination = "DIR/gated"
  requires "gate" {}
}
`)
	h.put("good", "1")
	h.start()
	h.wantServices("jorc", "web")
	h.wantFile("good", "1")
	for name, state := range map[string]string{
		"good": web.TemplateRendered, "syntax": web.TemplateFailed, "absent": web.TemplateFailed,
		"waiting": web.TemplateWaiting, "refused": web.TemplateFailed, "gated": web.TemplateWaiting,
	} {
		h.wantTemplate(name, func(s web.Template) bool {
			return s.State == state && (s.Error != "") == (state == web.TemplateFailed) && (len(s.Waiting) > 0) == (state == web.TemplateWaiting)
		})
	}
	h.eventually("the check", func() error {
		for _, s := range h.agent.Status().Services {
			if s.ID == "web" && s.Registered && s.Checks[0].State == web.CheckPassing {
				return nil
			}
		}
		return fmt.Errorf("got %+v", h.agent.Status().Services)
	})

	// Each recovers by itself.
	h.write("absent.ctmpl", "here")
	h.wantFile("absent", "here")
	h.put("waiting", "2")
	h.wantFile("waiting", "2")
	err := h.client.RegisterService(t.Context(), &consul.ServiceRegistration{ID: "gate", Name: "gate", Port: 1, Address: h.server.IP})
	if err != nil {
		t.Fatal(err)
	}
	h.wantFile("gated", "x")
	if s := h.agent.Status(); s.Node != h.server.Node || s.Consul.Connections > s.Consul.MaxConnections || s.Unhealthy != "" {
		t.Errorf("got %+v", s)
	}
}

// TestConsulComesLater: an agent starts without Consul, says that it is ready,
// and catches up.
func TestConsulComesLater(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	s.Stop()
	h := newHost(t, s, `
service "web" { port = 80 }
template "t" {
  contents    = "{{ range service \"web|any\" }}{{ .Port }}{{ end }}"
  destination = "DIR/t"
}
`)
	h.start()
	h.eventually("READY=1", func() error { return contains(h.notified.String(), "READY=1") })
	h.eventually("what is wrong", func() error {
		s := h.agent.Status()
		if s.Consul.UnreachableSince.IsZero() || s.Templates[0].State != web.TemplateWaiting {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	s.RestartNoWait()
	h.wantServices("jorc", "web")
	h.wantFile("t", "80")
	if err := h.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := contains(h.notified.String(), "STOPPING=1"); err != nil {
		t.Error(err)
	}
	h.wantServices("jorc", "web") // on_stop is keep
}

func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q does not contain %q", text, part)
	}
	return nil
}

// TestAlone: a second agent on a state directory, and one whose port is taken,
// say so before they have done anything.
func TestAlone(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s, `service "web" { port = 80 }`)
	h.start()
	h.wantServices("jorc", "web")
	pid := fmt.Sprintf("pid %d", os.Getpid())
	second := h.make()
	for name, run := range map[string]func() error{
		"Run":    func() error { return second.Run(t.Context()) },
		"Once":   func() error { return second.Once(t.Context()) },
		"Render": func() error { _, err := second.Render(t.Context(), agent.RenderOnce, &buffer{}); return err },
	} {
		if err := run(); !errors.Is(err, durable.ErrLocked) || contains(err.Error(), pid) != nil {
			t.Errorf("%s: got %v, want that it is locked by %s", name, err, pid)
		}
	}

	l, err := net.Listen("tcp", s.IP+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other := newHost(t, s, fmt.Sprintf("http { address = %q }\nservice \"other\" { port = 81 }", l.Addr()))
	if err := other.make().Run(t.Context()); err == nil || contains(err.Error(), "status API on "+l.Addr().String()) != nil {
		t.Errorf("got %v, want that the address is taken", err)
	}
	h.wantServices("jorc", "web")
	other.configure(`service "other" { port = 81 }`)
	other.start() // the lock was given back
	h.wantServices("jorc", "web", "other")
}

// TestHold: the hold file stops replacements, its removal lets them continue.
func TestHold(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
`)
	h.put("k", "1")
	h.start()
	h.wantFile("t", "1")
	h.write("state/hold", "audit until noon\n")
	h.put("k", "2")
	h.wantTemplate("t", func(s web.Template) bool { return strings.Contains(s.Error, "audit until noon") })
	h.wantFile("t", "1")
	if got, want := h.agent.Status().Held, "held by the file "+h.path("state/hold")+": audit until noon"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Remove(h.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	h.wantFile("t", "2")
	h.wantTemplate("t", func(s web.Template) bool { return s.State == web.TemplateRendered && s.Error == "" })
}

// TestStopWhileReloading: a reload command that never ends does not keep the
// agent from ending; the next one makes it good.
func TestStopWhileReloading(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
template "t" {
  contents       = "{{ key \"k\" }}"
  destination    = "DIR/t"
  reload         = ["sh", "-c", "trap '' TERM; echo run >>DIR/runs; test -e DIR/quick || while :; do sleep 60; done"]
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
