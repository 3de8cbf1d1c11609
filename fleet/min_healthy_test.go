//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestMinHealthyWaitsForNoCycle: eight hosts take a run, a version and new content one after the other,
// each for a second in health before the next, under an orchestrator of which a cycle begins every hour
// where nothing happens: the end of that second begins the next host.
func TestMinHealthyWaitsForNoCycle(t *testing.T) {
	t.Parallel()
	var specs []fleettest.HostSpec
	for i := range 8 {
		conf := `
service "web" {
  port = 8080
  check {
    script   = ["true"]
    interval = "1s"
  }
}
template "limit" {
  contents    = "{{ key \"jorc/default/test/limit\" }}\n"
  destination = "$DIR/limit"
  stage "limit" {
    min_healthy = "1s"
  }
}
member { roles = ["web"] }
static { workflow = "converge" }
workflow "converge" {
  task "switch" {
    command    = ["true"]
    idempotent = true
  }
}
workflow "patch" {
  disturbs = true
  task "patch" {
    command    = ["true"]
    idempotent = true
  }
}
`
		specs = append(specs, fleettest.HostSpec{Name: fmt.Sprintf("web-%02d", i+1), Config: conf, Orchestrator: i == 0, Interval: "1h"})
	}
	f := fleettest.New(t, fleettest.Options{Hosts: specs, Before: func(f *fleettest.Fleet) {
		f.Put("test/limit", "first")
		for _, h := range f.Hosts {
			h.Write("limit", "first\n")
		}
	}})
	f.Jorc("update", "trigger", "v1").OK()
	allAt(f, "v1")
	measure := func(what string, begin func(), over func() error) {
		began := time.Now()
		begin()
		f.Eventually(what+" to be on all hosts", func(context.Context) error { return over() })
		t.Logf("%s on %d hosts, one after the other, each for a second in health: %.1f s", what, len(f.Hosts), time.Since(began).Seconds())
	}
	limits := []string{"--max-parallel", "1", "--min-healthy", "1s"}
	done := func(args ...string) error {
		var shown struct{ State string }
		if err := json.Unmarshal([]byte(f.Jorc(append(args, "-o", "json")...).OK()), &shown); err != nil || shown.State != "done" {
			return fmt.Errorf("%v: %q, %w", args, shown.State, err)
		}
		return nil
	}
	version := func(v string) func() error {
		return func() error {
			for _, h := range f.Hosts {
				if got := versionOf(f.Observer.Keys(), h.Name); got != v {
					return fmt.Errorf("%s runs %s", h.Name, got)
				}
			}
			return done("update", "show")
		}
	}
	stages := func(value string) func() error {
		return func() error {
			for _, h := range f.Hosts {
				if got := strings.TrimSpace(h.File("limit")); got != value {
					return fmt.Errorf("%s has %q", h.Name, got)
				}
			}
			if at := inStages(f.Observer.Keys()); len(at) > 0 {
				return fmt.Errorf("%v are at work", at)
			}
			return nil
		}
	}
	for _, budget := range []string{"", "1"} {
		suffix := ""
		if budget != "" {
			suffix = " with --max-out " + budget
			f.Jorc("cluster", "budget", "set", "--max-out", budget).OK()
		}
		id, v, value := "run"+budget, "v2"+budget, "second"+budget
		measure("a run"+suffix, func() {
			f.Jorc(append([]string{"cluster", "run", "patch", "--id", id}, limits...)...).OK()
		}, func() error { return done("cluster", "runs", id) })
		measure("a version"+suffix, func() { f.Jorc(append([]string{"update", "trigger", v}, limits...)...).OK() }, version(v))
		measure("new content"+suffix, func() { putLimit(f, value) }, stages(value))
	}
}
